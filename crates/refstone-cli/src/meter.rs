//! How far something is, on standard error.

use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use clap::Args;
use refstone::exchange::Progress;

use crate::exit::Failure;
use crate::interrupt::Interrupt;

/// Whether progress is shown.
#[derive(Debug, Args)]
pub(crate) struct MeterOptions {
    /// Tell on standard error how far it is, also if that is no terminal
    #[arg(long)]
    progress: bool,
}

/// What an import or an export that was stopped leaves.
pub(crate) const NOTHING_MADE: &str = "nothing was made, and it can be run again";

/// Shows progress, and asks whether to go on.
#[derive(Debug)]
pub(crate) struct Meter {
    interrupt: Interrupt,
    shown: bool,
    /// A terminal gets one line that changes, anything else a line each second.
    terminal: bool,
    last: Option<(Instant, Progress)>,
}

impl Meter {
    /// A meter for what leaves nothing half done when it is told to stop.
    pub(crate) fn watch(options: &MeterOptions) -> Result<Meter, Failure> {
        Ok(Meter::new(options, Interrupt::watch()?))
    }

    pub(crate) fn new(options: &MeterOptions, interrupt: Interrupt) -> Meter {
        let terminal = io::stderr().is_terminal();
        let shown = terminal || options.progress;
        Meter { interrupt, shown, terminal, last: None }
    }

    /// Notes how far it is.
    pub(crate) fn tell(&mut self, progress: Progress) -> ControlFlow<()> {
        if self.shown && self.is_due(progress) {
            self.last = Some((Instant::now(), progress));
            self.say(progress);
        }
        match self.interrupt.is_asked() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// The same of what the store does, which is stopped by other means.
    pub(crate) fn tell_of_store(&mut self, progress: refstone::Progress) {
        use refstone::Progress::{Checking, Merging, Rebuilding, Sealing};
        let (doing, done, total) = match progress {
            Sealing { done, of } => ("sealing transactions", done, Some(of)),
            Merging { done, of, .. } => ("merging rows", done, Some(of)),
            Rebuilding { done, of } => ("making tables, rows", done, Some(of)),
            Checking { done, of } => ("checking rows", done, Some(of)),
            _ => ("working", 0, None),
        };
        let _ = self.tell(Progress { doing, done, total });
    }

    /// Ends the line that changes, and judges what the command came to. Where it was told to stop,
    /// `kept` says what holds now.
    pub(crate) fn finish<T>(mut self, ended: Result<T, Failure>, kept: &str) -> Result<T, Failure> {
        if self.shown && self.terminal && self.last.take().is_some() {
            let _ = io::stderr().write_all(b"\n");
        }
        self.interrupt.judge(ended, kept)
    }

    fn is_due(&self, progress: Progress) -> bool {
        let pause = Duration::from_millis(if self.terminal { 100 } else { 1000 });
        self.last.is_none_or(|(at, last)| last.doing != progress.doing || at.elapsed() >= pause)
    }

    fn say(&self, progress: Progress) {
        let (start, end) = if self.terminal { ("\r", "\x1b[K") } else { ("", "\n") };
        let line = format!("{start}{}{end}", words(progress));
        // A standard error that is closed leaves nowhere to say so.
        let _ = io::stderr().write_all(line.as_bytes());
    }
}

fn words(Progress { doing, done, total }: Progress) -> String {
    match total {
        Some(total) => format!("{doing}: {done} of {total}"),
        None => format!("{doing}: {done}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_told_in_words() {
        let progress = Progress { doing: "writing", done: 5, total: Some(9) };
        assert_eq!(words(progress), "writing: 5 of 9");
        assert_eq!(words(Progress { total: None, ..progress }), "writing: 5");
    }
}
