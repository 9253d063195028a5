//! Syncs that really fail: the disk under a file system runs full, and the kernel keeps in its
//! cache what the disk does not have.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use parking_lot::Mutex;
use tempfile::TempDir;

use super::Verdict;
use super::child::Writer;
use super::ledger::Ledger;
use super::observe;
use super::script::Cutter;
use super::volume::{Fs, Skipped, is_mounted, mount, run, umount};
use super::writer::Task;
use crate::sim::Rng;

/// What a series of failed syncs was like.
#[derive(Clone, Debug, Default)]
pub struct FailuresReport {
    /// Disks that ran full under a writer.
    pub disks: u64,
    /// Those of them on which a sync failed, and stopped the log.
    pub syncs_failed: u64,
    /// Transactions that were acknowledged in all.
    pub acknowledged: u64,
    /// Transactions whose outcome was answered as unknown.
    pub unknown: u64,
    /// Transactions that were refused, before or after a failure.
    pub refused: u64,
    /// Logs that were opened again at once, from the cache, while the disk was full.
    pub reopened_full: u64,
    /// Logs that refused to be, since the sync of their recovery failed as well.
    pub refused_full: u64,
    /// Logs that were opened again from the cache, once the disk had room.
    pub reopened: u64,
    /// Logs that opened only after the file system was mounted again.
    pub reopened_after_mount: u64,
    /// What was broken.
    pub violations: Vec<String>,
}

impl fmt::Display for FailuresReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} disks ran full, {} syncs failed; {} transactions acknowledged, {} of unknown \
             outcome, {} refused; {} logs reopened on the full disk, {} refused to; {} reopened once \
             there was room, {} after a remount; {} violations",
            self.disks,
            self.syncs_failed,
            self.acknowledged,
            self.unknown,
            self.refused,
            self.reopened_full,
            self.refused_full,
            self.reopened,
            self.reopened_after_mount,
            self.violations.len()
        )
    }
}

/// A series of disks that run full.
#[derive(Debug)]
pub struct FailedSyncs {
    program: PathBuf,
    rng: Rng,
    /// What happened.
    pub report: FailuresReport,
}

impl FailedSyncs {
    /// A series; `program` is the binary that becomes a writer.
    #[must_use]
    pub fn new(program: PathBuf, seed: u64) -> FailedSyncs {
        FailedSyncs { program, rng: Rng::new(seed), report: FailuresReport::default() }
    }

    /// Lets one disk run full, opens the log again, and compares what it said with the disk.
    ///
    /// # Errors
    /// If the machine lacks what that takes. What the log does wrong is in the report.
    pub fn fail(&mut self) -> Result<(), Skipped> {
        let cutter = Cutter::start().map_err(|error| Skipped(format!("no python3: {error}")))?;
        let mut disk = FullDisk::new(cutter)?;
        self.report.disks += 1;
        let disk_number = self.report.disks;
        let verdict = self.fail_on(&mut disk);
        self.report
            .violations
            .extend(verdict.err().map(|violation| format!("disk {disk_number}: {violation}")));
        Ok(())
    }

    fn fail_on(&mut self, disk: &mut FullDisk) -> Verdict {
        let ledger = self.write_until_it_fails(disk)?;
        let live = Task::log_dir(&disk.root()).join("refs.arrow");
        if !live.exists() {
            // The disk was too full for a log to be created, which nobody was told it was.
            return match ledger.acknowledged {
                0 => Ok(()),
                _ => Err("transactions were acknowledged, and there is no log".to_owned()),
            };
        }
        let mapped = self.rng.chance(500);
        if mapped {
            disk.cutter.map(&live).map_err(told)?;
        }
        // Readers see what is durable, also out of a cache that knows better.
        observe::before_recovery(&disk.root())?;
        let mut opened = None;
        if self.rng.chance(500) {
            opened = observe::recover(&disk.root()).ok();
            let counts = &mut self.report;
            *(if opened.is_some() {
                &mut counts.reopened_full
            } else {
                &mut counts.refused_full
            }) += 1;
        }
        disk.make_room().map_err(told)?;
        if opened.is_none() {
            opened = observe::recover(&disk.root()).ok();
            self.report.reopened += u64::from(opened.is_some());
        }
        // From here on the disk alone speaks.
        disk.cut_and_mount().map_err(told)?;
        let (recovered, _) = observe::recover(&disk.root())?;
        ledger.judge(&recovered.live, ledger.newest())?;
        match opened {
            None => self.report.reopened_after_mount += 1,
            Some((blessed, _)) if blessed == recovered => {}
            Some((blessed, _)) => {
                return Err(format!(
                    "{} transactions were opened, and {} are on the disk (mapped: {mapped})",
                    blessed.live.len(),
                    recovered.live.len()
                ));
            }
        }
        Ok(())
    }

