//! Where the data lies: which file system, how much room, and whether its syncs mean anything.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::sys::statvfs::statvfs;
use tempfile::TempDir;

/// Chooses the directory for the data of all arms; else `target/bench-data` beside this crate.
pub const DIR_VARIABLE: &str = "REFSTONE_BENCH_DIR";

const SPARE_BYTES: u64 = 512 << 20;

/// The directory under which arms keep their data.
#[derive(Clone, Debug)]
pub struct Disk {
    dir: PathBuf,
    pub file_system: String,
}

impl Disk {
    pub fn open() -> Result<Disk> {
        let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench-data");
        let dir = env::var_os(DIR_VARIABLE).map_or_else(default, PathBuf::from);
        fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        let dir = dir.canonicalize()?;
        let mounts = fs::read_to_string("/proc/self/mountinfo").context("read the mounts")?;
        let file_system = file_system_of(&dir, &mounts).context("no mount holds the directory")?;
        Ok(Disk { dir, file_system })
    }

    /// On these a sync is free: nothing about durable commits can be measured.
    pub fn is_memory(&self) -> bool {
        matches!(self.file_system.as_str(), "tmpfs" | "ramfs" | "devtmpfs")
    }

    pub fn free_bytes(&self) -> Result<u64> {
        let stat = statvfs(&self.dir).with_context(|| format!("stat {}", self.dir.display()))?;
        Ok(stat.blocks_available() as u64 * stat.fragment_size() as u64)
    }

    /// Refuses to start what might fill the disk half way.
    pub fn require_room(&self, written_bytes: u64) -> Result<()> {
        check_room(self.free_bytes()?, written_bytes)
            .with_context(|| format!("{} (${DIR_VARIABLE} chooses another)", self.dir.display()))
    }

    /// A directory that vanishes with the value.
    pub fn scratch(&self, name: &str) -> Result<TempDir> {
        tempfile::Builder::new().prefix(name).tempdir_in(&self.dir).context("make a directory")
    }
}

fn check_room(free: u64, written: u64) -> Result<()> {
    let wanted = written / 2 * 5 + SPARE_BYTES;
    if free < wanted {
        bail!("{} MiB are free, and {} MiB are wanted", free >> 20, wanted >> 20);
    }
    Ok(())
}

/// The type of the file system of the innermost mount that holds `dir`. Of mounts at the same
/// place the last one counts: it hides the others.
fn file_system_of(dir: &Path, mountinfo: &str) -> Option<String> {
    let mounts = mountinfo.lines().filter_map(|line| {
        let (place, rest) = line.split_once(" - ")?;
        let point = place.split(' ').nth(4)?;
        let holds = dir.starts_with(point);
        holds.then(|| (point.len(), rest.split(' ').next().unwrap_or_default()))
    });
    mounts.max_by_key(|(len, _)| *len).map(|(_, kind)| kind.to_owned())
}

/// Drops the files of a directory tree from the page cache, as far as the kernel obeys.
///
/// Inodes and directory entries stay cached, and what another process maps stays too.
pub fn drop_page_cache(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("list {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            drop_page_cache(&path)?;
        } else {
            let file = File::open(&path)?;
            file.sync_all()?; // Dirty pages cannot be dropped.
            posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
28 27 0:21 / /proc rw - proc proc rw
29 27 0:23 / /data rw,relatime shared:1 - xfs /dev/vdb rw
30 29 0:24 / /data rw - tmpfs tmpfs rw
";

    #[test]
    fn the_innermost_mount_tells_the_file_system() {
        assert_eq!(file_system_of(Path::new("/srv"), MOUNTS).unwrap(), "ext4");
        assert_eq!(file_system_of(Path::new("/data/bench"), MOUNTS).unwrap(), "tmpfs");
        assert_eq!(file_system_of(Path::new("/database"), MOUNTS).unwrap(), "ext4");
    }

    // Breaks: a smaller factor, or no spare.
    #[test]
    fn little_room_is_refused() {
        let mib = 1 << 20;
        assert!(check_room(762 * mib, 100 * mib).is_ok());
        let refused = check_room(761 * mib, 100 * mib).unwrap_err();
        assert_eq!(refused.to_string(), "761 MiB are free, and 762 MiB are wanted");
    }
}
