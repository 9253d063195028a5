//! Runs one test in a process of its own, with or without sabotage.

use std::io::Read;
use std::num::NonZero;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::build::{Built, VARIABLE};

/// A test that hangs proves nothing: it may hang for any reason.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) enum Outcome {
    Green,
    /// It failed, and said this.
    Red(String),
}

/// Judges all, some at the same time; returns what is wrong with them.
pub(crate) fn all<T: Sync>(
    jobs: &[T],
    judge: impl Fn(&T) -> Result<Option<String>, String> + Sync,
) -> Result<Vec<String>, String> {
    let (next, problems) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || -> Result<(), String> {
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            problems.lock().extend(judge(job)?);
        }
        Ok(())
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(|_| died()))
    })?;
    Ok(problems.into_inner())
}

fn died() -> Result<(), String> {
    Err("a thread of the proofs died".to_owned())
}

pub(crate) fn test(built: &Built, test: &str, sabotage: Option<&str>) -> Result<Outcome, String> {
    let (program, name) = built.find(test)?;
    let mut command = Command::new(program);
    command.args(["--exact", name]).env_remove(VARIABLE).env("RUST_BACKTRACE", "0");
    command.envs(sabotage.map(|sabotage| (VARIABLE, sabotage)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let spawned = command.spawn().map_err(|error| format!("{test} does not run: {error}"))?;
    let said = output(spawned).ok_or(format!("{test}, {sabotage:?}: it hangs"))?;
    if said.contains("\ntest result: ok. 1 passed; 0 failed;") {
        return Ok(Outcome::Green);
    }
    match said.contains("\ntest result: FAILED. 0 passed; 1 failed;") {
        true => Ok(Outcome::Red(said)),
        false => Err(format!("{test}, {sabotage:?}: neither passed nor failed:\n{said}")),
    }
}

/// What the process prints until it ends, if it ends in time.
fn output(mut child: Child) -> Option<String> {
    let mut stdout = child.stdout.take()?;
    let reader = thread::spawn(move || {
        let mut said = Vec::new();
        stdout.read_to_end(&mut said).map(|_| String::from_utf8_lossy(&said).into_owned())
    });
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().ok()?.is_none() {
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        thread::sleep(Duration::from_millis(5));
    }
    reader.join().ok()?.ok()
}
