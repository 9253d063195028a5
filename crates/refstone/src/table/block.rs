//! One block of rows: an Arrow record batch in memory, read in place.
//!
//! The checksum of the bytes has proved that they are what the writer wrote; everything that a row
//! is read with (lengths, text offsets) is still checked once, here, so that reading a row can
//! neither fail nor panic.

use std::borrow::Cow;
use std::ops::Range;

use refstone_log::text::unescape;
use refstone_log::{Seq, Timestamp};

use super::Entry;
use super::layout::{MARKER, PREFIX_LEN};
use crate::edit::Target;
use crate::name::RefName;
use crate::oid::ObjectId;

/// Which of a batch's buffers is what (the order is Arrow's: validity, offsets, data).
const REFNAME: usize = 0;
const NEW_OID: usize = 3;
const SYMREF: usize = 5;
const SEQ: usize = 8;
const AT: usize = 10;
const ROWS: usize = 12;
const BUFFERS: usize = 16;
/// The columns, and the list's elements.
const NODES: usize = 7;
const OID_NODE: usize = 1;
const SYMREF_NODE: usize = 2;

/// Where the buffers of a record batch lie, counted from the message's first byte.
struct Layout {
    rows: usize,
    nulls: [bool; NODES],
    buffers: [Range<usize>; BUFFERS],
    end: usize,
}

impl Layout {
    /// `None` unless the bytes start a record batch of a table. The body need not be there.
    fn of(message: &[u8]) -> Option<Layout> {
        let (prefix, _) = message.split_first_chunk::<PREFIX_LEN>()?;
        let word: [u8; 4] = prefix[4..].try_into().ok()?;
        let metadata = message.get(PREFIX_LEN..)?.get(..u32::from_le_bytes(word) as usize)?;
        let body = PREFIX_LEN + metadata.len();
        let message = arrow_ipc::root_as_message(metadata).ok()?;
        let batch = message.header_as_record_batch()?;
        let (nodes, buffers) = (batch.nodes()?, batch.buffers()?);
        let known = nodes.len() == NODES && buffers.len() == BUFFERS;
        (prefix[..4] == MARKER && known && batch.compression().is_none()).then_some(())?;
        let mut layout = Layout {
            rows: usize::try_from(batch.length()).ok()?,
            nulls: std::array::from_fn(|node| nodes.get(node).null_count() > 0),
            buffers: [const { 0..0 }; BUFFERS],
            end: body.checked_add(usize::try_from(message.bodyLength()).ok()?)?,
        };
        for (range, buffer) in layout.buffers.iter_mut().zip(buffers) {
            let start = body.checked_add(usize::try_from(buffer.offset()).ok()?)?;
            *range = start..start.checked_add(usize::try_from(buffer.length()).ok()?)?;
        }
        Some(layout)
    }

    /// Where the column `rows` begins.
    fn split(&self) -> usize {
        self.buffers[ROWS].start
    }

    /// The buffer, if it lies in the bytes and holds so many.
    fn buffer(&self, bytes: &[u8], buffer: usize, needed: usize) -> Option<Range<usize>> {
        let range = self.buffers[buffer].clone();
        (range.len() >= needed && range.end <= bytes.len()).then_some(range)
    }

    fn text(&self, bytes: &[u8], first: usize) -> Option<Text> {
        let offsets = self.buffer(bytes, first + 1, 4 * (self.rows + 1))?.start;
        let data = self.buffer(bytes, first + 2, 0)?;
        ascending(bytes, offsets, self.rows, data.len())
            .then_some(Text { offsets, data: data.start })
    }

    fn validity(&self, bytes: &[u8], first: usize, node: usize) -> Option<Validity> {
        match self.nulls[node] {
            false => Some(Validity(None)),
            true => {
                let bits = self.buffer(bytes, first, self.rows.div_ceil(8))?;
                Some(Validity(Some(bits.start)))
            }
        }
    }
}

/// Where a record batch splits into what lookups read and the column `rows`.
pub(super) fn split(message: &[u8]) -> Option<usize> {
    Layout::of(message).map(|layout| layout.split())
}

/// Whether offsets start at 0 or later, never fall, and end within the data.
fn ascending(bytes: &[u8], offsets: usize, rows: usize, data: usize) -> bool {
    let offsets = bytes[offsets..][..4 * (rows + 1)].chunks_exact(4);
    let mut last = 0;
    let ascends = offsets.map(word).all(|offset| {
        let ascends = last <= offset;
        last = offset;
        ascends
    });
    ascends && last as usize <= data
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().expect("four bytes"))
}

#[derive(Clone, Copy, Debug)]
struct Text {
    offsets: usize,
    data: usize,
}

impl Text {
    #[inline]
    fn get(self, bytes: &[u8], row: usize) -> &[u8] {
        let at = self.offsets + 4 * row;
        let pair = &bytes[at..at + 8];
        let (start, end) = (word(&pair[..4]) as usize, word(&pair[4..]) as usize);
        &bytes[self.data + start..self.data + end]
    }
}

/// Where the validity bits are; a column without nulls has none.
#[derive(Clone, Copy, Debug)]
struct Validity(Option<usize>);

impl Validity {
    #[inline]
    fn get(self, bytes: &[u8], row: usize) -> bool {
        self.0.is_none_or(|bits| bytes[bits + row / 8] >> (row % 8) & 1 == 1)
    }
}

