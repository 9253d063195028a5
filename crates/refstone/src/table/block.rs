//! One block of rows: an Arrow record batch in memory, read in place.
//!
//! The checksum of the bytes has proved that they are what the writer wrote; everything that a row
//! is read with (lengths, text offsets) is still checked once, here, so that reading a row can
//! neither fail nor panic.

use std::borrow::Cow;
use std::ops::Range;

use refstone_log::text::unescape;
use refstone_log::{Seq, Timestamp};

use super::layout::{MARKER, PREFIX_LEN};
use super::row::Row;

/// Which of a batch's buffers is what (the order is Arrow's: validity, offsets, data).
const REFNAME: usize = 0;
const NEW_OID: usize = 3;
const SYMREF: usize = 5;
const SEQ: usize = 8;
const AT: usize = 10;
const MOVES_END: usize = 12;
const BUFFERS: usize = 14;
const NODES: usize = 6;
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
    /// `None` unless the bytes start a record batch of a table.
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

    /// The buffer, if it lies in the bytes and holds so many.
    fn buffer(&self, bytes: &[u8], buffer: usize, needed: usize) -> Option<Range<usize>> {
        let range = self.buffers[buffer].clone();
        (range.len() >= needed && range.end <= bytes.len()).then_some(range)
    }

    fn text(&self, bytes: &[u8], first: usize) -> Option<Text> {
        let offsets = self.buffer(bytes, first + 1, 4 * (self.rows + 1))?.start;
        let data = self.buffer(bytes, first + 2, 0)?;
        ascending(bytes, offsets, self.rows, data.len()).then_some(())?;
        Text::new(offsets, data.start)
    }

    fn validity(&self, bytes: &[u8], first: usize, node: usize) -> Option<Validity> {
        match self.nulls[node] {
            false => Some(Validity(None)),
            true => {
                let bits = self.buffer(bytes, first, self.rows.div_ceil(8))?;
                Some(Validity(Some(u32::try_from(bits.start).ok()?)))
            }
        }
    }
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
    offsets: u32,
    data: u32,
}

impl Text {
    fn new(offsets: usize, data: usize) -> Option<Text> {
        Some(Text { offsets: u32::try_from(offsets).ok()?, data: u32::try_from(data).ok()? })
    }

    #[inline]
    fn get(self, bytes: &[u8], row: usize) -> &[u8] {
        let pair = &bytes[self.offsets as usize + 4 * row..][..8];
        let [start, end] = [&pair[..4], &pair[4..]].map(|offset| word(offset) as usize);
        &bytes[self.data as usize + start..self.data as usize + end]
    }
}

/// Where the validity bits are; a column without nulls has none.
#[derive(Clone, Copy, Debug)]
struct Validity(Option<u32>);

impl Validity {
    #[inline]
    fn get(self, bytes: &[u8], row: usize) -> bool {
        self.0.is_none_or(|bits| bytes[bits as usize + row / 8] >> (row % 8) & 1 == 1)
    }
}

/// A block. Small, for a lookup goes through it: offsets have 32 bits.
#[derive(Debug)]
pub(super) struct Block {
    bytes: Box<[u8]>,
    names: Text,
    oids: u32,
    oid_len: u32,
    oid_valid: Validity,
    rows: u32,
    /// Whether there may be escapes among the names.
    escaped: bool,
    symref_valid: Validity,
    symrefs: Text,
    seqs: u32,
    ats: u32,
    moves_ends: u32,
}

impl Block {
    /// `None` unless the bytes are a block of so many rows.
    pub(super) fn decode(bytes: Box<[u8]>, rows: usize, oid_len: usize) -> Option<Block> {
        let layout = Layout::of(&bytes)?;
        (layout.end == bytes.len() && layout.rows == rows).then_some(())?;
        let names = layout.text(&bytes, REFNAME)?;
        let escaped = bytes[layout.buffers[REFNAME + 2].clone()].contains(&b'\\');
        let column = |first: usize, width: usize| {
            let start = layout.buffer(&bytes, first + 1, rows * width)?.start;
            u32::try_from(start).ok()
        };
        Some(Block {
            names,
            oids: column(NEW_OID, oid_len)?,
            oid_len: u32::try_from(oid_len).ok()?,
            oid_valid: layout.validity(&bytes, NEW_OID, OID_NODE)?,
            rows: u32::try_from(rows).ok()?,
            escaped,
            symref_valid: layout.validity(&bytes, SYMREF, SYMREF_NODE)?,
            symrefs: layout.text(&bytes, SYMREF)?,
            seqs: column(SEQ, 8)?,
            ats: column(AT, 8)?,
            moves_ends: column(MOVES_END, 8)?,
            bytes,
        })
    }

    #[inline]
    pub(super) fn rows(&self) -> usize {
        self.rows as usize
    }

    /// A row, which must be one of [`Block::rows`].
    #[inline]
    pub(super) fn row(&self, row: usize) -> Row<'_> {
        Row::new(self, row)
    }

    /// The raw name.
    #[inline]
    pub(super) fn name(&self, row: usize) -> Cow<'_, [u8]> {
        let stored = self.names.get(&self.bytes, row);
        if self.escaped { unescape(stored) } else { Cow::Borrowed(stored) }
    }

    /// The name as it is stored, which is the raw one unless [`Block::name`] is another.
    #[inline]
    pub(super) fn stored_name(&self, row: usize) -> &[u8] {
        self.names.get(&self.bytes, row)
    }

    #[inline]
    pub(super) fn has_name(&self, row: usize, name: &[u8]) -> bool {
        let stored = self.names.get(&self.bytes, row);
        if self.escaped { *unescape(stored) == *name } else { stored == name }
    }

    #[inline]
    pub(super) fn seq(&self, row: usize) -> Seq {
        Seq::new(u64::from_le_bytes(self.eight(self.seqs, row)))
    }

    #[inline]
    pub(super) fn at(&self, row: usize) -> Timestamp {
        Timestamp::from_micros(i64::from_le_bytes(self.eight(self.ats, row)))
    }

    fn eight(&self, column: u32, row: usize) -> [u8; 8] {
        self.bytes[column as usize + 8 * row..][..8].try_into().expect("eight bytes")
    }

    #[inline]
    pub(super) fn oid(&self, row: usize) -> Option<&[u8]> {
        let len = self.oid_len as usize;
        let oid = self.oids as usize + row * len;
        self.oid_valid.get(&self.bytes, row).then(|| &self.bytes[oid..oid + len])
    }

    pub(super) fn symref(&self, row: usize) -> Option<Cow<'_, [u8]>> {
        let valid = self.symref_valid.get(&self.bytes, row);
        valid.then(|| unescape(self.symrefs.get(&self.bytes, row)))
    }

    /// Where the moves of a row's ref end; those of the next row begin there.
    pub(super) fn moves_end(&self, row: usize) -> u64 {
        u64::from_le_bytes(self.eight(self.moves_ends, row))
    }
}
