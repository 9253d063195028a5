//! Who waits for which sync: one leader at a time, everybody else covered by it.
//!
//! A waiter whose sequence is not durable either becomes the leader or sleeps until the leader is
//! done. The leader runs one round ([`Round::lead`]): it takes everything staged, writes it in
//! one call, syncs once, publishes. So one sync covers all that had staged before the round.
//!
//! The gate holds a duplicate of the log's descriptor and is the only place that syncs the log. A
//! duplicate shares the kernel's error cursor: were there a second syncer, it could swallow the
//! error that the first one had to see. After one failed sync the gate is poisoned for good.

use std::io;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::env::EnvFile;
use crate::error::CommitError;
use crate::seq::Seq;

/// The work of one leader.
pub(crate) trait Round {
    /// Takes what is staged and makes it durable. Called by one thread at a time.
    fn lead(&self) -> Outcome;
}

/// How a round ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// All up to this sequence is durable and published.
    Durable(Seq),
    /// The write failed and was undone: all staged after this sequence did not happen.
    RolledBack { to: Seq, cause: Arc<str> },
    /// The log must stop. Up to `durable` all is durable; up to `attempted` it is unknown.
    Poisoned { durable: Seq, attempted: Seq, cause: Arc<str> },
}

/// What a waiter waits for: a sequence of one generation.
///
/// A failed write ends a generation. The sequences it had staged are taken again by the next, so
/// a sequence alone does not say which transaction is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) seq: Seq,
    pub(crate) generation: u64,
}

/// Why the log stopped, and from where on nothing is known.
#[derive(Clone, Debug)]
struct Poison {
    attempted: Seq,
    cause: Arc<str>,
}

/// The end of a generation: what it had staged after `to` did not happen.
#[derive(Debug)]
struct Rollback {
    to: Seq,
    cause: Arc<str>,
}

#[derive(Debug, Default)]
struct State {
    leading: bool,
    /// One entry per ended generation. Writes into reserved space fail so rarely that the list
    /// stays short.
    rollbacks: Vec<Rollback>,
}

/// Lets one leader's sync cover everybody waiting.
#[derive(Debug)]
pub struct SyncGate {
    file: Box<dyn EnvFile>,
    state: Mutex<State>,
    changed: Condvar,
    durable: AtomicU64,
    written: AtomicU64,
    generation: AtomicU64,
    poison: OnceLock<Poison>,
    syncs: AtomicU64,
    sync_nanos: AtomicU64,
}

impl SyncGate {
    /// A gate over a duplicate of the log's descriptor, where all up to `durable` is durable.
    pub(crate) fn new(file: Box<dyn EnvFile>, durable: Seq) -> SyncGate {
        SyncGate {
            file,
            state: Mutex::default(),
            changed: Condvar::new(),
            durable: AtomicU64::new(durable.get()),
            written: AtomicU64::new(durable.get()),
            generation: AtomicU64::new(0),
            poison: OnceLock::new(),
            syncs: AtomicU64::new(0),
            sync_nanos: AtomicU64::new(0),
        }
    }

    /// The newest sequence that a completed sync covers.
    #[must_use]
    pub fn durable_seq(&self) -> Seq {
        Seq::new(self.durable.load(Ordering::Acquire))
    }

    /// The newest sequence that was handed to the kernel.
    #[must_use]
    pub fn written_seq(&self) -> Seq {
        Seq::new(self.written.load(Ordering::Acquire))
    }

    /// How many times this gate synced the log since it was opened.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// Nanoseconds spent in those syncs.
    #[must_use]
    pub fn sync_nanos(&self) -> u64 {
        self.sync_nanos.load(Ordering::Relaxed)
    }

    /// Keeps everybody from leading until the hold is dropped; appends go on staging.
    ///
    /// Waits for a round in flight. What stages meanwhile is one group afterwards.
    pub fn hold(&self) -> Hold<'_> {
        let mut state = self.state.lock();
        while state.leading {
            self.changed.wait(&mut state);
        }
        state.leading = true;
        Hold { gate: self }
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The error every append gets once the log has stopped.
    pub(crate) fn check(&self) -> Result<(), CommitError> {
        match self.poison.get() {
            None => Ok(()),
            Some(poison) => Err(CommitError::Poisoned { cause: poison.cause.clone() }),
        }
    }

