//! Rows of a history file, decoded.

use std::borrow::Cow;
use std::str::Utf8Error;

use arrow_array::cast::AsArray;
use arrow_array::types::{TimestampMicrosecondType, UInt32Type, UInt64Type};
use arrow_array::{
    Array, FixedSizeBinaryArray, RecordBatch, StringArray, TimestampMicrosecondArray, UInt32Array,
    UInt64Array,
};
use refstone_log::text::{self, Backslash, escape_into};
use refstone_log::{DecodedRefRow, RefRow, Seq, Timestamp};

use super::columns::{ACTOR, AT, MESSAGE, NEW_OID, OLD_BACK, OLD_OID, REFNAME, SEQ, SYMREF};
use crate::error::RowProblem;
use crate::row::RefMove;

/// One row as the file keeps it: text readable, nothing checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredRow<'a> {
    pub(crate) seq: Seq,
    pub(crate) at: Timestamp,
    pub(crate) actor: &'a str,
    pub(crate) refname: &'a str,
    pub(crate) old_oid: Option<&'a [u8]>,
    pub(crate) new_oid: Option<&'a [u8]>,
    pub(crate) symref: Option<&'a str>,
    pub(crate) message: Option<&'a str>,
}

impl<'a> StoredRow<'a> {
    /// The move it records.
    pub(crate) fn ref_move(&self) -> Result<RefMove, RowProblem> {
        RefMove::new(self.seq, self.at, self.unescaped())
    }

    fn unescaped(&self) -> DecodedRefRow<'a> {
        DecodedRefRow {
            actor: raw(self.actor),
            refname: raw(self.refname),
            old_oid: self.old_oid,
            new_oid: self.new_oid,
            symref: self.symref.map(raw),
            message: self.message.map(raw),
        }
    }
}

/// Makes the text of rows readable, as the columns hold it.
#[derive(Debug, Default)]
pub(crate) struct Escaper {
    text: Vec<u8>,
}

impl Escaper {
    /// A row as a file keeps it, which borrows the text of this.
    pub(crate) fn stored<'a>(
        &'a mut self,
        seq: Seq,
        at: Timestamp,
        row: &RefRow<'a>,
    ) -> Result<StoredRow<'a>, Utf8Error> {
        self.text.clear();
        let columns = [
            (Some(row.actor), Backslash::Escaped),
            (Some(row.refname), Backslash::Forbidden),
            (row.symref, Backslash::Forbidden),
            (row.message, Backslash::Escaped),
        ];
        let [actor, refname, symref, message] = columns.map(|(raw, backslash)| {
            escape_into(raw.unwrap_or_default(), backslash, &mut self.text);
            self.text.len()
        });
        let text = std::str::from_utf8(&self.text)?;
        Ok(StoredRow {
            seq,
            at,
            actor: &text[..actor],
            refname: &text[actor..refname],
            old_oid: row.old_oid,
            new_oid: row.new_oid,
            symref: row.symref.map(|_| &text[refname..symref]),
            message: row.message.map(|_| &text[symref..message]),
        })
    }
}

fn raw(stored: &str) -> Cow<'_, [u8]> {
    text::unescape(stored.as_bytes())
}

/// Some rows of a file, ascending, each with its number and its old object id in place.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    numbers: Vec<u32>,
    seq: UInt64Array,
    at: TimestampMicrosecondArray,
    actor: StringArray,
    refname: StringArray,
    old_oid: FixedSizeBinaryArray,
    new_oid: FixedSizeBinaryArray,
    symref: StringArray,
    message: StringArray,
}

impl Rows {
    /// The rows of a batch with all columns; the old object ids come apart.
    pub(super) fn new(
        numbers: Vec<u32>,
        batch: &RecordBatch,
        old_oid: FixedSizeBinaryArray,
    ) -> Rows {
        Rows {
            numbers,
            seq: batch.column(SEQ).as_primitive::<UInt64Type>().clone(),
            at: batch.column(AT).as_primitive::<TimestampMicrosecondType>().clone(),
            actor: batch.column(ACTOR).as_string().clone(),
            refname: batch.column(REFNAME).as_string().clone(),
            old_oid,
            new_oid: new_oid(batch).clone(),
            symref: batch.column(SYMREF).as_string().clone(),
            message: batch.column(MESSAGE).as_string().clone(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// The number in the file of the row at `index`.
    pub(crate) fn number(&self, index: usize) -> u32 {
        self.numbers[index]
    }

    /// The row at `index`, counted from zero.
    pub(crate) fn row(&self, index: usize) -> StoredRow<'_> {
        StoredRow {
            seq: Seq::new(self.seq.value(index)),
            at: Timestamp::from_micros(self.at.value(index)),
            actor: self.actor.value(index),
            refname: self.refname.value(index),
            old_oid: bytes_at(&self.old_oid, index),
            new_oid: bytes_at(&self.new_oid, index),
            symref: text_at(&self.symref, index),
            message: text_at(&self.message, index),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = StoredRow<'_>> {
        (0..self.len()).map(|index| self.row(index))
    }
}

// The columns have the types of the schema, which was compared when the file was opened.

pub(super) fn old_oid(batch: &RecordBatch) -> &FixedSizeBinaryArray {
    batch.column(OLD_OID).as_fixed_size_binary()
}

pub(super) fn new_oid(batch: &RecordBatch) -> &FixedSizeBinaryArray {
    batch.column(NEW_OID).as_fixed_size_binary()
}

pub(super) fn old_back(batch: &RecordBatch) -> &UInt32Array {
    batch.column(OLD_BACK).as_primitive::<UInt32Type>()
}

pub(super) fn bytes_at(array: &FixedSizeBinaryArray, index: usize) -> Option<&[u8]> {
    array.is_valid(index).then(|| array.value(index))
}

fn text_at(array: &StringArray, index: usize) -> Option<&str> {
    array.is_valid(index).then(|| array.value(index))
}
