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
use crate::env::{Env, EnvFile};
use crate::error::OpenError;
use crate::files;
use crate::frame::{EOS, PREFIX_LEN, WORD_LEN};
use crate::walk::{Step, Walk};

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
        Ok(_) => Ok(true),
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
/// The walk reads the old file. Every frame is verified again, and the bytes that were verified are
/// written: between two readings the kernel may drop what only its cache had.
pub(crate) fn renew(
    env: &dyn Env,
    dir: &Path,
    old: &dyn EnvFile,
    walk: &mut Walk,
    unpublished: &[u64],
) -> Result<Arc<dyn EnvFile>, OpenError> {
    let (path, live) = (files::live_temporary(dir), files::live(dir));
    remove_if_present(env, &path)?;
    let file = env.create_new(&path).map_err(OpenError::io(&path, "create"))?;
    let end = walk.tail.seq;
    walk.restart();
    crate::recover::copy(old, 0..walk.tail.offset, &*file, 0)
        .map_err(OpenError::io(&path, "copy the schema to"))?;
    let written = |result: io::Result<()>| result.map_err(OpenError::io(&path, "write"));
    while walk.tail.seq < end {
        let offset = walk.tail.offset;
        match walk.step()? {
            Step::Frame { .. } => {
                let mut bytes = walk.frame().as_bytes().to_vec();
                if !unpublished.contains(&offset) {
                    bytes[PREFIX_LEN - WORD_LEN..PREFIX_LEN].copy_from_slice(&walk.layout.word());
                }
                written(file.write_all_at(&bytes, offset))?;
            }
            Step::End { problem } => return Err(walk.damage(problem.into())),
        }
    }
    let after = walk.tail.offset + PREFIX_LEN as u64;
    written(file.write_all_at(&EOS, walk.tail.offset))?;
    written(file.write_zeros_at(after..after + FIRST_EXTENT))?;
    file.sync_data().map_err(OpenError::io(&path, "sync"))?;
    env.rename(&path, &live).map_err(OpenError::io(&live, "give the new file the name"))?;
    env.sync_dir(dir).map_err(OpenError::io(dir, "sync the directory"))?;
    Ok(Arc::from(file))
}
