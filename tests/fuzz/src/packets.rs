//! What a client sends: however it is cut into pieces, it is understood in the same way.

use refstone_log::ObjectFormat;
use refstone_server::wire::commands::{CommandError, Limits, PushRequest, RequestReader};
use refstone_server::wire::pack::PackHeader;
use refstone_server::wire::pkt::{Decoder, Packet, PktError, encode};
use refstone_server::wire::v2::{Head, HeadReader, LsRefs, RequestError};

/// The first byte says where the stream is cut, the others are the stream.
pub fn packets(data: &[u8]) {
    let Some((&cut, stream)) = data.split_first() else { return };
    let pieces: Vec<&[u8]> = stream.chunks(usize::from(cut) + 1).collect();
    let whole = decode(&[stream]);
    assert_eq!(decode(&pieces), whole, "packets depend on how they arrive");
    assert_encodes_back(stream, &whole);
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        assert_eq!(request(&pieces, format), request(&[stream], format), "a push");
        assert_eq!(head(&pieces, format), head(&[stream], format), "a fetch");
    }
    if let Ok(listed) = LsRefs::parse(stream) {
        let scans = listed.scans();
        assert!(scans.is_sorted() && !scans.is_empty());
        assert!(!scans.windows(2).any(|pair| pair[1].starts_with(pair[0])));
    }
    let _ = PackHeader::parse(stream);
}

/// Packets, how they ended, and what was left over.
type Decoded = (Vec<Packet>, Option<PktError>, Vec<u8>);

fn decode(pieces: &[&[u8]]) -> Decoded {
    let (mut decoder, mut packets, mut error) = (Decoder::default(), Vec::new(), None);
    for piece in pieces {
        decoder.push(piece);
        while error.is_none() {
            match decoder.decode() {
                Ok(Some(packet)) => packets.push(packet),
                Ok(None) => break,
                Err(found) => error = Some(found),
            }
        }
    }
    (packets, error, decoder.into_rest().to_vec())
}

/// What was decoded is the stream, but for capital digits.
fn assert_encodes_back(stream: &[u8], (packets, _, rest): &Decoded) {
    let mut bytes = Vec::new();
    for packet in packets {
        match packet {
            Packet::Data(data) => encode(&mut bytes, &[data]).unwrap(),
            Packet::Flush => bytes.extend_from_slice(b"0000"),
            Packet::Delim => bytes.extend_from_slice(b"0001"),
            Packet::ResponseEnd => bytes.extend_from_slice(b"0002"),
        }
    }
    bytes.extend_from_slice(rest);
    assert!(bytes.eq_ignore_ascii_case(stream), "a byte was lost or invented");
}

type Pushed = Result<Option<(PushRequest, Vec<u8>)>, CommandError>;

fn request(pieces: &[&[u8]], format: ObjectFormat) -> Pushed {
    let limits = Limits { lines_max: 8, bytes_max: 1 << 10 };
    let mut reader = RequestReader::new(format, limits);
    for (index, piece) in pieces.iter().enumerate() {
        if let Some((request, pack)) = reader.feed(piece)? {
            let pack = [&pack, pieces[index + 1..].concat().as_slice()].concat();
            return Ok(Some((request, pack)));
        }
    }
    Ok(None)
}

fn head(pieces: &[&[u8]], format: ObjectFormat) -> Result<Option<Head>, RequestError> {
    let (mut reader, mut fed) = (HeadReader::new(format), Vec::new());
    for piece in pieces {
        fed.extend_from_slice(piece);
        if let Some(head) = reader.feed(piece)? {
            assert_eq!(reader.into_raw(), fed);
            return Ok(Some(head));
        }
    }
    Ok(None)
}
