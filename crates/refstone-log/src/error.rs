//! What can go wrong, and what it means for the caller: old state, new state, or unknown.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::frame::schema::SchemaError;
use crate::frame::{EncodeError, FrameError};
use crate::seq::Seq;
use crate::space::Size;

/// The sort of an error, for code that decides what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Another process (or another handle) writes this log.
    Locked,
    /// There is no log.
    NotFound,
    /// There is something where a log should be created.
    AlreadyExists,
    /// Bytes that were durable are damaged or missing.
    Corrupt,
    /// The file system is full. Nothing changed.
    NoSpace,
    /// The file system has less free space than the log leaves. Nothing changed.
    LowSpace,
    /// The log can be read, and not written: see [`OpenError::ReadOnly`].
    ReadOnly,
    /// The operating system does not permit it.
    Permission,
    /// The input cannot be a transaction of this log. Nothing changed.
    Invalid,
    /// What a transaction expected does not hold, or another one stands in its way. Nothing changed.
    Refused,
    /// The write failed: the transaction did not happen, and the log goes on.
    NotCommitted,
    /// The sync failed: the transaction may or may not be durable. Reopen to learn which.
    Unknown,
    /// An earlier failure stopped the log; this transaction did not happen. Reopen to go on.
    Poisoned,
    /// The log was closed. The transaction did not happen.
    Closed,
    /// Code that runs under a lock called back for what waits for that lock. Nothing was done.
    Reentered,
    /// Another failure of the operating system.
    Io,
}

impl ErrorKind {
    /// The sort of an error of the operating system.
    #[must_use]
    pub fn of_io(error: &io::Error) -> ErrorKind {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                ErrorKind::Permission
            }
            _ => ErrorKind::Io,
        }
    }
}

/// Why a log could not be created, opened or read. Nothing was changed unless the text says so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another writer holds the lock.
    #[error(
        "{path}: another writer holds this lock; stop that process, or read the log without \
         writing to it"
    )]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// There is no log in the directory.
    #[error("{dir}: there is no reference log here; `refstone init` creates one")]
    NotFound {
        /// The directory.
        dir: PathBuf,
    },
    /// There is no live log, and only a lock shows that a writer was here once.
    #[error(
        "{dir}: there is no live log here, though a writer has left its lock; if a log was here, \
         restore refs.arrow from a backup; if its creation was interrupted, create it again"
    )]
    OnlyLock {
        /// The directory.
        dir: PathBuf,
    },
    /// The live file is gone or empty, but what stands beside it shows that there was one.
    #[error(
        "{path}: the live log is {state}, though {witness} shows that there was one; restore the \
         file from a backup. It is not created anew: where `history` is whole, `refstone repair` makes \
         one that goes on behind it"
    )]
    MissingLive {
        /// The live file.
        path: PathBuf,
        /// `missing` or `empty`.
        state: &'static str,
        /// A name that proves there was a log.
        witness: String,
    },
    /// A log is created only in an empty directory.
    #[error("{dir}: a log is created only in an empty directory, and `{found}` is in this one")]
    NotEmpty {
        /// The directory.
        dir: PathBuf,
        /// A name found in it.
        found: String,
    },
    /// The file does not open with the schema of a log this version reads.
    #[error("{path}, byte 0: {problem}")]
    Schema {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: SchemaError,
    },
    /// There is no secret store in the directory.
    #[error("{dir}: there is no secret store here")]
    NoSecrets {
        /// The directory.
        dir: PathBuf,
    },
    /// The log is one of another kind.
    #[error("{path}: this is a log of {found}, and not one of {expected}. Nothing was changed")]
    Kind {
        /// The file.
        path: PathBuf,
        /// The kind asked for.
        expected: &'static str,
        /// The kind of the log.
        found: &'static str,
    },
    /// The log is one of another object format.
    #[error(
        "{path}: this log names {found} objects, and the repository has {expected} ones; the log \
         belongs to another repository. Nothing was changed"
    )]
    ObjectFormat {
        /// The file.
        path: PathBuf,
        /// The format asked for.
        expected: crate::ObjectFormat,
        /// The format of the log.
        found: crate::ObjectFormat,
    },
    /// Bytes that were durable are damaged or missing.
    #[error(
        "{path}: {damage}; nothing was changed. Restore the file from a backup, or see docs/durability.md"
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What and where.
        damage: Damage,
    },
    /// The environment does not let the log be written: its directory or its file system is
    /// read-only for this user, or there is no space to repair what a crash left.
    ///
    /// Nothing that was committed is touched. A [`LogReader`](crate::LogReader) reads what is
    /// published, without the lock and without writing.
    #[error(
        "{dir}: this log can be read, but not written: {path}: cannot {operation}: {source}; what \
         was committed is untouched"
    )]
    ReadOnly {
        /// The directory of the log.
        dir: PathBuf,
        /// The file or directory that was to be written.
        path: PathBuf,
        /// What was tried.
        operation: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
    /// The options cannot make a log.
    #[error("{0}")]
    Invalid(String),
    /// The operating system refused an operation.
    #[error("{path}: cannot {operation}: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        operation: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
}