    /// Stops the log from outside a round; what is under way is of unknown outcome.
    pub(crate) fn stop(&self, cause: &str) {
        let state = self.state.lock();
        let attempted = Seq::new(u64::MAX);
        let _first_cause_stays = self.poison.set(Poison { attempted, cause: cause.into() });
        drop(state);
        self.changed.notify_all();
    }

    pub(crate) fn note_written(&self, seq: Seq) {
        self.written.store(seq.get(), Ordering::Release);
    }

    /// Syncs the log. Only the leader calls this.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let start = Instant::now();
        let result = self.file.sync_data();
        let nanos = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.sync_nanos.fetch_add(nanos, Ordering::Relaxed);
        self.syncs.fetch_add(1, Ordering::Relaxed);
        result
    }

    /// Returns once the ticket's sequence is durable, leading rounds as long as nobody else does.
    pub(crate) fn barrier(&self, ticket: Ticket, round: &dyn Round) -> Result<(), CommitError> {
        loop {
            if self.is_durable(ticket) {
                return Ok(());
            }
            let mut state = self.state.lock();
            if let Some(fate) = self.fate(ticket, &state) {
                return fate;
            }
            if state.leading {
                self.changed.wait(&mut state);
                continue;
            }
            state.leading = true;
            drop(state);
            self.lead(round);
        }
    }

    /// The answer that needs no lock, and is the usual one of a follower.
    ///
    /// The order matters: a generation ends before its sequences are given out again, so whoever
    /// sees the second use of a sequence durable also sees that the generation has ended.
    fn is_durable(&self, ticket: Ticket) -> bool {
        self.durable_seq() >= ticket.seq && self.generation() == ticket.generation
    }

    /// What became of a ticket; `None` while it is open.
    fn fate(&self, ticket: Ticket, state: &State) -> Option<Result<(), CommitError>> {
        let index = usize::try_from(ticket.generation).unwrap_or(usize::MAX);
        if let Some(rollback) = state.rollbacks.get(index) {
            if ticket.seq <= rollback.to {
                return Some(Ok(()));
            }
            return Some(Err(CommitError::NotCommitted { cause: rollback.cause.clone() }));
        }
        if self.durable_seq() >= ticket.seq {
            return Some(Ok(()));
        }
        let Poison { attempted, cause } = self.poison.get()?.clone();
        Some(Err(if ticket.seq <= attempted {
            CommitError::Unknown { cause }
        } else {
            CommitError::Poisoned { cause }
        }))
    }

    fn lead(&self, round: &dyn Round) {
        let mut end = EndOfRound { gate: self, outcome: None };
        end.outcome = Some(round.lead());
    }

    fn finish(&self, outcome: Outcome) {
        let mut state = self.state.lock();
        match outcome {
            Outcome::Durable(seq) => self.durable.store(seq.get(), Ordering::Release),
            Outcome::RolledBack { to, cause } => state.rollbacks.push(Rollback { to, cause }),
            Outcome::Poisoned { durable, attempted, cause } => {
                self.durable.store(durable.get(), Ordering::Release);
                let _first_cause_stays = self.poison.set(Poison { attempted, cause });
            }
        }
        state.leading = false;
        self.changed.notify_all();
    }

    /// Ends a generation. Called under the writer mutex, before a sequence is given out again.
    pub(crate) fn end_generation(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}

/// Ends the leader's round even if it panics: then nobody knows what reached the disk.
struct EndOfRound<'a> {
    gate: &'a SyncGate,
    outcome: Option<Outcome>,
}

impl Drop for EndOfRound<'_> {
    fn drop(&mut self) {
        let outcome = self.outcome.take().unwrap_or_else(|| Outcome::Poisoned {
            durable: self.gate.durable_seq(),
            attempted: Seq::new(u64::MAX),
            cause: "the thread that led the commit panicked".into(),
        });
        self.gate.finish(outcome);
    }
}

/// Leadership without a round; see [`SyncGate::hold`].
#[derive(Debug)]
#[must_use = "the gate opens when the hold is dropped"]
pub struct Hold<'a> {
    gate: &'a SyncGate,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.gate.state.lock().leading = false;
        self.gate.changed.notify_all();
    }
}
