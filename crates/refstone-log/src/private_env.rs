//! The operating system's files, for the eyes of their owner alone.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::env::{Env, EnvFile, EnvLock};
use crate::layer::EnvLayer;
use crate::os_env::{OsEnv, OsFile};
use crate::reclaim;

const FILE: u32 = 0o600;
const DIR: u32 = 0o700;
/// What the group and all others may do.
const OTHERS: u32 = 0o077;

/// Files that only their owner may read or write, whatever the umask: they and their directory are
/// made with the modes 0600 and 0700.
///
/// A file or a directory that lets others in is refused, not repaired: what others could read may
/// have been read, and somebody must know.
#[derive(Clone, Copy, Debug, Default)]
pub struct PrivateOsEnv;

impl EnvLayer for PrivateOsEnv {
    fn below(&self) -> &dyn Env {
        &OsEnv
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn EnvFile>> {
        let options = OpenOptions::new().read(true).write(true).create_new(true).mode(FILE).clone();
        let file = options.open(path)?;
        // The umask may have taken bits off: the owner must be able to open it again.
        file.set_permissions(Permissions::from_mode(FILE))?;
        Ok(Box::new(OsFile(file)))
    }

    fn open_read(&self, path: &Path) -> io::Result<Box<dyn EnvFile>> {
        let file = reclaim::open_named(|| fs::File::open(path))?;
        check(&file.metadata()?)?;
        Ok(Box::new(OsFile(file)))
    }

    fn open_write(&self, path: &Path) -> io::Result<Box<dyn EnvFile>> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        check(&file.metadata()?)?;
        Ok(Box::new(OsFile(file)))
    }

    /// Directories above the last are made as others are.
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        match DirBuilder::new().mode(DIR).create(path) {
            Ok(()) => fs::set_permissions(path, Permissions::from_mode(DIR)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Also looks at the directory that the lock is in.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn EnvLock>> {
        if let Some(dir) = path.parent() {
            check(&fs::metadata(dir)?)?;
        }
        match EnvLayer::create_new(self, path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => OsEnv.lock(path),
        }
    }
}

fn check(metadata: &fs::Metadata) -> io::Result<()> {
    let mode = metadata.permissions().mode() & 0o7777;
    let (what, wanted) = if metadata.is_dir() { ("directory", DIR) } else { ("file", FILE) };
    if mode & OTHERS == 0 {
        return Ok(());
    }
    let problem = format!(
        "the {what} has the mode {mode:04o}, so that others than its owner can read or change what \
         is secret; take the secrets for known, `chmod {wanted:o}` the {what}, and try again"
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, problem))
}
