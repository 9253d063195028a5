//! Untrusted bytes to a verified [`Frame`], with every bound checked before it is used.
//!
//! arrow-rs panics on a buffer that lies outside the body, so nothing reaches it (or any reader
//! of a [`Frame`]) that has not passed here.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_ipc::reader::read_record_batch;
use arrow_schema::{ArrowError, SchemaRef};

use super::layout::{
    BODY_LENGTH, BODY_MAX, ENTRY, Layout, MARKER, NODES, PREFIX_LEN, ROW_COUNT, TRAILER_LEN,
    buffer_count,
};
use crate::kind::{ColumnType, DecodedRefRow, DecodedSecretRow};
use crate::sabotage::{self, Sabotage};
use crate::seq::{Seq, Timestamp};

/// Why bytes are not the frame that belongs at their place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The file ends inside the frame.
    #[error("the frame needs {needed} bytes, and the file ends after {found}")]
    Truncated {
        /// Bytes the frame needs.
        needed: u64,
        /// Bytes there are.
        found: u64,
    },
    /// The bytes do not start with Arrow's continuation marker.
    #[error("expected the continuation marker ffffffff, found {found:08x}")]
    Marker {
        /// The four bytes found, read as big-endian.
        found: u32,
    },
    /// The length word is neither zero nor the constant metadata length.
    #[error("the length word is {found}, and frames of this log have {expected} bytes of metadata")]
    LengthWord {
        /// The one length frames of this log have.
        expected: u32,
        /// The length found.
        found: u32,
    },
    /// A byte of the metadata that is the same in every frame differs.
    #[error("the metadata differs from the template at byte {offset}")]
    Metadata {
        /// Where, from the start of the metadata.
        offset: usize,
    },
    /// The body length is impossible.
    #[error(
        "the body length is {found}: expected a multiple of 8 from {TRAILER_LEN} to {BODY_MAX}"
    )]
    BodyLength {
        /// The length found.
        found: u64,
    },
    /// The checksum does not match the bytes.
    #[error("the checksum is {stored:08x}, and the bytes give {computed:08x}")]
    Checksum {
        /// The checksum in the trailer.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
    },
    /// The frame does not continue the frame before it.
    #[error("the frame continues checksum {found:08x}, and the frame before has {expected:08x}")]
    Chain {
        /// The checksum of the frame before.
        expected: u32,
        /// The checksum this frame says it continues.
        found: u32,
    },
    /// The frame has another sequence than its place asks for.
    #[error("the sequence is {found}, expected {expected}")]
    Sequence {
        /// The sequence that belongs here.
        expected: Seq,
        /// The sequence found.
        found: Seq,
    },
    /// The frame says that it is older than the frame before it.
    #[error("the time is {found} µs, and the frame before has {not_before} µs")]
    Time {
        /// The time of the frame before, in microseconds since the Unix epoch.
        not_before: i64,
        /// The time found.
        found: i64,
    },
    /// The frame carries flags that this version does not know, so a newer one wrote it.
    #[error("the frame has flags {found:#04x}, which this version of refstone does not know")]
    Flags {
        /// The flags found.
        found: u8,
    },
    /// The checksum is right, and yet a column does not hang together.
    #[error("column `{column}`: {problem}")]
    Structure {
        /// The column.
        column: &'static str,
        /// What does not hang together.
        problem: &'static str,
    },
}

impl FrameError {
    /// Whether the frame is whole, and only this version does not know what it says.
    pub(crate) fn is_of_a_newer_version(&self) -> bool {
        matches!(self, FrameError::Flags { .. })
    }
}

/// What a frame must continue to be valid at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) seq: Seq,
    /// `None` behind a recorded gap, where the frame before is lost.
    pub(crate) previous_crc: Option<u32>,
    /// Time does not go back from frame to frame.
    pub(crate) not_before: Timestamp,
}

/// One verified transaction: its checksum, its chain, its sequence and every bound are right.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    layout: &'a Layout,
    bytes: &'a [u8],
    rows: usize,
    seq: Seq,
    at: Timestamp,
}

