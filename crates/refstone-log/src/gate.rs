//! Who waits for which sync: one leader at a time, everybody else covered by it.
//!
//! A waiter whose sequence is not durable either becomes the leader or sleeps until the leader is
//! done. The leader runs one round ([`Round::lead`]): it takes everything staged, writes it in
//! one call, syncs once, publishes. So one sync covers all that had staged before the round.
//!
//! The gate holds a duplicate of the log's descriptor and is the only place that syncs the log. A
//! duplicate shares the kernel's error cursor: were there a second syncer, it could swallow the
//! error that the first one had to see. After one failed sync the gate is poisoned for good.

use std::collections::BTreeMap;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::env::EnvFile;
use crate::error::CommitError;
use crate::gather::{Gather, Gathering};
use crate::sabotage::{self, Sabotage};
use crate::seq::Seq;
use crate::sleepers::{Beds, Covered, Place, Sleepers, Woken};
use crate::sync::{AtomicU64, Condvar, Mutex, Ordering};

/// The work of one leader.
pub(crate) trait Round {
    /// Takes what is staged and makes it durable. Called by one thread at a time.
    fn lead(&self) -> Outcome;

    /// How many transactions are staged and not yet taken.
    fn staged(&self) -> usize;

    /// Waits until so many are staged, or the deadline.
    fn wait_staged(&self, wanted: usize, deadline: Instant);
}

/// How a round ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// All up to this sequence has crossed the boundary that the log's mode names.
    Acknowledged(Seq),
    /// The write failed and was undone: all staged after this sequence did not happen.
    RolledBack { to: Seq, cause: Arc<str> },
    /// The log must stop. Up to `acknowledged` all is well; up to `attempted` it is unknown.
    Poisoned { acknowledged: Seq, attempted: Seq, cause: Arc<str> },
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

/// A task that is polled again when its ticket has a fate. It never leads: a task may be dropped
/// or left unpolled at any moment, and everybody would wait for it.
#[derive(Debug)]
struct Task {
    ticket: Ticket,
    waker: Waker,
}

#[derive(Debug, Default)]
struct State {
    leading: bool,
    /// Threads that want the leadership without a round; they go before the next leader.
    holders: usize,
    sleepers: Sleepers,
    /// By number, so in the order in which they came.
    tasks: BTreeMap<u64, Task>,
    /// The number of the last task.
    last_task: u64,
    /// Whether a thread of the pool leads, or is about to lead, for the tasks.
    led_by_pool: bool,
    gather: Gather,
    /// One entry per ended generation. Writes into reserved space fail so rarely that the list
    /// stays short.
    rollbacks: Vec<Rollback>,
    /// The last rollback, until a barrier has told of it.
    withdrawn: Option<Arc<str>>,
}

/// Lets one leader's sync cover everybody waiting.
#[derive(Debug)]
pub struct SyncGate {
    /// `None` while the log is at rest.
    file: Mutex<Option<Box<dyn EnvFile>>>,
    state: Mutex<State>,
    beds: Beds,
    /// The last sequence that the round under way has taken; `u64::MAX` while it takes all that is
    /// staged.
    taken: AtomicU64,
    /// Signalled for holders when nobody leads.
    idle: Condvar,
    /// What waiters wait for: the boundary that the log's mode names.
    acknowledged: AtomicU64,
    durable: AtomicU64,
    written: AtomicU64,
    generation: AtomicU64,
    poison: OnceLock<Poison>,
    syncs: AtomicU64,
    sync_nanos: AtomicU64,
    last_sync_nanos: AtomicU64,
}

impl SyncGate {
    /// A gate over a duplicate of the log's descriptor, if the log is awake, where all up to `durable`
    /// is durable.
    pub(crate) fn new(file: Option<Box<dyn EnvFile>>, durable: Seq) -> SyncGate {
        SyncGate {
            file: Mutex::new(file),
            state: Mutex::default(),
            beds: Beds::default(),
            taken: AtomicU64::new(u64::MAX),
            idle: Condvar::new(),
            acknowledged: AtomicU64::new(durable.get()),
            durable: AtomicU64::new(durable.get()),
            written: AtomicU64::new(durable.get()),
            generation: AtomicU64::new(0),
            poison: OnceLock::new(),
            syncs: AtomicU64::new(0),
            sync_nanos: AtomicU64::new(0),
            last_sync_nanos: AtomicU64::new(0),
        }
    }

    /// The newest sequence that a completed sync covers.
    #[must_use]
    pub fn durable_seq(&self) -> Seq {
        Seq::new(self.durable.load(Ordering::Acquire))
    }

