//! Logs in scratch directories, and rows to put in them.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use refstone_log::{
    DecodedRefRow, Env, Leaving, Log, LogOptions, LogReader, Mode, NoObserver, ObjectFormat,
    OpenError, OsEnv, Recovery, RefLogOptions, RefRow, Resting, Sealer,
};
use tempfile::TempDir;

use crate::env::TestEnv;

/// A row with owned fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Who.
    pub actor: Vec<u8>,
    /// Which ref.
    pub refname: Vec<u8>,
    /// From.
    pub old_oid: Option<Vec<u8>>,
    /// To.
    pub new_oid: Option<Vec<u8>>,
    /// Or to this ref.
    pub symref: Option<Vec<u8>>,
    /// Why.
    pub message: Option<Vec<u8>>,
}

impl Row {
    /// The standard push: the row whose frame the size limit is about.
    #[must_use]
    pub fn standard() -> Row {
        Row {
            actor: b"alice".into(),
            refname: b"refs/heads/topic-1234".into(),
            old_oid: Some(vec![1; 20]),
            new_oid: Some(vec![2; 20]),
            symref: None,
            message: None,
        }
    }

    /// A branch that goes to the object with the bytes `n`.
    #[must_use]
    pub fn numbered(n: u64) -> Row {
        let mut oid = vec![0; 20];
        oid[..8].copy_from_slice(&n.to_be_bytes());
        let refname = format!("refs/heads/topic-{n}").into_bytes();
        Row { refname, new_oid: Some(oid), ..Row::standard() }
    }

    /// The row as the log takes it.
    #[must_use]
    pub fn as_row(&self) -> RefRow<'_> {
        RefRow {
            actor: &self.actor,
            refname: &self.refname,
            old_oid: self.old_oid.as_deref(),
            new_oid: self.new_oid.as_deref(),
            symref: self.symref.as_deref(),
            message: self.message.as_deref(),
        }
    }
}

/// Counts the scratch logs, so that each has an id of its own.
static LOGS: AtomicU64 = AtomicU64::new(0);

/// A directory with a log in it, removed when dropped.
#[derive(Debug)]
pub struct ScratchLog {
    dir: TempDir,
    /// The seam the log runs on.
    pub env: TestEnv,
}

impl ScratchLog {
    /// A new, empty sha1 log.
    ///
    /// # Panics
    /// If it cannot be created.
    #[must_use]
    pub fn new() -> ScratchLog {
        ScratchLog::with_format(ObjectFormat::Sha1)
    }

    /// A new, empty log.
    ///
    /// # Panics
    /// If it cannot be created.
    #[must_use]
    pub fn with_format(object_format: ObjectFormat) -> ScratchLog {
        let scratch =
            ScratchLog { dir: TempDir::new().expect("a scratch directory"), env: TestEnv::new() };
        scratch.env.set_next_id(LOGS.fetch_add(1, Ordering::Relaxed));
        let options = RefLogOptions { object_format, head: b"refs/heads/main".into() };
        Log::create(&scratch.env, &scratch.dir(), &options).expect("a new log");
        scratch
    }

    /// The directory of the log.
    #[must_use]
    pub fn dir(&self) -> PathBuf {
        self.dir.path().join("refstone")
    }

    /// The live file.
    #[must_use]
    pub fn live(&self) -> PathBuf {
        self.dir().join("refs.arrow")
    }

    /// Opens the log for writing.
    ///
    /// # Errors
    /// As [`Log::open`].
    pub fn open(&self) -> Result<(Log, Recovery), OpenError> {
        self.open_in(Mode::Durable)
    }

    /// Opens the log for a bulk load.
    ///
    /// # Panics
    /// If it does not open.
    #[must_use]
    pub fn buffered(&self) -> Log {
        self.open_in(Mode::Buffered).expect("the log opens").0
    }

    /// It goes to rest only when it is told to: a trace of operations has none of the clock's.
    fn open_in(&self, mode: Mode) -> Result<(Log, Recovery), OpenError> {
        let env = Arc::new(self.env.clone());
        let options = LogOptions { resting: Resting::ByHand, ..mode.into() };
        Log::open_in(options, env, &self.dir(), Arc::new(NoObserver), &mut |_| ())
    }

    /// Opens the log for writing.
    ///
    /// # Panics
    /// If it does not open.
    #[must_use]
    pub fn log(&self) -> Log {
        self.open().expect("the log opens").0
    }

    /// The sequences that a reader without the lock sees.
    ///
    /// # Panics
    /// If the log is damaged.
    #[must_use]
    pub fn published(&self) -> Vec<u64> {
        published(&OsEnv, &self.dir())
    }

    /// All bytes of the live file.
    ///
    /// # Panics
    /// If it cannot be read.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        fs::read(self.live()).expect("the live file")
    }

    /// Replaces the live file.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn set_bytes(&self, bytes: &[u8]) {
        fs::write(self.live(), bytes).expect("the live file");
    }
}

impl Default for ScratchLog {
    fn default() -> Self {
        ScratchLog::new()
    }
}

/// The sequences that a reader without the lock sees.
///
/// # Panics
/// If the log is damaged.
#[must_use]
pub fn published(env: &dyn Env, dir: &Path) -> Vec<u64> {
    let mut reader = LogReader::open(env, dir).expect("a log to read");
    let mut seqs = Vec::new();
    while let Some(frame) = reader.next().expect("an undamaged log") {
        seqs.push(frame.seq().get());
    }
    seqs
}

/// Appends one row and waits until it is durable.
///
/// # Panics
/// If it does not become durable.
pub fn push(log: &Log, row: &Row) -> u64 {
    log.append(&[row.as_row()]).expect("staged").wait().expect("durable").seq().get()
}

impl From<&DecodedRefRow<'_>> for Row {
    fn from(row: &DecodedRefRow<'_>) -> Row {
        Row {
            actor: row.actor.to_vec(),
            refname: row.refname.to_vec(),
            old_oid: row.old_oid.map(<[u8]>::to_vec),
            new_oid: row.new_oid.map(<[u8]>::to_vec),
            symref: row.symref.as_deref().map(<[u8]>::to_vec),
            message: row.message.as_deref().map(<[u8]>::to_vec),
        }
    }
}

/// A sealer that lets transactions leave and keeps nothing of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Drops;

impl Sealer for Drops {
    fn seal(&mut self, leaving: &mut Leaving<'_>) -> Result<(), Box<dyn Error + Send + Sync>> {
        while leaving.next()?.is_some() {}
        Ok(())
    }
}
