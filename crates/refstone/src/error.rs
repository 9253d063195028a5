//! What can go wrong with a store, by operation.

use std::path::PathBuf;

use refstone_log::{AppendError, CommitError, ErrorKind, Seq};

use crate::name::{NameError, RefName};
use crate::oid::ObjectIdError;
use crate::refusal::Refusal;

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
    /// Transactions were taken out of the live log, and this version cannot read them where they
    /// are: the refs it would show would be those of a shorter history.
    #[error(
        "{dir}: transactions up to {sealed} have left the live log, or sequences are missing from \
         it; a store is not opened without them. Nothing was changed"
    )]
    Sealed {
        /// The directory of the store.
        dir: PathBuf,
        /// The newest transaction that is not in the live log.
        sealed: Seq,
    },
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
            OpenError::Row { .. } | OpenError::Head { .. } | OpenError::Sealed { .. } => {
                ErrorKind::Corrupt
            }
            OpenError::HeadOutsideRefs { .. } => ErrorKind::Invalid,
        }
    }
}

impl TransactionError {
    /// The sort of this error; a refusal is [`ErrorKind::Invalid`].
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            TransactionError::Refused(_) => ErrorKind::Invalid,
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
