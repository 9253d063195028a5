//! Staging a transaction, and waiting for what becomes of it.

use std::pin::Pin;
use std::task::{Context, Poll};

use crate::error::{AppendError, CommitError};
use crate::gate::{NeedsLeader, Ticket};
use crate::kind::Rows;
use crate::log::{Inner, Log};
use crate::pool;
use crate::sabotage::{self, Sabotage};
use crate::seq::Seq;
use crate::writer::Writer;

/// The writer's side of the log, under its mutex. See [`Log::append_with`].
#[derive(Debug)]
pub struct Stage<'a> {
    pub(crate) log: &'a Log,
    pub(crate) writer: &'a mut Writer,
}

impl Stage<'_> {
    /// Stages one transaction: one frame, all or nothing.
    ///
    /// # Errors
    /// If the rows cannot be written or there is no space: nothing was staged, no sequence spent.
    pub fn append<R: Rows + ?Sized>(&mut self, rows: &R) -> Result<Commit, AppendError> {
        let inner = &self.log.inner;
        if self.writer.live.is_at_rest() {
            inner.wake(self.writer)?;
        }
        let now = inner.env.now();
        let seq = self.writer.stage(rows, now, inner.gate.durable_seq())?;
        if self.writer.has_awaited() == Some(true) {
            inner.gathered.notify_one();
        }
        Ok(self.commit(seq))
    }

    /// A commit of nothing new, that waits until `seq` is durable.
    ///
    /// For an answer that rests on what was staged: it may be given once that is durable, and
    /// must not be given if that fails.
    ///
    /// A sequence that was not given out yet counts as the newest that was.
    pub fn covering(&self, seq: Seq) -> Commit {
        if sabotage::is(Sabotage::AnswerAtOnce) {
            return self.commit(Seq::ZERO);
        }
        self.commit(seq.min(self.writer.tail.seq))
    }

    fn commit(&self, seq: Seq) -> Commit {
        let generation = self.log.inner.gate.generation();
        Commit { log: self.log.clone(), ticket: Ticket { seq, generation }, task: None }
    }

    /// The sequence that the next transaction gets.
    #[must_use]
    pub fn next_seq(&self) -> Seq {
        self.writer.tail.seq.next()
    }
}

/// A staged transaction. Only waiting on it yields the acknowledgement and the sequence.
///
/// Wait with [`wait`](Commit::wait) from a thread, or `.await` it: the two are the same promise.
/// Dropping it neither cancels nor delays: it stays staged for the next leader, or for close.
#[derive(Debug)]
#[must_use = "a transaction is not durable before `wait` returns"]
pub struct Commit {
    log: Log,
    ticket: Ticket,
    /// Its number at the gate, once it was polled.
    task: Option<u64>,
}

impl Commit {
    /// Waits until the transaction is durable: frame, file name and directory are on stable
    /// storage. (In a [`Buffered`](crate::Mode::Buffered) log: until the kernel has it.)
    ///
    /// # Errors
    /// [`NotCommitted`](CommitError::NotCommitted): it did not happen.
    /// [`Unknown`](CommitError::Unknown): reopen the log to learn whether it did.
    /// [`Poisoned`](CommitError::Poisoned): an earlier failure stopped the log; it did not happen.
    /// [`Reentered`](CommitError::Reentered): this thread runs code of an [`Observer`](crate::Observer) or of
    /// [`append_with`](Log::append_with); the transaction stays staged.
    pub fn wait(self) -> Result<Ack, CommitError> {
        let inner: &Inner = &self.log.inner;
        inner.refuse_to_wait("wait for a commit")?;
        match inner.gate.barrier(self.ticket, inner) {
            Err(error) if !sabotage::is(Sabotage::DropBarrierResult) => Err(error),
            _ => Ok(Ack { seq: self.ticket.seq }),
        }
    }
}

/// Ready when the transaction is durable, or never will be. A thread of a small process-wide pool
/// leads for all that are polled, so a task that is slow, or dropped, holds up nobody.
impl Future for Commit {
    type Output = Result<Ack, CommitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let inner = &this.log.inner;
        let (answer, needs_leader) = inner.gate.poll(this.ticket, &mut this.task, context);
        if needs_leader == NeedsLeader::Yes {
            pool::lead(inner.clone());
        }
        answer.map_ok(|()| Ack { seq: this.ticket.seq })
    }
}

impl Drop for Commit {
    fn drop(&mut self) {
        if let Some(task) = self.task {
            self.log.inner.gate.forget_task(task);
        }
    }
}

/// Proof that a transaction is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    seq: Seq,
}

impl Ack {
    /// The transaction's sequence.
    #[must_use]
    pub fn seq(self) -> Seq {
        self.seq
    }
}
