//! Cuts the input into commands.

use std::io::{self, BufRead};

use super::fields::{first, is_space, told};
use super::words::{End, GrammarError, Verb};

/// The commands of one input.
#[derive(Debug)]
pub(super) struct Script<R> {
    input: R,
    end: End,
}

impl<R: BufRead> Script<R> {
    pub(super) fn new(input: R, end: End) -> Script<R> {
        Script { input, end }
    }

    /// Reads the next command as far as its end; its arguments are not looked at yet.
    ///
    /// An interactive caller gets its answer before it writes the next command, so nothing is read
    /// ahead of need.
    pub(super) fn next(&mut self) -> io::Result<Option<Result<Unparsed, GrammarError>>> {
        let mut bytes = Vec::new();
        if self.input.read_until(self.end.byte(), &mut bytes)? == 0 {
            return Ok(None);
        }
        let (verb, starts) = match split_verb(&bytes, self.end) {
            Ok(split) => split,
            Err(error) => return Ok(Some(Err(error))),
        };
        if self.end == End::Nul {
            // An input that ends early is noticed when the missing argument is asked for.
            for _ in 1..verb.arguments() {
                self.input.read_until(0, &mut bytes)?;
            }
        }
        Ok(Some(Ok(Unparsed { verb, bytes, starts, end: self.end })))
    }
}

fn split_verb(command: &[u8], end: End) -> Result<(Verb, usize), GrammarError> {
    if first(command) == end.byte() {
        return Err(GrammarError::new("empty command in input"));
    }
    if is_space(first(command)) {
        return Err(told("whitespace before command", command));
    }
    Verb::of(command, end).ok_or_else(|| told("unknown command", command))
}

/// A command whose verb is known.
#[derive(Debug)]
pub(super) struct Unparsed {
    pub(super) verb: Verb,
    pub(super) end: End,
    bytes: Vec<u8>,
    starts: usize,
}

impl Unparsed {
    /// What follows the verb and its space.
    pub(super) fn arguments(&self) -> &[u8] {
        &self.bytes[self.starts..]
    }
}
