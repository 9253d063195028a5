//! What the tests share: short spellings, scratch stores, and an environment that fails on demand.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use refstone::{
    CompactOptions, Compacted, Compacting, CreateOptions, Edit, Env, ObjectFormat, ObjectId,
    OpenOptions, OsEnv, RefMove, RefName, RefStore, Resting, Transaction, history,
};
use refstone_log::{EnvFile, EnvLayer, FileLayer};

/// An object id all of whose bytes are the same.
pub(crate) fn oid(byte: u8) -> ObjectId {
    ObjectId::from_bytes(&[byte; 20]).unwrap()
}

pub(crate) fn name(name: &str) -> RefName {
    RefName::new(name).unwrap()
}

/// `refs/heads/<name>`.
pub(crate) fn head(short: &str) -> RefName {
    name(&format!("refs/heads/{short}"))
}

pub(crate) fn tx(edits: impl IntoIterator<Item = Edit>) -> Transaction {
    let mut tx = Transaction::new("tester");
    tx.extend(edits);
    tx
}

/// For each number a transaction that moves `hot` and makes a branch.
pub(crate) fn commit_numbers(store: &RefStore, numbers: std::ops::RangeInclusive<u8>) {
    for number in numbers {
        let edits = ["hot", &format!("b{number}")].map(|name| Edit::set(head(name), oid(number)));
        store.commit(&tx(edits)).unwrap();
    }
}

/// Takes all transactions out of the live log.
pub(crate) fn compact(store: &RefStore) -> Compacted {
    store.compact(CompactOptions::default(), &mut |_| ()).unwrap()
}

/// Some transactions that create, move, delete and create again.
pub(crate) fn fill(scratch: &Scratch, from: u8, to: u8) {
    for number in from..to {
        let target = oid(number.max(1));
        scratch.store.commit(&tx([Edit::set(head("hot"), target)])).unwrap();
        let name = head(&format!("topic-{}", number % 7));
        let edit = match number % 3 {
            0 => Edit::delete(name),
            _ => Edit::set(name, target),
        };
        scratch.store.commit(&tx([edit])).unwrap();
    }
}

/// Enough for a store to compact itself.
pub(crate) fn commit_until_due(scratch: &Scratch) {
    let edit = |number: u32| {
        let mut id = [1; 20];
        id[..4].copy_from_slice(&number.to_be_bytes());
        tx([Edit::set(head("a"), refstone::ObjectId::from_bytes(&id).unwrap())])
    };
    let batch: Vec<_> = (0..9000).map(edit).collect();
    scratch.store.commit_batch(&batch).into_iter().for_each(|outcome| {
        outcome.unwrap();
    });
    scratch.store.commit(&edit(9000)).unwrap();
}

/// What is in a directory, sorted.
pub(crate) fn names(dir: &std::path::Path) -> Vec<std::ffi::OsString> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

