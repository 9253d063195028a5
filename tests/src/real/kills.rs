//! Kills writers beside readers that look all the time.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use refstone_log::{LogReader, OsEnv};
use tempfile::TempDir;

use super::Verdict;
use super::child::{Event, Writer};
use super::label::Label;
use super::ledger::Ledger;
use super::observe::{self, Outside};
use super::writer::Task;
use crate::sim::Rng;

/// What a series of kills was like.
#[derive(Clone, Debug, Default)]
pub struct KillsReport {
    /// Writers that were killed.
    pub kills: u64,
    /// Transactions that were acknowledged in all.
    pub acknowledged: u64,
    /// Transactions that recovery found though nobody was told that they are durable.
    pub unacknowledged: u64,
    /// Torn tails that recovery took off.
    pub torn: u64,
    /// Finished rewrites.
    pub rewritten: u64,
    /// Whole reads beside writers.
    pub reads: u64,
    /// Transactions that followers got one by one.
    pub followed: u64,
    /// How often a follower went on in a file that had replaced its own.
    pub moves: u64,
    /// Whole reads of pyarrow beside writers, and after them.
    pub outside: u64,
    /// What was broken.
    pub violations: Vec<String>,
}

impl fmt::Display for KillsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} kills; {} transactions acknowledged, {} rewrites; recovery found {} more, took off \
             {} torn tails; {} reads beside writers, {} transactions followed over {} rewritten \
             files; pyarrow read {} times; {} violations",
            self.kills,
            self.acknowledged,
            self.rewritten,
            self.unacknowledged,
            self.torn,
            self.reads,
            self.followed,
            self.moves,
            self.outside,
            self.violations.len()
        )
    }
}

/// A log whose writers are killed.
#[derive(Debug)]
pub struct Kills {
    program: PathBuf,
    scratch: TempDir,
    outside: Option<Outside>,
    rng: Rng,
    ledger: Arc<Mutex<Ledger>>,
    follower: Follower,
    /// What happened.
    pub report: KillsReport,
}

/// What the readers beside a writer count, and when they stop.
#[derive(Debug, Default)]
struct Beside {
    stop: AtomicBool,
    reads: AtomicU64,
}

impl Kills {
    /// A new log in a directory below `parent`; `program` is the binary that becomes a writer.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn new(program: PathBuf, parent: &Path, seed: u64) -> io::Result<Kills> {
        Ok(Kills {
            program,
            scratch: TempDir::new_in(parent)?,
            outside: None,
            rng: Rng::new(seed),
            ledger: Arc::default(),
            follower: Follower::default(),
            report: KillsReport::default(),
        })
    }

    /// Has pyarrow read the log all the while.
    pub fn look_from_outside(&mut self, outside: Outside) {
        self.outside = Some(outside);
    }

    /// Starts a writer, kills it, and judges what readers saw and what is left.
    ///
    /// # Errors
    /// If no process can be started. What the log does wrong is in the report.
    pub fn kill(&mut self) -> io::Result<()> {
        let before = self.ledger.lock().clone();
        self.report.kills += 1;
        let task = Task {
            root: self.scratch.path().to_owned(),
            round: self.report.kills,
            threads: 1 + self.rng.bits() % 6,
            rewrites: self.rng.chance(800),
            known: before.known(),
        };
        let writer = Writer::start(&self.program, &task, &self.ledger)?;
        let verdict = self.watch_and_kill(writer, task.rewrites).and_then(|()| self.judge());
        let after = self.ledger.lock();
        self.report.acknowledged += after.acknowledged - before.acknowledged;
        self.report.rewritten += after.rewritten - before.rewritten;
        drop(after);
        self.report.violations.extend(
            verdict.err().map(|violation| format!("kill {}: {violation}", self.report.kills)),
        );
        Ok(())
    }

    fn watch_and_kill(&mut self, writer: Writer, rewrites: bool) -> Verdict {
        // One in five is killed while it creates, opens or recovers the log.
        let early = self.report.kills > 1 && self.rng.chance(200);
        let pause = Duration::from_micros(self.rng.bits() % if early { 8_000 } else { 150_000 });
        if early {
            thread::sleep(pause);
            return writer.kill();
        }
        writer.wait_for(|event| matches!(event, Event::Opened(_)))?;
        let (root, ledger, beside) = (self.scratch.path(), &self.ledger, &Beside::default());
        let (follower, outside) = (&mut self.follower, &mut self.outside);
        let outside_reads = &mut self.report.outside;
        // Most are killed about a rewrite: in the middle of one, or between two.
        let rewrite = rewrites && self.rng.chance(700);
        let reached = if self.rng.chance(500) { Event::Rewriting } else { Event::Rewritten };
        let verdict = thread::scope(|scope| {
            let watchers = [
                scope.spawn(|| read_again_and_again(root, ledger, beside)),
                scope.spawn(|| follow(root, follower, beside)),
                scope.spawn(|| match outside {
                    Some(outside) => look_again_and_again(root, outside, outside_reads, beside),
                    None => Ok(()),
                }),
            ];
            let waited =
                if rewrite { writer.wait_for(|event| *event == reached) } else { Ok(true) };
            thread::sleep(if rewrite { pause / 8 } else { pause });
            let killed = waited.and_then(|_| writer.kill());
            beside.stop.store(true, Ordering::SeqCst);
            let join = |watcher: thread::ScopedJoinHandle<'_, Verdict>| {
                watcher.join().unwrap_or_else(|_| Err("a reader panicked".to_owned()))
            };
            watchers.into_iter().map(join).fold(killed, Result::and)
        });
        self.report.reads += beside.reads.load(Ordering::SeqCst);
        verdict
    }

    fn judge(&mut self) -> Verdict {
        let root = self.scratch.path().to_owned();
        let ledger = self.ledger.lock().clone();
        let archive = observe::archived(&root)?;
        let seen = observe::before_recovery(&root)?;
        let published = observe::sealed_and_live(&archive, &seen)?;
        // The kernel outlives the process: what was acknowledged was published before.
        ledger.judge(&published, ledger.newest()).map_err(|v| format!("before recovery: {v}"))?;
        if let Some(outside) = &mut self.outside {
            let live: Vec<_> = (seen.sealed + 1..).zip(seen.live.iter().copied()).collect();
            self.report.outside += 1;
            if outside.read(&root)? != live {
                return Err("pyarrow sees other transactions than the log's own reader".to_owned());
            }
        }
        self.follower.catch_up(&root)?;
        self.follower.judge(&published)?;
        self.report.followed = self.follower.seen.len() as u64;
        self.report.moves = self.follower.moves;
        // Every other log is recovered by the next writer, which may be killed meanwhile.
        if self.rng.chance(500) {
            return Ok(());
        }
        let (recovered, recovery) = observe::recover(&root)?;
        let all = observe::sealed_and_live(&archive, &recovered)?;
        ledger.judge(&all, ledger.newest()).map_err(|v| format!("after recovery: {v}"))?;
        if !all.starts_with(&published) {
            return Err("recovery took back what readers had seen".to_owned());
        }
        self.report.unacknowledged += all.len() as u64 - ledger.newest();
        self.report.torn += u64::from(recovery.torn.is_some());
        self.ledger.lock().settle(&all);
        Ok(())
    }
}

