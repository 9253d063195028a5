//! When a store compacts itself.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};

use parking_lot::{Mutex, ReentrantMutex};
use refstone_log::{CommitError, ErrorKind, Log, Seq};

use crate::compact::{CompactError, CompactOptions, Compacted, Compaction};
use crate::error::ReadError;
use crate::progress::{Progress, paced};
use crate::shelves::{Keep, Shelves};
use crate::state::State;
use crate::stop::Stop;
use crate::table::Table;

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
    /// Held while files of history and tables are written. Who has it already does not take it again:
    /// it knows its owner only so that one who calls back from within is refused, and does not wait.
    working: ReentrantMutex<()>,
    /// A thread is compacting, or about to.
    busy: AtomicBool,
    stopping: AtomicBool,
    /// The newest transaction that is no longer in the live log.
    sealed: AtomicU64,
    /// Before this transaction, and before the live log has so many bytes, nothing is due: the last
    /// compaction failed.
    not_before: (AtomicU64, AtomicU64),
    /// Files that end here or before are not merged: one of them is damaged.
    merge_behind: AtomicU64,
    /// Merged tables that could not be held open, while older views may read them.
    unheld: Mutex<Vec<Weak<Table>>>,
    totals: Mutex<Totals>,
}

/// What compactions did since the store was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Compactions that sealed what there was.
    pub compactions: u64,
    /// What they did, added up.
    pub done: Compacted,
    /// Why the last one failed, if it did: transactions stay in the live log, which grows.
    pub failure: Option<String>,
    /// Why some files are not merged, if so: transactions are sealed all the same, and files that are
    /// newer are merged. A compaction by hand tries all of them again.
    pub merge_failure: Option<String>,
}

