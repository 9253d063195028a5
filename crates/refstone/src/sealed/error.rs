//! What can go wrong with a history file.

use std::io;
use std::path::{Path, PathBuf};

use parquet::errors::ParquetError;

use crate::stop::Stopped;

/// Why a history file could not be written or read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SealedError {
    /// The operating system refused an operation.
    #[error("{path}: cannot {operation}: {source}")]
    Io { path: PathBuf, operation: &'static str, source: io::Error },
    /// The file is not what was written.
    #[error(
        "{path}, {place}: {problem}. This history file is damaged: restore it from a backup. Until then \
         the transactions in its name cannot be read; leave it where it is, for references, pushes and \
         other transactions do not need it"
    )]
    Damaged { path: PathBuf, place: Place, problem: String },
    /// What was to be written is no history.
    #[error("{path}: {problem}")]
    Invalid { path: PathBuf, problem: String },
    /// It was to be given up.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Where a file is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Place {
    /// Counted from the start of the file.
    #[error("byte {0}")]
    Byte(u64),
    /// Counted from zero.
    #[error("row {0}")]
    Row(u32),
    /// The metadata at the end of the file.
    #[error("footer")]
    Footer,
}

impl SealedError {
    /// The file that it is about.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            SealedError::Io { path, .. }
            | SealedError::Damaged { path, .. }
            | SealedError::Invalid { path, .. } => Some(path),
            SealedError::Stopped(_) => None,
        }
    }

    pub(super) fn io(
        path: &Path,
        operation: &'static str,
    ) -> impl FnOnce(io::Error) -> SealedError + use<> {
        let path = path.to_owned();
        move |source| SealedError::Io { path, operation, source }
    }

    pub(super) fn damaged(path: &Path, place: Place, problem: impl Into<String>) -> SealedError {
        SealedError::Damaged { path: path.to_owned(), place, problem: problem.into() }
    }

    pub(super) fn invalid(path: &Path, problem: impl Into<String>) -> SealedError {
        SealedError::Invalid { path: path.to_owned(), problem: problem.into() }
    }

    /// What failed behind the Parquet library while it wrote.
    pub(super) fn writing(path: &Path) -> impl FnOnce(ParquetError) -> SealedError + use<> {
        let path = path.to_owned();
        move |error| match error {
            ParquetError::External(cause) => match cause.downcast::<io::Error>() {
                Ok(source) => SealedError::Io { path, operation: "write", source: *source },
                Err(other) => SealedError::invalid(&path, other.to_string()),
            },
            other => SealedError::invalid(&path, other.to_string()),
        }
    }

    /// What failed behind the Parquet library while it read at `place`.
    pub(super) fn reading(
        path: &Path,
        place: Place,
    ) -> impl FnOnce(ParquetError) -> SealedError + use<> {
        let path = path.to_owned();
        move |error| match error {
            ParquetError::External(cause) => match cause.downcast::<SealedError>() {
                Ok(ours) => *ours,
                Err(other) => SealedError::damaged(&path, place, other.to_string()),
            },
            other => SealedError::damaged(&path, place, other.to_string()),
        }
    }
}
