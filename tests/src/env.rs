//! The operating system's files behind the seam, with a fixed clock, counted operations, and
//! faults on demand.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;
use refstone_log::{Env, EnvFile, EnvLayer, EnvLock, FileLayer, OsEnv, Timestamp};

/// An operation that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A read from a file; a call comes after it.
    Read,
    /// A write to a file.
    Write,
    /// A sync of a file's content.
    Sync,
    /// A sync of a directory.
    SyncDir,
    /// A file created.
    Create,
    /// A rename.
    Rename,
    /// A second name given to a file.
    Link,
    /// A lock taken.
    Lock,
    /// A file opened to be written.
    OpenWrite,
    /// The space of a file without a name given back. It cannot fail.
    GiveBack,
}

/// What happens instead of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails with this error, and nothing happens.
    Error(io::ErrorKind),
    /// A write does its first half, then fails as a full disk does.
    HalfThenNoSpace,
    /// It panics.
    Panic,
}

/// Something that happens in the middle of an operation.
type Call = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Shared {
    /// The next operations that fail: which, after how many more of its kind, how.
    plan: Mutex<Vec<(Op, u64, Fault)>>,
    /// The next operations in which something happens.
    calls: Mutex<Vec<(Op, u64, Call)>>,
    /// With the bytes of each write.
    trace: Mutex<Vec<(Op, usize)>>,
    tracing: AtomicBool,
    clock: AtomicI64,
    /// How much space is free, if anybody knows.
    free: Mutex<Option<u64>>,
    looks: AtomicU64,
    bytes_read: AtomicU64,
    ids: AtomicU64,
}

/// An [`Env`] whose faults a test plans. Clones share the plan.
#[derive(Clone, Default)]
pub struct TestEnv {
    shared: Arc<Shared>,
}

impl fmt::Debug for TestEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TestEnv")
    }
}

impl TestEnv {
    /// No faults; a clock that starts at 1,000,000 µs and goes on by 1 µs per look.
    #[must_use]
    pub fn new() -> TestEnv {
        let env = TestEnv::default();
        env.shared.clock.store(1_000_000, Ordering::Relaxed);
        env
    }

    /// Makes the `nth` operation of its kind from now on fail; 0 is the next one.
    pub fn fail(&self, op: Op, nth: u64, fault: Fault) {
        self.shared.plan.lock().push((op, nth, fault));
    }

    /// Has something happen in the `nth` operation of its kind from now on; 0 is the next one. It
    /// comes before the operation, but after a read.
    pub fn call(&self, op: Op, nth: u64, call: impl FnOnce() + Send + 'static) {
        self.shared.calls.lock().push((op, nth, Box::new(call)));
    }

    /// Forgets all planned faults.
    pub fn heal(&self) {
        self.shared.plan.lock().clear();
    }

    /// Starts to record operations, from none.
    pub fn start_trace(&self) {
        self.shared.trace.lock().clear();
        self.shared.tracing.store(true, Ordering::Relaxed);
    }

    /// The operations since [`start_trace`](TestEnv::start_trace).
    #[must_use]
    pub fn trace(&self) -> Vec<Op> {
        self.traced_bytes().into_iter().map(|(op, _)| op).collect()
    }

    /// The same, with the bytes that each write was given.
    #[must_use]
    pub fn traced_bytes(&self) -> Vec<(Op, usize)> {
        self.shared.trace.lock().clone()
    }

    /// Says from now on that so many bytes are free; at first nobody knows.
    pub fn set_free_space(&self, bytes: Option<u64>) {
        *self.shared.free.lock() = bytes;
    }

    /// How often the free space was looked at.
    #[must_use]
    pub fn looks_at_free_space(&self) -> u64 {
        self.shared.looks.load(Ordering::Relaxed)
    }

    /// Sets the clock.
    pub fn set_clock(&self, micros: i64) {
        self.shared.clock.store(micros, Ordering::Relaxed);
    }

    /// Sets the number that the next log id is made of.
    pub fn set_next_id(&self, id: u64) {
        self.shared.ids.store(id, Ordering::Relaxed);
    }

