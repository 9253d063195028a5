//! What a failed sync leaves: a file that must not be trusted again.
//!
//! After a failed sync the cache has bytes that the disk lacks, and writing them again is not enough.
//! ext4 leaves the blocks of new space unwritten when their first write fails, and takes its pages
//! for mapped: they are written again, the next sync succeeds, and yet after a power cut the blocks
//! read as zeros. All of that hangs on the file, and another file is free of it.
//!
//! So a sync of the live log that fails leaves a *mark* beside it, and who opens a marked log copies
//! it into a new file. The mark need not be durable: a power cut takes the cache too.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::create::{FIRST_EXTENT, remove_if_present};
use crate::draft::Draft;
use crate::env::{Env, EnvFile};
use crate::error::OpenError;
use crate::files;
use crate::frame::{EOS, PREFIX_LEN};
use crate::recover::{copy, write_verified};
use crate::sabotage::{self, Sabotage};
use crate::walk::Walk;

/// Leaves the mark, for the sake of a sync that has failed, or may.
pub(crate) fn mark(env: &dyn Env, dir: &Path) {
    // There may be a mark. If there is none and there will be none, the disk takes no names either,
    // and nothing better can be done.
    let _ = env.create_new(&files::doubted(dir));
}

/// Whether a sync of the live log has failed since it got its name.
pub(crate) fn is_marked(env: &dyn Env, dir: &Path) -> Result<bool, OpenError> {
    let path = files::doubted(dir);
    match env.open_read(&path) {
        Ok(_) => Ok(!sabotage::is(Sabotage::IgnoreDoubt)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(OpenError::io(&path, "open")(error)),
    }
}

/// Takes the mark away, once the live name is durably that of another file.
pub(crate) fn unmark(env: &dyn Env, dir: &Path) -> Result<(), OpenError> {
    remove_if_present(env, &files::doubted(dir))
}

/// Gives the live name to a new file with the transactions that the walk has passed, durably. Those at
/// the slots in `unpublished` stay so: until the name is durable nobody may see them.
///
/// The walk reads the old file.
pub(crate) fn renew(
    env: &dyn Env,
    dir: &Path,
    old: &dyn EnvFile,
    walk: &mut Walk,
    unpublished: &[u64],
) -> Result<Arc<dyn EnvFile>, OpenError> {
    let live = files::live(dir);
    let mut draft = Draft::start(env, &files::live_temporary(dir))?;
    let end = walk.tail.seq;
    walk.restart();
    copy(old, 0..walk.tail.offset, &*draft.file, 0)
        .map_err(OpenError::io(&draft.path, "copy the schema to"))?;
    write_verified(walk, end, unpublished, &*draft.file, &draft.path)?;
    let after = walk.tail.offset + PREFIX_LEN as u64;
    draft.write(&EOS, walk.tail.offset)?;
    draft.write_zeros(after..after + FIRST_EXTENT)?;
    draft.sync()?;
    draft.rename(&live).map_err(OpenError::io(&live, "give the new file the name"))?;
    env.sync_dir(dir).map_err(OpenError::io(dir, "sync the directory"))?;
    Ok(draft.file.clone())
}
