//! Ends a test that hangs.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// Longer than any workload takes, also in a debug build on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// While it lives a workload is under way. A log that waits for ever touches no file, so nothing
/// but time tells; and a thread cannot be ended from outside, so the whole process ends.
#[derive(Debug)]
pub(super) struct Watchdog {
    _done: Sender<()>,
}

impl Watchdog {
    pub(super) fn start(seed: u64) -> Watchdog {
        let (done, waiting) = channel::<()>();
        thread::spawn(move || {
            if waiting.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                eprintln!("VIOLATION, seed {seed}: the log hangs");
                std::process::abort();
            }
        });
        Watchdog { _done: done }
    }
}
