//! The refs of an open repository: those of a store, or, where it cannot be written, a view of it.

use std::path::Path;
use std::time::{Duration, Instant};

use refstone::{
    AppendError, ErrorKind, MinFree, ObjectFormat, OpenError, OpenOptions, RefStore, View,
};

use crate::git::GitEnv;
use crate::text;

/// How long a view stands for a store that cannot be written. Then it is opened again: somebody may
/// have made space, or the file system writable.
const READ_ONLY_FOR: Duration = Duration::from_secs(2);

/// Where a repository's refs come from.
#[derive(Debug)]
pub(crate) enum Refs {
    Store(RefStore),
    ReadOnly(Box<ReadOnly>),
}

/// The published refs of a store that cannot be written.
#[derive(Debug)]
pub(crate) struct ReadOnly {
    view: View,
    format: ObjectFormat,
    /// Why, for the operator.
    pub(crate) problem: String,
    since: Instant,
}

/// Why a repository takes no push at the moment, in words for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoPush {
    #[error("this repository is read-only at the moment; the server's log has the reason")]
    ReadOnly,
    #[error("the server is short of disk space and takes no pushes at the moment")]
    LowSpace,
}

impl Refs {
    /// Takes the log's lock, if the log can be written.
    pub(crate) fn open(
        repository: &Path,
        log: &Path,
        min_free: MinFree,
    ) -> Result<Refs, OpenError> {
        match RefStore::open_with(log, OpenOptions::default().min_free(min_free)) {
            Ok(store) => {
                expect_objects_of(repository, &store)?;
                Ok(Refs::Store(store))
            }
            Err(error) if is_of_the_environment(error.kind()) => ReadOnly::open(log, &error),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn view(&self) -> View {
        match self {
            Refs::Store(store) => store.view(),
            Refs::ReadOnly(refs) => refs.view.clone(),
        }
    }

    pub(crate) fn format(&self) -> ObjectFormat {
        match self {
            Refs::Store(store) => store.object_format(),
            Refs::ReadOnly(refs) => refs.format,
        }
    }

    /// The store; none if it cannot be written.
    pub(crate) fn store(&self) -> Option<&RefStore> {
        match self {
            Refs::Store(store) => Some(store),
            Refs::ReadOnly(_) => None,
        }
    }

    pub(crate) fn read_only(&self) -> Option<&ReadOnly> {
        match self {
            Refs::Store(_) => None,
            Refs::ReadOnly(refs) => Some(refs),
        }
    }

    /// Whether it is time to look whether the store can be written by now.
    pub(crate) fn is_stale(&self) -> bool {
        self.read_only().is_some_and(|refs| refs.since.elapsed() > READ_ONLY_FOR)
    }

    /// Refuses a push that would fail in the end, before its pack takes space.
    pub(crate) fn check_push(&self) -> Result<(), NoPush> {
        let store = self.store().ok_or(NoPush::ReadOnly)?;
        match store.check_space() {
            Err(AppendError::LowSpace { .. }) => Err(NoPush::LowSpace),
            _ => Ok(()),
        }
    }
}

/// The log, or the tables beside it, could be read and not written.
fn is_of_the_environment(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ReadOnly | ErrorKind::NoSpace | ErrorKind::Permission)
}

impl ReadOnly {
    fn open(log: &Path, error: &OpenError) -> Result<Refs, OpenError> {
        Ok(Refs::ReadOnly(Box::new(ReadOnly {
            view: refstone::read_view(log)?,
            format: refstone::read_object_format(log)?,
            problem: text::one_line(&text::chain(error)),
            since: Instant::now(),
        })))
    }
}

/// A log of another hash beside the objects would be of another repository.
fn expect_objects_of(path: &Path, store: &RefStore) -> Result<(), OpenError> {
    let mut ask = GitEnv::repository(path).command(["rev-parse", "--show-object-format"]);
    // Where git does not answer, its later answers say why; there is nothing to compare with.
    let said = ask.as_std_mut().output().map(|output| output.stdout).unwrap_or_default();
    match String::from_utf8_lossy(&said).trim().parse() {
        Ok(format) => Ok(store.log().expect_object_format(format)?),
        Err(_) => Ok(()),
    }
}
