//! Where the bytes of a frame lie (`docs/format.md`, "Frame").
//!
//! The metadata of a frame is one flatbuffer whose shape depends on the columns alone. It is
//! built once, as a template with zeros where a frame fills in its numbers.

use super::crc;
use crate::kind::{COLUMNS_MAX, Column, ColumnType};

/// The continuation marker and the length word.
pub(crate) const PREFIX_LEN: usize = 8;
/// The length word alone, the second half of the prefix.
pub(crate) const WORD_LEN: usize = 4;
/// What opens every Arrow IPC message.
pub(crate) const MARKER: [u8; 4] = [0xff; 4];
/// The end of the stream: a prefix whose length word is zero.
pub(crate) const EOS: [u8; PREFIX_LEN] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
/// The bytes at the end of a body that belong to no Arrow buffer.
pub(crate) const TRAILER_LEN: usize = 16;
/// The largest body of a frame, trailer included.
pub(crate) const BODY_MAX: usize = 256 << 20;

// Offsets within the metadata.
const MESSAGE_VTABLE: usize = 4;
const MESSAGE: usize = 16;
pub(crate) const BODY_LENGTH: usize = 24;
const BATCH_VTABLE: usize = 36;
const BATCH: usize = 48;
pub(crate) const ROW_COUNT: usize = 56;
const NODES_LEN: usize = 68;
pub(crate) const NODES: usize = 72;
/// Bytes of one field node, and of one buffer entry.
pub(crate) const ENTRY: usize = 16;

const _: () = assert!(BODY_LENGTH.is_multiple_of(8), "flatbuffers align an i64 to 8 bytes");
const _: () = assert!(ROW_COUNT.is_multiple_of(8) && NODES.is_multiple_of(8));
const _: () = assert!(MESSAGE + 20 == BATCH_VTABLE && BATCH + 20 == NODES_LEN);

/// `MetadataVersion::V5` in Arrow's `Schema.fbs`.
const METADATA_V5: u8 = 4;
/// `MessageHeader::RecordBatch` in Arrow's `Message.fbs`.
const HEADER_RECORD_BATCH: u8 = 3;

/// The constant part of every frame of one log.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) columns: Vec<Column>,
    /// Prefix (as published) and metadata, with zeros where a frame has its own numbers.
    pub(crate) template: Vec<u8>,
    /// The checksum's state after the log id and the published prefix.
    pub(crate) crc_seed: u32,
}

impl Layout {
    pub(crate) fn new(columns: Vec<Column>, log_id: [u8; 16]) -> Layout {
        assert!(columns.len() <= COLUMNS_MAX, "more columns than COLUMNS_MAX");
        let template = template(&columns);
        let log_seed = crc32c::crc32c(&log_id);
        let crc_seed = crc32c::crc32c_append(log_seed, &template[..PREFIX_LEN]);
        Layout { columns, template, crc_seed }
    }

    /// The length word of a published frame.
    pub(crate) fn word(&self) -> [u8; WORD_LEN] {
        let mut word = [0; WORD_LEN];
        word.copy_from_slice(&self.template[4..PREFIX_LEN]);
        word
    }

    /// Where the buffer entries start within the metadata.
    pub(crate) fn buffers(&self) -> usize {
        NODES + ENTRY * self.columns.len() + 8
    }

    /// The checksum of a frame, whatever its length word says at the moment.
    pub(crate) fn checksum(&self, frame: &[u8]) -> u32 {
        crc::append(self.crc_seed, &frame[PREFIX_LEN..frame.len() - 4])
    }
}

/// How many Arrow buffers a column has.
pub(crate) const fn buffer_count(ty: ColumnType) -> usize {
    match ty {
        ColumnType::Seq | ColumnType::At | ColumnType::Fixed(_) => 2,
        ColumnType::Name | ColumnType::Text | ColumnType::Binary => 3,
    }
}

/// Rounds up to the alignment of everything in a body.
pub(crate) const fn align8(len: usize) -> usize {
    len.next_multiple_of(8)
}