/// Waits up to a minute.
pub(crate) fn wait_until(what: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !what() {
        assert!(std::time::Instant::now() < deadline);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Transactions that history has by now, and the live log as it was before the newest three of them.
pub(crate) fn outgrow(scratch: &Scratch, compacted_before: bool) -> Vec<u8> {
    if compacted_before {
        commit_numbers(&scratch.store, 1..=3);
        compact(&scratch.store);
    }
    commit_numbers(&scratch.store, 4..=6);
    let old = std::fs::read(scratch.dir().join("refs.arrow")).unwrap();
    commit_numbers(&scratch.store, 7..=9);
    compact(&scratch.store);
    old
}

/// All moves, oldest first.
pub(crate) fn moves(dir: &Path) -> Vec<RefMove> {
    history(dir, None).unwrap().map(Result::unwrap).collect()
}

/// A store in a directory of its own, which goes with it.
pub(crate) struct Scratch {
    pub(crate) store: RefStore,
    pub(crate) faults: Arc<Faults>,
    dir: tempfile::TempDir,
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch::of(ObjectFormat::Sha1)
    }

    /// In memory, if there is a place for it, for tests with hundreds of stores.
    pub(crate) fn quick() -> Scratch {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        Scratch::create_in(dir, ObjectFormat::Sha1)
    }

    pub(crate) fn of(object_format: ObjectFormat) -> Scratch {
        Scratch::create_in(tempfile::tempdir().unwrap(), object_format)
    }

    fn create_in(dir: tempfile::TempDir, object_format: ObjectFormat) -> Scratch {
        let options = CreateOptions { object_format, ..CreateOptions::default() };
        RefStore::create(&dir.path().join("refstone"), &options).unwrap();
        let (store, faults) = open(&dir.path().join("refstone"));
        Scratch { store, faults, dir }
    }

    /// In memory as well, and nothing is compacted but by hand.
    pub(crate) fn by_hand() -> Scratch {
        let mut scratch = Scratch::quick();
        scratch.store.close().unwrap();
        let options = OpenOptions::default().env(scratch.env()).compacting(Compacting::ByHand);
        scratch.store = RefStore::open_with(&scratch.dir(), options).unwrap();
        scratch
    }

    /// What the store does its work through; for readers, to count theirs.
    pub(crate) fn env(&self) -> Arc<dyn Env> {
        Arc::new(FaultyEnv(self.faults.clone()))
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.dir.path().join("refstone")
    }

    /// Closes the store and opens it again from its files.
    pub(crate) fn reopen(&mut self) {
        self.store.close().unwrap();
        self.reopen_closed();
    }

    pub(crate) fn reopen_closed(&mut self) {
        (self.store, self.faults) = open(&self.dir());
    }

    /// Does something to the files while the store is closed.
    pub(crate) fn close_for(&mut self, work: impl FnOnce(&Path)) {
        self.store.close().unwrap();
        work(&self.dir());
        (self.store, self.faults) = open(&self.dir());
    }

    /// Drops the store without closing it, looks, and opens it again.
    pub(crate) fn drop_for(&mut self, look: impl FnOnce(&Path)) {
        let other = Scratch::new();
        drop(std::mem::replace(&mut self.store, other.store));
        look(&self.dir());
        self.reopen_closed();
    }

    /// All refs, as text: `name=oid` or `name->target`.
    pub(crate) fn refs(&self) -> Vec<String> {
        listing(&self.store.view())
    }
}

fn open(dir: &Path) -> (RefStore, Arc<Faults>) {
    let faults = Arc::<Faults>::default();
    let env = Arc::new(FaultyEnv(faults.clone()));
    // No operation comes by the clock.
    let options = OpenOptions::default().env(env).resting(Resting::ByHand);
    (RefStore::open_with(dir, options).unwrap(), faults)
}

pub(crate) fn listing(view: &refstone::View) -> Vec<String> {
    let line = |item: Result<(RefName, refstone::Target), _>| match item.unwrap() {
        (name, refstone::Target::Object(id)) => format!("{name}={id}"),
        (name, refstone::Target::Symbolic(to)) => format!("{name}->{to}"),
    };
    view.iter_prefix(b"").map(line).collect()
}

/// Ends the threads that wait for `done`, also if the test fails before it gets there.
pub(crate) struct Ends<'a>(pub(crate) &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What happens before an operation: told its kind and its path, if it has one.
#[derive(Default)]
pub(crate) struct Hook(Mutex<Option<Before>>);

type Before = Box<dyn FnMut(&'static str, &Path) + Send>;

impl Hook {
    pub(crate) fn set(&self, before: impl FnMut(&'static str, &Path) + Send + 'static) {
        *self.0.lock().unwrap() = Some(Box::new(before));
    }

    /// It is out of its place meanwhile, and does not see its own operations.
    fn run(&self, what: &'static str, path: &Path) {
        let before = self.0.lock().unwrap().take();
        if let Some(mut before) = before {
            before(what, path);
            self.0.lock().unwrap().get_or_insert(before);
        }
    }
}

impl std::fmt::Debug for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hook")
    }
}

/// The operating system, with something that happens before each operation.
pub(crate) fn env_with(before: impl FnMut(&'static str, &Path) + Send + 'static) -> Arc<dyn Env> {
    let faults = Arc::<Faults>::default();
    faults.hook.set(before);
    Arc::new(FaultyEnv(faults))
}

/// How many of the next operations fail.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) hook: Hook,
    /// Writes that find the disk full.
    pub(crate) full: AtomicU32,
    pub(crate) writes: AtomicU32,
    pub(crate) syncs: AtomicU32,
    /// Syncs of directories right after the live file was swapped.
    pub(crate) swaps: AtomicU32,
    /// Openings of tables right after the live file was swapped.
    pub(crate) tables: AtomicU32,
    swapped: AtomicBool,
    /// Which operation from now on fails, counted from 1, whatever it is; 0 for none.
    pub(crate) nth: AtomicU32,
    /// Bytes read so far, and how many times.
    pub(crate) read: AtomicU64,
    pub(crate) reads: AtomicU64,
    /// Bytes that were announced to be read.
    pub(crate) announced: AtomicU64,
    /// Bytes that are free; 0 is unknown.
    pub(crate) free: AtomicU64,
    /// After so many writes the disk is full, less one; 0 for never.
    room: AtomicU32,
}

impl Faults {
    /// Every write fails for want of space after so many.
    pub(crate) fn full_after(&self, writes: u32) {
        self.room.store(writes.wrapping_add(1), Ordering::SeqCst);
    }

    fn take_room(&self) -> io::Result<()> {
        let left = |room: u32| Some(room.saturating_sub(1).max(1)).filter(|_| room > 0);
        match self.room.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left) {
            Ok(1) => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }

    fn step(&self) -> io::Result<()> {
        let count = |left: u32| left.checked_sub(1);
        match self.nth.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count) {
            Ok(1) => Err(io::Error::other("injected")),
            _ => Ok(()),
        }
    }
}