/// Damage in the part of a log that was durable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset}, where transaction {seq} belongs: {problem}")]
pub struct Damage {
    /// Where the damaged frame starts, in bytes from the start of the file.
    pub offset: u64,
    /// The sequence that belongs there.
    pub seq: Seq,
    /// What is wrong.
    pub problem: DamageKind,
}

/// How durable bytes are damaged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DamageKind {
    /// The frame is not valid.
    #[error("{0}")]
    Frame(#[from] FrameError),
    /// The file ends without the end-of-stream marker that every log has.
    #[error(
        "the file ends here, {found} bytes into the end-of-stream marker; its tail was cut off"
    )]
    NoEnd {
        /// Bytes of the marker that are there.
        found: u64,
    },
    /// The frame looks torn, but a later one says that it was durable.
    #[error(
        "{torn}; it is no torn tail, since the frame at byte {witness_offset} was written when \
         transaction {durable} was durable"
    )]
    NotTorn {
        /// What is wrong with the frame.
        torn: FrameError,
        /// Where the later frame starts.
        witness_offset: u64,
        /// The durable sequence in the later frame.
        durable: Seq,
    },
}

impl OpenError {
    pub(crate) fn io(path: &Path, operation: &'static str) -> impl FnOnce(io::Error) -> OpenError {
        let path = path.to_owned();
        move |source| OpenError::Io { path, operation, source }
    }

    /// What a failure to open a log for writing means where it can be read.
    pub(crate) fn or_read_only(self, dir: &Path) -> OpenError {
        match self {
            OpenError::Io { path, operation, source }
                if matches!(
                    ErrorKind::of_io(&source),
                    ErrorKind::NoSpace | ErrorKind::Permission
                ) =>
            {
                OpenError::ReadOnly { dir: dir.to_owned(), path, operation, source }
            }
            other => other,
        }
    }

    /// The sort of this error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            OpenError::Locked { .. } => ErrorKind::Locked,
            OpenError::NotFound { .. }
            | OpenError::NoSecrets { .. }
            | OpenError::OnlyLock { .. } => ErrorKind::NotFound,
            OpenError::NotEmpty { .. } => ErrorKind::AlreadyExists,
            OpenError::MissingLive { .. }
            | OpenError::Schema { .. }
            | OpenError::Corrupt { .. } => ErrorKind::Corrupt,
            OpenError::Kind { .. } | OpenError::ObjectFormat { .. } => ErrorKind::Corrupt,
            OpenError::Invalid(_) => ErrorKind::Invalid,
            OpenError::ReadOnly { .. } => ErrorKind::ReadOnly,
            OpenError::Io { source, .. } => ErrorKind::of_io(source),
        }
    }
}

