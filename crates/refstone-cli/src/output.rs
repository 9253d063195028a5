//! Standard output: buffered lines for people, JSON lines for programs.

use std::io::{self, BufWriter, StdoutLock, Write};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::Serialize;

use crate::exit::Failure;

/// Standard output, written in large pieces.
///
/// Ends with [`Output::finish`]: what a drop would lose silently is an error there.
#[derive(Debug)]
pub(crate) struct Output {
    out: BufWriter<StdoutLock<'static>>,
}

impl Output {
    pub(crate) fn new() -> Output {
        Output { out: BufWriter::with_capacity(64 << 10, io::stdout().lock()) }
    }

    /// Writes one line of raw bytes.
    pub(crate) fn line(&mut self, parts: &[&[u8]]) -> Result<(), Failure> {
        let write = |out: &mut BufWriter<_>| {
            parts.iter().try_for_each(|part| out.write_all(part))?;
            out.write_all(b"\n")
        };
        write(&mut self.out).map_err(|error| Failure::output(&error))
    }

    /// Writes one object as one line of JSON.
    pub(crate) fn json(&mut self, object: &impl Serialize) -> Result<(), Failure> {
        let line = serde_json::to_vec(object).expect("strings, numbers and options serialize");
        self.line(&[&line])
    }

    /// Hands over what is buffered, so that whoever waits for it can go on.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush().map_err(|error| Failure::output(&error))
    }

    /// Waits; ends early when nobody reads any more, and then fails, or at a signal.
    pub(crate) fn wait(&self, at_most: Duration) -> Result<(), Failure> {
        // Asks for no event: what is told all the same is that the other end is closed.
        let mut out = [PollFd::new(self.out.get_ref(), PollFlags::empty())];
        let at_most = Timespec::try_from(at_most).expect("it is short");
        match poll(&mut out, Some(&at_most)) {
            Ok(0) | Err(Errno::INTR) => Ok(()),
            Ok(_) => Err(Failure::OutputClosed),
            Err(error) => Err(Failure::output(&error.into())),
        }
    }

    /// Writes the rest.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        self.flush()
    }
}