impl Layout {
    /// The length of the frame that starts with these bytes (prefix and metadata).
    ///
    /// A length word of zero is read as published: whether it may be is the caller's question.
    pub(crate) fn frame_len(&self, head: &[u8]) -> Result<usize, FrameError> {
        check_len(head, self.template.len())?;
        self.check_prefix(head)?;
        self.check_constants(head)?;
        let found = u64_at(head, PREFIX_LEN + BODY_LENGTH);
        usize::try_from(found)
            .ok()
            .filter(|len| (TRAILER_LEN..=BODY_MAX).contains(len) && len.is_multiple_of(8))
            .map(|len| self.template.len() + len)
            .ok_or(FrameError::BodyLength { found })
    }

    fn check_prefix(&self, head: &[u8]) -> Result<(), FrameError> {
        if head[..4] != MARKER {
            let found = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
            return Err(FrameError::Marker { found });
        }
        let (expected, found) = (u32_at(&self.template, 4), u32_at(head, 4));
        if found != 0 && found != expected {
            return Err(FrameError::LengthWord { expected, found });
        }
        Ok(())
    }

    /// Compares the metadata with the template wherever frames do not differ.
    fn check_constants(&self, head: &[u8]) -> Result<(), FrameError> {
        let nodes_end = NODES + ENTRY * self.columns.len();
        let constant = [
            0..BODY_LENGTH,
            BODY_LENGTH + 8..ROW_COUNT,
            ROW_COUNT + 8..NODES,
            nodes_end..nodes_end + 8,
        ];
        for offset in constant.into_iter().flatten() {
            if head[PREFIX_LEN + offset] != self.template[PREFIX_LEN + offset] {
                return Err(FrameError::Metadata { offset });
            }
        }
        Ok(())
    }

    /// Verifies a whole frame on its own: length, checksum and structure, not its place.
    pub(crate) fn verify_alone<'a>(&'a self, bytes: &'a [u8]) -> Result<Frame<'a>, FrameError> {
        let len = self.frame_len(bytes)?;
        check_len(bytes, len)?;
        let bytes = &bytes[..len];
        let (stored, computed) = (u32_at(bytes, len - 4), self.checksum(bytes));
        if stored != computed && !sabotage::is(Sabotage::AcceptBrokenChecksum) {
            return Err(FrameError::Checksum { stored, computed });
        }
        match bytes[len - 9] {
            0 => {}
            found => return Err(FrameError::Flags { found }),
        }
        self.check_structure(bytes)?;
        Ok(self.trusted(bytes))
    }

    /// The frame in bytes that were verified before.
    pub(crate) fn trusted<'a>(&'a self, bytes: &'a [u8]) -> Frame<'a> {
        let rows = usize::try_from(u64_at(bytes, PREFIX_LEN + ROW_COUNT)).expect("verified");
        let mut frame =
            Frame { layout: self, bytes, rows, seq: Seq::ZERO, at: Timestamp::default() };
        frame.seq = Seq::new(u64_at(frame.values(0), 0));
        frame.at = Timestamp::from_micros(u64_at(frame.values(1), 0).cast_signed());
        frame
    }

    /// Verifies the frame that belongs at this place.
    pub(crate) fn verify<'a>(
        &'a self,
        bytes: &'a [u8],
        expected: &Expected,
    ) -> Result<Frame<'a>, FrameError> {
        let frame = self.verify_alone(bytes)?;
        let found = frame.previous_crc();
        if let Some(expected) = expected.previous_crc.filter(|&expected| expected != found)
            && !sabotage::is(Sabotage::AcceptBrokenChain)
        {
            return Err(FrameError::Chain { expected, found });
        }
        if frame.seq != expected.seq {
            return Err(FrameError::Sequence { expected: expected.seq, found: frame.seq });
        }
        if frame.at < expected.not_before {
            let (not_before, found) = (expected.not_before.as_micros(), frame.at.as_micros());
            return Err(FrameError::Time { not_before, found });
        }
        Ok(frame)
    }

    /// Checks every node and buffer.
    fn check_structure(&self, bytes: &[u8]) -> Result<(), FrameError> {
        let metadata = &bytes[PREFIX_LEN..];
        let body = &bytes[self.template.len()..bytes.len() - TRAILER_LEN];
        let rows = usize::try_from(u64_at(metadata, ROW_COUNT)).unwrap_or(usize::MAX);
        let mut entry = self.buffers();
        for (index, column) in self.columns.iter().enumerate() {
            let entries = &metadata[entry..entry + ENTRY * buffer_count(column.ty)];
            let node = &metadata[NODES + ENTRY * index..];
            let check = ColumnCheck { rows, node, entries, body };
            check
                .run(column.ty, column.nullable)
                .map_err(|problem| FrameError::Structure { column: column.name, problem })?;
            entry += entries.len();
        }
        Ok(())
    }
}

