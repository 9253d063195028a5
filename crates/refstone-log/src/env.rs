//! The I/O seam: every file operation, the lock, the clock and the random log id.
//!
//! Nothing else in this crate touches the operating system, so a test that replaces the [`Env`]
//! sees, and may fail, every operation.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::time::SystemTime;

use crate::seq::Timestamp;

/// Files, directories, locks and time, as a log uses them: also under its locks, so an
/// implementation must not use the log or the store.
pub trait Env: fmt::Debug + Send + Sync {
    /// Creates a file that must not exist, for reading and writing.
    ///
    /// # Errors
    /// As the operating system says; `AlreadyExists` if there is such a file.
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn EnvFile>>;

    /// Opens a file for reading.
    ///
    /// # Errors
    /// As the operating system says; `NotFound` if there is no such file.
    fn open_read(&self, path: &Path) -> io::Result<Box<dyn EnvFile>>;

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// As the operating system says; `NotFound` if there is no such file.
    fn open_write(&self, path: &Path) -> io::Result<Box<dyn EnvFile>>;

    /// Creates a directory and its parents; one that exists is fine.
    ///
    /// # Errors
    /// As the operating system says.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Gives a file another name, replacing what had it.
    ///
    /// # Errors
    /// As the operating system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file. One may give back its space little by little, as
    /// [`EnvFile::give_back`] does.
    ///
    /// # Errors
    /// As the operating system says.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// The names in a directory, in no particular order.
    ///
    /// # Errors
    /// As the operating system says.
    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// As the operating system says. After an error nothing is known of the names.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Takes the exclusive lock on a file, creating it if absent, without waiting.
    ///
    /// The lock must die with the process, and must belong to the file that has this name now.
    ///
    /// # Errors
    /// `WouldBlock` if somebody holds it, else as the operating system says.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn EnvLock>>;

    /// Gives a file a second name, which must be free.
    ///
    /// # Errors
    /// As the operating system says; `AlreadyExists` if there is something of that name.
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let _ = (from, to);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Bytes that this user may still write to the file system of a path; `None` if nobody knows.
    ///
    /// # Errors
    /// As the operating system says.
    fn free_space(&self, path: &Path) -> io::Result<Option<u64>> {
        let _ = path;
        Ok(None)
    }

    /// The time now.
    fn now(&self) -> Timestamp;

    /// A fresh identity for a log.
    ///
    /// # Errors
    /// As the operating system says.
    fn random_id(&self) -> io::Result<[u8; 16]>;
}

/// An open file.
pub trait EnvFile: fmt::Debug + Send + Sync {
    /// Reads at an offset in bytes; fewer bytes than asked only at the end of the file or at a whim.
    ///
    /// # Errors
    /// As the operating system says.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Says that a part of the file will be read soon, so that reading it need not wait for the disk.
    /// Whoever cannot do anything about it does nothing.
    fn will_read(&self, part: Range<u64>) {
        let _ = part;
    }

    /// Writes at an offset in bytes; may write fewer bytes than given.
    ///
    /// # Errors
    /// As the operating system says.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Makes content and length durable.
    ///
    /// # Errors
    /// As the operating system says. After an error nothing is known of what was written.
    fn sync_data(&self) -> io::Result<()>;

    /// The length in bytes.
    ///
    /// # Errors
    /// As the operating system says.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file has no bytes.
    ///
    /// # Errors
    /// As the operating system says.
    fn is_empty(&self) -> io::Result<bool> {
        self.len().map(|len| len == 0)
    }

    /// Gives back the space of a file that durably has no name any more, little by little, so that others'
    /// syncs need not wait until the disk has dropped all of it. Whoever cannot, or cannot tell
    /// that nobody else reads the file, does nothing: closing it gives back all at once.
    ///
    /// Costs a sync per MiB.
    fn give_back(&self) {}

    /// Which file this is; `None` if nobody knows. Then a log does not let go of it
    /// ([`Log::rest`](crate::Log::rest)).
    ///
    /// # Errors
    /// As the operating system says.
    fn id(&self) -> io::Result<Option<FileId>> {
        Ok(None)
    }

    /// A duplicate of the descriptor (close-on-exec), which shares the kernel's error state.
    ///
    /// # Errors
    /// As the operating system says.
    fn try_clone(&self) -> io::Result<Box<dyn EnvFile>>;
}

/// What tells a file from all others, also from those that had its name before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    device: u64,
    inode: u64,
    /// The number of a removed file is given out again.
    born: Option<SystemTime>,
}

impl FileId {
    /// The file of this number on this device, with the time of its creation, if that is known.
    #[must_use]
    pub fn new(device: u64, inode: u64, born: Option<SystemTime>) -> FileId {
        FileId { device, inode, born }
    }
}

/// A held lock; dropping it releases.
pub trait EnvLock: fmt::Debug + Send + Sync {}

impl dyn EnvFile + '_ {
    /// Writes all bytes, going on after short and interrupted writes.
    ///
    /// # Errors
    /// As the operating system says; some of the bytes may have been written then.
    pub fn write_all_at(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write_at(bytes, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    bytes = &bytes[written..];
                    offset += written as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads until the buffer is full or the file ends; returns the bytes read.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn read_full_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// Writes zeros over a range.
    ///
    /// # Errors
    /// As the operating system says; some of the zeros may have been written then.
    pub fn write_zeros_at(&self, range: Range<u64>) -> io::Result<()> {
        const CHUNK: usize = 64 << 10;
        static ZEROS: [u8; CHUNK] = [0; CHUNK];
        let mut offset = range.start;
        while offset < range.end {
            let len = usize::try_from(range.end - offset).map_or(CHUNK, |left| left.min(CHUNK));
            self.write_all_at(&ZEROS[..len], offset)?;
            offset += len as u64;
        }
        Ok(())
    }
}
