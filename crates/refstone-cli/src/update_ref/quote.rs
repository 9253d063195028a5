//! Arguments quoted as strings in C source, as git quotes odd names.

/// The argument after an opening quote, and what follows the closing one.
///
/// `None` if the quote is never closed, or a backslash starts nothing that git writes.
pub(super) fn unquote(quoted: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut rest = quoted.strip_prefix(b"\"")?;
    let mut raw = Vec::new();
    loop {
        let (&byte, tail) = rest.split_first()?;
        match byte {
            b'"' => return Some((raw, tail)),
            b'\\' => {
                let (byte, tail) = unescape(tail)?;
                raw.push(byte);
                rest = tail;
            }
            byte => {
                raw.push(byte);
                rest = tail;
            }
        }
    }
}

fn unescape(escape: &[u8]) -> Option<(u8, &[u8])> {
    let (&letter, tail) = escape.split_first()?;
    let byte = match letter {
        b'a' => 7,
        b'b' => 8,
        b't' => b'\t',
        b'n' => b'\n',
        b'v' => 11,
        b'f' => 12,
        b'r' => b'\r',
        b'\\' | b'"' => letter,
        b'0'..=b'3' => return octal(escape),
        _ => return None,
    };
    Some((byte, tail))
}

/// Three digits, the first of them small enough for the whole to be a byte.
fn octal(escape: &[u8]) -> Option<(u8, &[u8])> {
    let (digits, tail) = escape.split_at_checked(3)?;
    let digit = |byte: u8| (b'0'..=b'7').contains(&byte).then(|| byte - b'0');
    let byte = digits.iter().try_fold(0u8, |value, &byte| Some(value << 3 | digit(byte)?))?;
    Some((byte, tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unquoted(quoted: &[u8]) -> Option<Vec<u8>> {
        unquote(quoted).map(|(raw, _)| raw)
    }

    #[test]
    fn what_git_writes_is_read() {
        assert_eq!(unquoted(br#""refs/heads/\303\244""#), Some("refs/heads/ä".into()));
        assert_eq!(
            unquoted(br#""\a\b\t\n\v\f\r\\\"""#),
            Some(b"\x07\x08\t\n\x0b\x0c\r\\\"".into())
        );
        assert_eq!(unquoted(br#""\377\000""#), Some(vec![255, 0]));
        assert_eq!(unquoted(br#""""#), Some(vec![]));
    }

    #[test]
    fn the_rest_starts_after_the_closing_quote() {
        assert_eq!(unquote(br#""a" "b""#), Some((b"a".to_vec(), &br#" "b""#[..])));
    }

    #[test]
    fn what_git_never_writes_is_refused() {
        for bad in [
            &br#"a""#[..],
            br#""a"#,
            br#""a\""#,
            br#""\x41""#,
            br#""\400""#,
            br#""\18""#,
            br#""\18a""#,
            b"",
        ] {
            assert_eq!(unquoted(bad), None, "{}", String::from_utf8_lossy(bad));
        }
    }
}
