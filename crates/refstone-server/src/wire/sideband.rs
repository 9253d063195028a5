//! `side-band-64k`: three channels inside pkt-lines.

use super::pkt;

/// Longest payload of one side-band packet, in bytes: the channel number takes one byte.
pub const DATA_BYTES_MAX: usize = pkt::DATA_BYTES_MAX - 1;

/// An empty packet on the data channel: it keeps proxies and clients from giving up while the
/// server works, and every client ignores it. git sends the same one.
pub const KEEPALIVE: &[u8; 5] = b"0005\x01";

/// The channel a packet belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Band {
    /// What the command itself answers: the report of a push.
    Data = 1,
    /// Text for the user's terminal; clients print it behind `remote: `.
    Progress = 2,
    /// A fatal message; the client gives up.
    Fatal = 3,
}

/// Appends `data` on `band`, in as many packets as it takes; nothing for empty data.
///
/// # Example
///
/// ```
/// use refstone_server::wire::sideband::{Band, encode};
///
/// let mut out = Vec::new();
/// encode(&mut out, Band::Progress, b"hello\n");
/// assert_eq!(out, b"000b\x02hello\n");
/// ```
pub fn encode(out: &mut Vec<u8>, band: Band, data: &[u8]) {
    for chunk in data.chunks(DATA_BYTES_MAX) {
        out.extend_from_slice(&pkt::header(chunk.len() + 1));
        out.push(band as u8);
        out.extend_from_slice(chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_data_is_split_at_the_packet_limit() {
        let mut out = Vec::new();
        encode(&mut out, Band::Data, &vec![b'x'; DATA_BYTES_MAX + 2]);
        let mut decoder = pkt::Decoder::default();
        decoder.push(&out);
        let lengths: Vec<usize> = std::iter::from_fn(|| match decoder.decode().unwrap() {
            Some(pkt::Packet::Data(data)) => {
                assert_eq!(data[0], 1);
                Some(data.len() - 1)
            }
            _ => None,
        })
        .collect();
        assert_eq!(lengths, [65_515, 2]);
        assert!(decoder.is_empty());
    }

    #[test]
    fn empty_data_is_no_packet() {
        let mut out = Vec::new();
        encode(&mut out, Band::Fatal, b"");
        assert!(out.is_empty());
    }
}
