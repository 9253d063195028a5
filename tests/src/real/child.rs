//! A writer process, seen from the test.

use std::fmt;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Verdict;
use super::label::Label;
use super::ledger::Ledger;
use super::writer::Task;

/// Longer than a writer is ever silent, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a writer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The log was created.
    Created,
    /// The log is open, and all up to this sequence is durable.
    Opened(u64),
    /// It is about to stage this.
    Staged(Label),
    /// This is durable, under this sequence.
    Acknowledged(u64, Label),
    /// This was answered with an error; whether the error was "unknown outcome".
    Refused(Label, bool),
    /// A rewrite begins.
    Rewriting,
    /// It is done.
    Rewritten,
    /// Something else failed.
    Failed(String),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Created => write!(f, "created"),
            Event::Opened(seq) => write!(f, "opened {seq}"),
            Event::Staged(label) => write!(f, "staged {label}"),
            Event::Acknowledged(seq, label) => write!(f, "acknowledged {seq} {label}"),
            Event::Refused(label, true) => write!(f, "unknown {label}"),
            Event::Refused(label, false) => write!(f, "refused {label}"),
            Event::Rewriting => write!(f, "rewriting"),
            Event::Rewritten => write!(f, "rewritten"),
            Event::Failed(error) => write!(f, "failed {error}"),
        }
    }
}

impl FromStr for Event {
    type Err = ();

    fn from_str(line: &str) -> Result<Event, ()> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let number = |text: &str| text.parse::<u64>().map_err(|_| ());
        Ok(match word {
            "created" => Event::Created,
            "opened" => Event::Opened(number(rest)?),
            "staged" => Event::Staged(rest.parse()?),
            "acknowledged" => {
                let (seq, label) = rest.split_once(' ').ok_or(())?;
                Event::Acknowledged(number(seq)?, label.parse()?)
            }
            "unknown" => Event::Refused(rest.parse()?, true),
            "refused" => Event::Refused(rest.parse()?, false),
            "rewriting" => Event::Rewriting,
            "rewritten" => Event::Rewritten,
            "failed" => Event::Failed(rest.to_owned()),
            _ => return Err(()),
        })
    }
}

/// The time at which a writer said something, and what.
fn timed(line: &str) -> Option<(u64, Event)> {
    let (at, event) = line.split_once(' ')?;
    Some((at.parse().ok()?, event.parse().ok()?))
}

/// A running writer. What it says goes into the ledger as it comes.
#[derive(Debug)]
pub struct Writer {
    child: Child,
    events: Receiver<Event>,
    ears: Option<JoinHandle<()>>,
    /// Set before the power is cut: from then on, errors are no wonder.
    doomed: Arc<AtomicBool>,
    failed: Arc<Mutex<Option<String>>>,
}

impl Writer {
    /// Starts a writer, which is the binary `program` with the right arguments.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(program: &Path, task: &Task, ledger: &Arc<Mutex<Ledger>>) -> io::Result<Writer> {
        let mut child = Command::new(program)
            .args(task.arguments())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?).lines();
        let (doomed, failed) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        let (tell, events) = channel();
        let (ledger, marked, problem) = (ledger.clone(), doomed.clone(), failed.clone());
        let ears = thread::spawn(move || {
            for (at, event) in lines.map_while(Result::ok).filter_map(|line| timed(&line)) {
                ledger.lock().note(at, &event);
                if matches!(event, Event::Failed(_) | Event::Refused(..))
                    && !marked.load(Ordering::SeqCst)
                {
                    problem.lock().get_or_insert(event.to_string());
                }
                // Nobody has to listen.
                let _ = tell.send(event);
            }
        });
        Ok(Writer { child, events, ears: Some(ears), doomed, failed })
    }

    /// Waits for an event of a sort; false if the writer has ended before it.
    ///
    /// # Errors
    /// If the writer says nothing for long: something hangs.
    pub fn wait_for(&self, wanted: impl Fn(&Event) -> bool) -> Verdict<bool> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left) {
                Ok(event) if wanted(&event) => return Ok(true),
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(false),
                Err(RecvTimeoutError::Timeout) => return Err("the writer hangs".to_owned()),
            }
        }
    }

    /// From now on errors of the writer are the test's doing.
    pub fn doom(&self) {
        self.doomed.store(true, Ordering::SeqCst);
    }

    /// Kills the writer, hears it out, and says what had failed before it was doomed.
    ///
    /// # Errors
    /// If it failed on its own.
    pub fn kill(mut self) -> Verdict {
        self.doom();
        self.end();
        match self.failed.lock().take() {
            Some(problem) => Err(format!("the writer failed before it was stopped: {problem}")),
            None => Ok(()),
        }
    }

    fn end(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(ears) = self.ears.take() {
            let _ = ears.join();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.end();
    }
}
