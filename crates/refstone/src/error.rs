//! What can go wrong with a store, by operation.

use std::io;
use std::path::{Path, PathBuf};

use refstone_log::{AppendError, CommitError, ErrorKind, Seq};

use crate::name::{NameError, RefName};
use crate::oid::ObjectIdError;
use crate::refusal::{Reason, Refusal};
use crate::sealed::SealedError;
use crate::stop::Stopped;
use crate::table::TableError;

/// Why a store could not be created, opened or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The log could not.
    #[error(transparent)]
    Log(#[from] refstone_log::OpenError),
    /// A row of the log is sound as bytes, but no move of a ref.
    #[error("{dir}, transaction {seq}, row {row}: {problem}")]
    Row {
        /// The directory of the store.
        dir: PathBuf,
        /// The transaction.
        seq: Seq,
        /// The row in it, counted from zero.
        row: usize,
        /// What is wrong with it.
        problem: RowProblem,
    },
    /// What was sealed cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The log's schema says that `HEAD` started at what is no ref name.
    #[error("{dir}: the initial target of HEAD: {problem}")]
    Head {
        /// The directory of the store.
        dir: PathBuf,
        /// What is wrong with it.
        problem: NameError,
    },
    /// A new store's `HEAD` must point below `refs/`, or git would see no repository.
    #[error("{dir}: HEAD must point below refs/, not to '{target}'")]
    HeadOutsideRefs {
        /// The directory of the store.
        dir: PathBuf,
        /// Where it would point.
        target: RefName,
    },
}

/// The refs, or their history, cannot be read: the disk failed, or a file is damaged.
///
/// Tables are made of the log and of history, and can be made anew: see [`crate::RefStore::rebuild`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct ReadError {
    kind: ErrorKind,
    problem: String,
    /// The file that it is about, if it is about one.
    path: Option<PathBuf>,
    of_table: bool,
}

impl ReadError {
    pub(crate) fn because(kind: ErrorKind, problem: String) -> ReadError {
        ReadError { kind, problem, path: None, of_table: false }
    }

    /// The same, about this file.
    pub(crate) fn about(self, path: &Path) -> ReadError {
        ReadError { path: Some(path.to_owned()), ..self }
    }

    /// The file that it is about, if it is about one.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    pub(crate) fn io(path: &Path, what: &'static str, error: &io::Error) -> ReadError {
        let problem = format!("{}: cannot {what}: {error}", path.display());
        ReadError::because(kind_of_io(error), problem).about(path)
    }

    /// The sort of this error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether it is that a table is damaged or missing. Nothing is lost by that, and
    /// [`crate::RefStore::rebuild`] helps.
    #[must_use]
    pub fn is_of_table(&self) -> bool {
        self.of_table
    }
}

impl From<TableError> for ReadError {
    fn from(error: TableError) -> ReadError {
        let kind = match &error {
            TableError::Io { source, .. } => kind_of_io(source),
            TableError::Stopped(_) => ErrorKind::Closed,
            _ => ErrorKind::Corrupt,
        };
        let problem = match (kind, &error) {
            (ErrorKind::NotFound, TableError::Io { path, .. }) => missing_table(path),
            _ => error.to_string(),
        };
        let path = error.path().map(Path::to_owned);
        let of_table = matches!(kind, ErrorKind::Corrupt | ErrorKind::NotFound);
        ReadError { kind, problem, path, of_table }
    }
}

fn missing_table(path: &Path) -> String {
    format!(
        "{}: this table is missing, and nothing is lost by it, since it is made of history: a server \
         that meets this makes it anew, and so does the next opening, or `refstone rebuild` while no \
         server runs",
        path.display()
    )
}

impl From<SealedError> for ReadError {
    fn from(error: SealedError) -> ReadError {
        let kind = match &error {
            SealedError::Io { source, .. } => kind_of_io(source),
            SealedError::Stopped(_) => ErrorKind::Closed,
            _ => ErrorKind::Corrupt,
        };
        let path = error.path().map(Path::to_owned);
        ReadError { kind, problem: error.to_string(), path, of_table: false }
    }
}

impl From<Stopped> for ReadError {
    fn from(stopped: Stopped) -> ReadError {
        ReadError::because(ErrorKind::Closed, stopped.to_string())
    }
}

/// What a compaction reads of the live log.
impl From<refstone_log::OpenError> for ReadError {
    fn from(error: refstone_log::OpenError) -> ReadError {
        ReadError::because(error.kind(), error.to_string())
    }
}

/// A file that is missing may have been merged into another meanwhile.
fn kind_of_io(error: &io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        _ => ErrorKind::of_io(error),
    }
}

/// What is wrong with a row of the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RowProblem {
    /// A name is not legal.
    #[error(transparent)]
    Name(#[from] NameError),
    /// An object id has an impossible length.
    #[error(transparent)]
    ObjectId(#[from] ObjectIdError),
    /// The row gives the ref an object and a symbolic target.
    #[error("expected a new object id or a symbolic target, found both")]
    TwoTargets,
}

/// Why a transaction was not acknowledged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// It was refused, and nothing of it happened. What it was refused for is durable.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It was not staged, and nothing of it happened.
    #[error(transparent)]
    Append(AppendError),
    /// It was staged; the error tells whether it happened.
    #[error(transparent)]
    Commit(#[from] CommitError),
}

impl OpenError {
    /// The sort of this error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            OpenError::Log(error) => error.kind(),
            OpenError::Read(error) => error.kind(),
            OpenError::Row { .. } | OpenError::Head { .. } => ErrorKind::Corrupt,
            OpenError::HeadOutsideRefs { .. } => ErrorKind::Invalid,
        }
    }
}

impl TransactionError {
    /// The sort of this error. What stood against a refused transaction, its [`Reason`] tells.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            TransactionError::Refused(refusal) => match &refusal.reason {
                Reason::Unreadable { problem } => problem.kind(),
                _ => ErrorKind::Refused,
            },
            TransactionError::Append(error) => error.kind(),
            TransactionError::Commit(error) => error.kind(),
        }
    }

    /// The refusal, if it was refused.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            TransactionError::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }
}

impl From<AppendError> for TransactionError {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::Commit(error) => TransactionError::Commit(error),
            error => TransactionError::Append(error),
        }
    }
}