fn fail(left: &AtomicU32) -> io::Result<()> {
    fail_as(left, io::ErrorKind::Other)
}

fn fail_as(left: &AtomicU32, kind: io::ErrorKind) -> io::Result<()> {
    let fails = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
    match fails {
        Ok(_) => Err(io::Error::new(kind, "injected")),
        Err(_) => Ok(()),
    }
}

/// The operating system, with faults.
#[derive(Debug)]
struct FaultyEnv(Arc<Faults>);

impl FaultyEnv {
    fn has_swapped(&self) -> bool {
        self.0.swapped.load(Ordering::SeqCst)
    }
}

impl EnvLayer for FaultyEnv {
    fn below(&self) -> &dyn Env {
        &OsEnv
    }

    fn wrap(&self, _path: &Path, file: Box<dyn EnvFile>) -> Box<dyn EnvFile> {
        Box::new(FaultyFile { file, faults: self.0.clone() })
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn EnvFile>> {
        self.0.step()?;
        self.0.hook.run("create", path);
        OsEnv.create_new(path).map(|file| self.wrap(path, file))
    }

    fn open_read(&self, path: &Path) -> io::Result<Box<dyn EnvFile>> {
        self.0.step()?;
        self.0.hook.run("open", path);
        if path.parent().is_some_and(|dir| dir.ends_with("tables")) && self.has_swapped() {
            fail(&self.0.tables)?;
        }
        OsEnv.open_read(path).map(|file| self.wrap(path, file))
    }

    fn open_write(&self, path: &Path) -> io::Result<Box<dyn EnvFile>> {
        self.0.step()?;
        OsEnv.open_write(path).map(|file| self.wrap(path, file))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.step()?;
        OsEnv.create_dir_all(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.step()?;
        OsEnv.rename(from, to)?;
        if to.ends_with("refs.arrow") {
            self.0.swapped.store(true, Ordering::SeqCst);
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.step()?;
        OsEnv.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        self.0.step()?;
        self.0.hook.run("list", dir);
        OsEnv.list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.step()?;
        if self.has_swapped() {
            fail(&self.0.swaps)?;
        }
        OsEnv.sync_dir(dir)
    }

    fn free_space(&self, _: &Path) -> io::Result<Option<u64>> {
        Ok(Some(self.0.free.load(Ordering::Relaxed)).filter(|free| *free > 0))
    }
}

#[derive(Debug)]
struct FaultyFile {
    file: Box<dyn EnvFile>,
    faults: Arc<Faults>,
}

impl FileLayer for FaultyFile {
    fn below(&self) -> &dyn EnvFile {
        &*self.file
    }

    fn above(&self, file: Box<dyn EnvFile>) -> Box<dyn EnvFile> {
        Box::new(FaultyFile { file, faults: self.faults.clone() })
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.faults.step()?;
        let read = self.file.read_at(buffer, offset)?;
        self.faults.read.fetch_add(read as u64, Ordering::Relaxed);
        self.faults.reads.fetch_add(1, Ordering::Relaxed);
        Ok(read)
    }

    fn will_read(&self, part: std::ops::Range<u64>) {
        self.faults.announced.fetch_add(part.end - part.start, Ordering::Relaxed);
        self.file.will_read(part);
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.faults.step()?;
        fail(&self.faults.writes)?;
        fail_as(&self.faults.full, io::ErrorKind::StorageFull)?;
        self.faults.take_room()?;
        self.file.write_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.faults.step()?;
        self.faults.hook.run("sync", Path::new(""));
        fail(&self.faults.syncs)?;
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.faults.step()?;
        self.file.len()
    }

    fn try_clone(&self) -> io::Result<Box<dyn EnvFile>> {
        self.faults.step()?;
        self.file.try_clone().map(|file| self.above(file))
    }
}
