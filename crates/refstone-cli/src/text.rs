//! Raw bytes as text: for JSON as the log's columns hold them, for people without what would drive
//! their terminal.

use std::fmt::{Display, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use refstone::Seq;
use serde::Serialize;

/// Whether a backslash must be doubled to stand for itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Backslash {
    Doubled,
    /// Git forbids it in ref names.
    Impossible,
}

/// A ref name as the log's columns hold it: a byte that is not valid UTF-8 is written `\xNN`.
pub(crate) fn name(raw: &[u8]) -> String {
    escape(raw, Backslash::Impossible, |_| false)
}

/// An actor or a message as the log's columns hold it: as a name, and a backslash is doubled.
pub(crate) fn free(raw: &[u8]) -> String {
    escape(raw, Backslash::Doubled, |_| false)
}

/// A ref name, or any text that needs no way back, for a terminal.
pub(crate) fn printable_name(raw: &[u8]) -> String {
    escape(raw, Backslash::Impossible, drives_a_terminal)
}

/// An actor or a message for a terminal.
pub(crate) fn printable(raw: &[u8]) -> String {
    escape(raw, Backslash::Doubled, drives_a_terminal)
}

/// A path. No program takes it back from here, so a backslash stands for itself.
pub(crate) fn path(path: &Path) -> String {
    printable_name(path.as_os_str().as_bytes())
}

/// So many of something: `1 file`, `2 files`.
pub(crate) fn count(number: impl Copy + Display + PartialEq + From<u8>, one: &str) -> String {
    let s = if number == 1.into() { "" } else { "s" };
    format!("{number} {one}{s}")
}

/// Ranges of sequences, for JSON.
pub(crate) fn ranges(ranges: &[(Seq, Seq)]) -> Vec<[u64; 2]> {
    ranges.iter().map(|(first, last)| [first.get(), last.get()]).collect()
}

/// Ranges of sequences, for people.
pub(crate) fn show_ranges(ranges: &[(Seq, Seq)]) -> String {
    let show = |(first, last): &(Seq, Seq)| match first == last {
        true => first.to_string(),
        false => format!("{first} to {last}"),
    };
    ranges.iter().map(show).collect::<Vec<_>>().join(", ")
}

/// Raw bytes in hex digits, for JSON, which has no bytes.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct Hex(String);

impl Hex {
    /// Given only where the text beside it would not be the bytes.
    pub(crate) fn unless_utf8(raw: &[u8]) -> Option<Hex> {
        std::str::from_utf8(raw).is_err().then(|| Hex::of(raw))
    }

    fn of(raw: &[u8]) -> Hex {
        let mut digits = String::with_capacity(raw.len() * 2);
        for byte in raw {
            write!(digits, "{byte:02x}").expect("a string takes all that is written");
        }
        Hex(digits)
    }
}

/// Control characters move the cursor, change colours or set titles; the marks of bidirectional
/// text reorder what stands around them. Whoever names a branch could rewrite an audit trail on
/// the screen of its reader.
fn drives_a_terminal(c: char) -> bool {
    let reorders = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2066}'..='\u{2069}');
    c.is_control() || reorders || matches!(c, '\u{2028}'..='\u{202e}')
}

fn escape(raw: &[u8], backslash: Backslash, also: fn(char) -> bool) -> String {
    let mut out = String::with_capacity(raw.len());
    for chunk in raw.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' if backslash == Backslash::Doubled => out.push_str("\\\\"),
                c if also(c) => hex(c.encode_utf8(&mut [0; 4]).as_bytes(), &mut out),
                c => out.push(c),
            }
        }
        hex(chunk.invalid(), &mut out);
    }
    out
}

fn hex(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        write!(out, "\\x{byte:02x}").expect("a string takes all that is written");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_text_stands_as_it_is() {
        assert_eq!(printable("zażółć 🦀".as_bytes()), "zażółć 🦀");
    }

    #[test]
    fn bytes_that_are_not_utf8_become_hex() {
        assert_eq!(name(b"refs/heads/\xff\xfe"), "refs/heads/\\xff\\xfe");
    }

    #[test]
    fn a_backslash_is_doubled_in_free_text_only() {
        assert_eq!(free(br"a\xffb"), r"a\\xffb");
        assert_eq!(name(br"a\b"), r"a\b");
    }

    #[test]
    fn the_columns_keep_control_characters_and_terminals_do_not_get_them() {
        assert_eq!(free(b"a\x1b[2Jb"), "a\x1b[2Jb");
        assert_eq!(printable(b"a\x1b[2J\n\x7fb"), r"a\x1b[2J\x0a\x7fb");
    }

    #[test]
    fn hex_stands_beside_text_that_is_not_the_bytes() {
        assert_eq!(Hex::unless_utf8("ä".as_bytes()), None);
        assert_eq!(Hex::unless_utf8(b"a\xff"), Some(Hex("61ff".to_owned())));
    }

    // Breaks: looking for ASCII control characters only.
    #[test]
    fn eight_bit_controls_and_reordering_marks_are_no_text() {
        assert_eq!(printable("\u{9b}2J".as_bytes()), r"\xc2\x9b2J");
        assert_eq!(
            printable_name("refs/heads/\u{202e}cod".as_bytes()),
            r"refs/heads/\xe2\x80\xaecod"
        );
    }
}
