//! Rows to one frame: a copy of the template, the body behind it, the numbers patched in.
//!
//! Arrow's builders and its IPC encoder cost some 5 µs and 79 allocations for one row; this costs
//! about a fiftieth. The encoder of arrow-rs stays as the oracle of the property tests.

use super::crc;
use super::layout::{
    BODY_LENGTH, BODY_MAX, ENTRY, Layout, NODES, PREFIX_LEN, ROW_COUNT, TRAILER_LEN, align8,
};
use super::text::{Backslash, escape_into, is_readable};
use crate::kind::{COLUMNS_MAX, ColumnType, Rows};
use crate::sabotage::{self, Sabotage};
use crate::seq::{Seq, Timestamp};

/// The numbers of a frame that are not in its rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameHead {
    pub(crate) seq: Seq,
    pub(crate) at: Timestamp,
    /// The checksum of the frame before.
    pub(crate) previous_crc: u32,
    /// The newest sequence known to be durable.
    pub(crate) durable_seq: Seq,
}

/// Why rows cannot become a frame. Nothing was staged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EncodeError {
    #[error("a transaction needs at least one row")]
    Empty,
    #[error("row {row}, column `{column}`: {problem}")]
    Cell { row: usize, column: &'static str, problem: &'static str },
    #[error("the transaction needs {needed} bytes of frame body, and the limit is {BODY_MAX}")]
    TooLarge { needed: usize },
}

impl Layout {
    /// Appends one frame to `out` and returns its checksum; on error `out` is as it was.
    pub(crate) fn encode<R: Rows + ?Sized>(
        &self,
        head: &FrameHead,
        rows: &R,
        out: &mut Vec<u8>,
    ) -> Result<u32, EncodeError> {
        let start = out.len();
        let result = FrameEncoder::new(self, rows, out).run(head);
        if result.is_err() {
            out.truncate(start);
        }
        result
    }
}

struct FrameEncoder<'a, R: Rows + ?Sized> {
    layout: &'a Layout,
    rows: &'a R,
    row_count: usize,
    out: &'a mut Vec<u8>,
    /// Where the metadata starts in `out`.
    metadata: usize,
    /// Where the body starts in `out`.
    body: usize,
    /// Where the next buffer entry goes in `out`.
    entry: usize,
}

impl<'a, R: Rows + ?Sized> FrameEncoder<'a, R> {
    fn new(layout: &'a Layout, rows: &'a R, out: &'a mut Vec<u8>) -> Self {
        let metadata = out.len() + PREFIX_LEN;
        let body = out.len() + layout.template.len();
        let entry = metadata + layout.buffers();
        FrameEncoder { layout, rows, row_count: rows.row_count(), out, metadata, body, entry }
    }

    fn run(mut self, head: &FrameHead) -> Result<u32, EncodeError> {
        if self.row_count == 0 {
            return Err(EncodeError::Empty);
        }
        let nulls = self.null_counts()?;
        self.out.extend_from_slice(&self.layout.template);
        self.put_zero_block(&nulls);
        let layout = self.layout;
        for (index, column) in layout.columns.iter().enumerate() {
            self.put_node(index, nulls[index]);
            match column.ty {
                ColumnType::Seq => self.put_constant(&head.seq.get().to_le_bytes()),
                ColumnType::At => self.put_constant(&head.at.as_micros().to_le_bytes()),
                ColumnType::Name | ColumnType::Text | ColumnType::Binary => {
                    self.put_variable(index, nulls[index], column.ty)?;
                }
                ColumnType::Fixed(width) => self.put_fixed(index, nulls[index], width)?,
            }
        }
        self.finish(head)
    }

    /// Nulls per column, after refusing a null where the column has none.
    fn null_counts(&self) -> Result<[usize; COLUMNS_MAX], EncodeError> {
        let mut nulls = [0; COLUMNS_MAX];
        for (index, column) in self.layout.columns.iter().enumerate().skip(2) {
            let is_null = |&row: &usize| self.cell(row, index).is_none();
            nulls[index] = (0..self.row_count).filter(is_null).count();
            if nulls[index] > 0 && !column.nullable {
                let row = (0..self.row_count).find(is_null).unwrap_or(0);
                return Err(self.refuse(row, index, "null in a column that has no nulls"));
            }
        }
        Ok(nulls)
    }

