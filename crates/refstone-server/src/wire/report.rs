//! The report that ends a push.
//!
//! `report-status-v2` differs from `report-status` only in `option` lines, with which a server
//! tells that it moved another ref, or to another value, than the client asked. This server never
//! does, so both versions are the same bytes.

use super::pkt::{self, PktError};

/// The verdict on one command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefReport<'a> {
    /// The ref as the client named it.
    pub name: &'a [u8],
    /// Why it was refused; `None` when it was not.
    pub refusal: Option<&'a str>,
}

/// Appends the report: what became of the pack, then a line for each command, in order, then a flush.
///
/// # Errors
///
/// [`PktError::TooLong`] when a line does not fit in a packet.
///
/// # Example
///
/// ```
/// use refstone_server::wire::report::{RefReport, encode};
///
/// let mut out = Vec::new();
/// let refs = [RefReport { name: b"refs/heads/main", refusal: None }];
/// encode(&mut out, Ok(()), refs).unwrap();
/// assert_eq!(out, b"000eunpack ok\n0017ok refs/heads/main\n0000");
/// ```
pub fn encode<'a>(
    out: &mut Vec<u8>,
    unpack: Result<(), &str>,
    refs: impl IntoIterator<Item = RefReport<'a>>,
) -> Result<(), PktError> {
    let unpack = unpack.err().unwrap_or("ok");
    pkt::encode(out, &[b"unpack ", &one_line(unpack), b"\n"])?;
    for report in refs {
        match report.refusal {
            None => pkt::encode(out, &[b"ok ", report.name, b"\n"])?,
            Some(why) => pkt::encode(out, &[b"ng ", report.name, b" ", &one_line(why), b"\n"])?,
        }
    }
    out.extend_from_slice(pkt::FLUSH);
    Ok(())
}

/// A reason must not break the line it stands on.
fn one_line(text: &str) -> Vec<u8> {
    text.bytes().map(|byte| if byte.is_ascii_control() { b' ' } else { byte }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_keep_to_one_line_and_to_the_order_of_the_commands() {
        let mut out = Vec::new();
        let refs = [
            RefReport { name: b"refs/heads/b", refusal: Some("two\nlines") },
            RefReport { name: b"refs/heads/\xfe", refusal: None },
        ];
        encode(&mut out, Err("index-pack abnormal exit"), refs).unwrap();
        let expected = [
            b"0024unpack index-pack abnormal exit\n".as_slice(),
            b"001eng refs/heads/b two lines\n0014ok refs/heads/\xfe\n0000",
        ];
        assert_eq!(bstr::BStr::new(&out), bstr::BStr::new(&expected.concat()));
    }
}