    pub(crate) fn acknowledged_seq(&self) -> Seq {
        Seq::new(self.acknowledged.load(Ordering::Acquire))
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

    /// Whether a leader waits a moment for those it expects back; see [`Gathering`].
    pub fn set_gathering(&self, gathering: Gathering) {
        self.state.lock().gather.set(gathering);
    }

    /// Keeps everybody from leading until the hold is dropped; appends go on staging.
    ///
    /// Waits for a round in flight, and goes before the next. What stages meanwhile is one group
    /// afterwards. Whoever has the hold must not wait for a commit, or close the log.
    pub fn hold(&self) -> Hold<'_> {
        let mut state = self.state.lock();
        state.holders += 1;
        while state.leading {
            self.idle.wait(&mut state);
        }
        state.holders -= 1;
        state.leading = true;
        Hold { gate: self }
    }

    /// The same, if nobody leads or waits for the hold.
    pub(crate) fn try_hold(&self) -> Option<Hold<'_>> {
        let mut state = self.state.lock();
        if state.leading || state.holders > 0 {
            return None;
        }
        state.leading = true;
        Some(Hold { gate: self })
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

    /// Stops the log if the code until the guard is [dismissed](StopOnPanic::dismiss) panics.
    pub(crate) fn stop_on_panic(&self, cause: &'static str) -> StopOnPanic<'_> {
        StopOnPanic { gate: self, cause }
    }

    /// Stops the log from outside a round; up to `attempted` the outcome is unknown.
    pub(crate) fn stop(&self, cause: &str, attempted: Seq) {
        let mut state = self.state.lock();
        let _first_cause_stays = self.poison.set(Poison { attempted, cause: cause.into() });
        let woken = state.sleepers.end_all();
        let tasks = self.decided_tasks(&mut state);
        drop(state);
        woken.wake(&self.beds);
        wake_tasks(tasks);
    }

    fn note_acknowledged(&self, seq: Seq) {
        self.acknowledged.store(seq.get(), Ordering::Release);
    }

    pub(crate) fn note_durable(&self, seq: Seq) {
        self.durable.store(seq.get(), Ordering::Release);
    }

    pub(crate) fn note_written(&self, seq: Seq) {
        self.written.store(seq.get(), Ordering::Release);
    }

    /// Notes what the round under way has taken. Only the leader calls this.
    pub(crate) fn note_taken(&self, seq: Seq) {
        self.taken.store(seq.get(), Ordering::Release);
    }

    /// Goes on with another file. Only who has the leadership calls this.
    pub(crate) fn rebind(&self, file: Box<dyn EnvFile>) {
        if !sabotage::is(Sabotage::SkipGateRebind) {
            *self.file.lock() = Some(file);
        }
    }

    /// Lets go of the file, or takes up that of a log that wakes. Only who has the writer mutex and,
    /// to let go, the leadership, calls this.
    pub(crate) fn set_file(&self, file: Option<Box<dyn EnvFile>>) {
        *self.file.lock() = file;
    }

    /// Syncs the log. Only the leader calls this.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let start = Instant::now();
        let result = sabotage::sync(|| match &*self.file.lock() {
            Some(file) => file.sync_data(),
            None => Err(io::Error::other("the log is at rest")),
        });
        let nanos = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.sync_nanos.fetch_add(nanos, Ordering::Relaxed);
        self.last_sync_nanos.store(nanos, Ordering::Relaxed);
        self.syncs.fetch_add(1, Ordering::Relaxed);
        result
    }

    /// Returns once the ticket's sequence is acknowledged, leading rounds as long as nobody else does.
    pub(crate) fn barrier(&self, ticket: Ticket, round: &dyn Round) -> Result<(), CommitError> {
        let mut place: Option<Place> = None;
        loop {
            if self.is_acknowledged(ticket) {
                return Ok(());
            }
            let mut state = self.state.lock();
            if let Some(fate) = self.fate(ticket, &state) {
                return fate;
            }
            if let Some(place) = place.take() {
                state.sleepers.leave(&place);
            }
            if !state.leading && state.holders == 0 {
                state.leading = true;
                drop(state);
                self.lead(round);
                continue;
            }
            let covered = self.covered(ticket);
            let place = place.insert(state.sleepers.enter(&self.beds, covered));
            drop(state);
            self.beds.sleep(place);
        }
    }

    /// Which round covers a ticket: the one under way, unless it has taken its group before. Who asks
    /// while it takes its group may hear of this one by mistake, and is then woken for nothing.
    fn covered(&self, ticket: Ticket) -> Covered {
        match ticket.seq.get() <= self.taken.load(Ordering::Acquire) {
            true => Covered::ByThisRound,
            false => Covered::ByTheNext,
        }
    }