    fn write_until_it_fails(&mut self, disk: &mut FullDisk) -> Verdict<Ledger> {
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let task = Task {
            root: disk.root(),
            round: self.rng.bits() >> 16,
            threads: 1 + self.rng.bits() % 6,
            rewrites: false,
            known: 0,
        };
        disk.fill((self.rng.bits() % 1024) << 10).map_err(told)?;
        let writer = Writer::start(&self.program, &task, &ledger).map_err(told)?;
        writer.doom();
        if writer.wait_for(|_| false)? {
            return Err("the writer did not stop".to_owned());
        }
        writer.kill()?;
        let ledger = ledger.lock().clone();
        let report = &mut self.report;
        report.acknowledged += ledger.acknowledged;
        report.unknown += ledger.unknown;
        report.refused += ledger.refused();
        report.syncs_failed += u64::from(ledger.unknown > 0);
        Ok(ledger)
    }
}

/// The name of the device that is mounted there.
fn device_of(root: &Path) -> io::Result<String> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let of = |line: &str| {
        let mut words = line.split(' ');
        let device = words.next()?.strip_prefix("/dev/")?.to_owned();
        (words.next().map(Path::new) == Some(root)).then_some(device)
    };
    mounts.lines().find_map(of).ok_or_else(|| io::Error::other("no device is mounted there"))
}

fn told(error: impl fmt::Display) -> String {
    error.to_string()
}

/// An ext4 on a sparse image, on a disk with room for little more than its journal.
#[derive(Debug)]
struct FullDisk {
    scratch: TempDir,
    cutter: Cutter,
    /// The device's queue setting that was changed, and what it was.
    setting: Option<(PathBuf, String)>,
}

impl FullDisk {
    const OPTIONS: &str = "data=ordered";

    fn new(cutter: Cutter) -> Result<FullDisk, Skipped> {
        let skipped = |error: io::Error| Skipped(format!("no ext4 on a disk to fill: {error}"));
        let scratch = TempDir::new().map_err(skipped)?;
        let mut disk = FullDisk { scratch, cutter, setting: None };
        disk.make().map_err(skipped)?;
        Ok(disk)
    }

    fn make(&mut self) -> io::Result<()> {
        fs::create_dir(self.root())?;
        fs::create_dir(self.disk())?;
        run(Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=24m", "tmpfs"])
            .arg(self.disk()))?;
        File::create(self.image())?.set_len(64 << 20)?;
        run(Fs::Ext4.mkfs(&self.image()).args(["-b", "4096", "-J", "size=4"]))?;
        mount(Fs::Ext4, Self::OPTIONS, &self.image(), &self.root())?;
        self.request_pages_one_by_one()?;
        self.go_round_the_journal()
    }

    /// Keeps the loop device honest: it reports a write that found room for its first pages alone
    /// as done. So it is asked for one page at a time.
    fn request_pages_one_by_one(&mut self) -> io::Result<()> {
        let device = device_of(&self.root())?;
        let setting = Path::new("/sys/block").join(device).join("queue/max_sectors_kb");
        self.setting = Some((setting.clone(), fs::read_to_string(&setting)?));
        fs::write(setting, "4")
    }

    /// The device outlives its mount, and others use it.
    fn restore_setting(&mut self) {
        if let Some((setting, value)) = self.setting.take() {
            let _ = fs::write(setting, value);
        }
    }

    /// Has every block of the journal written once, so that it has its place on the disk: what
    /// fails then is the log's own sync, and not the whole file system.
    fn go_round_the_journal(&self) -> io::Result<()> {
        for n in 0..600 {
            let file = File::create(self.root().join(format!("{n}")))?;
            file.sync_all()?;
            fs::remove_file(self.root().join(format!("{n}")))?;
        }
        Ok(())
    }

    fn root(&self) -> PathBuf {
        self.scratch.path().join("root")
    }

    fn disk(&self) -> PathBuf {
        self.scratch.path().join("disk")
    }

    fn image(&self) -> PathBuf {
        self.disk().join("image")
    }

    fn filler(&self) -> PathBuf {
        self.disk().join("filler")
    }

    /// Leaves room for so many bytes.
    fn fill(&self, room: u64) -> io::Result<()> {
        let mut filler = File::create(self.filler())?;
        let block = [1; 4096];
        while filler.write_all(&block).is_ok() {}
        let len = filler.metadata()?.len();
        filler.set_len(len.saturating_sub(room))
    }

    fn make_room(&self) -> io::Result<()> {
        fs::remove_file(self.filler())
    }

    /// Throws away what the kernel has in its cache, and mounts what the disk has.
    fn cut_and_mount(&mut self) -> io::Result<()> {
        self.cutter.cut(&self.root(), false)?;
        self.restore_setting();
        // Mappings die with their process.
        self.cutter = Cutter::start()?;
        umount(&self.root())?;
        mount(Fs::Ext4, Self::OPTIONS, &self.image(), &self.root())
    }
}

impl Drop for FullDisk {
    fn drop(&mut self) {
        self.restore_setting();
        // Whatever is mounted; there is nobody to tell.
        for dir in [self.root(), self.disk()] {
            if is_mounted(&dir) {
                let _ = umount(&dir);
            }
        }
    }
}
