//! Rows on their way into a block.

use std::sync::Arc;

use arrow_array::builder::{
    FixedSizeBinaryBuilder, StringBuilder, TimestampMicrosecondBuilder, UInt64Builder,
};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, write_message};
use arrow_schema::SchemaRef;
use refstone_log::text::{Backslash, escape_into};

use super::Entry;
use super::schema::{Identity, oid_width, timestamp_type, write_options};
use crate::edit::Target;

/// The columns of one block, row by row.
#[derive(Debug)]
pub(super) struct Columns {
    schema: SchemaRef,
    names: StringBuilder,
    oids: FixedSizeBinaryBuilder,
    symrefs: StringBuilder,
    seqs: UInt64Builder,
    ats: TimestampMicrosecondBuilder,
    moves_ends: UInt64Builder,
    count: usize,
    text: Vec<u8>,
}

impl Columns {
    pub(super) fn new(identity: &Identity) -> Columns {
        Columns {
            schema: identity.arrow_schema(),
            names: StringBuilder::new(),
            oids: FixedSizeBinaryBuilder::new(oid_width(identity.object_format)),
            symrefs: StringBuilder::new(),
            seqs: UInt64Builder::new(),
            ats: TimestampMicrosecondBuilder::new().with_data_type(timestamp_type()),
            moves_ends: UInt64Builder::new(),
            count: 0,
            text: Vec::new(),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn push(&mut self, name: &[u8], entry: &Entry, moves_end: u64) {
        self.names.append_value(escaped(&mut self.text, name));
        let (oid, symref) = match &entry.target {
            None => (None, None),
            Some(Target::Object(oid)) => (Some(oid), None),
            Some(Target::Symbolic(name)) => (None, Some(name)),
        };
        match oid {
            Some(oid) => {
                self.oids.append_value(oid.as_bytes()).expect("the writer compared formats");
            }
            None => self.oids.append_null(),
        }
        self.symrefs.append_option(symref.map(|name| escaped(&mut self.text, name.as_bytes())));
        self.seqs.append_value(entry.seq.get());
        self.ats.append_value(entry.at.as_micros());
        self.moves_ends.append_value(moves_end);
        self.count += 1;
    }

    /// The rows as an Arrow message; none are left.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.count = 0;
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.names.finish()),
            Arc::new(self.oids.finish()),
            Arc::new(self.symrefs.finish()),
            Arc::new(self.seqs.finish()),
            Arc::new(self.ats.finish()),
            Arc::new(self.moves_ends.finish()),
        ];
        let batch = RecordBatch::try_new(self.schema.clone(), columns)
            .expect("the columns are those of the schema, of one length");
        encode(&batch)
    }
}

fn escaped<'t>(text: &'t mut Vec<u8>, name: &[u8]) -> &'t str {
    text.clear();
    escape_into(name, Backslash::Forbidden, text);
    std::str::from_utf8(text).expect("escaped text is UTF-8")
}

fn encode(batch: &RecordBatch) -> Vec<u8> {
    let options = write_options();
    let (_, encoded) = IpcDataGenerator::default()
        .encode(
            batch,
            &mut DictionaryTracker::new(false),
            &options,
            &mut IpcWriteContext::default(),
        )
        .expect("plain columns can be encoded");
    let mut message = Vec::with_capacity(encoded.arrow_data.len() + 1024);
    write_message(&mut message, encoded, &options).expect("writing to memory does not fail");
    message
}
