//! Makes a log in an empty directory, durable with its name and its directories.

use std::io;
use std::path::Path;

use crate::draft::Draft;
use crate::env::{Env, EnvLock};
use crate::error::OpenError;
use crate::files::{self, Entry};
use crate::frame::EOS;
use crate::frame::schema::{Identity, SCHEMA_MAX};
use crate::kind::ObjectFormat;
use crate::sabotage::{self, Sabotage};

/// Zeros that a new log has in store. A server holds thousands of logs, so it is little.
pub(crate) const FIRST_EXTENT: u64 = 32 << 10;

/// The identity of a new ref log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefLogOptions {
    /// The hash that names the repository's objects.
    pub object_format: ObjectFormat,
    /// The initial symbolic target of `HEAD`: a full ref name, as raw bytes.
    pub head: Vec<u8>,
}

/// Creates the log; spends no sequence.
pub(crate) fn create(env: &dyn Env, dir: &Path, options: &RefLogOptions) -> Result<(), OpenError> {
    check_head(&options.head)?;
    env.create_dir_all(dir).map_err(OpenError::io(dir, "create the directory"))?;
    let _lock = lock(env, dir)?;
    check_empty(env, dir)?;
    let log_id = env.random_id().map_err(OpenError::io(dir, "draw a log id"))?;
    let identity = Identity::fresh(log_id, options.object_format, options.head.clone());
    write_live(env, dir, &identity)?;
    sync_names(env, dir)
}

/// Takes the writer's lock.
pub(crate) fn lock(env: &dyn Env, dir: &Path) -> Result<Box<dyn EnvLock>, OpenError> {
    let path = files::lock(dir);
    env.lock(&path).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => OpenError::Locked { path },
        _ => OpenError::io(&path, "lock")(error),
    })
}

fn check_head(head: &[u8]) -> Result<(), OpenError> {
    let fits = !head.is_empty() && head.len() < SCHEMA_MAX / 8 && !head.contains(&b'\\');
    let problem = "the initial target of HEAD is empty, too long, or holds a backslash";
    if fits { Ok(()) } else { Err(OpenError::Invalid(problem.to_owned())) }
}

fn check_empty(env: &dyn Env, dir: &Path) -> Result<(), OpenError> {
    let names = env.list(dir).map_err(OpenError::io(dir, "list the directory"))?;
    match names.iter().find(|name| Entry::of(name) != Entry::Neutral) {
        None => Ok(()),
        Some(name) => {
            let found = name.to_string_lossy().into_owned();
            Err(OpenError::NotEmpty { dir: dir.to_owned(), found })
        }
    }
}

fn write_live(env: &dyn Env, dir: &Path, identity: &Identity) -> Result<(), OpenError> {
    let live = files::live(dir);
    let mut draft = Draft::start(env, &files::live_temporary(dir))?;
    let mut bytes = identity.encode();
    bytes.extend_from_slice(&EOS);
    let extent = (bytes.len() as u64).max(FIRST_EXTENT);
    draft.write(&bytes, 0)?;
    draft.write_zeros(bytes.len() as u64..extent)?;
    draft.sync()?;
    draft.rename(&live).map_err(OpenError::io(&live, "give the new log its name"))
}

pub(crate) fn remove_if_present(env: &dyn Env, path: &Path) -> Result<(), OpenError> {
    match env.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(OpenError::io(path, "remove what a crash left over")(error))
        }
        _ => Ok(()),
    }
}

/// Syncs the directory and all its ancestors: any of them may be new too.
///
/// An ancestor that this user may not read was not made by this user, and is passed over.
pub(crate) fn sync_names(env: &dyn Env, dir: &Path) -> Result<(), OpenError> {
    if sabotage::is(Sabotage::SkipNameSync) {
        return Ok(());
    }
    env.sync_dir(dir).map_err(OpenError::io(dir, "sync the directory"))?;
    let absolute = std::path::absolute(dir).map_err(OpenError::io(dir, "find the parent of"))?;
    for ancestor in absolute.ancestors().skip(1) {
        match env.sync_dir(ancestor) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => break,
            result => result.map_err(OpenError::io(ancestor, "sync the directory"))?,
        }
    }
    Ok(())
}
