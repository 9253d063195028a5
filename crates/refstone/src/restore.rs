//! Bringing a ref back to a value that it had.

use std::path::Path;

use refstone_log::{ErrorKind, Seq};

use crate::edit::{Change, Deref, Edit, Expected, Target};
use crate::error::{OpenError, ReadError};
use crate::history::history_newest_first;
use crate::name::RefName;
use crate::read::{At, read_ref_at, read_view_at};

/// Why there is nothing to bring a ref back to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The history cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// No transaction moved the ref.
    #[error("'{name}' has never moved")]
    NeverMoved {
        /// The ref.
        name: RefName,
    },
    /// The ref was not there then.
    #[error("'{name}' did not exist after transaction {seq}")]
    Absent {
        /// The ref.
        name: RefName,
        /// The last transaction of that time.
        seq: Seq,
    },
}

impl RestoreError {
    /// The sort of this error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            RestoreError::Open(error) => error.kind(),
            _ => ErrorKind::Invalid,
        }
    }
}

impl From<ReadError> for RestoreError {
    fn from(error: ReadError) -> RestoreError {
        RestoreError::Open(error.into())
    }
}

/// The edit that brings a ref back to the value it had at some point; without one, to the value
/// before its last move. A ref that is gone comes back.
///
/// It is an ordinary edit of the ref itself, symbolic or not: it is refused if the ref has moved
/// since this looked at it, and becomes a transaction of its own. The store knows no objects: that
/// the old one is still there is for the caller to look at.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let dir = &dir.path().join("refstone");
/// # use refstone::{CreateOptions, Edit, ObjectId, RefName, RefStore, Target, Transaction, restoring};
/// # RefStore::create(dir, &CreateOptions::default())?;
/// # let store = RefStore::open(dir)?;
/// # let id = ObjectId::from_bytes(&[1; 20])?;
/// let topic = RefName::new("refs/heads/topic")?;
/// store.commit(&Transaction::new("alice").with(Edit::create(topic.clone(), id)))?;
/// store.commit(&Transaction::new("bob").with(Edit::delete(topic.clone())))?;
/// store.commit(&Transaction::new("alice").with(restoring(dir, &topic, None)?))?;
/// assert_eq!(store.view().get(&topic)?, Some(Target::Object(id)));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`RestoreError`] if it never moved, or was not there then.
pub fn restoring(dir: &Path, name: &RefName, to: Option<At>) -> Result<Edit, RestoreError> {
    let (then, held, at) = match to {
        Some(at) => (read_ref_at(dir, name, at)?, read_ref_at(dir, name, At::Seq(Seq::MAX))?, at),
        None => around_last_move(dir, name)?,
    };
    let value = then.ok_or_else(|| absent(dir, name, at))?;
    Ok(Edit {
        name: name.clone(),
        expected: held.map_or(Expected::Absent, Expected::Value),
        change: Change::Set(value),
        deref: Deref::NoFollow,
    })
}

/// What a ref held before its last move, what it has held since, and where that is.
fn around_last_move(
    dir: &Path,
    name: &RefName,
) -> Result<(Option<Target>, Option<Target>, At), RestoreError> {
    let last = history_newest_first(dir, Some(name))?.next().transpose()?;
    let last = last.ok_or_else(|| RestoreError::NeverMoved { name: name.clone() })?;
    let before = At::Seq(Seq::new(last.seq.get().saturating_sub(1)));
    Ok((read_ref_at(dir, name, before)?, last.target(), before))
}

fn absent(dir: &Path, name: &RefName, at: At) -> RestoreError {
    match read_view_at(dir, at) {
        Ok(then) => RestoreError::Absent { name: name.clone(), seq: then.seq() },
        Err(error) => error.into(),
    }
}
