//! Reading a store without its lock, beside a running writer.

use std::path::Path;
use std::sync::Arc;

use refstone_log::{Env, ObjectFormat, OsEnv, Seq, Timestamp};

use crate::archive::{Archive, os_env};
use crate::edit::Target;
use crate::error::OpenError;
use crate::fit::open_live;
use crate::history::history_back_from;
use crate::name::RefName;
use crate::orphaned::Orphaned;
use crate::view::View;

/// All refs as the published log has them: durable, and as new as the writer's last sync. Takes no
/// lock, and changes nothing.
///
/// Costs one read of the live log; what was sealed is read from tables when it is asked for.
///
/// # Errors
///
/// If there is no log, if it is damaged, or if it is not the one that its history goes with: an older
/// copy, or another log.
pub fn read_view(dir: &Path) -> Result<View, OpenError> {
    read_view_at(dir, At::Seq(Seq::new(u64::MAX)))
}

/// The hash that names the objects of a store. Where the live log is lost, or is another one than that
/// of history, history tells.
///
/// # Errors
///
/// If there is no log, or its schema is damaged and nothing has been sealed.
pub fn read_object_format(dir: &Path) -> Result<ObjectFormat, OpenError> {
    open_live(&OsEnv, dir).map(|live| live.object_format()).or_else(|error| {
        let orphaned = Orphaned::find(&os_env(), dir).ok_or(error)?;
        Ok(orphaned.shelves.object_format)
    })
}

/// The newest transaction that is published: durable, and as new as the writer's last sync.
///
/// Costs a read of what was written last, however long the log is.
///
/// # Errors
///
/// If there is no log, if its end is damaged, or if history does not go with it.
pub fn read_seq(dir: &Path) -> Result<Seq, OpenError> {
    let mut live = open_live(&OsEnv, dir)?;
    live.approach(Seq::MAX, Seq::ZERO)?;
    while live.next()?.is_some() {}
    Ok(live.seq())
}

/// A point in the history of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Behind this transaction; behind the newest, if it is not there yet.
    Seq(Seq),
    /// Behind the last transaction that was not later than this. Times never go back in a log, so
    /// there is one such place.
    Time(Timestamp),
}

/// All refs as they were then.
///
/// Costs a read of the live log, if that has the point; else a read of the rows before it in the
/// one history file that has it. What lies in older files is read from their tables when it is
/// asked for.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let dir = &dir.path().join("refstone");
/// # use refstone::{CreateOptions, Edit, ObjectId, RefName, RefStore, Transaction};
/// # RefStore::create(dir, &CreateOptions::default())?;
/// # let store = RefStore::open(dir)?;
/// # let id = ObjectId::from_bytes(&[1; 20])?;
/// use refstone::{At, Timestamp};
/// let topic = RefName::new("refs/heads/topic")?;
/// let created = store.commit(&Transaction::new("alice").with(Edit::create(topic.clone(), id)))?;
/// store.commit(&Transaction::new("bob").with(Edit::delete(topic.clone())))?;
/// let before_bob = refstone::read_view_at(dir, At::Seq(created.seq()))?;
/// assert_eq!(before_bob.get(&topic)?, Some(id.into()));
/// let long_ago = refstone::read_view_at(dir, At::Time(Timestamp::from_micros(0)))?;
/// assert_eq!(long_ago.get(&topic)?, None);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// As [`read_view`].
pub fn read_view_at(dir: &Path, at: At) -> Result<View, OpenError> {
    read_view_with(&os_env(), dir, at)
}

/// The same through another [`Env`].
///
/// # Errors
///
/// As [`read_view`].
pub fn read_view_with(env: &Arc<dyn Env>, dir: &Path, at: At) -> Result<View, OpenError> {
    let mut archive = Archive::open(env, dir)?;
    let seq = match at {
        At::Seq(seq) => seq,
        At::Time(time) => archive.newest_at(time)?,
    };
    // Looking for the time may have read the live log.
    if matches!(at, At::Time(_)) {
        archive = Archive::open(env, dir)?;
    }
    Ok(View::new(Arc::new(archive.snapshot(seq)?)))
}

/// What one ref held then.
///
/// Whatever other refs did since costs nothing but the reading of the live log, and that only if the
/// point is in it: from its end back to the ref's last move before the point. Else it costs a lookup in
/// the table that has the point and in each older one until one has moved the ref, and, in that of the
/// point, a read of the ref's own moves since.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let dir = &dir.path().join("refstone");
/// # use refstone::{At, CreateOptions, Edit, ObjectId, RefName, RefStore, Transaction};
/// # RefStore::create(dir, &CreateOptions::default())?;
/// # let store = RefStore::open(dir)?;
/// # let id = ObjectId::from_bytes(&[1; 20])?;
/// let topic = RefName::new("refs/heads/topic")?;
/// let created = store.commit(&Transaction::new("alice").with(Edit::create(topic.clone(), id)))?;
/// store.commit(&Transaction::new("bob").with(Edit::delete(topic.clone())))?;
/// let then = refstone::read_ref_at(dir, &topic, At::Seq(created.seq()))?;
/// assert_eq!(then, Some(id.into()));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// As [`read_view`].
pub fn read_ref_at(dir: &Path, name: &RefName, at: At) -> Result<Option<Target>, OpenError> {
    read_ref_with(&os_env(), dir, name, at)
}

/// The same through another [`Env`].
///
/// # Errors
///
/// As [`read_view`].
pub fn read_ref_with(
    env: &Arc<dyn Env>,
    dir: &Path,
    name: &RefName,
    at: At,
) -> Result<Option<Target>, OpenError> {
    let seq = match at {
        At::Seq(seq) => seq,
        At::Time(time) => Archive::open(env, dir)?.newest_at(time)?,
    };
    for moved in history_back_from(env, dir, name, seq)? {
        let moved = moved?;
        if moved.seq <= seq {
            return Ok(moved.target());
        }
    }
    // As the log began: only `HEAD` was there.
    if !name.is_head() {
        return Ok(None);
    }
    Ok(read_view_with(env, dir, At::Seq(Seq::ZERO))?.get(name)?)
}
