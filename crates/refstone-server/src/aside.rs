//! A directory that is built under another name, and put in its place by one rename.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::init::{self, InitError, InitOptions};
use crate::quarantine::sync_directory;
use crate::repository::LOG_DIRECTORY;

/// A directory being built beside the place it is for, as `.<name>.init-<random>`.
///
/// Its place is absent or empty until [`publish`](Aside::publish), and complete after it, whenever
/// the power fails. Dropping it removes it. What a killed process left is removed by the next that
/// builds for the same place: whoever builds holds a lock that dies with the process.
#[derive(Debug)]
pub struct Aside {
    directory: TempDir,
    _lock: File,
    target: PathBuf,
}

impl Aside {
    /// Starts to build for `path`. Directories above it that are missing are made, durably.
    ///
    /// # Errors
    ///
    /// If there is something at `path` other than an empty directory, or as the system says.
    pub fn begin(path: &Path) -> Result<Aside, InitError> {
        let path = &std::path::absolute(path).map_err(io_error(path, "find its place"))?;
        check_vacant(path)?;
        create_directories(parent(path)?)?;
        Aside::in_parent(path)
    }

    /// The same in a directory that must be there, for an absolute `path`.
    pub(crate) fn in_parent(path: &Path) -> Result<Aside, InitError> {
        check_vacant(path)?;
        let (parent, prefix) = (parent(path)?, prefix(path)?);
        sweep(parent, &prefix);
        loop {
            let directory = make(parent, &prefix)?;
            // A sweeper that came between the two calls has it, or has removed it.
            if let Some(_lock) = lock(directory.path()) {
                return Ok(Aside { directory, _lock, target: path.to_owned() });
            }
        }
    }

    /// Where it is being built.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Where it will be.
    #[must_use]
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Makes a bare repository for objects in it, as [`init_repository`](crate::init_repository)
    /// does, without a log.
    ///
    /// # Errors
    ///
    /// As git or the system says.
    pub fn init_objects(&self, options: &InitOptions) -> Result<(), InitError> {
        init::build_objects(self.path(), options)
    }

    /// Makes all in it durable, and puts it in its place.
    ///
    /// # Errors
    ///
    /// [`InitError::AlreadyExists`] if somebody was faster, or as the system says.
    pub fn publish(self) -> Result<(), InitError> {
        let Aside { directory, _lock, target } = self;
        let parent = parent(&target)?;
        sync_tree(directory.path()).map_err(io_error(directory.path(), "sync"))?;
        put_in_place(directory, &target)?;
        sync_directory(parent).map_err(io_error(parent, "sync"))
    }
}

fn lock(directory: &Path) -> Option<File> {
    let lock = File::open(directory).ok()?;
    lock.try_lock().ok()?;
    Some(lock)
}

/// Removes what nobody builds any more. What cannot be removed does no harm.
fn sweep(parent: &Path, prefix: &OsStr) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry.file_name().as_bytes().starts_with(prefix.as_bytes()) {
            continue;
        }
        if let Some(_lock) = lock(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// An empty directory is vacant: a rename replaces it.
fn check_vacant(path: &Path) -> Result<(), InitError> {
    let path = path.to_owned();
    let mut entries = match fs::read_dir(&path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(_) => return Err(InitError::Occupied { path }),
    };
    if entries.next().is_none() {
        Ok(())
    } else if path.join(LOG_DIRECTORY).exists() {
        Err(InitError::AlreadyExists { path })
    } else {
        Err(InitError::Occupied { path })
    }
}

/// Makes a directory and those above it that are missing. Each name is synced by whoever may have
/// lost the race for it, too: the winner may not have come so far.
fn create_directories(path: &Path) -> Result<(), InitError> {
    let Some(above) = path.parent().filter(|_| !path.is_dir()) else {
        return Ok(());
    };
    create_directories(above)?;
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        made => made.map_err(io_error(path, "create the directory"))?,
    }
    sync_directory(above).map_err(io_error(above, "sync"))
}

fn parent(path: &Path) -> Result<&Path, InitError> {
    path.parent().ok_or_else(|| InitError::NoName { path: path.to_owned() })
}

fn prefix(path: &Path) -> Result<OsString, InitError> {
    let name = path.file_name().ok_or_else(|| InitError::NoName { path: path.to_owned() })?;
    let mut prefix = OsString::from(".");
    prefix.push(name);
    prefix.push(".init-");
    Ok(prefix)
}

fn make(parent: &Path, prefix: &OsStr) -> Result<TempDir, InitError> {
    // The usual mode of a directory, less the umask; a temporary directory would stay private.
    let mode = Permissions::from_mode(0o777);
    let mut builder = tempfile::Builder::new();
    let made = builder.prefix(prefix).permissions(mode).tempdir_in(parent);
    made.map_err(io_error(parent, "create a directory"))
}

/// Children before their directories, so that a directory never names what is not there.
fn sync_tree(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_tree(&entry.path())?;
        } else {
            File::open(entry.path())?.sync_all()?;
        }
    }
    sync_directory(directory)
}

fn put_in_place(aside: TempDir, path: &Path) -> Result<(), InitError> {
    use io::ErrorKind::{AlreadyExists, DirectoryNotEmpty, NotADirectory};
    match fs::rename(aside.path(), path) {
        Ok(()) => {
            // It is no temporary directory any more, and under its old name there is none.
            drop(aside.keep());
            Ok(())
        }
        Err(error) if matches!(error.kind(), AlreadyExists | DirectoryNotEmpty) => {
            check_vacant(path).and(Err(io_error(path, "take its place")(error)))
        }
        Err(error) if error.kind() == NotADirectory => {
            Err(InitError::Occupied { path: path.to_owned() })
        }
        Err(error) => Err(io_error(path, "take its place")(error)),
    }
}

pub(crate) fn io_error(
    path: &Path,
    operation: &'static str,
) -> impl FnOnce(io::Error) -> InitError + use<> {
    let path = path.to_owned();
    move |source| InitError::Io { path, operation, source }
}