/// A block without its column `rows`.
#[derive(Debug)]
pub(super) struct Block {
    bytes: Box<[u8]>,
    rows: usize,
    names: Text,
    oid_len: usize,
    oid_valid: Validity,
    oids: usize,
    symref_valid: Validity,
    symrefs: Text,
    seqs: usize,
    ats: usize,
    /// Whether there may be escapes among the names.
    escaped: bool,
    /// Of the column `rows`, from its start.
    list: Text,
    list_len: usize,
}

impl Block {
    /// `None` unless the bytes are a block of so many rows, and so many bytes are left of it.
    pub(super) fn decode(
        bytes: Box<[u8]>,
        rows: usize,
        oid_len: usize,
        cold_len: usize,
    ) -> Option<Block> {
        let layout = Layout::of(&bytes)?;
        let split = layout.split();
        let whole = split == bytes.len() && layout.end.checked_sub(split) == Some(cold_len);
        (whole && layout.rows == rows).then_some(())?;
        let names = layout.text(&bytes, REFNAME)?;
        let escaped = bytes[names.data..layout.buffers[REFNAME + 2].end].contains(&b'\\');
        let [offsets, values] = [ROWS + 1, ROWS + 3].map(|buffer| layout.buffers[buffer].start);
        Some(Block {
            rows,
            names,
            oid_len,
            oid_valid: layout.validity(&bytes, NEW_OID, OID_NODE)?,
            oids: layout.buffer(&bytes, NEW_OID + 1, rows * oid_len)?.start,
            symref_valid: layout.validity(&bytes, SYMREF, SYMREF_NODE)?,
            symrefs: layout.text(&bytes, SYMREF)?,
            seqs: layout.buffer(&bytes, SEQ + 1, 8 * rows)?.start,
            ats: layout.buffer(&bytes, AT + 1, 8 * rows)?.start,
            escaped,
            list: Text { offsets: offsets.checked_sub(split)?, data: values.checked_sub(split)? },
            list_len: layout.buffers[ROWS + 3].len() / 4,
            bytes,
        })
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// The raw name.
    #[inline]
    pub(super) fn name(&self, row: usize) -> Cow<'_, [u8]> {
        let stored = self.names.get(&self.bytes, row);
        if self.escaped { unescape(stored) } else { Cow::Borrowed(stored) }
    }

    /// The name, if it is stored as it is.
    #[inline]
    pub(super) fn plain_name(&self, row: usize) -> Option<&[u8]> {
        match self.name(row) {
            Cow::Borrowed(name) => Some(name),
            Cow::Owned(_) => None,
        }
    }

    pub(super) fn has_name(&self, row: usize, name: &[u8]) -> bool {
        *self.name(row) == *name
    }

    #[inline]
    pub(super) fn entry(&self, row: usize) -> Entry {
        Entry { seq: self.seq(row), at: self.at(row), target: self.target(row) }
    }

    fn seq(&self, row: usize) -> Seq {
        Seq::new(u64::from_le_bytes(self.eight(self.seqs, row)))
    }

    fn at(&self, row: usize) -> Timestamp {
        Timestamp::from_micros(i64::from_le_bytes(self.eight(self.ats, row)))
    }

    fn eight(&self, column: usize, row: usize) -> [u8; 8] {
        self.bytes[column + 8 * row..][..8].try_into().expect("eight bytes")
    }

    fn target(&self, row: usize) -> Option<Target> {
        if let Some(oid) = self.oid(row) {
            let oid = ObjectId::from_bytes(oid).expect("the schema gives the width of an id");
            return Some(Target::Object(oid));
        }
        self.symref(row).map(|name| Target::Symbolic(RefName::from_proven(&name)))
    }

    #[inline]
    pub(super) fn oid(&self, row: usize) -> Option<&[u8]> {
        let oid = self.oids + row * self.oid_len;
        self.oid_valid.get(&self.bytes, row).then(|| &self.bytes[oid..oid + self.oid_len])
    }

    pub(super) fn symref(&self, row: usize) -> Option<Cow<'_, [u8]>> {
        let valid = self.symref_valid.get(&self.bytes, row);
        valid.then(|| unescape(self.symrefs.get(&self.bytes, row)))
    }

    /// The column `rows` of this block. `None` unless the bytes are it.
    pub(super) fn history(&self, bytes: Box<[u8]>) -> Option<BlockHistory> {
        let offsets = bytes.get(self.list.offsets..)?.get(..4 * (self.rows + 1))?;
        let values = bytes.get(self.list.data..)?.get(..4 * self.list_len)?;
        let _ = (offsets, values);
        ascending(&bytes, self.list.offsets, self.rows, self.list_len)
            .then_some(BlockHistory { bytes, list: self.list })
    }
}

/// The column `rows` of a block.
#[derive(Debug)]
pub(super) struct BlockHistory {
    bytes: Box<[u8]>,
    list: Text,
}

impl BlockHistory {
    /// Where the moves of a row's ref are in the history file.
    pub(super) fn rows(&self, row: usize) -> impl Iterator<Item = u32> + use<'_> {
        let pair = &self.bytes[self.list.offsets + 4 * row..][..8];
        let (start, end) = (word(&pair[..4]) as usize, word(&pair[4..]) as usize);
        let values = &self.bytes[self.list.data + 4 * start..self.list.data + 4 * end];
        values.chunks_exact(4).map(word)
    }
}
