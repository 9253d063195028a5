//! SIGINT and SIGTERM as a question that a long loop asks now and then.

use std::io::{self, IsTerminal, Write};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;

use tokio::signal::unix::{SignalKind, signal};

use crate::exit::{Failure, note};

/// Whether the process was asked to stop. The second time, it stops at once.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt {
    /// The number of the signal; 0 if there was none.
    signal: Arc<AtomicI32>,
}

impl Interrupt {
    pub(crate) fn watch() -> Result<Interrupt, Failure> {
        Interrupt::watch_then(|_| ())
    }

    /// At the first signal `stop` is called with its number, in a thread of its own.
    pub(crate) fn watch_then(
        stop: impl FnOnce(i32) + Send + 'static,
    ) -> Result<Interrupt, Failure> {
        let cannot = |error| Failure::environment(format!("cannot listen for signals: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        let runtime = runtime.map_err(cannot)?;
        let interrupt = Interrupt { signal: Arc::default() };
        let asked = Arc::clone(&interrupt.signal);
        let listen = |kind| {
            let _context = runtime.enter();
            signal(kind).map_err(cannot)
        };
        let mut signals = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
        let mut stop = Some(stop);
        thread::spawn(move || {
            runtime.block_on(async move {
                loop {
                    let number = tokio::select! {
                        _ = signals.0.recv() => SignalKind::interrupt().as_raw_value(),
                        _ = signals.1.recv() => SignalKind::terminate().as_raw_value(),
                    };
                    asked.store(number, Ordering::Relaxed);
                    match stop.take() {
                        Some(stop) => drop(thread::spawn(move || stop(number))),
                        // The code a shell shows for a process that died of the signal.
                        None => process::exit(128 + number),
                    }
                }
            });
        });
        Ok(interrupt)
    }

    /// Ends the command at the first signal, which leaves nothing half done: `kept` says why.
    pub(crate) fn end_at_once(kept: &'static str) -> Result<Interrupt, Failure> {
        let end = |number| {
            let _ = Failure::interrupted(number, kept).report();
            process::exit(128 + number)
        };
        Interrupt::watch_then(end)
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.signal.load(Ordering::Relaxed) != 0
    }

    /// Ends a command that a signal has cut short; `kept` says what there is of it.
    pub(crate) fn check(&self, kept: &str) -> Result<(), Failure> {
        match self.signal.load(Ordering::Relaxed) {
            0 => Ok(()),
            number => Err(Failure::interrupted(number, kept)),
        }
    }

    /// What a command that may have been stopped came to: if it failed after a signal, it was that.
    pub(crate) fn judge<T>(&self, ended: Result<T, Failure>, kept: &str) -> Result<T, Failure> {
        match self.signal.load(Ordering::Relaxed) {
            0 => ended,
            number => ended.map_err(|_| Failure::interrupted(number, kept)),
        }
    }
}

/// Says that a command needs a moment to stop.
pub(crate) fn note_stopping() {
    if io::stderr().is_terminal() {
        // Behind the line that tells progress, and what the terminal shows for the key.
        let _ = io::stderr().write_all(b"\n");
    }
    note("stopping; a second signal ends it at once");
}