fn check_len(bytes: &[u8], needed: usize) -> Result<(), FrameError> {
    if bytes.len() < needed {
        return Err(FrameError::Truncated { needed: needed as u64, found: bytes.len() as u64 });
    }
    Ok(())
}

/// The checks of one column; `Err` names what is wrong.
struct ColumnCheck<'a> {
    rows: usize,
    node: &'a [u8],
    entries: &'a [u8],
    body: &'a [u8],
}

impl<'a> ColumnCheck<'a> {
    fn run(&self, ty: ColumnType, nullable: bool) -> Result<(), &'static str> {
        // A row takes at least the 8 bytes of its sequence, so this also bounds every product.
        if self.rows == 0 || self.rows > self.body.len() / 8 {
            return Err("the number of rows is impossible");
        }
        if u64_at(self.node, 0) != self.rows as u64 {
            return Err("the node's length differs from the batch's");
        }
        self.validity(nullable)?;
        match ty {
            ColumnType::Seq | ColumnType::At => self.constant(),
            ColumnType::Fixed(width) => self.exact(1, width * self.rows).map(|_| ()),
            ColumnType::Name | ColumnType::Text => self.text(),
            ColumnType::Binary => self.offsets().map(|_| ()),
        }
    }

    fn buffer(&self, index: usize) -> Result<&'a [u8], &'static str> {
        let offset = u64_at(self.entries, ENTRY * index);
        let len = u64_at(self.entries, ENTRY * index + 8);
        let end = offset.checked_add(len).ok_or("a buffer's end overflows")?;
        if !offset.is_multiple_of(8) || end > self.body.len() as u64 {
            return Err("a buffer lies outside the body or off its alignment");
        }
        let (offset, end) = (usize::try_from(offset), usize::try_from(end));
        match (offset, end) {
            (Ok(offset), Ok(end)) => Ok(&self.body[offset..end]),
            _ => Err("a buffer lies outside memory"),
        }
    }

    fn exact(&self, index: usize, len: usize) -> Result<&'a [u8], &'static str> {
        let buffer = self.buffer(index)?;
        if buffer.len() == len { Ok(buffer) } else { Err("a buffer has the wrong length") }
    }

    fn validity(&self, nullable: bool) -> Result<(), &'static str> {
        let nulls = u64_at(self.node, 8);
        if nulls == 0 {
            return self.exact(0, 0).map(|_| ());
        }
        if !nullable {
            return Err("nulls in a column that has none");
        }
        let bitmap = self.exact(0, self.rows.div_ceil(8))?;
        let valid = (0..self.rows).filter(|&row| bit(bitmap, row)).count();
        if (self.rows - valid) as u64 == nulls { Ok(()) } else { Err("the null count is wrong") }
    }

    fn constant(&self) -> Result<(), &'static str> {
        let values = self.exact(1, 8 * self.rows)?;
        let same = values.chunks_exact(8).all(|value| value == &values[..8]);
        if same { Ok(()) } else { Err("the rows of one transaction differ") }
    }

    /// The offsets of a column of any length, in order and within the data, and the data.
    fn offsets(&self) -> Result<(&'a [u8], &'a [u8]), &'static str> {
        let offsets = self.exact(1, 4 * (self.rows + 1))?;
        let data = self.buffer(2)?;
        let mut previous = 0;
        for row in 0..=self.rows {
            let offset = u32_at(offsets, 4 * row) as usize;
            if offset < previous || offset > data.len() || (row == 0 && offset != 0) {
                return Err("an offset is out of order or out of bounds");
            }
            previous = offset;
        }
        Ok((offsets, data))
    }

    fn text(&self) -> Result<(), &'static str> {
        let (offsets, data) = self.offsets()?;
        let text = std::str::from_utf8(data).map_err(|_| "the text is not UTF-8")?;
        let splits =
            (0..=self.rows).all(|r| text.is_char_boundary(u32_at(offsets, 4 * r) as usize));
        if splits { Ok(()) } else { Err("a text offset splits a character") }
    }
}

impl<'a> Frame<'a> {
    /// The transaction's commit sequence.
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// When the transaction was staged. Never earlier than the transaction before.
    #[must_use]
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// How many rows the transaction has; at least one.
    #[must_use]
    pub fn row_count(&self) -> usize {
        self.rows
    }