/// Every read beside a writer has all that was acknowledged before it began, and only whole ones.
fn read_again_and_again(root: &Path, ledger: &Mutex<Ledger>, beside: &Beside) -> Verdict {
    while !beside.stop.load(Ordering::SeqCst) {
        let owed = ledger.lock().newest();
        let dir = Task::log_dir(root);
        let mut reader =
            LogReader::open(&OsEnv, &dir).map_err(|error| format!("reader: {error}"))?;
        while let Some(frame) = reader.next().map_err(|error| format!("reader: {error}"))? {
            Label::of(&frame)?;
        }
        let read = reader.seq().get();
        if read < owed {
            return Err(format!("a reader came to {read}, and {owed} was acknowledged before"));
        }
        beside.reads.fetch_add(1, Ordering::SeqCst);
    }
    Ok(())
}

fn look_again_and_again(
    root: &Path,
    outside: &mut Outside,
    reads: &mut u64,
    beside: &Beside,
) -> Verdict {
    while !beside.stop.load(Ordering::SeqCst) {
        outside.read_beside_a_writer(root)?;
        *reads += 1;
    }
    Ok(())
}

fn follow(root: &Path, follower: &mut Follower, beside: &Beside) -> Verdict {
    while !beside.stop.load(Ordering::SeqCst) {
        follower.catch_up(root)?;
        thread::yield_now();
    }
    Ok(())
}

/// Gets every transaction once, in order, from the first on, over all files the log has had.
#[derive(Debug, Default)]
struct Follower {
    reader: Option<(u64, LogReader)>,
    seen: Vec<Label>,
    moves: u64,
}

impl Follower {
    /// Reads to the published end. There it looks whether the file still has the name.
    fn catch_up(&mut self, root: &Path) -> Verdict {
        let dir = Task::log_dir(root);
        loop {
            // Before the read: what is in a file that has lost its name is complete.
            let named = inode(&dir)?;
            self.drain()?;
            if self.reader.as_ref().is_some_and(|(inode, _)| *inode == named) {
                return Ok(());
            }
            // Either file may be the one that is opened; if it is the next one, it is moved again.
            let reader = LogReader::open(&OsEnv, &dir).map_err(|error| format!("tail: {error}"))?;
            self.moves += u64::from(self.reader.is_some());
            let sealed = reader.anchor().seq.get();
            if sealed > self.seen.len() as u64 {
                let archive = observe::archived(root)?;
                for seq in self.seen.len() as u64 + 1..=sealed {
                    let label = archive.get(&seq);
                    self.seen.push(*label.ok_or(format!("tail: {seq} is nowhere"))?);
                }
            }
            self.reader = Some((named, reader));
        }
    }

    fn drain(&mut self) -> Verdict {
        let Some((_, reader)) = &mut self.reader else { return Ok(()) };
        while let Some(frame) = reader.next().map_err(|error| format!("tail: {error}"))? {
            let seq = frame.seq().get();
            let next = self.seen.len() as u64 + 1;
            if seq > next {
                return Err(format!("tail: {seq} follows {}", next - 1));
            }
            if seq == next {
                self.seen.push(Label::of(&frame)?);
            }
        }
        Ok(())
    }

    fn judge(&self, published: &[Label]) -> Verdict {
        if published == self.seen {
            return Ok(());
        }
        let differ = published.iter().zip(&self.seen).take_while(|(a, b)| a == b).count();
        Err(format!(
            "a follower got {} transactions of {}, and the one after {differ} differs",
            self.seen.len(),
            published.len()
        ))
    }
}

fn inode(dir: &Path) -> Verdict<u64> {
    let live = dir.join("refs.arrow");
    fs::metadata(live).map(|file| file.ino()).map_err(|error| format!("tail: {error}"))
}
