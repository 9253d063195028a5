//! A frame with a right checksum and anything in it.

use std::io::Cursor;
use std::sync::OnceLock;

use arrow_array::ArrayRef;
use arrow_ipc::reader::StreamReader;
use refstone_log::{LogReader, ObjectFormat, RefRow};
use refstone_tests::logs::Row;
use refstone_tests::sim::SimFs;
use refstone_tests::sim::observe::log_dir;

use crate::machine::{check, empty, live, open, read, transaction, with_live};

const PREFIX: usize = 8;
const METADATA: usize = 528;
const TRAILER: usize = 16;
/// Where the body's length stands in a frame.
const BODY_LENGTH: usize = PREFIX + 24;

/// An empty log, and what stands before its first frame.
struct Base {
    fs: SimFs,
    schema: Vec<u8>,
    /// The checksum's state after the log id, and the anchor of the chain.
    seed: u32,
}

fn base() -> &'static Base {
    static BASE: OnceLock<Base> = OnceLock::new();
    BASE.get_or_init(|| {
        let fs = empty(ObjectFormat::Sha1);
        let mut schema = live(&fs);
        let word = u32::from_le_bytes(schema[4..PREFIX].try_into().unwrap());
        schema.truncate(PREFIX + usize::try_from(word).unwrap());
        let id = (0x5eed_u128 << 64 | 1).to_be_bytes();
        Base { fs, schema, seed: crc32c::crc32c(&id) }
    })
}

/// Takes the bytes for a frame, gives them the chain and the checksum of their place, and lets
/// everybody read them who reads logs: who accepts them agrees with all others on what they say.
pub fn frames(data: &[u8]) {
    let Base { fs, schema, .. } = base();
    let mut bytes = schema.clone();
    bytes.extend_from_slice(&sealed(data));
    bytes.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    let fs = with_live(fs, bytes.clone());
    let (found, error) = read(&fs);
    let report = check(&fs).unwrap();
    // What is damaged behind the published end is no business of a reader.
    assert!(error.is_none() || report.damage.is_some(), "verify accepts what a reader refuses");
    let [(seq, rows)] = &found[..] else { return };
    assert_eq!((*seq, report.rows), (1, rows.len() as u64));
    assert_eq!(columns_of_arrow(&bytes), columns_of_log(&fs), "arrow-rs reads something else");
    let (log, _, replayed) = open(&fs).unwrap();
    assert_eq!(replayed, found);
    log.close().unwrap();
    assert_round_trip(rows);
}

/// What was read is written and read back as it was, if it may be written.
fn assert_round_trip(rows: &[Row]) {
    let fs = empty(ObjectFormat::Sha1);
    let (log, ..) = open(&fs).unwrap();
    let staged: Vec<RefRow<'_>> = rows.iter().map(Row::as_row).collect();
    if let Ok(commit) = log.append(staged.as_slice()) {
        commit.wait().unwrap();
        assert_eq!(read(&fs).0, [(1, rows.to_vec())]);
    }
}

/// The frame that starts these bytes, with the trailer that its place asks for.
fn sealed(data: &[u8]) -> Vec<u8> {
    let least = PREFIX + METADATA + TRAILER;
    let mut frame = data.to_vec();
    frame.resize(frame.len().max(least).next_multiple_of(8), 0);
    let body = u64::from_le_bytes(frame[BODY_LENGTH..BODY_LENGTH + 8].try_into().unwrap());
    let len = usize::try_from(body).unwrap_or(usize::MAX).saturating_add(PREFIX + METADATA);
    if (least..=frame.len()).contains(&len) {
        frame.truncate(len);
    }
    let trailer = frame.len() - 8;
    frame[trailer..trailer + 4].copy_from_slice(&base().seed.to_le_bytes());
    let published = [0xff, 0xff, 0xff, 0xff, 0x10, 2, 0, 0];
    let prefix = crc32c::crc32c_append(base().seed, &published);
    let crc = crc32c::crc32c_append(prefix, &frame[PREFIX..trailer + 4]);
    frame[trailer + 4..].copy_from_slice(&crc.to_le_bytes());
    frame
}

fn columns_of_arrow(bytes: &[u8]) -> Vec<Vec<ArrayRef>> {
    let reader = StreamReader::try_new(Cursor::new(bytes), None).unwrap();
    reader.map(|batch| batch.unwrap().columns().to_vec()).collect()
}

fn columns_of_log(fs: &SimFs) -> Vec<Vec<ArrayRef>> {
    let mut reader = LogReader::open(fs, &log_dir()).unwrap();
    let schema = reader.arrow_schema();
    let mut batches = Vec::new();
    while let Some(frame) = reader.next().unwrap() {
        assert_eq!(transaction(&frame).1.len(), frame.row_count());
        let batch = frame.record_batch(schema.clone()).unwrap();
        batches.push(batch.columns().to_vec());
    }
    batches
}
