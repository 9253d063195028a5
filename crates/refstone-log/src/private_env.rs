//! The operating system's files, for the eyes of their owner alone.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::env::{Env, EnvFile, EnvLock};
use crate::os_env::{OsEnv, OsFile};
use crate::seq::Timestamp;

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

impl Env for PrivateOsEnv {
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn EnvFile>> {
        let options = OpenOptions::new().read(true).write(true).create_new(true).mode(FILE).clone();
        let file = options.open(path)?;
        // The umask may have taken bits off: the owner must be able to open it again.
        file.set_permissions(Permissions::from_mode(FILE))?;
        Ok(Box::new(OsFile(file)))
    }

    fn open_read(&self, path: &Path) -> io::Result<Box<dyn EnvFile>> {
        let file = fs::File::open(path)?;
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

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsEnv.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        OsEnv.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        OsEnv.list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        OsEnv.sync_dir(dir)
    }

    /// Also looks at the directory that the lock is in.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn EnvLock>> {
        if let Some(dir) = path.parent() {
            check(&fs::metadata(dir)?)?;
        }
        match self.create_new(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => OsEnv.lock(path),
        }
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsEnv.hard_link(from, to)
    }

    fn free_space(&self, path: &Path) -> io::Result<Option<u64>> {
        OsEnv.free_space(path)
    }

    fn now(&self) -> Timestamp {
        OsEnv.now()
    }

    fn random_id(&self) -> io::Result<[u8; 16]> {
        OsEnv.random_id()
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
