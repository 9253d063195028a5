//! The real [`Env`]: the operating system's files, `flock`, and the wall clock.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{Advice, fadvise};

use crate::env::{Env, EnvFile, EnvLock, FileId};
use crate::reclaim;
use crate::seq::Timestamp;

/// Files of the operating system.
///
/// Descriptors are close-on-exec, so a child process never holds a log's lock.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsEnv;

impl Env for OsEnv {
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn EnvFile>> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        Ok(Box::new(OsFile(file)))
    }

    fn open_read(&self, path: &Path) -> io::Result<Box<dyn EnvFile>> {
        Ok(Box::new(OsFile(reclaim::open_named(|| File::open(path))?)))
    }

    fn open_write(&self, path: &Path) -> io::Result<Box<dyn EnvFile>> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Box::new(OsFile(file)))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let large = open_large(path);
        fs::remove_file(path)?;
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        if let Some(file) = large
            && self.sync_dir(dir.unwrap_or(Path::new("."))).is_ok()
        {
            OsFile(file).give_back();
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name())).collect()
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn EnvLock>> {
        let options =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).clone();
        loop {
            let file = options.open(path)?;
            file.try_lock().map_err(|error| match error {
                TryLockError::WouldBlock => io::ErrorKind::WouldBlock.into(),
                TryLockError::Error(error) => error,
            })?;
            // Somebody may have replaced the file between our open and our lock: a lock on a
            // file that no longer has the name excludes nobody.
            if has_name(&file, path)? {
                return Ok(Box::new(OsLock(file)));
            }
        }
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn free_space(&self, path: &Path) -> io::Result<Option<u64>> {
        let of = rustix::fs::statvfs(path)?;
        // Some file systems know no limit, and say that they have no blocks at all.
        let known = of.f_blocks > 0;
        Ok(known.then(|| of.f_bavail.saturating_mul(of.f_frsize)))
    }

    fn now(&self) -> Timestamp {
        let micros = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_micros()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |m| -m),
        };
        Timestamp::from_micros(micros)
    }

    fn random_id(&self) -> io::Result<[u8; 16]> {
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(id)
    }
}

/// A file whose space is worth being given back in steps. The file may go without.
fn open_large(path: &Path) -> Option<File> {
    let of = fs::symlink_metadata(path).ok()?;
    (of.is_file() && of.len() > reclaim::STEP).then_some(())?;
    OpenOptions::new().read(true).write(true).open(path).ok()
}

fn has_name(file: &File, path: &Path) -> io::Result<bool> {
    let held = file.metadata()?;
    match fs::metadata(path) {
        Ok(named) => Ok((held.dev(), held.ino()) == (named.dev(), named.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[derive(Debug)]
pub(crate) struct OsFile(pub(crate) File);

impl EnvFile for OsFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(&self.0, buffer, offset)
    }

    fn will_read(&self, part: Range<u64>) {
        // A refusal costs nothing but the wait.
        if let Some(len) = NonZeroU64::new(part.end.saturating_sub(part.start)) {
            let _ = fadvise(&self.0, part.start, Some(len), Advice::WillNeed);
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(&self.0, bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn give_back(&self) {
        // What is not given back now is when the file is closed.
        let _ = reclaim::give_back(&self.0);
    }

    fn id(&self) -> io::Result<Option<FileId>> {
        let of = self.0.metadata()?;
        Ok(Some(FileId::new(of.dev(), of.ino(), of.created().ok())))
    }

    fn try_clone(&self) -> io::Result<Box<dyn EnvFile>> {
        Ok(Box::new(OsFile(self.0.try_clone()?)))
    }
}

/// A lock of the open file description, so of every duplicate of the descriptor.
#[derive(Debug)]
struct OsLock(File);

impl EnvLock for OsLock {}

impl Drop for OsLock {
    fn drop(&mut self) {
        // Closing is not enough: a child that another thread has just forked holds a duplicate
        // until its exec closes it, and with it the lock. If this fails, closing follows.
        let _ = self.0.unlock();
    }
}
