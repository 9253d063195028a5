//! A process that commits as fast as it can and says what happens, until it is stopped from outside.
//!
//! It prints one line for each [`Event`], with its time: a line is one write to a pipe, so it is
//! there whole or not at all, whatever ends the process.

use std::error::Error;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use refstone_log::{
    AppendError, Commit, ErrorKind, Leaving, Log, LogOptions, LogReader, MinFree, NoObserver,
    ObjectFormat, OsEnv, RefLogOptions, RefRow, Sealer, Seq,
};

use super::child::Event;
use super::label::Label;
use crate::sim::Rng;

/// The first word of the command line that makes a binary a writer.
const WRITER: &str = "--writer";

/// What a writer does.
#[derive(Clone, Debug)]
pub struct Task {
    /// Where the log is, or is to be.
    pub root: PathBuf,
    /// Labels what it stages.
    pub round: u64,
    /// How many threads commit.
    pub threads: u64,
    /// Whether it rewrites the log again and again.
    pub rewrites: bool,
    /// The newest sequence whose label is known: those behind it are told when the log is open.
    pub known: u64,
}

impl Task {
    /// The directory of the log: two levels that a first writer has to make.
    #[must_use]
    pub fn log_dir(root: &Path) -> PathBuf {
        root.join("new").join("refstone")
    }

    /// The directory that takes what leaves the log.
    #[must_use]
    pub fn archive(root: &Path) -> PathBuf {
        root.join("archive")
    }

    /// The command line of the writer.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let numbers = [self.round, self.threads, u64::from(self.rewrites), self.known];
        let root = self.root.to_string_lossy().into_owned();
        [WRITER.to_owned(), root].into_iter().chain(numbers.map(|n| n.to_string())).collect()
    }

    fn parse(words: &[String]) -> Option<Task> {
        let [first, root, numbers @ ..] = words else { return None };
        if first != WRITER {
            return None;
        }
        let numbers: Vec<u64> = numbers.iter().map_while(|word| word.parse().ok()).collect();
        let [round, threads, rewrites, known] = numbers[..] else { return None };
        Some(Task { root: root.into(), round, threads, rewrites: rewrites == 1, known })
    }
}

/// Becomes a writer if the command line asks for one, and never returns then.
pub fn run_if_asked() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(task) = Task::parse(&words) {
        if let Err(error) = run(&task) {
            say(&Event::Failed(error.to_string()));
        }
        std::process::exit(0);
    }
}

fn say(event: &Event) {
    let line = format!("{} {event}\n", now());
    // Nobody listens any more: the test is over.
    if std::io::stdout().lock().write_all(line.as_bytes()).is_err() {
        std::process::exit(0);
    }
}

/// Nanoseconds since the Unix epoch: a clock that all processes share.
fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos())
}

fn run(task: &Task) -> Result<(), Box<dyn Error>> {
    create_if_absent(task)?;
    let log = open(task)?;
    thread::scope(|scope| {
        for thread in 0..task.threads {
            let log = log.clone();
            scope.spawn(move || commit_until_it_fails(task, thread, &log));
        }
        if task.rewrites {
            rewrite_until_it_fails(task, &log);
        }
    });
    Ok(())
}

fn create_if_absent(task: &Task) -> Result<(), Box<dyn Error>> {
    let dir = Task::log_dir(&task.root);
    match LogReader::open(&OsEnv, &dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let head = b"refs/heads/main".into();
            let options = RefLogOptions { object_format: ObjectFormat::Sha1, head };
            Log::create(&OsEnv, &dir, &options)?;
            say(&Event::Created);
        }
        other => drop(other?),
    }
    Ok(())
}

fn open(task: &Task) -> Result<Log, Box<dyn Error>> {
    let mut replayed = Vec::new();
    let dir = Task::log_dir(&task.root);
    // These disks are small, and are to run full.
    let options = LogOptions { min_free: MinFree::OFF, ..LogOptions::default() };
    let (log, _) =
        Log::open_in(options, Arc::new(OsEnv), &dir, Arc::new(NoObserver), &mut |frame| {
            if frame.seq().get() > task.known {
                replayed.push((frame.seq().get(), Label::of(frame)));
            }
        })?;
    for (seq, label) in replayed {
        say(&Event::Acknowledged(seq, label?));
    }
    say(&Event::Opened(log.durable_seq().get()));
    Ok(log)
}

/// Stages a few transactions, waits for all of them, and so on.
fn commit_until_it_fails(task: &Task, thread: u64, log: &Log) {
    let mut rng = Rng::new(task.round << 8 | thread);
    let mut labels = (0..).map(|n| Label { round: task.round, thread, n });
    loop {
        let staged: Vec<_> = labels
            .by_ref()
            .take(1 + rng.below(4))
            .map(|label| {
                say(&Event::Staged(label));
                (label, stage(log, label))
            })
            .collect();
        let mut failed = false;
        for (label, commit) in staged {
            let kind = match commit.map(Commit::wait) {
                Ok(Ok(ack)) => {
                    say(&Event::Acknowledged(ack.seq().get(), label));
                    continue;
                }
                Ok(Err(error)) => error.kind(),
                Err(error) => error.kind(),
            };
            say(&Event::Refused(label, kind == ErrorKind::Unknown));
            failed = true;
        }
        if failed {
            return;
        }
    }
}

fn stage(log: &Log, label: Label) -> Result<Commit, AppendError> {
    let rows = label.rows();
    let rows: Vec<RefRow<'_>> = rows.iter().map(crate::logs::Row::as_row).collect();
    log.append(&rows[..])
}

fn rewrite_until_it_fails(task: &Task, log: &Log) {
    let mut rng = Rng::new(task.round ^ 0x5ea1);
    loop {
        thread::sleep(Duration::from_micros(rng.bits() % 30_000));
        let keep = rng.bits() % 200;
        let through = Seq::new(log.durable_seq().get().saturating_sub(keep));
        say(&Event::Rewriting);
        match log.rewrite(through, &mut Archive { dir: Task::archive(&task.root) }) {
            Ok(_) => say(&Event::Rewritten),
            Err(error) => {
                say(&Event::Failed(format!("rewrite: {error}")));
                return;
            }
        }
    }
}

/// Keeps the labels of what leaves the log, each batch in a file of its own.
struct Archive {
    dir: PathBuf,
}

impl Sealer for Archive {
    fn seal(&mut self, leaving: &mut Leaving<'_>) -> Result<(), Box<dyn Error + Send + Sync>> {
        let mut text = String::new();
        let mut last = 0;
        while let Some(frame) = leaving.next()? {
            last = frame.seq().get();
            text += &format!("{last} {}\n", Label::of(&frame)?);
        }
        fs::create_dir_all(&self.dir)?;
        let temporary = self.dir.join("new");
        let mut file = File::create(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, self.dir.join(last.to_string()))?;
        for dir in self.dir.ancestors().take(2) {
            File::open(dir)?.sync_all()?;
        }
        Ok(())
    }
}