impl Drop for Maintenance {
    fn drop(&mut self) {
        // No code of others has the store here: that would have been a handle.
        let _ = self.stop();
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
            working: ReentrantMutex::default(),
            busy: AtomicBool::default(),
            stopping: AtomicBool::default(),
            sealed,
            not_before: <(AtomicU64, AtomicU64)>::default(),
            merge_behind: AtomicU64::default(),
            unheld: Mutex::default(),
            totals: Mutex::default(),
        };
        Maintenance { inner: Arc::new(inner), thread: Mutex::default() }
    }

    pub(crate) fn shelves(&self) -> &Shelves {
        &self.inner.shelves
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
        self.inner.refuse_within("compact the store")?;
        // Whoever asks by hand may have restored what was damaged.
        self.inner.merge_behind.store(0, Ordering::Relaxed);
        self.inner.compact(options, progress)
    }

    pub(crate) fn rebuild(&self, progress: &mut dyn FnMut(Progress)) -> Result<(), ReadError> {
        let inner = &self.inner;
        let within = |error: CommitError| ReadError::because(error.kind(), error.to_string());
        inner.refuse_within("rebuild tables").map_err(within)?;
        let stop = || inner.stopping.load(Ordering::Acquire);
        inner.rebuild(Stop::when(&stop), progress)
    }

    /// Has a compaction that runs end with its batch of rows, and waits for that. None starts any more.
    pub(crate) fn stop(&self) -> Result<(), CommitError> {
        self.inner.refuse_within("close the store")?;
        self.inner.stopping.store(true, Ordering::Release);
        drop(self.inner.working.lock());
        // It has a clone of the log: until it ends the log is not closed by dropping the store.
        let thread = self.thread.lock().take();
        thread.map(JoinHandle::join);
        self.inner.hold_tables();
        Ok(())
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
        let bytes = self.log.live_bytes();
        let (seq, len) = &self.not_before;
        (frames >= FRAMES_MAX || (frames > 0 && bytes >= BYTES_MAX))
            && (written >= seq.load(Ordering::Relaxed) || bytes >= len.load(Ordering::Relaxed))
    }

    /// Whoever opens the store next merges and removes tables, which a view may outlive.
    fn hold_tables(&self) {
        for table in self.state.snapshot().tables.tables() {
            // Where there is no descriptor left, such a view is told of a missing file.
            let _ = table.hold();
        }
    }

    /// Refuses what waits for the work in the thread that does it: it runs code of others there.
    fn refuse_within(&self, operation: &'static str) -> Result<(), CommitError> {
        match self.working.is_owned_by_current_thread() {
            true => Err(CommitError::Reentered { operation }),
            false => Ok(()),
        }
    }

    fn rebuild(&self, stop: Stop<'_>, progress: &mut dyn FnMut(Progress)) -> Result<(), ReadError> {
        let _working = self.working.lock();
        let reached = self.state.snapshot().tables.clone();
        let Some(last) = reached.tables().last().map(|table| table.identity().clone()) else {
            return Ok(());
        };
        let anchor = refstone_log::Anchor { seq: last.last, crc: last.last_crc, at: last.last_at };
        // Other files get their names. One that is missing is why somebody rebuilds.
        for table in reached.tables() {
            match table.hold().map_err(ReadError::from) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let of = 2 * reached.tables().iter().map(|table| table.history_rows()).sum::<u64>();
        let tell = |done| progress(Progress::Rebuilding { done, of });
        let tables =
            paced(stop, of, tell, |stop| self.shelves.rebuild(anchor, Keep::Nothing, stop))?;
        self.state.tables_merged(Arc::new(tables));
        self.merge_behind.store(0, Ordering::Relaxed);
        Ok(())
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
        let stopping = || self.stopping.load(Ordering::Acquire);
        let result = self.compaction(options, Stop::when(&stopping), progress).run();
        self.sealed.store(self.state.snapshot().tables.reaches().get(), Ordering::Relaxed);
        self.note(&result);
        result
    }

    fn compaction<'s>(
        &'s self,
        options: CompactOptions,
        stop: Stop<'s>,
        progress: &'s mut dyn FnMut(Progress),
    ) -> Compaction<'s> {
        Compaction {
            log: &self.log,
            state: &self.state,
            shelves: &self.shelves,
            options,
            stop,
            merge_behind: &self.merge_behind,
            unheld: &self.unheld,
            progress,
            done: Compacted::default(),
        }
    }

    fn note(&self, result: &Result<Compacted, CompactError>) {
        match result {
            Ok(done) => {
                self.sealed(done);
                if self.merge_behind.load(Ordering::Relaxed) == 0 {
                    self.totals.lock().merge_failure = None;
                }
            }
            Err(CompactError::Merge { done, source }) => {
                self.sealed(done);
                if source.kind() != ErrorKind::Closed {
                    self.totals.lock().merge_failure = Some(source.to_string());
                }
            }
            Err(CompactError::Stopped) => {}
            Err(error) => self.failed(error.to_string()),
        }
    }

    fn sealed(&self, done: &Compacted) {
        let mut totals = self.totals.lock();
        totals.compactions += 1;
        totals.done.add(done);
        totals.failure = None;
        self.put_off_until(0, 0);
    }

    fn failed(&self, why: String) {
        self.put_off();
        self.totals.lock().failure = Some(why);
    }

    /// Not again before as many transactions, or bytes of them, have come as make one due.
    fn put_off(&self) {
        let (written, bytes) = (self.log.written_seq().get(), self.log.live_bytes());
        self.put_off_until(written + FRAMES_MAX, bytes + BYTES_MAX);
    }

    fn put_off_until(&self, written: u64, bytes: u64) {
        let (seq, len) = &self.not_before;
        seq.store(written, Ordering::Relaxed);
        len.store(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::AtomicUsize;

    use refstone_log::LogReader;
    use refstone_log::OsEnv;

    use super::*;
    use crate::compact::Merge;
    use crate::edit::Edit;
    use crate::name::RefName;
    use crate::oid::ObjectId;
    use crate::store::{CreateOptions, OpenOptions, RefStore};
    use crate::transaction::Transaction;

    const REFS: u64 = 9000;

    /// A store with a file of history of three batches, and as much in the live log.
    fn store(dir: &Path) -> RefStore {
        RefStore::create(dir, &CreateOptions::default()).unwrap();
        let store = reopen(dir);
        push(&store, 1);
        store.compact(CompactOptions::default(), &mut |_| ()).unwrap();
        push(&store, 2);
        store
    }

    fn reopen(dir: &Path) -> RefStore {
        RefStore::open_with(dir, OpenOptions::default().compacting(Compacting::ByHand)).unwrap()
    }

    /// Moves all refs in one transaction.
    fn push(store: &RefStore, value: u8) {
        let mut tx = Transaction::new("tester");
        for number in 0..REFS {
            let name = RefName::new(format!("refs/heads/{number}")).unwrap();
            tx.push(Edit::set(name, ObjectId::from_bytes(&[value; 20]).unwrap()));
        }
        store.commit(&tx).unwrap();
    }

    fn all() -> CompactOptions {
        CompactOptions { merge: Merge::All, ..CompactOptions::default() }
    }

    /// What a reader without the lock finds: the refs, and how many moves there were.
    fn read(dir: &Path) -> (usize, usize) {
        let refs = crate::read_view(dir).unwrap();
        let value = ObjectId::from_bytes(&[2; 20]).unwrap();
        let there =
            refs.iter_prefix(b"refs/").filter(|found| found.as_ref().unwrap().1 == value.into());
        (there.count(), crate::history(dir, None).unwrap().map(Result::unwrap).count())
    }

    fn temporary(dir: &Path) -> usize {
        let shelves = ["history", "tables", "."].map(|shelf| std::fs::read_dir(dir.join(shelf)));
        let names = shelves.into_iter().flatten().flatten().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().ends_with("tmp")).count()
    }

    // Breaks: looking less than once per batch of rows in one of sealing, its table, merging history or
    // merging tables; leaving unfinished files; taking what was given up for done.
    #[test]
    fn a_compaction_is_given_up_at_any_batch_of_rows_and_goes_on_after_the_next_opening() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = &scratch.path().join("refstone");
        let mut store = store(dir);
        let sealed = || LogReader::open(&OsEnv, dir).unwrap().anchor().seq == Seq::new(2);
        let (mut sealing, mut merging) = (0, 0);
        loop {
            // What is sealed stays so: from then on it looks at what is merged alone.
            let last = 1 + if sealed() { merging } else { sealing };
            let looks = AtomicUsize::new(0);
            let stop = || looks.fetch_add(1, Ordering::Relaxed) + 1 >= last;
            let inner = &store.maintenance().inner;
            match inner.compaction(all(), Stop::when(&stop), &mut |_| ()).run() {
                Ok(_) => break,
                Err(error) => assert_eq!(error.kind(), ErrorKind::Closed, "{error}"),
            }
            assert_eq!(looks.load(Ordering::Relaxed), last, "it went on");
            assert_eq!((temporary(dir), read(dir)), (0, (9000, 18_000)), "given up at look {last}");
            let phase = if sealed() { &mut merging } else { &mut sealing };
            *phase += 1;
            store.close().unwrap();
            store = reopen(dir);
        }
        // At the transaction, and at three batches of its rows and of its table; at two batches of rows
        // of each file, three of each table, and where one step of the work ends.
        assert_eq!((sealing, merging), (7, 12));
        assert_eq!(read(dir), (9000, 18_000));
        assert_eq!(std::fs::read_dir(dir.join("history")).unwrap().count(), 1);
    }

    // Breaks: looking only between two tables, or not while history is read, or not while a table is
    // written; leaving unfinished files; going on without the tables that there were.
    #[test]
    fn a_rebuild_is_given_up_at_any_batch_of_rows() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = &scratch.path().join("refstone");
        let store = store(dir);
        store.compact(CompactOptions::default(), &mut |_| ()).unwrap();
        let mut given_up = 0;
        loop {
            let looks = AtomicUsize::new(0);
            let stop = || looks.fetch_add(1, Ordering::Relaxed) + 1 > given_up;
            match store.maintenance().inner.rebuild(Stop::when(&stop), &mut |_| ()) {
                Ok(()) => break,
                Err(error) => assert_eq!(error.kind(), ErrorKind::Closed, "{error}"),
            }
            given_up += 1;
            assert_eq!(looks.load(Ordering::Relaxed), given_up, "it went on");
            assert_eq!(
                (temporary(dir), read(dir)),
                (0, (9000, 18_000)),
                "given up at look {given_up}"
            );
            assert_eq!(store.view().iter_prefix(b"refs/heads/").count(), 9000);
        }
        // Of each table at its start, and at three batches of rows of history and three of its own.
        assert_eq!(given_up, 14);
        assert_eq!(read(dir), (9000, 18_000));
    }

    // Breaks: progress that stands still while rows are gone through, or goes past the end.
    #[test]
    fn progress_is_told_with_every_batch_of_rows() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = &scratch.path().join("refstone");
        let store = store(dir);
        let (mut merging, mut rebuilding, mut checking) = (Vec::new(), Vec::new(), Vec::new());
        let mut tell = |progress| match progress {
            Progress::Sealing { .. } => {}
            Progress::Merging { done, of, .. } => merging.push((done, of)),
            Progress::Rebuilding { done, of } => rebuilding.push((done, of)),
            Progress::Checking { done, of } => checking.push((done, of)),
        };
        store.compact(all(), &mut tell).unwrap();
        store.rebuild(&mut tell).unwrap();
        assert!(crate::verify(dir, &mut tell).unwrap().is_sound());
        for (told, rows) in [(merging, 36_000), (rebuilding, 36_000), (checking, 54_000)] {
            assert!(told.iter().all(|&(done, of)| done <= of && of == rows), "{told:?}");
            assert!(told.is_sorted() && told[0].0 == 0 && told.len() > 6, "{told:?}");
            assert!(told.last().unwrap().0 > rows / 2, "{told:?}");
        }
    }

    // Breaks: waiting for the merge to end.
    #[test]
    fn closing_does_not_wait_for_a_merge() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = &scratch.path().join("refstone");
        let store = store(dir);
        let inner = &store.maintenance().inner;
        thread::scope(|scope| {
            let close = || store.close().unwrap();
            let compacted = store.compact(all(), &mut |progress| {
                if matches!(progress, Progress::Merging { .. }) {
                    scope.spawn(close);
                    while !inner.stopping.load(Ordering::Relaxed) {
                        thread::yield_now();
                    }
                }
            });
            let Err(CompactError::Merge { done, source }) = compacted else {
                panic!("{compacted:?}")
            };
            assert_eq!((done.sealed, done.merged, source.kind()), (1, 0, ErrorKind::Closed));
        });
        let totals = store.maintenance().totals();
        assert_eq!((totals.compactions, totals.failure, totals.merge_failure), (1 + 1, None, None));
        assert_eq!((temporary(dir), read(dir)), (0, (9000, 18_000)));
        assert_eq!(reopen(dir).compact(all(), &mut |_| ()).unwrap().merged, 2);
    }
}
