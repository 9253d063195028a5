//! Small file systems of their own, for tests of full and read-only disks.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A file system in memory, unmounted when dropped.
#[derive(Debug)]
pub struct Tmpfs {
    root: TempDir,
}

impl Tmpfs {
    /// Mounts one of so many MiB. `None`, and a loud word, where this user may not mount.
    ///
    /// # Panics
    /// If there is no temporary directory.
    #[must_use]
    pub fn mount(mib: u64) -> Option<Tmpfs> {
        let root = TempDir::new().expect("a scratch directory");
        let size = format!("size={mib}m,mode=755");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "refstone-test"]).arg(root.path());
        match mount.output() {
            Ok(output) if output.status.success() => Some(Tmpfs { root }),
            failed => {
                // The macros are silenced in a test that passes.
                let line = format!("SKIPPED: a test that needs to mount a tmpfs: {failed:?}\n");
                let _ = io::stderr().write_all(line.as_bytes());
                None
            }
        }
    }

    /// Its root directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.root.path()
    }

    /// Takes space until only so many KiB are free.
    ///
    /// # Panics
    /// If the file system is not as full then as it should be.
    pub fn fill_but(&self, kib: u64) {
        let mut filler = File::options().create(true).append(true).open(self.filler());
        let filler = filler.as_mut().expect("a file that takes space");
        while self.free_kib() > kib {
            let step = (self.free_kib() - kib).min(64);
            let bytes = vec![1; usize::try_from(step << 10).expect("64 KiB at most")];
            if filler.write_all(&bytes).is_err() {
                break;
            }
        }
        assert!(self.free_kib() <= kib);
    }

    /// Gives the space back.
    ///
    /// # Panics
    /// If nothing was filled.
    pub fn empty(&self) {
        fs::remove_file(self.filler()).expect("a file that took space");
    }

    /// Makes it read-only, or not.
    ///
    /// # Panics
    /// If that fails, as it does while somebody writes.
    pub fn set_read_only(&self, read_only: bool) {
        let option = if read_only { "remount,ro" } else { "remount,rw" };
        let status = Command::new("mount").args(["-o", option]).arg(self.path()).status();
        assert!(status.expect("mount").success());
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }

    fn free_kib(&self) -> u64 {
        use refstone_log::Env;
        let free = refstone_log::OsEnv.free_space(self.path()).expect("a mounted file system");
        free.expect("a tmpfs knows its size") >> 10
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // Lazily: a process that a failed test left may still be in it.
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}
