//! Gives back the space of a large file little by little.
//!
//! A file system that is mounted with `discard` has the disk drop what is freed, and the syncs of
//! all others wait meanwhile: 13 to 19 ms for 115 MB in one piece, 1 ms for a megabyte at a time.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::Duration;

use crate::sabotage::{self, Sabotage};

/// What is freed between two syncs, in bytes. What is smaller is freed in one piece.
pub(crate) const STEP: u64 = 1 << 20;

/// The most steps that it takes.
const STEPS_MAX: u64 = 256;

/// How long is waited before the kernel is asked who has the file: for those who have looked the name up
/// while it was this file's, and are about to have it open.
const GRACE: Duration = Duration::from_millis(20);

/// Shortens the file to nothing, in steps, if it has no name any more and nobody else can read it. Else
/// whoever closes it last frees all of it at once.
///
/// Its having lost its name must be durable: a power cut would else bring back the name of a shorter
/// file.
pub(crate) fn give_back(file: &File) -> io::Result<()> {
    let of = file.metadata()?;
    if of.len() <= STEP || of.nlink() > 0 {
        return Ok(());
    }
    thread::sleep(GRACE);
    if !sabotage::is(Sabotage::TakeFromReaders) && !is_ours_alone(file)? {
        return Ok(());
    }
    let mut len = of.len();
    // Who closes the store waits for it: so many syncs are enough.
    let step = STEP.max(len / STEPS_MAX);
    while len > 0 {
        len = len.saturating_sub(step);
        file.set_len(len)?;
        file.sync_data()?;
    }
    Ok(())
}

/// A file that is opened by its name, and had one when it was open: from then on it is not shortened.
///
/// To open is to look the name up and then to get the file. In between another file may be given the
/// name, and this one be shortened, since nobody has it open.
pub(crate) fn open_named(open: impl Fn() -> io::Result<File>) -> io::Result<File> {
    let mut before = None;
    loop {
        let file = open()?;
        let of = file.metadata()?;
        let id = (of.dev(), of.ino());
        // A file system may count no names at all.
        if of.nlink() > 0 || before == Some(id) {
            return Ok(file);
        }
        before = Some(id);
    }
}

/// Whether nobody has it open, or mapped, but by this descriptor and its duplicates.
///
/// The kernel lets a file be leased for writing only then (`F_SETLEASE(2const)`). A file system
/// without leases answers with an error.
#[cfg(target_os = "linux")]
#[allow(
    unsafe_code,
    reason = "no library has leases; freeing in one piece holds commits up (above)"
)]
fn is_ours_alone(file: &File) -> io::Result<bool> {
    use std::os::fd::AsRawFd;

    /// Of `asm-generic/fcntl.h`.
    const F_SETSIG: libc::c_int = 10;
    let control = |command, argument: libc::c_int| {
        // SAFETY: these commands take a whole number, so nothing is read or written in memory. The
        // descriptor stays open while `file` is borrowed.
        match unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    // Somebody who opens it just now, by a link below /proc, would have a signal sent: one that is
    // ignored unless a program asks for it, instead of one that ends the process.
    control(F_SETSIG, libc::SIGURG)?;
    match control(libc::F_SETLEASE, libc::F_WRLCK) {
        Ok(()) => control(libc::F_SETLEASE, libc::F_UNLCK).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(not(target_os = "linux"))]
fn is_ours_alone(_: &File) -> io::Result<bool> {
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;
    use std::path::Path;

    use super::*;

    const LEN: u64 = 3 * STEP + 5;

    fn large(path: &Path) -> File {
        fs::write(path, vec![7; usize::try_from(LEN).unwrap()]).unwrap();
        File::options().read(true).write(true).open(path).unwrap()
    }

    /// What is left once the file has lost this name; `None` where files cannot be leased.
    fn left(file: &File, path: &Path) -> Option<u64> {
        fs::remove_file(path).unwrap();
        match give_back(file) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => None,
            done => done.map(|()| file.metadata().unwrap().len()).ok(),
        }
    }

    // Breaks: nothing freed; the last step left out.
    #[test]
    fn what_nobody_else_has_is_freed() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("old");
        let left = left(&large(&path), &path);
        assert!(matches!(left, Some(0) | None), "{left:?}");
    }

    // Breaks: no lease; one for reading, which a reader does not keep from being had.
    #[test]
    fn what_somebody_reads_stays_whole() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("old");
        let file = large(&path);
        let reader = File::open(&path).unwrap();
        assert!(matches!(left(&file, &path), Some(LEN) | None));
        assert_eq!(reader.metadata().unwrap().len(), LEN);
    }

    // Breaks: taking what is got first (a reader then sees a shorter file under the name); going on for
    // ever where no file has a name.
    #[test]
    fn a_file_that_has_lost_its_name_while_it_was_opened_is_not_read() {
        let scratch = tempfile::tempdir().unwrap();
        let [live, new] = ["live", "new"].map(|name| scratch.path().join(name));
        let old = large(&live);
        fs::write(&new, "new").unwrap();
        fs::rename(&new, &live).unwrap();
        let late = Cell::new(true);
        let open = || if late.take() { old.try_clone() } else { File::open(&live) };
        assert_eq!(open_named(open).unwrap().metadata().unwrap().len(), 3);
        assert_eq!(open_named(|| old.try_clone()).unwrap().metadata().unwrap().len(), LEN);
    }

    // Breaks: names that are not counted.
    #[test]
    fn what_has_another_name_stays_whole() {
        let scratch = tempfile::tempdir().unwrap();
        let [path, saved] = ["old", "saved"].map(|name| scratch.path().join(name));
        let file = large(&path);
        fs::hard_link(&path, &saved).unwrap();
        assert_eq!(left(&file, &path), Some(LEN));
        assert_eq!(fs::metadata(&saved).unwrap().len(), LEN);
    }
}
