//! Walks over the arguments of a command the way git does.

use super::quote::unquote;
use super::words::{End, GrammarError};
use crate::text;

/// The arguments of a command, as git walks over them.
///
/// Git reads C strings, so the end of the bytes and a NUL look the same to it: behind the last byte
/// stands a zero. That is why an unterminated last line is refused, and one under `-z` is not.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    pub(super) rest: &'a [u8],
    pub(super) end: End,
}

impl Fields<'_> {
    pub(super) fn next(&self) -> u8 {
        first(self.rest)
    }

    pub(super) fn skip(&mut self) {
        self.rest = self.rest.get(1..).unwrap_or_default();
    }

    pub(super) fn is_at_end(&self) -> bool {
        matches!(self.next(), 0 | b'\n')
    }

    /// The argument that starts here, empty if there is none.
    pub(super) fn argument(&mut self) -> Result<Vec<u8>, GrammarError> {
        if self.end == End::Newline && self.next() == b'"' {
            return self.quoted_argument();
        }
        let ends = |byte: u8| byte == 0 || (self.end == End::Newline && is_space(byte));
        let len = self.rest.iter().position(|&byte| ends(byte)).unwrap_or(self.rest.len());
        let (argument, rest) = self.rest.split_at(len);
        self.rest = rest;
        Ok(argument.to_vec())
    }

    fn quoted_argument(&mut self) -> Result<Vec<u8>, GrammarError> {
        let quoted = self.rest;
        let (raw, rest) = unquote(quoted).ok_or_else(|| told("badly quoted argument", quoted))?;
        if !matches!(first(rest), 0) && !is_space(first(rest)) {
            return Err(told("unexpected character after quoted argument", quoted));
        }
        self.rest = rest;
        Ok(raw)
    }

    /// The argument behind the next separator; an empty one is none.
    pub(super) fn next_argument(&mut self) -> Result<Option<Vec<u8>>, GrammarError> {
        match (self.end, self.next()) {
            (End::Newline, 0 | b'\n') => return Ok(None),
            (End::Newline, b' ') | (End::Nul, 0) => self.skip(),
            (End::Newline, _) => return Err(told("expected SP but got", self.rest)),
            (End::Nul, _) => return Ok(None),
        }
        Ok(Some(self.argument()?).filter(|argument| !argument.is_empty()))
    }
}

/// The first byte, and zero behind the last one.
pub(super) fn first(bytes: &[u8]) -> u8 {
    bytes.first().copied().unwrap_or(0)
}

/// What git's `isspace` accepts.
pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

pub(super) fn told(problem: &str, found: &[u8]) -> GrammarError {
    GrammarError::new(format!("{problem}: {}", c_text(found)))
}

/// Input as a text shows it: up to the first NUL, without the newline that ends it.
pub(super) fn c_text(input: &[u8]) -> String {
    let end = input.iter().position(|&byte| byte == 0).unwrap_or(input.len());
    let input = &input[..end];
    text::printable_name(input.strip_suffix(b"\n").unwrap_or(input))
}
