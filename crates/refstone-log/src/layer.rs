//! Environments that change a few operations of another one.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;

use crate::env::{Env, EnvFile, EnvLock, FileId};
use crate::seq::Timestamp;

/// An [`Env`] above another: what it does not define the one below does.
///
/// ```
/// use refstone_log::{Env, EnvLayer, OsEnv, Timestamp};
///
/// /// The operating system at the beginning of 1970.
/// #[derive(Debug)]
/// struct Stopped;
///
/// impl EnvLayer for Stopped {
///     fn below(&self) -> &dyn Env {
///         &OsEnv
///     }
///
///     fn now(&self) -> Timestamp {
///         Timestamp::from_micros(0)
///     }
/// }
///
/// let env: &dyn Env = &Stopped;
/// assert_eq!(env.now().as_micros(), 0);
/// ```
#[allow(clippy::missing_errors_doc, reason = "each method is that of the trait `Env`")]
pub trait EnvLayer: fmt::Debug + Send + Sync {
    /// The environment that does what this one does not.
    fn below(&self) -> &dyn Env;

    /// Every file that is created or opened here goes through this; see [`FileLayer`].
    fn wrap(&self, path: &Path, file: Box<dyn EnvFile>) -> Box<dyn EnvFile> {
        let _ = path;
        file
    }

    /// See [`Env::create_new`].
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn EnvFile>> {
        Ok(self.wrap(path, self.below().create_new(path)?))
    }

    /// See [`Env::open_read`].
    fn open_read(&self, path: &Path) -> io::Result<Box<dyn EnvFile>> {
        Ok(self.wrap(path, self.below().open_read(path)?))
    }

    /// See [`Env::open_write`].
    fn open_write(&self, path: &Path) -> io::Result<Box<dyn EnvFile>> {
        Ok(self.wrap(path, self.below().open_write(path)?))
    }

    /// See [`Env::create_dir_all`].
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.below().create_dir_all(path)
    }

    /// See [`Env::rename`].
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.below().rename(from, to)
    }

    /// See [`Env::remove`].
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.below().remove(path)
    }

    /// See [`Env::list`].
    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        self.below().list(dir)
    }

    /// See [`Env::sync_dir`].
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.below().sync_dir(dir)
    }

    /// See [`Env::lock`].
    fn lock(&self, path: &Path) -> io::Result<Box<dyn EnvLock>> {
        self.below().lock(path)
    }

    /// See [`Env::hard_link`].
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.below().hard_link(from, to)
    }

    /// See [`Env::free_space`].
    fn free_space(&self, path: &Path) -> io::Result<Option<u64>> {
        self.below().free_space(path)
    }

    /// See [`Env::now`].
    fn now(&self) -> Timestamp {
        self.below().now()
    }

    /// See [`Env::random_id`].
    fn random_id(&self) -> io::Result<[u8; 16]> {
        self.below().random_id()
    }
}

impl<L: EnvLayer> Env for L {
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn EnvFile>> {
        EnvLayer::create_new(self, path)
    }

    fn open_read(&self, path: &Path) -> io::Result<Box<dyn EnvFile>> {
        EnvLayer::open_read(self, path)
    }

    fn open_write(&self, path: &Path) -> io::Result<Box<dyn EnvFile>> {
        EnvLayer::open_write(self, path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        EnvLayer::create_dir_all(self, path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        EnvLayer::rename(self, from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        EnvLayer::remove(self, path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        EnvLayer::list(self, dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        EnvLayer::sync_dir(self, dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn EnvLock>> {
        EnvLayer::lock(self, path)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        EnvLayer::hard_link(self, from, to)
    }

    fn free_space(&self, path: &Path) -> io::Result<Option<u64>> {
        EnvLayer::free_space(self, path)
    }

    fn now(&self) -> Timestamp {
        EnvLayer::now(self)
    }

    fn random_id(&self) -> io::Result<[u8; 16]> {
        EnvLayer::random_id(self)
    }
}

/// An [`EnvFile`] above another, as [`EnvLayer`] is an [`Env`] above another.
#[allow(clippy::missing_errors_doc, reason = "each method is that of the trait `EnvFile`")]
#[allow(clippy::len_without_is_empty, reason = "the trait `EnvFile` has it")]
pub trait FileLayer: fmt::Debug + Send + Sync {
    /// The file that does what this one does not.
    fn below(&self) -> &dyn EnvFile;

    /// The same above a duplicate of the file below.
    fn above(&self, duplicate: Box<dyn EnvFile>) -> Box<dyn EnvFile>;

    /// See [`EnvFile::read_at`].
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.below().read_at(buffer, offset)
    }

    /// See [`EnvFile::will_read`].
    fn will_read(&self, part: Range<u64>) {
        self.below().will_read(part);
    }

    /// See [`EnvFile::write_at`].
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.below().write_at(bytes, offset)
    }

    /// See [`EnvFile::sync_data`].
    fn sync_data(&self) -> io::Result<()> {
        self.below().sync_data()
    }

    /// See [`EnvFile::len`].
    fn len(&self) -> io::Result<u64> {
        self.below().len()
    }

    /// See [`EnvFile::give_back`].
    fn give_back(&self) {
        self.below().give_back();
    }

    /// See [`EnvFile::id`].
    fn id(&self) -> io::Result<Option<FileId>> {
        self.below().id()
    }

    /// See [`EnvFile::try_clone`].
    fn try_clone(&self) -> io::Result<Box<dyn EnvFile>> {
        Ok(self.above(self.below().try_clone()?))
    }
}

impl<L: FileLayer> EnvFile for L {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileLayer::read_at(self, buffer, offset)
    }

    fn will_read(&self, part: Range<u64>) {
        FileLayer::will_read(self, part);
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        FileLayer::write_at(self, bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        FileLayer::sync_data(self)
    }

    fn len(&self) -> io::Result<u64> {
        FileLayer::len(self)
    }

    fn give_back(&self) {
        FileLayer::give_back(self);
    }

    fn id(&self) -> io::Result<Option<FileId>> {
        FileLayer::id(self)
    }

    fn try_clone(&self) -> io::Result<Box<dyn EnvFile>> {
        FileLayer::try_clone(self)
    }
}