    /// What a barrier has to tell beside its own ticket: that something of unknown outcome is before
    /// it, or that something was withdrawn since the last barrier, which its waiter may have
    /// dropped.
    pub(crate) fn untold(&self) -> Result<(), CommitError> {
        let withdrawn = self.state.lock().withdrawn.take();
        match (self.poison.get(), withdrawn) {
            (Some(poison), _) if poison.attempted > self.acknowledged_seq() => {
                Err(CommitError::Unknown { cause: poison.cause.clone() })
            }
            (_, Some(cause)) => Err(CommitError::NotCommitted { cause }),
            _ => Ok(()),
        }
    }

    /// As [`barrier`](SyncGate::barrier), for a task: answers, or has it woken when there is an
    /// answer. `id` names the task from poll to poll.
    ///
    /// Also says whether a thread must be found that [leads for the tasks](SyncGate::lead_for_tasks).
    pub(crate) fn poll(
        &self,
        ticket: Ticket,
        id: &mut Option<u64>,
        context: &Context<'_>,
    ) -> (Poll<Result<(), CommitError>>, NeedsLeader) {
        // A waker is foreign code: it is cloned and dropped outside the lock.
        let waker = context.waker().clone();
        let mut state = self.state.lock();
        if let Some(fate) = self.fate(ticket, &state) {
            // Its task, if it had one, was taken out when the fate was decided.
            *id = None;
            return (Poll::Ready(fate), NeedsLeader::No);
        }
        let replaced = state.register(ticket, id, waker);
        let led = std::mem::replace(&mut state.led_by_pool, true);
        drop(state);
        drop(replaced);
        (Poll::Pending, if led { NeedsLeader::No } else { NeedsLeader::Yes })
    }

    /// Forgets a task that is no longer polled.
    pub(crate) fn forget_task(&self, id: u64) {
        let mut state = self.state.lock();
        let forgotten = state.tasks.remove(&id);
        drop(state);
        drop(forgotten);
    }

    /// Leads, or waits for leaders, until no task waits.
    pub(crate) fn lead_for_tasks(&self, round: &dyn Round) {
        loop {
            let ticket = {
                let mut state = self.state.lock();
                let Some((_, task)) = state.tasks.last_key_value() else {
                    state.led_by_pool = false;
                    return;
                };
                task.ticket
            };
            // The outcome reaches the tasks through their own polls.
            let _ = self.barrier(ticket, round);
        }
    }

    /// Notes that nobody leads for the tasks any more.
    pub(crate) fn leave_tasks(&self) {
        self.state.lock().led_by_pool = false;
    }

    /// The answer that needs no lock, and is the usual one of a follower.
    ///
    /// The order matters: a generation ends before its sequences are given out again, so whoever
    /// sees the second use of a sequence acknowledged also sees that the generation has ended.
    fn is_acknowledged(&self, ticket: Ticket) -> bool {
        let covered = self.acknowledged_seq() >= ticket.seq;
        let of_now = self.generation() == ticket.generation;
        covered != sabotage::is(Sabotage::InvertWatermark)
            && (of_now || sabotage::is(Sabotage::IgnoreGeneration))
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
        if self.acknowledged_seq() >= ticket.seq {
            return Some(Ok(()));
        }
        let Poison { attempted, cause } = self.poison.get()?.clone();
        Some(Err(if ticket.seq <= attempted {
            CommitError::Unknown { cause }
        } else {
            CommitError::Poisoned { cause }
        }))
    }

    /// Runs one round. The writer mutex comes before the gate's state, so what is staged is looked
    /// at before the state is locked.
    fn lead(&self, round: &dyn Round) {
        let staged = round.staged();
        let wait = self.state.lock().gather.plan(staged, Instant::now());
        let mut end = EndOfRound { gate: self, outcome: None, staged: 0 };
        if let Some(wait) = wait {
            round.wait_staged(wait.wanted, Instant::now() + wait.at_most);
        }
        end.outcome = Some(round.lead());
        end.staged = round.staged();
    }

    /// Records the outcome, wakes all whose fate it decides, and hands over the leadership.
    fn finish(&self, outcome: Outcome, staged: usize) {
        let mut state = self.state.lock();
        let woken = self.record(outcome, &mut state);
        let tasks = self.decided_tasks(&mut state);
        let sync = Duration::from_nanos(self.last_sync_nanos.load(Ordering::Relaxed));
        // The leader itself is released too.
        state.gather.end_round(woken.threads + tasks.len() + 1, staged, sync, Instant::now());
        let woken = woken.with_heir(self.hand_over(&mut state));
        drop(state);
        woken.wake(&self.beds);
        wake_tasks(tasks);
    }