    fn cell(&self, row: usize, index: usize) -> Option<&'a [u8]> {
        self.rows.cell(row, index - 2)
    }

    fn refuse(&self, row: usize, index: usize, problem: &'static str) -> EncodeError {
        EncodeError::Cell { row, column: self.layout.columns[index].name, problem }
    }

    /// The words that every wholly null column shares: at the body's start, so at offset 0.
    fn put_zero_block(&mut self, nulls: &[usize; COLUMNS_MAX]) {
        let columns = self.layout.columns.iter().zip(nulls);
        let wholly_null = columns.filter(|&(_, &count)| count == self.row_count);
        let needed = wholly_null.map(|(column, _)| match column.ty {
            ColumnType::Fixed(width) => width * self.row_count,
            _ => 4 * (self.row_count + 1),
        });
        let len = align8(needed.max().unwrap_or(0));
        self.out.resize(self.body + len, 0);
    }

    fn put_constant(&mut self, value: &[u8; 8]) {
        self.put_entry(0, 0);
        let start = self.out.len();
        self.out.resize(start + 8 * self.row_count, 0);
        self.out[start..].as_chunks_mut().0.fill(*value);
        self.put_entry(start - self.body, 8 * self.row_count);
    }

    fn put_variable(
        &mut self,
        index: usize,
        nulls: usize,
        ty: ColumnType,
    ) -> Result<(), EncodeError> {
        if nulls == self.row_count {
            self.put_entry(0, self.row_count.div_ceil(8));
            self.put_entry(0, 4 * (self.row_count + 1));
            self.put_entry(0, 0);
            return Ok(());
        }
        self.put_validity(index, nulls);
        let offsets = self.out.len();
        let offsets_len = 4 * (self.row_count + 1);
        self.out.resize(offsets + align8(offsets_len), 0);
        self.put_entry(offsets - self.body, offsets_len);
        let data = self.out.len();
        // The same text in row after row, as that of the actor is, is looked at once.
        let mut last: &[u8] = &[];
        for row in 0..self.row_count {
            let raw = self.cell(row, index).unwrap_or_default();
            if std::ptr::eq(raw, last) || is_readable(raw) {
                self.out.extend_from_slice(raw);
                last = raw;
            } else {
                self.put_unreadable(raw, row, index, ty)?;
            }
            let end = self.out.len() - data;
            self.patch_u32(offsets + 4 * (row + 1), end)?;
        }
        self.put_entry(data - self.body, self.out.len() - data);
        self.pad();
        Ok(())
    }

    fn put_unreadable(
        &mut self,
        raw: &[u8],
        row: usize,
        index: usize,
        ty: ColumnType,
    ) -> Result<(), EncodeError> {
        match ty {
            ColumnType::Name if raw.contains(&b'\\') => {
                return Err(self.refuse(row, index, "a ref name cannot hold a backslash"));
            }
            ColumnType::Name => escape_into(raw, Backslash::Forbidden, self.out),
            ColumnType::Text => escape_into(raw, Backslash::Escaped, self.out),
            _ => self.out.extend_from_slice(raw),
        }
        Ok(())
    }

    fn put_fixed(&mut self, index: usize, nulls: usize, width: usize) -> Result<(), EncodeError> {
        if nulls == self.row_count {
            self.put_entry(0, self.row_count.div_ceil(8));
            self.put_entry(0, width * self.row_count);
            return Ok(());
        }
        self.put_validity(index, nulls);
        let start = self.out.len();
        self.out.resize(start + width * self.row_count, 0);
        for row in 0..self.row_count {
            let Some(value) = self.cell(row, index) else { continue };
            if value.len() != width {
                return Err(self.refuse(row, index, "an object id of another object format"));
            }
            self.out[start + width * row..][..width].copy_from_slice(value);
        }
        self.put_entry(start - self.body, width * self.row_count);
        self.pad();
        Ok(())
    }

    /// The validity bitmap of a column that is not wholly null; empty when nothing is null.
    fn put_validity(&mut self, index: usize, nulls: usize) {
        if nulls == 0 {
            self.put_entry(0, 0);
            return;
        }
        let start = self.out.len();
        let len = self.row_count.div_ceil(8);
        self.out.resize(start + len, 0);
        for row in 0..self.row_count {
            if self.cell(row, index).is_some() {
                self.out[start + row / 8] |= 1 << (row % 8);
            }
        }
        self.put_entry(start - self.body, len);
        self.pad();
    }

    fn pad(&mut self) {
        let len = align8(self.out.len() - self.body);
        self.out.resize(self.body + len, 0);
    }

    fn put_node(&mut self, index: usize, nulls: usize) {
        let at = self.metadata + NODES + ENTRY * index;
        self.patch_u64(at, self.row_count);
        self.patch_u64(at + 8, nulls);
    }

    fn put_entry(&mut self, offset: usize, len: usize) {
        self.patch_u64(self.entry, offset);
        self.patch_u64(self.entry + 8, len);
        self.entry += ENTRY;
    }

    fn patch_u64(&mut self, at: usize, value: usize) {
        self.out[at..at + 8].copy_from_slice(&(value as u64).to_le_bytes());
    }

    fn patch_u32(&mut self, at: usize, value: usize) -> Result<(), EncodeError> {
        let fits = u32::try_from(value).ok().filter(|_| value <= BODY_MAX);
        let value = fits.ok_or(EncodeError::TooLarge { needed: value })?;
        self.out[at..at + 4].copy_from_slice(&value.to_le_bytes());
        Ok(())
    }

    /// Writes the trailer and the lengths that depend on the whole body.
    fn finish(mut self, head: &FrameHead) -> Result<u32, EncodeError> {
        if sabotage::is(Sabotage::Align64) {
            let body = (self.out.len() - self.body).next_multiple_of(64);
            self.out.resize(self.body + body, 0);
        }
        let body_len = self.out.len() - self.body + TRAILER_LEN;
        if body_len > BODY_MAX {
            return Err(EncodeError::TooLarge { needed: body_len });
        }
        self.patch_u64(self.metadata + BODY_LENGTH, body_len);
        self.patch_u64(self.metadata + ROW_COUNT, self.row_count);
        self.out.extend_from_slice(&head.durable_seq.get().to_le_bytes());
        self.out.extend_from_slice(&head.previous_crc.to_le_bytes());
        let covered = &self.out[self.metadata..];
        let crc = crc::append(self.layout.crc_seed, covered);
        self.out.extend_from_slice(&crc.to_le_bytes());
        Ok(crc)
    }
}