/// Why a transaction was not staged. It spent no sequence and left no trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The rows cannot be a transaction of this log.
    #[error("the transaction cannot be written: {0}")]
    Invalid(String),
    /// The file system has no room for the transaction.
    #[error("no space for the transaction: {source}; free some, and try again")]
    NoSpace {
        /// What the operating system said.
        source: io::Error,
    },
    /// The transaction would leave less of the file system free than the log's
    /// [floor](crate::MinFree). The next one is judged anew, so freeing space is enough.
    #[error(
        "{dir}: {} are free on this file system, and no transaction is taken that leaves less than \
         {}; free some space, or lower the floor (--min-free), and try again",
        Size(*.free), Size(*.floor)
    )]
    LowSpace {
        /// The directory of the log.
        dir: PathBuf,
        /// Bytes that are free.
        free: u64,
        /// Bytes that stay free.
        floor: u64,
        /// Bytes by which the file would grow.
        needed: u64,
    },
    /// The log was at rest, and its file cannot be opened just now. The next transaction tries again.
    #[error("the transaction was not staged, since the log cannot wake: {0}")]
    Wake(#[source] OpenError),
    /// The log cannot be written.
    #[error(transparent)]
    Commit(#[from] CommitError),
}

impl From<EncodeError> for AppendError {
    fn from(error: EncodeError) -> Self {
        AppendError::Invalid(error.to_string())
    }
}

impl AppendError {
    /// The sort of this error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            AppendError::Invalid(_) => ErrorKind::Invalid,
            AppendError::NoSpace { source } => ErrorKind::of_io(source),
            AppendError::LowSpace { .. } => ErrorKind::LowSpace,
            AppendError::Wake(error) => error.kind(),
            AppendError::Commit(error) => error.kind(),
        }
    }
}

/// Why a rewrite did not happen, or did not finish.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RewriteError {
    /// The sealer could not take what was to leave. The log serves on as before.
    #[error("the transactions that were to leave the live log could not be sealed: {0}")]
    Seal(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A file operation failed. Before the rename the log serves on as before; after it the log is
    /// stopped until it is reopened, with no transaction lost.
    #[error(transparent)]
    File(#[from] OpenError),
    /// The log had stopped before.
    #[error(transparent)]
    Commit(#[from] CommitError),
}

impl RewriteError {
    /// The sort of this error. A sealer's is told by the errors of the operating system, and of this
    /// crate, that it came of.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            RewriteError::Seal(error) => kind_of_cause(&**error).unwrap_or(ErrorKind::Io),
            RewriteError::File(error) => error.kind(),
            RewriteError::Commit(error) => error.kind(),
        }
    }
}

/// The sort of the first cause that has one.
fn kind_of_cause(error: &(dyn std::error::Error + 'static)) -> Option<ErrorKind> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<OpenError>() {
            return Some(error.kind());
        }
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Some(ErrorKind::of_io(error));
        }
        cause = error.source();
    }
    None
}

/// Why a staged transaction was not acknowledged.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// The write failed. The transaction did not happen; the log goes on.
    #[error("not committed: the write failed ({cause}); the transaction did not happen, try again")]
    NotCommitted {
        /// What failed.
        cause: Arc<str>,
    },
    /// The sync failed, or the leader died. The transaction may or may not be durable.
    #[error(
        "unknown outcome: {cause}; the log is stopped until it is reopened, which tells whether \
         the transaction is durable"
    )]
    Unknown {
        /// What failed.
        cause: Arc<str>,
    },
    /// An earlier failure stopped the log before this transaction was written. It did not happen.
    #[error("not committed: the log is stopped until it is reopened ({cause})")]
    Poisoned {
        /// What failed first.
        cause: Arc<str>,
    },
    /// The log was closed before. The transaction did not happen.
    #[error("not committed: the log is closed")]
    Closed,
    /// Code that runs under a lock of the log, or of the store, called it back. What was asked for was
    /// not done; what is staged stays staged.
    #[error(
        "cannot {operation} from code that is called under a lock which that waits for; do so when \
         that code has returned"
    )]
    Reentered {
        /// What it asked for.
        operation: &'static str,
    },
}

impl CommitError {
    /// The sort of this error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            CommitError::NotCommitted { .. } => ErrorKind::NotCommitted,
            CommitError::Unknown { .. } => ErrorKind::Unknown,
            CommitError::Poisoned { .. } => ErrorKind::Poisoned,
            CommitError::Closed => ErrorKind::Closed,
            CommitError::Reentered { .. } => ErrorKind::Reentered,
        }
    }
}