    /// Notes an outcome, and says which threads it concerns: all those behind the round too, if it
    /// failed.
    fn record(&self, outcome: Outcome, state: &mut State) -> Woken {
        match outcome {
            Outcome::Acknowledged(seq) => {
                self.note_acknowledged(seq);
                return state.sleepers.end_round();
            }
            Outcome::RolledBack { to, cause } => {
                state.withdrawn = Some(cause.clone());
                state.rollbacks.push(Rollback { to, cause });
            }
            Outcome::Poisoned { acknowledged, attempted, cause } => {
                self.note_acknowledged(acknowledged);
                let _first_cause_stays = self.poison.set(Poison { attempted, cause });
            }
        }
        state.sleepers.end_all()
    }

    /// Takes the tasks whose fate is decided, in the order in which they came.
    fn decided_tasks(&self, state: &mut State) -> Vec<Task> {
        let tasks = std::mem::take(&mut state.tasks);
        let decided = |task: &Task| self.fate(task.ticket, state).is_some();
        let (decided, open) = tasks.into_iter().partition::<BTreeMap<_, _>, _>(|(_, t)| decided(t));
        state.tasks = open;
        if sabotage::is(Sabotage::LoseWakeUp) {
            return Vec::new();
        }
        decided.into_values().collect()
    }

    /// Ends a leadership: a holder goes first, else a thread that sleeps for the next round, which
    /// is then to be woken.
    fn hand_over(&self, state: &mut State) -> Option<u64> {
        state.leading = false;
        // Under the lock: who comes now sleeps for a round that has yet to take its group.
        self.taken.store(u64::MAX, Ordering::Release);
        if state.holders > 0 {
            self.idle.notify_one();
            return None;
        }
        state.sleepers.heir()
    }

    /// Ends a generation. Called under the writer mutex, before a sequence is given out again.
    pub(crate) fn end_generation(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}

impl State {
    /// Notes a task, or its newest waker; returns the waker that this replaces.
    fn register(&mut self, ticket: Ticket, id: &mut Option<u64>, waker: Waker) -> Option<Waker> {
        if let Some(task) = id.and_then(|id| self.tasks.get_mut(&id)) {
            return Some(std::mem::replace(&mut task.waker, waker));
        }
        self.last_task += 1;
        *id = Some(self.last_task);
        self.tasks.insert(self.last_task, Task { ticket, waker });
        None
    }
}

/// Wakes all tasks, also behind one whose waker panics; that panic goes on afterwards, unless this
/// thread is panicking already.
fn wake_tasks(tasks: Vec<Task>) {
    let wake = |task: Task| std::panic::catch_unwind(AssertUnwindSafe(|| task.waker.wake()));
    let panics: Vec<_> = tasks.into_iter().filter_map(|task| wake(task).err()).collect();
    if let Some(panic) = panics.into_iter().next()
        && !std::thread::panicking()
    {
        std::panic::resume_unwind(panic);
    }
}

/// Whether somebody must be found who leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NeedsLeader {
    Yes,
    No,
}

/// Ends the leader's round even if it panics: then nobody knows what reached the disk.
struct EndOfRound<'a> {
    gate: &'a SyncGate,
    outcome: Option<Outcome>,
    /// What had staged during the round.
    staged: usize,
}

impl Drop for EndOfRound<'_> {
    fn drop(&mut self) {
        let outcome = self.outcome.take().unwrap_or_else(|| match self.gate.written_seq() {
            written if sabotage::is(Sabotage::PanicIsSuccess) => Outcome::Acknowledged(written),
            _ => Outcome::Poisoned {
                acknowledged: self.gate.acknowledged_seq(),
                attempted: Seq::new(u64::MAX),
                cause: "the thread that led the commit panicked".into(),
            },
        });
        self.gate.finish(outcome, self.staged);
    }
}

/// Stops the log when dropped: nobody knows what the code that panicked had done.
#[must_use]
pub(crate) struct StopOnPanic<'a> {
    gate: &'a SyncGate,
    cause: &'static str,
}

impl StopOnPanic<'_> {
    pub(crate) fn dismiss(self) {
        std::mem::forget(self);
    }
}

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        self.gate.stop(self.cause, Seq::new(u64::MAX));
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
        let heir = self.gate.hand_over(&mut self.gate.state.lock());
        Woken::default().with_heir(heir).wake(&self.gate.beds);
    }
}
