//! When a store compacts itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use refstone_log::{Log, Seq};

use crate::compact::{CompactError, CompactOptions, Compacted, Compaction, Progress};
use crate::error::ReadError;
use crate::shelves::{Keep, Shelves};
use crate::state::State;

/// Transactions in the live log from which on a store compacts itself.
///
/// A compaction takes some tens of milliseconds, and commits go on meanwhile: the live log stays
/// below twice as many, which an open replays in some tens of milliseconds.
const FRAMES_MAX: u64 = 8192;

/// Bytes of the live log, the same.
const BYTES_MAX: u64 = 8 << 20;

/// When transactions leave the live log by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compacting {
    /// When the live log holds 8,192 transactions or 8 MiB, in a thread that ends when it is done.
    WhenDue(CompactOptions),
    /// Only when [`crate::RefStore::compact`] is called.
    ByHand,
}

impl Default for Compacting {
    fn default() -> Self {
        Compacting::WhenDue(CompactOptions::default())
    }
}

/// Keeps the live log short.
#[derive(Debug)]
pub struct Maintenance {
    inner: Arc<Inner>,
    /// The newest thread that was started.
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Inner {
    log: Log,
    state: Arc<State>,
    shelves: Shelves,
    compacting: Compacting,
    /// Held while files of history and tables are written.
    working: Mutex<()>,
    /// A thread is compacting, or about to.
    busy: AtomicBool,
    stopping: AtomicBool,
    /// The newest transaction that is no longer in the live log.
    sealed: AtomicU64,
    /// Before this transaction nothing is due: the last compaction failed.
    not_before: AtomicU64,
    totals: Mutex<Totals>,
}

/// What compactions did since the store was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Compactions that succeeded.
    pub compactions: u64,
    /// What they did, added up.
    pub done: Compacted,
    /// Why the last one failed, if it did.
    pub failure: Option<String>,
}

impl Drop for Maintenance {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Maintenance {
    pub(crate) fn new(
        log: Log,
        state: Arc<State>,
        shelves: Shelves,
        compacting: Compacting,
    ) -> Maintenance {
        let sealed = AtomicU64::new(log.anchor().seq.get());
        let inner = Inner {
            log,
            state,
            shelves,
            compacting,
            working: Mutex::default(),
            busy: AtomicBool::default(),
            stopping: AtomicBool::default(),
            sealed,
            not_before: AtomicU64::default(),
            totals: Mutex::default(),
        };
        Maintenance { inner: Arc::new(inner), thread: Mutex::default() }
    }

    /// What compactions did since the store was opened.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.inner.totals.lock().clone()
    }

    /// The newest transaction that is no longer in the live log.
    #[must_use]
    pub fn sealed_seq(&self) -> Seq {
        Seq::new(self.inner.sealed.load(Ordering::Relaxed))
    }

    /// Starts a compaction in a thread of its own if one is due. Costs a few loads if not.
    pub(crate) fn compact_if_due(&self) {
        let Compacting::WhenDue(options) = self.inner.compacting else { return };
        if !self.inner.is_due() || self.inner.busy.swap(true, Ordering::AcqRel) {
            return;
        }
        let busy = Busy(self.inner.clone());
        let compact = move || {
            let _ = busy.0.compact(options, &mut |_| ());
        };
        match thread::Builder::new().name("refstone-compact".to_owned()).spawn(compact) {
            Ok(thread) => *self.thread.lock() = Some(thread),
            Err(error) => self.inner.failed(format!("no thread could be started: {error}")),
        }
    }

    /// Whether the live log has become long.
    pub(crate) fn is_due(&self) -> bool {
        self.inner.is_due()
    }

    pub(crate) fn compact(
        &self,
        options: CompactOptions,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Compacted, CompactError> {
        self.inner.compact(options, progress)
    }

    pub(crate) fn rebuild(&self) -> Result<(), ReadError> {
        let inner = &self.inner;
        let _working = inner.working.lock();
        let reached = inner.state.snapshot().tables.clone();
        let Some(last) = reached.tables().last().map(|table| table.identity().clone()) else {
            return Ok(());
        };
        let anchor = refstone_log::Anchor { seq: last.last, crc: last.last_crc, at: last.last_at };
        let stop = || inner.stopping.load(Ordering::Acquire);
        let tables = inner.shelves.rebuild(anchor, Keep::Nothing, &stop)?;
        inner.state.tables_merged(Arc::new(tables));
        Ok(())
    }

    /// Has a compaction that runs end soon, and waits for it. None starts any more.
    pub(crate) fn stop(&self) {
        self.inner.stopping.store(true, Ordering::Release);
        drop(self.inner.working.lock());
        // It has a clone of the log: until it ends the log is not closed by dropping the store.
        let thread = self.thread.lock().take();
        thread.map(JoinHandle::join);
    }
}

/// A thread is compacting, until this is dropped.
struct Busy(Arc<Inner>);

impl Drop for Busy {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.failed("the thread panicked".to_owned());
        }
        self.0.busy.store(false, Ordering::Release);
    }
}

impl Inner {
    fn is_due(&self) -> bool {
        let written = self.log.written_seq().get();
        let frames = written.saturating_sub(self.sealed.load(Ordering::Relaxed));
        (frames >= FRAMES_MAX || (frames > 0 && self.log.live_bytes() >= BYTES_MAX))
            && written >= self.not_before.load(Ordering::Relaxed)
    }

    fn compact(
        &self,
        options: CompactOptions,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Compacted, CompactError> {
        let _working = self.working.lock();
        if self.stopping.load(Ordering::Acquire) {
            return Err(refstone_log::CommitError::Closed.into());
        }
        let compaction = Compaction {
            log: &self.log,
            state: &self.state,
            shelves: &self.shelves,
            options,
            stop: &|| self.stopping.load(Ordering::Acquire),
            progress,
            done: Compacted::default(),
        };
        let result = compaction.run();
        self.sealed.store(self.state.snapshot().tables.reaches().get(), Ordering::Relaxed);
        self.note(&result);
        result
    }

    fn note(&self, result: &Result<Compacted, CompactError>) {
        match result {
            Ok(done) => {
                let mut totals = self.totals.lock();
                totals.compactions += 1;
                totals.done.add(done);
                totals.failure = None;
            }
            Err(CompactError::Stopped) => {}
            Err(error) => self.failed(error.to_string()),
        }
    }

    fn failed(&self, why: String) {
        self.totals.lock().failure = Some(why);
        self.put_off();
    }

    /// Not again before as many transactions have come as make one due.
    fn put_off(&self) {
        self.not_before.store(self.log.written_seq().get() + FRAMES_MAX, Ordering::Relaxed);
    }
}
