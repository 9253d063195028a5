//! SIGINT and SIGTERM as a question that a long loop asks now and then.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tokio::signal::unix::{SignalKind, signal};

use crate::exit::Failure;

/// Whether the process was asked to stop. The second time, it stops at once.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt {
    asked: Arc<AtomicBool>,
}

impl Interrupt {
    pub(crate) fn watch() -> Result<Interrupt, Failure> {
        let cannot = |error| Failure::environment(format!("cannot listen for signals: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        let runtime = runtime.map_err(cannot)?;
        let interrupt = Interrupt { asked: Arc::default() };
        let asked = Arc::clone(&interrupt.asked);
        let listen = |kind| {
            let _context = runtime.enter();
            signal(kind).map_err(cannot)
        };
        let mut signals = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
        thread::spawn(move || {
            runtime.block_on(async move {
                loop {
                    let number = tokio::select! {
                        _ = signals.0.recv() => SignalKind::interrupt().as_raw_value(),
                        _ = signals.1.recv() => SignalKind::terminate().as_raw_value(),
                    };
                    if asked.swap(true, Ordering::Relaxed) {
                        // The code a shell shows for a process that died of the signal.
                        process::exit(128 + number);
                    }
                }
            });
        });
        Ok(interrupt)
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }
}
