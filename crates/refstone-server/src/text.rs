//! What is written where people read it: nothing in it breaks a line or drives a terminal.

use std::error::Error;

/// Most bytes of a client's own words that it gets to read again.
const ECHO_BYTES_MAX: usize = 200;

/// A client's own words in an answer. A path may hold any byte once its percent signs are decoded:
/// an escape would drive the reader's terminal, and at a NUL git ends the message.
pub(crate) fn echo(text: &[u8]) -> String {
    let shown = &text[..text.len().min(ECHO_BYTES_MAX)];
    let rest = if shown.len() < text.len() { "..." } else { "" };
    format!("{}{rest}", shown.escape_ascii())
}

/// Text for a line of the server's log. Letters of all languages stay readable, and a name with a
/// newline in it cannot pretend to be a line of its own.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.trim_end().chars() {
        match character.is_control() {
            true => line.extend(character.escape_default()),
            false => line.push(character),
        }
    }
    line
}

/// An error and its causes on one line. Some errors say their cause themselves; it is not said
/// twice.
pub(crate) fn chain(error: &dyn Error) -> String {
    one_line(&causes(error).join(": "))
}

/// An error, then its causes, without those that are part of what was said before.
pub(crate) fn causes(error: &dyn Error) -> Vec<String> {
    let mut said = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !said.iter().any(|before| before.contains(&text)) {
            said.push(text);
        }
        cause = error.source();
    }
    said
}

/// What a child died of, on one line: its errors, without its warnings and hints; if it names none,
/// its last word.
///
/// The last line alone is not enough. On a full disk git says `error: could not write config file
/// x: No space left on device`, and then `fatal: could not set 'y' to '0'`.
pub(crate) fn complaint(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let is_error = |line: &&str| line.starts_with("error: ") || line.starts_with("fatal: ");
    let errors: Vec<_> = lines.clone().filter(is_error).collect();
    match errors.is_empty() {
        true => lines.next_back().unwrap_or_default().to_owned(),
        false => errors.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn an_echo_is_short_and_plain() {
        assert_eq!(echo(b"a\x1b[31m\0\xc3\xbc.git"), "a\\x1b[31m\\x00\\xc3\\xbc.git");
        assert_eq!(echo(&[b'a'; 200]), "a".repeat(200));
        assert_eq!(echo(&[b'a'; 201]), format!("{}...", "a".repeat(200)));
    }

    #[test]
    fn a_line_stays_one_and_keeps_its_letters() {
        assert_eq!(one_line("ünï\nINFO push\u{9b}\n"), "ünï\\nINFO push\\u{9b}");
    }

    #[derive(Debug, thiserror::Error)]
    #[error("{said}")]
    struct Outer {
        said: &'static str,
        #[source]
        source: io::Error,
    }

    #[test]
    fn a_cause_is_said_once() {
        let outer = |said| Outer { said, source: io::Error::other("two\nlines") };
        assert_eq!(chain(&outer("it failed")), "it failed: two\\nlines");
        assert_eq!(chain(&outer("it failed: two\nlines")), "it failed: two\\nlines");
    }

    #[test]
    fn errors_count_and_hints_do_not() {
        assert_eq!(complaint(b"error: x\nhint: h\nfatal: y\n\n  \n"), "error: x; fatal: y");
        assert_eq!(complaint(b"warning: w\nfatal: y\n"), "fatal: y");
        assert_eq!(complaint(b"usage: a\nusage: b\n\n"), "usage: b");
        assert_eq!(complaint(b""), "");
    }
}
