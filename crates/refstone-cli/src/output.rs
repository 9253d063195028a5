//! Standard output: buffered lines for people, JSON lines for programs.

use std::io::{self, BufWriter, StdoutLock, Write};

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

    /// Writes the rest.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        self.flush()
    }
}
