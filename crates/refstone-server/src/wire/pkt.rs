//! Pkt-lines: four hex digits of length, then the payload.
//!
//! The length counts itself, so `0004` is an empty line; `0000`, `0001` and `0002` are the flush,
//! delimiter and response-end packets and carry nothing. [`Decoder`] is a push decoder: it owns no
//! reader, so the same code serves a socket, a test and a fuzzer.

use std::fmt;

use bytes::{Buf, Bytes, BytesMut};

/// Longest payload of one packet, in bytes: git's `LARGE_PACKET_DATA_MAX`.
pub const DATA_BYTES_MAX: usize = 65_516;

/// The flush packet.
pub const FLUSH: &[u8; 4] = b"0000";

/// The delimiter packet of protocol v2.
pub const DELIM: &[u8; 4] = b"0001";

const HEADER_BYTES: usize = 4;

/// One packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet {
    /// A line; may be empty.
    Data(Bytes),
    /// `0000`, the end of a message.
    Flush,
    /// `0001`, the border between the sections of a v2 message.
    Delim,
    /// `0002`, the end of a stateless response.
    ResponseEnd,
}

/// What can be wrong with a packet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PktError {
    /// The four bytes of the length are not hex digits, or name a length that cannot be.
    #[error(
        "bad pkt-line length at byte {offset}: expected four hex digits up to fff0, found '{found}'"
    )]
    BadLength {
        /// Position in the decoded stream, in bytes.
        offset: u64,
        /// The four bytes found.
        found: Header,
    },
    /// A payload does not fit in one packet.
    #[error("a pkt-line of {bytes} bytes is too long: at most {DATA_BYTES_MAX} fit")]
    TooLong {
        /// Length of the payload, in bytes.
        bytes: usize,
    },
}

/// The four length bytes as found; printed with everything unprintable escaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header(pub [u8; HEADER_BYTES]);

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

/// Takes packets out of a stream that arrives in pieces.
///
/// # Example
///
/// ```
/// use refstone_server::wire::pkt::{Decoder, Packet};
///
/// let mut decoder = Decoder::default();
/// decoder.push(b"0009hel");
/// assert_eq!(decoder.decode().unwrap(), None);
/// decoder.push(b"lo0000PACK");
/// assert_eq!(decoder.decode().unwrap(), Some(Packet::Data("hello".into())));
/// assert_eq!(decoder.decode().unwrap(), Some(Packet::Flush));
/// assert_eq!(decoder.into_rest(), "PACK");
/// ```
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: BytesMut,
    offset: u64,
}

impl Decoder {
    /// Appends what has arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole packet, or `None` when more bytes are needed.
    ///
    /// # Errors
    ///
    /// [`PktError::BadLength`]; the decoder stays at the bad packet.
    pub fn decode(&mut self) -> Result<Option<Packet>, PktError> {
        let Some(header) = self.buffer.first_chunk().copied() else {
            return Ok(None);
        };
        match self.length(header)? {
            0 => Ok(Some(self.take_bare(Packet::Flush))),
            1 => Ok(Some(self.take_bare(Packet::Delim))),
            2 => Ok(Some(self.take_bare(Packet::ResponseEnd))),
            length => Ok(self.take_data(length)),
        }
    }

    /// Whether every pushed byte belonged to a decoded packet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// The bytes behind the last decoded packet.
    #[must_use]
    pub fn into_rest(self) -> Bytes {
        self.buffer.freeze()
    }

    fn length(&self, header: [u8; HEADER_BYTES]) -> Result<usize, PktError> {
        parse_length(header)
            .ok_or(PktError::BadLength { offset: self.offset, found: Header(header) })
    }

    fn take_bare(&mut self, packet: Packet) -> Packet {
        self.advance(HEADER_BYTES);
        packet
    }

    fn take_data(&mut self, length: usize) -> Option<Packet> {
        if self.buffer.len() < length {
            return None;
        }
        self.advance(HEADER_BYTES);
        self.offset += (length - HEADER_BYTES) as u64;
        Some(Packet::Data(self.buffer.split_to(length - HEADER_BYTES).freeze()))
    }