fn template(columns: &[Column]) -> Vec<u8> {
    let buffers: usize = columns.iter().map(|c| buffer_count(c.ty)).sum();
    let buffers_len = NODES + ENTRY * columns.len() + 4;
    let metadata_len = buffers_len + 4 + ENTRY * buffers;
    let mut bytes = vec![0; PREFIX_LEN + metadata_len];
    bytes[..4].copy_from_slice(&MARKER);
    put_u32(&mut bytes[4..], metadata_len);
    let metadata = &mut bytes[PREFIX_LEN..];
    put_u32(metadata, MESSAGE);
    put_message(metadata);
    put_batch(metadata, columns.len(), buffers, buffers_len);
    bytes
}

/// The `Message` table: version, header type, header, body length.
fn put_message(metadata: &mut [u8]) {
    put_vtable(&mut metadata[MESSAGE_VTABLE..], 20, &[16, 18, 4, 8]);
    put_u32(&mut metadata[MESSAGE..], MESSAGE - MESSAGE_VTABLE);
    put_u32(&mut metadata[MESSAGE + 4..], BATCH - (MESSAGE + 4));
    metadata[MESSAGE + 16] = METADATA_V5;
    metadata[MESSAGE + 18] = HEADER_RECORD_BATCH;
}

/// The `RecordBatch` table: length, nodes, buffers.
fn put_batch(metadata: &mut [u8], nodes: usize, buffers: usize, buffers_len: usize) {
    put_vtable(&mut metadata[BATCH_VTABLE..], 20, &[8, 4, 16]);
    put_u32(&mut metadata[BATCH..], BATCH - BATCH_VTABLE);
    put_u32(&mut metadata[BATCH + 4..], NODES_LEN - (BATCH + 4));
    put_u32(&mut metadata[BATCH + 16..], buffers_len - (BATCH + 16));
    put_u32(&mut metadata[NODES_LEN..], nodes);
    put_u32(&mut metadata[buffers_len..], buffers);
}

fn put_vtable(bytes: &mut [u8], table_len: u8, fields: &[u8]) {
    let own_len = u8::try_from(4 + 2 * fields.len()).expect("a handful of fields");
    for (index, value) in [own_len, table_len].iter().chain(fields).enumerate() {
        bytes[2 * index] = *value;
    }
}

fn put_u32(bytes: &mut [u8], value: usize) {
    let value = u32::try_from(value).expect("metadata offsets are small");
    bytes[..4].copy_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::{Kind, ObjectFormat};

    #[test]
    fn metadata_of_the_ref_log_is_528_bytes_in_both_formats() {
        for objects in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
            let layout = Layout::new(Kind::Refs.columns(objects), [0; 16]);
            assert_eq!(layout.word(), 528_u32.to_le_bytes());
        }
    }

    #[test]
    fn metadata_of_a_log_of_secrets_is_368_bytes() {
        let layout = Layout::new(Kind::Secrets.columns(ObjectFormat::Sha1), [0; 16]);
        assert_eq!(layout.word(), 368_u32.to_le_bytes());
        let message = arrow_ipc::root_as_message(&layout.template[PREFIX_LEN..]).unwrap();
        let batch = message.header_as_record_batch().unwrap();
        assert_eq!((batch.nodes().unwrap().len(), batch.buffers().unwrap().len()), (5, 13));
    }

    #[test]
    fn the_template_is_a_flatbuffer_that_arrows_verifier_accepts() {
        let layout = Layout::new(Kind::Refs.columns(ObjectFormat::Sha1), [0; 16]);
        let message = arrow_ipc::root_as_message(&layout.template[PREFIX_LEN..]).unwrap();
        let batch = message.header_as_record_batch().unwrap();
        assert_eq!(message.version(), arrow_ipc::MetadataVersion::V5);
        assert_eq!(batch.nodes().unwrap().len(), 8);
        assert_eq!(batch.buffers().unwrap().len(), 20);
    }
}
