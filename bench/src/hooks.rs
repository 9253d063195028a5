//! Watches, or quietens, a log through its I/O seam; the log itself runs unchanged.

use std::cell::Cell;
use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use refstone_log::{Env, EnvFile, EnvLayer, FileLayer, OsEnv, Timestamp};

/// The operations of a log that are watched. By default each does what the system does.
pub trait Hooks: Debug + Send + Sync + 'static {
    fn now(&self) -> Timestamp {
        OsEnv.now()
    }

    fn write_at(&self, file: &dyn EnvFile, bytes: &[u8], offset: u64) -> io::Result<usize> {
        file.write_at(bytes, offset)
    }

    fn sync_data(&self, file: &dyn EnvFile) -> io::Result<()> {
        file.sync_data()
    }
}

/// The operating system, with hooks.
#[derive(Debug)]
pub struct HookedEnv<H>(pub Arc<H>);

#[derive(Debug)]
struct HookedFile<H> {
    file: Box<dyn EnvFile>,
    hooks: Arc<H>,
}

impl<H: Hooks> EnvLayer for HookedEnv<H> {
    fn below(&self) -> &dyn Env {
        &OsEnv
    }

    fn wrap(&self, _path: &Path, file: Box<dyn EnvFile>) -> Box<dyn EnvFile> {
        Box::new(HookedFile { file, hooks: self.0.clone() })
    }

    fn open_read(&self, path: &Path) -> io::Result<Box<dyn EnvFile>> {
        OsEnv.open_read(path)
    }

    /// Nobody knows how much is free: looking would cost time that is not the log's own.
    fn free_space(&self, _path: &Path) -> io::Result<Option<u64>> {
        Ok(None)
    }

    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

impl<H: Hooks> FileLayer for HookedFile<H> {
    fn below(&self) -> &dyn EnvFile {
        &*self.file
    }

    fn above(&self, file: Box<dyn EnvFile>) -> Box<dyn EnvFile> {
        Box::new(HookedFile { file, hooks: self.hooks.clone() })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.hooks.write_at(&*self.file, bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.hooks.sync_data(&*self.file)
    }
}

/// No clock, no zeros ahead, no sync: of staging, what remains is encoding and bookkeeping.
#[derive(Debug)]
pub struct Quiet;

impl Hooks for Quiet {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(1_700_000_000_000_000)
    }

    /// Zeros are left out, and so are holes in the file: they read the same.
    fn write_at(&self, file: &dyn EnvFile, bytes: &[u8], offset: u64) -> io::Result<usize> {
        if is_extension(bytes) { Ok(bytes.len()) } else { file.write_at(bytes, offset) }
    }

    fn sync_data(&self, _file: &dyn EnvFile) -> io::Result<()> {
        Ok(())
    }
}

/// When the parts of one leader's round ended.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    pub write_start: Instant,
    pub write_end: Instant,
    pub sync_end: Instant,
    pub publish_end: Instant,
}

/// Records what the log does to its file. Costs a few clock readings per round.
#[derive(Debug, Default)]
pub struct Probe {
    rounds: Mutex<Vec<Round>>,
    syncs: Mutex<Vec<Duration>>,
    /// Of the round in flight; the log has one at a time.
    current: Mutex<Option<Round>>,
}

thread_local! {
    static OWN_IO: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    static EXTENDING: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    static CLOCK_READ: Cell<Option<Instant>> = const { Cell::new(None) };
}

impl Probe {
    /// Forgets what was recorded so far.
    pub fn reset(&self) {
        self.rounds.lock().clear();
        self.syncs.lock().clear();
    }

    /// The rounds since the last reset.
    pub fn rounds(&self) -> Vec<Round> {
        self.rounds.lock().clone()
    }

    /// The syncs since the last reset.
    pub fn syncs(&self) -> Vec<Duration> {
        self.syncs.lock().clone()
    }
}

/// How long this thread wrote and synced since the last call, for itself or as a leader.
pub fn take_own_io() -> Duration {
    OWN_IO.take()
}

/// How long this thread wrote zeros ahead since the last call.
pub fn take_extending() -> Duration {
    EXTENDING.take()
}

/// When this thread's last commit got its time: the log reads the clock once it is to encode.
pub fn take_clock_read() -> Option<Instant> {
    CLOCK_READ.take()
}

impl Hooks for Probe {
    fn now(&self) -> Timestamp {
        CLOCK_READ.set(Some(Instant::now()));
        OsEnv.now()
    }

    fn write_at(&self, file: &dyn EnvFile, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let start = Instant::now();
        let result = file.write_at(bytes, offset);
        let end = Instant::now();
        OWN_IO.set(OWN_IO.get() + (end - start));
        if is_extension(bytes) {
            EXTENDING.set(EXTENDING.get() + (end - start));
        } else if !is_length_word(bytes) {
            let [write_start, write_end, sync_end, publish_end] = [start, end, end, end];
            let round = Round { write_start, write_end, sync_end, publish_end };
            // A short write goes on: the round began with its first part.
            let mut current = self.current.lock();
            let write_start = current.map_or(write_start, |first| first.write_start);
            *current = Some(Round { write_start, ..round });
        } else if let Some(round) = self.current.lock().take() {
            self.rounds.lock().push(Round { publish_end: end, ..round });
        }
        result
    }

    fn sync_data(&self, file: &dyn EnvFile) -> io::Result<()> {
        let start = Instant::now();
        let result = file.sync_data();
        let end = Instant::now();
        OWN_IO.set(OWN_IO.get() + (end - start));
        self.syncs.lock().push(end - start);
        if let Some(round) = self.current.lock().as_mut() {
            round.sync_end = end;
        }
        result
    }
}

/// Only the zeros written ahead of need begin with so many zero bytes: frames begin with a
/// flatbuffer, whose first word is an offset.
fn is_extension(bytes: &[u8]) -> bool {
    bytes.len() >= 8 && bytes[..8] == [0; 8]
}

/// The store that publishes a group is the only write of four bytes.
fn is_length_word(bytes: &[u8]) -> bool {
    bytes.len() == 4
}