    fn advance(&mut self, bytes: usize) {
        self.buffer.advance(bytes);
        self.offset += bytes as u64;
    }
}

/// `None` for anything but hex digits, for the reserved `0003`, and beyond the longest packet.
fn parse_length(header: [u8; HEADER_BYTES]) -> Option<usize> {
    let mut length = 0;
    for digit in header {
        length = length * 16 + char::from(digit).to_digit(16)? as usize;
    }
    (length != 3 && length <= DATA_BYTES_MAX + HEADER_BYTES).then_some(length)
}

/// Appends one packet whose payload is the concatenation of `parts`.
///
/// # Errors
///
/// [`PktError::TooLong`] when the parts exceed [`DATA_BYTES_MAX`]; nothing is appended then.
pub fn encode(out: &mut Vec<u8>, parts: &[&[u8]]) -> Result<(), PktError> {
    let bytes = parts.iter().map(|part| part.len()).sum();
    if bytes > DATA_BYTES_MAX {
        return Err(PktError::TooLong { bytes });
    }
    out.extend_from_slice(&header(bytes));
    parts.iter().for_each(|part| out.extend_from_slice(part));
    Ok(())
}

/// The four length digits of a payload of `bytes` bytes, which must fit.
pub(super) fn header(bytes: usize) -> [u8; HEADER_BYTES] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    debug_assert!(bytes <= DATA_BYTES_MAX, "callers split or refuse first");
    let length = bytes + HEADER_BYTES;
    [12, 8, 4, 0].map(|shift| DIGITS[(length >> shift) & 15])
}

/// A line without the one newline that senders may append.
#[must_use]
pub fn chomp(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode_all(bytes: &[u8]) -> Result<Vec<Packet>, PktError> {
        let mut decoder = Decoder::default();
        decoder.push(bytes);
        let mut packets = Vec::new();
        while let Some(packet) = decoder.decode()? {
            packets.push(packet);
        }
        Ok(packets)
    }

    #[test]
    fn every_split_of_a_stream_decodes_alike() {
        let stream = b"0006a\n00000001000200040008data";
        let whole = decode_all(stream).unwrap();
        assert_eq!(
            whole,
            [
                Packet::Data("a\n".into()),
                Packet::Flush,
                Packet::Delim,
                Packet::ResponseEnd,
                Packet::Data("".into()),
                Packet::Data("data".into()),
            ]
        );
        for split in 0..=stream.len() {
            let mut decoder = Decoder::default();
            let mut packets = Vec::new();
            for piece in [&stream[..split], &stream[split..]] {
                decoder.push(piece);
                while let Some(packet) = decoder.decode().unwrap() {
                    packets.push(packet);
                }
            }
            assert_eq!(packets, whole, "split at {split}");
            assert!(decoder.is_empty());
        }
    }

    #[test]
    fn lengths_that_cannot_be_are_refused_with_their_place() {
        for bad in [b"0003", b"fff1", b"ffff", b"00g0", b"+001", b" 005"] {
            let stream = [b"0006ab".as_slice(), bad].concat();
            let error = decode_all(&stream).unwrap_err();
            let expected = PktError::BadLength { offset: 6, found: Header(*bad) };
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn upper_case_digits_are_digits() {
        assert_eq!(decode_all(b"000Aabcdef").unwrap(), [Packet::Data("abcdef".into())]);
    }

    #[test]
    fn the_longest_packet_round_trips_and_one_more_byte_does_not() {
        let mut out = Vec::new();
        let payload = vec![b'x'; DATA_BYTES_MAX];
        encode(&mut out, &[&payload]).unwrap();
        assert_eq!(&out[..4], b"fff0");
        assert_eq!(decode_all(&out).unwrap(), [Packet::Data(payload.clone().into())]);
        let error = encode(&mut out, &[&payload, b"y"]).unwrap_err();
        assert_eq!(error, PktError::TooLong { bytes: 65_517 });
        assert_eq!(out.len(), 65_520, "a refused packet appends nothing");
    }

    #[test]
    fn only_one_newline_is_chomped() {
        assert_eq!(chomp(b"a\n\n"), b"a\n");
        assert_eq!(chomp(b"a"), b"a");
        assert_eq!(chomp(b""), b"");
    }
}
