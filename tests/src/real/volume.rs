//! A small file system of its own, on an image that can lose its power.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use super::Cutter;

/// Why a test that needs a real file system did not run.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Skipped(pub String);

/// A file system of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fs {
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
}

impl Fs {
    /// Its name, as `mount` and `mkfs` have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Fs::Ext4 => "ext4",
            Fs::Xfs => "xfs",
            Fs::Btrfs => "btrfs",
        }
    }

    /// A size in MiB that `mkfs` accepts without complaint.
    fn mebibytes(self) -> u64 {
        match self {
            Fs::Ext4 => 96,
            Fs::Xfs => 320,
            Fs::Btrfs => 256,
        }
    }

    pub(super) fn mkfs(self, image: &Path) -> Command {
        let mut command = Command::new(format!("mkfs.{}", self.name()));
        match self {
            Fs::Ext4 => command.args(["-q", "-F", "-E", "nodiscard"]),
            Fs::Xfs => command.args(["-q", "-f", "-K"]),
            Fs::Btrfs => command.args(["-q", "-f", "-K", "-m", "single"]),
        };
        command.arg(image);
        command
    }

    /// The method, or another if the file system cannot be shut down by itself.
    #[must_use]
    pub fn possible(self, method: Method) -> Method {
        if self == Fs::Btrfs { Method::Disk } else { method }
    }

    /// Mount options worth a cut: the file system orders its writes in another way under each.
    #[must_use]
    pub fn options(self) -> &'static [&'static str] {
        match self {
            Fs::Ext4 => &["data=ordered", "data=writeback", "data=journal", "nodelalloc"],
            Fs::Xfs => &["nodiscard"],
            Fs::Btrfs => &["nodiscard", "nodiscard,nodatacow", "nodiscard,flushoncommit"],
        }
    }
}

impl FromStr for Fs {
    type Err = String;

    fn from_str(name: &str) -> Result<Fs, String> {
        let known = [Fs::Ext4, Fs::Xfs, Fs::Btrfs];
        known
            .into_iter()
            .find(|fs| fs.name() == name)
            .ok_or_else(|| format!("unknown file system {name}: expected ext4, xfs or btrfs"))
    }
}

/// How the power is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The file system is shut down: what it has not handed to its disk is lost.
    FileSystem,
    /// The disk is cut off: what it was not told to flush is lost. The image lies on a file system
    /// that is shut down, and a flush of the image's device is an `fsync` there.
    Disk,
}

/// A mounted file system. Dropping it takes everything down.
#[derive(Debug)]
pub struct Volume {
    scratch: TempDir,
    fs: Fs,
    method: Method,
    options: String,
}

/// The file system under the image, if the disk is to be cut off.
const DISK_OPTIONS: &str = "data=ordered";

impl Volume {
    /// Makes a file system and mounts it. Its images lie in memory if there is a `/dev/shm`.
    ///
    /// # Errors
    /// If this machine lacks what that takes: root, loop devices, the file system or its tools.
    pub fn new(fs: Fs, method: Method, options: &str) -> Result<Volume, Skipped> {
        let skipped = |error: io::Error| Skipped(format!("no {} to cut: {error}", fs.name()));
        let memory = Path::new("/dev/shm");
        let scratch = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
        let scratch = scratch.map_err(skipped)?;
        let volume = Volume { scratch, fs, method, options: options.to_owned() };
        volume.make().map_err(skipped)?;
        Ok(volume)
    }

    fn make(&self) -> io::Result<()> {
        for dir in [self.root(), self.disk()] {
            std::fs::create_dir(dir)?;
        }
        if self.method == Method::Disk {
            let image = self.scratch.path().join("disk.image");
            File::create(&image)?.set_len((self.fs.mebibytes() + 64) << 20)?;
            run(&mut Fs::Ext4.mkfs(&image))?;
            mount(Fs::Ext4, DISK_OPTIONS, &image, &self.disk())?;
        }
        File::create(self.image())?.set_len(self.fs.mebibytes() << 20)?;
        run(&mut self.fs.mkfs(&self.image()))?;
        if self.method == Method::Disk {
            // What `mkfs` made is no part of the test.
            File::open(self.image())?.sync_all()?;
        }
        mount(self.fs, &self.options, &self.image(), &self.root())
    }

    /// Where the file system is mounted.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.scratch.path().join("root")
    }

    fn disk(&self) -> PathBuf {
        self.scratch.path().join("disk")
    }

    /// The image that the file system lies on.
    #[must_use]
    pub fn image(&self) -> PathBuf {
        match self.method {
            Method::FileSystem => self.scratch.path().join("image"),
            Method::Disk => self.disk().join("image"),
        }
    }

    /// Cuts the power, and returns the time just before, in nanoseconds since the Unix epoch.
    ///
    /// Nothing that is written from then on is kept. A sync that is under way may claim otherwise:
    /// ext4 takes a transaction of its journal that was given up meanwhile for one that is done.
    ///
    /// # Errors
    /// If the kernel cannot do it.
    pub fn cut(&self, cutter: &mut Cutter, flush_journal: bool) -> io::Result<u64> {
        match self.method {
            Method::FileSystem => cutter.cut(&self.root(), flush_journal),
            // A journal that is flushed flushes the data first, which is more than a disk does.
            Method::Disk => cutter.cut(&self.disk(), false),
        }
    }

    /// Mounts again what is left after a cut. Nobody may use the file system.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn power_up(&self) -> io::Result<()> {
        umount(&self.root())?;
        if self.method == Method::Disk {
            umount(&self.disk())?;
            mount(Fs::Ext4, DISK_OPTIONS, &self.scratch.path().join("disk.image"), &self.disk())?;
        }
        mount(self.fs, &self.options, &self.image(), &self.root())
    }
}

impl fmt::Display for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Volume { fs, method, options, .. } = self;
        write!(f, "{} ({options}), {method:?}", fs.name())
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // There is nobody to tell.
        for dir in [self.root(), self.disk()] {
            if is_mounted(&dir) {
                let _ = umount(&dir);
            }
        }
    }
}

/// Mounts an image.
///
/// # Errors
/// As `mount` says.
pub(super) fn mount(fs: Fs, options: &str, image: &Path, to: &Path) -> io::Result<()> {
    let options = format!("loop,{options}");
    // The device of the last mount may take a moment to let go of the image.
    retry(|| run(Command::new("mount").args(["-t", fs.name(), "-o", &options]).arg(image).arg(to)))
}

/// Takes a file system down.
///
/// # Errors
/// As `umount` says.
pub(super) fn umount(from: &Path) -> io::Result<()> {
    retry(|| run(Command::new("umount").arg(from)))
}

/// Whether something is mounted there.
pub(super) fn is_mounted(dir: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().any(|line| line.split(' ').nth(1).map(Path::new) == Some(dir))
}

fn retry(mut action: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    for _ in 0..20 {
        if action().is_ok() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(50));
    }
    action()
}

/// Runs a command that must succeed.
pub(super) fn run(command: &mut Command) -> io::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{name}: {}", errors.trim())))
}