    /// The newest sequence that was known to be durable when this frame was written.
    #[must_use]
    pub fn durable_seq(&self) -> Seq {
        Seq::new(u64_at(self.bytes, self.bytes.len() - TRAILER_LEN))
    }

    /// The frame's checksum, which the next frame repeats.
    #[must_use]
    pub fn crc(&self) -> u32 {
        u32_at(self.bytes, self.bytes.len() - 4)
    }

    /// The checksum of the frame before.
    pub(crate) fn previous_crc(&self) -> u32 {
        u32_at(self.bytes, self.bytes.len() - 8)
    }

    /// The frame as it stands in the file, from its continuation marker to its trailer.
    #[must_use]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// One row of a ref log, with its text as the raw bytes that were appended.
    ///
    /// # Panics
    /// If `row` is not below [`row_count`](Frame::row_count).
    #[must_use]
    pub fn ref_row(&self, row: usize) -> DecodedRefRow<'a> {
        assert!(row < self.rows, "row {row} of a transaction of {} rows", self.rows);
        DecodedRefRow::from_cells(|column| self.cell(row, column + 2))
    }

    /// The rows of a ref log.
    pub fn ref_rows(&self) -> impl Iterator<Item = DecodedRefRow<'a>> + '_ {
        (0..self.rows).map(|row| self.ref_row(row))
    }

    /// One row of a log of secrets.
    pub(crate) fn secret_row(&self, row: usize) -> DecodedSecretRow<'a> {
        DecodedSecretRow::from_cells(|column| self.cell(row, column + 2))
    }

    /// The transaction as an Arrow batch of `schema`, which must be the log's own.
    ///
    /// Copies the body once.
    ///
    /// # Errors
    /// If arrow-rs does not accept what this crate verified, which is a bug of one of the two.
    pub fn record_batch(&self, schema: SchemaRef) -> Result<RecordBatch, ArrowError> {
        let (head, body) = self.bytes.split_at(self.layout.template.len());
        let message = arrow_ipc::root_as_message(&head[PREFIX_LEN..])
            .map_err(|error| ArrowError::IpcError(error.to_string()))?;
        let batch = message
            .header_as_record_batch()
            .ok_or_else(|| ArrowError::IpcError("the message is no record batch".to_owned()))?;
        let body = arrow_array::Array::to_data(&arrow_array::UInt8Array::from(body.to_vec()));
        let buffer = body.buffers()[0].clone();
        read_record_batch(&buffer, batch, schema, &Default::default(), None, &message.version())
    }

    fn entry(&self, column: usize, buffer: usize) -> &'a [u8] {
        let before = self.layout.columns[..column].iter().map(|c| buffer_count(c.ty));
        let index = before.sum::<usize>() + buffer;
        let at = PREFIX_LEN + self.layout.buffers() + ENTRY * index;
        let (offset, len) = (u64_at(self.bytes, at), u64_at(self.bytes, at + 8));
        let (offset, len) = (usize::try_from(offset), usize::try_from(len));
        let (offset, len) = (offset.expect("verified"), len.expect("verified"));
        &self.bytes[self.layout.template.len()..][offset..offset + len]
    }

    /// The data buffer of a column of fixed width.
    fn values(&self, column: usize) -> &'a [u8] {
        self.entry(column, 1)
    }

    /// One stored value (text still escaped); columns count with `seq` and `at`.
    fn cell(&self, row: usize, column: usize) -> Option<&'a [u8]> {
        let validity = self.entry(column, 0);
        if !validity.is_empty() && !bit(validity, row) {
            return None;
        }
        match self.layout.columns[column].ty {
            ColumnType::Seq | ColumnType::At => Some(&self.values(column)[8 * row..][..8]),
            ColumnType::Fixed(width) => Some(&self.values(column)[width * row..][..width]),
            ColumnType::Name | ColumnType::Text | ColumnType::Binary => {
                let offsets = self.values(column);
                let (start, end) = (u32_at(offsets, 4 * row), u32_at(offsets, 4 * row + 4));
                Some(&self.entry(column, 2)[start as usize..end as usize])
            }
        }
    }
}

/// The Arrow schema shared by every batch of one log.
pub(crate) type SharedSchema = Arc<arrow_schema::Schema>;

fn bit(bitmap: &[u8], row: usize) -> bool {
    bitmap[row / 8] >> (row % 8) & 1 == 1
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}