    /// Bytes read from files so far.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.shared.bytes_read.load(Ordering::Relaxed)
    }

    fn meet(&self, op: Op, bytes: usize) -> Option<Fault> {
        if self.shared.tracing.load(Ordering::Relaxed) {
            self.shared.trace.lock().push((op, bytes));
        }
        // Taken out before it runs: it may well use this environment.
        let call = due(&mut self.shared.calls.lock(), op);
        call.into_iter().for_each(|call| call());
        due(&mut self.shared.plan.lock(), op)
    }

    fn check(&self, op: Op) -> io::Result<()> {
        match self.meet(op, 0) {
            None => Ok(()),
            Some(Fault::Error(kind)) => Err(kind.into()),
            Some(Fault::HalfThenNoSpace) => Err(io::ErrorKind::StorageFull.into()),
            Some(Fault::Panic) => panic!("planned fault"),
        }
    }
}

impl TestEnv {
    /// Traces show what becomes durable; this operation does not.
    fn check_untraced(&self, op: Op) -> io::Result<()> {
        match due(&mut self.shared.plan.lock(), op) {
            Some(Fault::Error(kind)) => Err(kind.into()),
            _ => Ok(()),
        }
    }
}

impl EnvLayer for TestEnv {
    fn below(&self) -> &dyn Env {
        &OsEnv
    }

    fn wrap(&self, _path: &Path, file: Box<dyn EnvFile>) -> Box<dyn EnvFile> {
        Box::new(TestFile { file, env: self.clone() })
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn EnvFile>> {
        self.check(Op::Create)?;
        OsEnv.create_new(path).map(|file| self.wrap(path, file))
    }

    fn open_write(&self, path: &Path) -> io::Result<Box<dyn EnvFile>> {
        self.check_untraced(Op::OpenWrite)?;
        OsEnv.open_write(path).map(|file| self.wrap(path, file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check(Op::Rename)?;
        OsEnv.rename(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.check(Op::SyncDir)?;
        OsEnv.sync_dir(dir)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check(Op::Link)?;
        OsEnv.hard_link(from, to)
    }

    fn free_space(&self, _path: &Path) -> io::Result<Option<u64>> {
        self.shared.looks.fetch_add(1, Ordering::Relaxed);
        Ok(*self.shared.free.lock())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn EnvLock>> {
        self.check_untraced(Op::Lock)?;
        OsEnv.lock(path)
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.shared.clock.fetch_add(1, Ordering::Relaxed))
    }

    fn random_id(&self) -> io::Result<[u8; 16]> {
        let id = self.shared.ids.fetch_add(1, Ordering::Relaxed);
        Ok((0x5eed_u128 << 64 | u128::from(id)).to_be_bytes())
    }
}

/// Takes what is planned for this operation, and counts down what is planned for a later one.
fn due<T>(planned: &mut Vec<(Op, u64, T)>, op: Op) -> Option<T> {
    let now = planned.iter().position(|(planned, nth, _)| *planned == op && *nth == 0);
    for (planned, nth, _) in planned.iter_mut() {
        if *planned == op {
            *nth = nth.saturating_sub(1);
        }
    }
    now.map(|index| planned.remove(index).2)
}

#[derive(Debug)]
struct TestFile {
    file: Box<dyn EnvFile>,
    env: TestEnv,
}

impl FileLayer for TestFile {
    fn below(&self) -> &dyn EnvFile {
        &*self.file
    }

    fn above(&self, file: Box<dyn EnvFile>) -> Box<dyn EnvFile> {
        Box::new(TestFile { file, env: self.env.clone() })
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = self.file.read_at(buffer, offset);
        let call = due(&mut self.env.shared.calls.lock(), Op::Read);
        call.into_iter().for_each(|call| call());
        let bytes = read.as_ref().map_or(0, |bytes| *bytes as u64);
        self.env.shared.bytes_read.fetch_add(bytes, Ordering::Relaxed);
        read
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        match self.env.meet(Op::Write, bytes.len()) {
            None => self.file.write_at(bytes, offset),
            Some(Fault::Error(kind)) => Err(kind.into()),
            Some(Fault::Panic) => panic!("planned fault"),
            Some(Fault::HalfThenNoSpace) => {
                self.env.fail(Op::Write, 0, Fault::Error(io::ErrorKind::StorageFull));
                self.file.write_at(&bytes[..bytes.len().div_ceil(2)], offset)
            }
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.env.check(Op::Sync)?;
        self.file.sync_data()
    }

    fn give_back(&self) {
        let _ = self.env.meet(Op::GiveBack, 0);
        self.file.give_back();
    }
}
