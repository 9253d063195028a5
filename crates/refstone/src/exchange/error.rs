//! What can go wrong with an exchange.

use std::io;
use std::path::{Path, PathBuf};

use refstone_log::{AppendError, CommitError, ErrorKind};

use crate::compact::CompactError;
use crate::error::{OpenError, ReadError};
use crate::name::{NameError, RefName};

/// Why refs did not come in, or did not go out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// A file cannot be read or written.
    #[error("{path}: cannot {operation}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        operation: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// git did not do what it was asked.
    #[error("{path}: git {asked}: {said}")]
    Git {
        /// The repository.
        path: PathBuf,
        /// The command of git.
        asked: String,
        /// What it said.
        said: String,
    },
    /// The source keeps its refs in a store already.
    #[error(
        "{path}: expected a git repository, found a refstone one: there is nothing to import. To have \
         another one, copy the directory (docs/durability.md, \"Backing up\"); `refstone export` makes a \
         git repository of it, and `refstone export --history` tells its moves"
    )]
    Own {
        /// The repository.
        path: PathBuf,
    },
    /// A reftable is not as its format says.
    #[error("{path}: damaged reftable: {problem}, at byte {offset}")]
    Reftable {
        /// The table.
        path: PathBuf,
        /// Where in it.
        offset: usize,
        /// What is wrong.
        problem: &'static str,
    },
    /// A stream is no stream of moves.
    #[error("no stream of moves: {0}")]
    Stream(String),
    /// A row of a stream is no move.
    #[error("row {row} of the stream, counted from zero: {problem}")]
    Row {
        /// The row.
        row: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// A name is not legal.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Two refs that cannot be there together.
    #[error("'{name}' and '{directory}' cannot both exist: one is a directory of the other")]
    DirectoryFile {
        /// The longer name.
        name: RefName,
        /// The shorter one.
        directory: RefName,
    },
    /// A ref has a value that it cannot have.
    #[error("'{name}': {problem}")]
    Value {
        /// The ref.
        name: RefName,
        /// What is wrong.
        problem: String,
    },
    /// The store cannot be created or read.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// A ref of the store cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The log does not take a move.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The log could not make the moves durable.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// What was imported could not be sealed.
    #[error(transparent)]
    Compact(#[from] CompactError),
    /// The caller wanted no more.
    #[error("interrupted")]
    Interrupted,
}

impl ExchangeError {
    /// The sort of this error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            ExchangeError::Io { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    ErrorKind::Permission
                }
                _ => ErrorKind::Io,
            },
            ExchangeError::Git { .. } | ExchangeError::Interrupted => ErrorKind::Io,
            ExchangeError::Store(error) => error.kind(),
            ExchangeError::Read(error) => error.kind(),
            ExchangeError::Append(error) => error.kind(),
            ExchangeError::Commit(error) => error.kind(),
            ExchangeError::Compact(error) => error.kind(),
            _ => ErrorKind::Invalid,
        }
    }

    pub(super) fn io(
        path: &Path,
        operation: &'static str,
    ) -> impl FnOnce(io::Error) -> ExchangeError + use<> {
        let path = path.to_owned();
        move |source| ExchangeError::Io { path, operation, source }
    }
}
