//! Cuts the power under a writer, again and again, and judges what is left.

use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::child::{Event, Writer};
use super::ledger::Ledger;
use super::observe::{self, Outside};
use super::script::Cutter;
use super::volume::{Fs, Method, Skipped, Volume};
use super::writer::Task;
use super::{Seen, Verdict};
use crate::sim::Rng;

/// What the cut is aimed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A log that is being created.
    Creation,
    /// The instant in which it was created.
    Created,
    /// The first acknowledgement of a new log.
    FirstAcknowledgement,
    /// The instant in which the file has grown.
    Extension,
    /// A rewrite that is under way.
    Rewrite,
    /// The instant in which a rewrite is done.
    Rewritten,
    /// A log that is being opened after the last cut, and was not opened since.
    Recovery,
    /// Any time.
    Any,
}

impl Moment {
    /// All of them.
    pub const ALL: [Moment; 8] = [
        Moment::Creation,
        Moment::Created,
        Moment::FirstAcknowledgement,
        Moment::Extension,
        Moment::Rewrite,
        Moment::Rewritten,
        Moment::Recovery,
        Moment::Any,
    ];

    fn needs_new_log(self) -> bool {
        matches!(self, Moment::Creation | Moment::Created | Moment::FirstAcknowledgement)
    }
}

/// What a series of cuts was like.
#[derive(Clone, Debug, Default)]
pub struct CutsReport {
    /// Cuts whose outcome was judged.
    pub cuts: u64,
    /// How many of them were aimed at which moment.
    pub moments: [u64; Moment::ALL.len()],
    /// Transactions that were acknowledged in all.
    pub acknowledged: u64,
    /// Transactions that recovery found though nobody was told that they are durable.
    pub unacknowledged: u64,
    /// Acknowledged transactions that were not published on the disk, and that recovery published.
    pub proved: u64,
    /// Torn tails that recovery took off.
    pub torn: u64,
    /// Finished rewrites.
    pub rewritten: u64,
    /// Logs that pyarrow read after a cut and before recovery.
    pub outside: u64,
    /// What was broken.
    pub violations: Vec<String>,
}

impl CutsReport {
    /// Adds another series to this one.
    pub fn add(&mut self, other: &CutsReport) {
        self.cuts += other.cuts;
        self.acknowledged += other.acknowledged;
        self.unacknowledged += other.unacknowledged;
        self.proved += other.proved;
        self.torn += other.torn;
        self.rewritten += other.rewritten;
        self.outside += other.outside;
        self.violations.extend_from_slice(&other.violations);
        for (sum, more) in self.moments.iter_mut().zip(other.moments) {
            *sum += more;
        }
    }
}

impl fmt::Display for CutsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cuts", self.cuts)?;
        for (moment, count) in Moment::ALL.iter().zip(self.moments) {
            write!(f, ", {moment:?} {count}")?;
        }
        write!(
            f,
            "; {} transactions acknowledged, {} rewrites; recovery found {} more, published {}, \
             took off {} torn tails; pyarrow read {} logs before recovery; {} violations",
            self.acknowledged,
            self.rewritten,
            self.unacknowledged,
            self.proved,
            self.torn,
            self.outside,
            self.violations.len()
        )
    }
}

/// A series of cuts on one file system.
#[derive(Debug)]
pub struct PowerCuts {
    program: PathBuf,
    cutter: Cutter,
    outside: Option<Outside>,
    volume: Volume,
    method: Method,
    rng: Rng,
    round: u64,
    root: PathBuf,
    ledger: Arc<Mutex<Ledger>>,
    /// What happened.
    pub report: CutsReport,
}

impl PowerCuts {
    /// Prepares a file system; `program` is the binary that becomes a writer.
    ///
    /// # Errors
    /// If the machine lacks what that takes.
    pub fn new(program: PathBuf, fs: Fs, method: Method, seed: u64) -> Result<PowerCuts, Skipped> {
        let mut rng = Rng::new(seed);
        let cutter = Cutter::start().map_err(|error| Skipped(format!("no python3: {error}")))?;
        let volume = Volume::new(fs, method, rng.pick(fs.options()))?;
        Ok(PowerCuts {
            program,
            cutter,
            outside: None,
            root: volume.root(),
            volume,
            method,
            rng,
            round: 0,
            ledger: Arc::default(),
            report: CutsReport::default(),
        })
    }

    /// Has pyarrow look at every log after the cut and before its recovery.
    pub fn look_from_outside(&mut self, outside: Outside) {
        self.outside = Some(outside);
    }

    /// Cuts the power once, and judges what is left.
    ///
    /// # Errors
    /// If the machine does not do what it is told. What the log does wrong is in the report.
    pub fn cut(&mut self, moment: Moment) -> io::Result<()> {
        self.round += 1;
        if moment.needs_new_log() || !self.ledger.lock().created {
            self.new_log()?;
        }
        let verdict = self.cut_and_judge(moment)?;
        self.report.cuts += 1;
        self.report.moments[Moment::ALL.iter().position(|&each| each == moment).unwrap_or(0)] += 1;
        if let Err(violation) = verdict {
            let at = format!("cut {} of {}, {moment:?}", self.round, self.volume);
            self.report.violations.push(format!("{at}: {violation}"));
            // What is wrong once would be wrong with every cut that follows.
            self.new_log()?;
        }
        Ok(())
    }

