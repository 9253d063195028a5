//! What can be wrong with a table.

use std::io;
use std::path::{Path, PathBuf};

use crate::stop::Stopped;

/// Why a table does not answer. It never answers wrongly instead.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TableError {
    /// The operating system failed.
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    /// The file is not as it was written.
    #[error(
        "{path}: {flaw}. This table is damaged, and nothing is lost by it, since it is made of history: \
         a server that meets this makes it anew, and so does `refstone rebuild` while no server runs"
    )]
    Damaged { path: PathBuf, flaw: Flaw },
    /// What should be written cannot be a table.
    #[error("{path}: a table cannot be written: {flaw}")]
    Input { path: PathBuf, flaw: Flaw },
    /// It was to be given up.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl TableError {
    /// The file that it is about.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            TableError::Io { path, .. }
            | TableError::Damaged { path, .. }
            | TableError::Input { path, .. } => Some(path),
            TableError::Stopped(_) => None,
        }
    }
}

/// Something that is not as it should be: what, where, and how it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {number}: expected {expected}, found {actual}")]
pub(crate) struct Flaw {
    pub(super) what: &'static str,
    /// Where: the offset in bytes, or which block, page or row, as `what` says.
    pub(super) number: u64,
    pub(super) expected: String,
    pub(super) actual: String,
}

impl Flaw {
    pub(super) fn new(
        what: &'static str,
        number: u64,
        expected: impl Into<String>,
        actual: impl Into<String>,
    ) -> Flaw {
        Flaw { what, number, expected: expected.into(), actual: actual.into() }
    }
}