    /// A new log, in a directory that nobody has used, instead of the last one.
    fn new_log(&mut self) -> io::Result<()> {
        let last =
            std::mem::replace(&mut self.root, self.volume.root().join(format!("{}", self.round)));
        if last != self.volume.root() {
            fs::remove_dir_all(last)?;
        }
        *self.ledger.lock() = Ledger::default();
        fs::create_dir(&self.root)?;
        // The directory of the test is there; those that the log makes in it are the log's.
        for dir in [&self.root, &self.volume.root()] {
            fs::File::open(dir)?.sync_all()?;
        }
        Ok(())
    }

    fn cut_and_judge(&mut self, moment: Moment) -> io::Result<Verdict> {
        let before = self.ledger.lock().clone();
        let task = Task {
            root: self.root.clone(),
            round: self.round,
            threads: 1 + self.rng.bits() % 6,
            rewrites: matches!(moment, Moment::Rewrite | Moment::Rewritten) || self.rng.chance(400),
            known: before.known(),
        };
        let writer = Writer::start(&self.program, &task, &self.ledger)?;
        let reached = self.reach(moment, &writer);
        self.stir();
        writer.doom();
        let flush_journal = self.rng.chance(300);
        {
            let mut ledger = self.ledger.lock();
            ledger.set_cut(Some(self.volume.cut(&mut self.cutter, flush_journal)?));
        }
        // The writer goes on for a moment, and meets every error there is.
        thread::sleep(Duration::from_micros(self.rng.bits() % 3000));
        let ended = writer.kill();
        self.volume.power_up()?;
        self.ledger.lock().set_cut(None);
        let after = self.ledger.lock().clone();
        self.report.acknowledged += after.acknowledged - before.acknowledged;
        self.report.rewritten += after.rewritten - before.rewritten;
        Ok(reached.and(ended).and_then(|()| self.judge(&after)))
    }

    /// Returns in the moment of the cut, or when the writer has ended before it.
    fn reach(&mut self, moment: Moment, writer: &Writer) -> Verdict {
        let mut pause =
            |micros: u64| thread::sleep(Duration::from_micros(self.rng.bits() % micros));
        let opened = |event: &Event| matches!(event, Event::Opened(_));
        match moment {
            Moment::Creation => pause(12_000),
            Moment::Created => {
                writer.wait_for(|event| *event == Event::Created)?;
            }
            Moment::FirstAcknowledgement => {
                writer.wait_for(|event| matches!(event, Event::Acknowledged(..)))?;
            }
            Moment::Extension => {
                writer.wait_for(opened)?;
                pause(30_000);
                self.await_growth();
            }
            Moment::Rewrite => {
                writer.wait_for(|event| *event == Event::Rewriting)?;
                pause(5_000);
            }
            Moment::Rewritten => {
                writer.wait_for(|event| *event == Event::Rewritten)?;
            }
            Moment::Recovery => pause(8_000),
            Moment::Any => {
                writer.wait_for(opened)?;
                pause(120_000);
            }
        }
        Ok(())
    }

    /// Waits until the live file is longer than it was, but not for ever.
    fn await_growth(&self) {
        let live = Task::log_dir(&self.root).join("refs.arrow");
        let length = || fs::metadata(&live).map(|file| file.len()).unwrap_or(0);
        let (before, deadline) = (length(), Instant::now() + Duration::from_secs(1));
        while length() <= before && Instant::now() < deadline {
            thread::yield_now();
        }
    }

    /// Has some of what was not synced reach the disk, as a kernel does when it likes.
    fn stir(&mut self) {
        let file = match self.method {
            Method::FileSystem => Task::log_dir(&self.root).join("refs.arrow"),
            Method::Disk => self.volume.image(),
        };
        let Ok(len) = fs::metadata(&file).map(|file| file.len()) else { return };
        for _ in 0..self.rng.below(4) {
            let offset = (self.rng.bits() % len.max(1)) & !4095;
            let range = 4096 << self.rng.below(9);
            // The file may be gone by now.
            let _ = self.cutter.flush(&file, offset, range);
        }
    }

    fn judge(&mut self, ledger: &Ledger) -> Verdict {
        if !ledger.created && !self.exists() {
            // The cut fell before the log was there; the next writer creates it.
            return Ok(());
        }
        let archive = observe::archived(&self.root)?;
        let seen = observe::before_recovery(&self.root)?;
        self.judge_from_outside(&seen)?;
        let published = observe::sealed_and_live(&archive, &seen)?;
        ledger
            .judge(&published, ledger.published())
            .map_err(|v| format!("before recovery: {v}"))?;
        // Every third log is recovered by the next writer, whose power may be cut meanwhile.
        if self.rng.chance(333) {
            return Ok(());
        }
        let (recovered, recovery) = observe::recover(&self.root)?;
        let all = observe::sealed_and_live(&archive, &recovered)?;
        ledger.judge(&all, ledger.newest()).map_err(|v| format!("after recovery: {v}"))?;
        if !all.starts_with(&published) {
            return Err("recovery took back what readers had seen".to_owned());
        }
        self.report.unacknowledged += all.len() as u64 - ledger.newest();
        self.report.proved += recovery.proved;
        self.report.torn += u64::from(recovery.torn.is_some());
        let mut ledger = self.ledger.lock();
        ledger.created = true;
        ledger.settle(&all);
        Ok(())
    }

    fn exists(&self) -> bool {
        Task::log_dir(&self.root).join("refs.arrow").exists()
    }

    fn judge_from_outside(&mut self, seen: &Seen) -> Verdict {
        let Some(outside) = &mut self.outside else { return Ok(()) };
        let expected: Vec<_> = (seen.sealed + 1..).zip(seen.live.iter().copied()).collect();
        self.report.outside += 1;
        if outside.read(&self.root)? == expected {
            Ok(())
        } else {
            Err("pyarrow sees other transactions than the log's own reader".to_owned())
        }
    }
}
