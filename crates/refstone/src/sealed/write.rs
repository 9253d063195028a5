//! Writing a history file.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::builder::{
    FixedSizeBinaryBuilder, StringBuilder, TimestampMicrosecondBuilder, UInt32Builder,
    UInt64Builder,
};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, SchemaRef};
use parquet::arrow::arrow_writer::{ArrowWriter, ArrowWriterOptions};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, ParquetMetaData};
use refstone_log::{Env, ObjectFormat, RefRow, Seq, Timestamp};

use super::checked::Sums;
use super::columns::{self, Form};
use super::derive::LastMoves;
use super::error::SealedError;
use super::footer;
use super::identity::Identity;
use super::rows::{Escaper, StoredRow};
use crate::new_file::NewFile;
use crate::oid::ObjectId;

/// Rows that are gathered before the encoder sees them.
pub(crate) const BATCH_ROWS: usize = 4096;

/// The same in bytes of text, of which rows may have much.
const BATCH_TEXT: usize = 8 << 20;

/// Bytes of text in a row group, before a dictionary makes them few: a reader decodes them.
const GROUP_TEXT: usize = 64 << 20;

/// Writes the rows of one history file, in commit order.
///
/// The file gets its name when it is whole; dropped before, it leaves nothing behind.
#[derive(Debug)]
pub(crate) struct HistoryWriter<'e> {
    path: PathBuf,
    object_format: ObjectFormat,
    form: Form,
    parquet: ArrowWriter<Sink<'e>>,
    batch: Batch,
    last_moves: LastMoves,
    /// Bytes of text that the encoder has of the row group.
    group_text: usize,
    rows: u32,
    first: Option<Seq>,
    last: (Seq, Timestamp),
    escaper: Escaper,
}

impl<'e> HistoryWriter<'e> {
    /// Starts a file that is to be called `path`.
    pub(crate) fn create(
        env: &'e dyn Env,
        path: &Path,
        object_format: ObjectFormat,
        form: Form,
    ) -> Result<HistoryWriter<'e>, SealedError> {
        let file = NewFile::create(env, path).map_err(SealedError::io(path, "create"))?;
        let schema = columns::schema(object_format, form);
        let parquet = encoder(Sink::new(file), &schema).map_err(SealedError::writing(path))?;
        Ok(HistoryWriter {
            path: path.to_owned(),
            object_format,
            form,
            parquet,
            batch: Batch::new(schema, object_format),
            last_moves: LastMoves::default(),
            group_text: 0,
            rows: 0,
            first: None,
            last: (Seq::ZERO, Timestamp::from_micros(i64::MIN)),
            escaper: Escaper::default(),
        })
    }

    /// How many rows there are, which is the number of the next one.
    pub(crate) fn rows(&self) -> u32 {
        self.rows
    }

    /// Appends a row of the log.
    pub(crate) fn push(
        &mut self,
        seq: Seq,
        at: Timestamp,
        row: &RefRow<'_>,
    ) -> Result<(), SealedError> {
        let mut escaper = std::mem::take(&mut self.escaper);
        let stored = escaper.stored(seq, at, row);
        let pushed = match stored {
            Ok(stored) => self.push_stored(&stored),
            Err(error) => Err(self.invalid(error.to_string())),
        };
        self.escaper = escaper;
        pushed
    }

    /// Appends a row as another history file keeps it.
    pub(crate) fn push_stored(&mut self, row: &StoredRow<'_>) -> Result<(), SealedError> {
        self.check(row)?;
        let back = match self.form {
            Form::Full => None,
            Form::Derived => self.last_moves.back(self.rows, row.refname, row.old_oid),
        };
        self.batch.push(row, back).map_err(|error| self.invalid(error.to_string()))?;
        if self.form == Form::Derived {
            let new = row.new_oid.map(ObjectId::from_bytes).transpose();
            let new = new.map_err(|error| self.invalid(error.to_string()))?;
            self.last_moves.note(self.rows, row.refname, new);
        }
        self.first = self.first.or(Some(row.seq));
        self.last = (row.seq, row.at);
        self.rows += 1;
        if self.batch.is_full() {
            self.encode_batch()?;
        }
        Ok(())
    }

    fn check(&self, row: &StoredRow<'_>) -> Result<(), SealedError> {
        let (seq, at) = self.last;
        if row.seq < seq || row.at < at {
            let problem = format!("transaction {} cannot follow {seq}, or is before it", row.seq);
            return Err(self.invalid(problem));
        }
        if self.rows == u32::MAX {
            return Err(self.invalid("a history file has less than 2^32 rows"));
        }
        Ok(())
    }

    fn encode_batch(&mut self) -> Result<(), SealedError> {
        let written = |error| SealedError::writing(&self.path)(error);
        let (batch, text) = self.batch.take().map_err(|error| written(error.into()))?;
        if self.group_text > 0 && self.group_text + text > GROUP_TEXT {
            self.parquet.flush().map_err(written)?;
            self.group_text = 0;
        }
        self.parquet.write(&batch).map_err(written)?;
        self.group_text = match self.parquet.in_progress_rows() {
            0 => 0,
            _ => self.group_text + text,
        };
        Ok(())
    }

    /// Ends the file, syncs it and gives it its name, which is durable when the caller has synced
    /// the directory.
    pub(crate) fn finish(mut self, identity: &Identity) -> Result<(), SealedError> {
        self.check_identity(identity)?;
        self.encode_batch()?;
        let pairs = identity.pairs(self.form);
        let file = self.end(pairs).map_err(SealedError::writing(&self.path))?;
        file.publish().map_err(SealedError::io(&self.path, "sync and name"))
    }

    fn check_identity(&self, identity: &Identity) -> Result<(), SealedError> {
        if self.object_format != identity.object_format {
            return Err(self.invalid("its object format is another"));
        }
        let found = (self.first, self.last);
        if found != (Some(identity.first_present()), (identity.last, identity.last_at)) {
            let Identity { first, last, .. } = identity;
            return Err(self.invalid(format!("its rows are not those of {first}-{last}")));
        }
        Ok(())
    }

    /// Writes what follows the rows: the page index as Parquet has it, then a footer of our own.
    fn end(&mut self, mut pairs: Vec<KeyValue>) -> Result<NewFile<'e>, ParquetError> {
        let (metadata, tail) = self.finish_parquet()?;
        let sink = self.parquet.inner_mut();
        let Some((index, file)) = footer::start_in(&tail).zip(sink.file.take()) else {
            return Err(ParquetError::General("the encoder wrote no footer".to_owned()));
        };
        let (mut file, mut sums) = (file, std::mem::take(&mut sink.sums));
        let index = &tail[..index];
        sums.update(index);
        pairs.push(KeyValue::new("refstone.blocks".to_owned(), sums.finish()));
        file.write_all(index)?;
        file.write_all(&footer::encode(metadata, pairs)?)?;
        Ok(file)
    }

    fn finish_parquet(&mut self) -> Result<(ParquetMetaData, Vec<u8>), ParquetError> {
        self.parquet.flush()?;
        self.parquet.sync()?;
        self.parquet.inner_mut().held = Some(Vec::new());
        let metadata = self.parquet.finish()?;
        let tail = self.parquet.inner_mut().held.take().unwrap_or_default();
        Ok((metadata, tail))
    }

    fn invalid(&self, problem: impl Into<String>) -> SealedError {
        SealedError::invalid(&self.path, problem)
    }
}

fn encoder<'e>(sink: Sink<'e>, schema: &SchemaRef) -> Result<ArrowWriter<Sink<'e>>, ParquetError> {
    // Every type follows from Parquet's own; Arrow's schema in addition would be a second truth.
    let options = ArrowWriterOptions::new()
        .with_properties(columns::properties()?)
        .with_skip_arrow_metadata(true);
    ArrowWriter::try_new_with_options(sink, Arc::clone(schema), options)
}

/// Where the encoder writes to: the file, and its checksums.
#[derive(Debug)]
struct Sink<'e> {
    /// Taken out when the encoder is done.
    file: Option<NewFile<'e>>,
    sums: Sums,
    /// What the encoder writes behind the rows goes here.
    held: Option<Vec<u8>>,
}

impl<'e> Sink<'e> {
    fn new(file: NewFile<'e>) -> Sink<'e> {
        Sink { file: Some(file), sums: Sums::default(), held: None }
    }
}

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match (&mut self.held, &mut self.file) {
            (Some(held), _) => held.extend_from_slice(bytes),
            (None, Some(file)) => {
                file.write_all(bytes)?;
                self.sums.update(bytes);
            }
            (None, None) => return Err(io::ErrorKind::WriteZero.into()),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Rows gathered column by column.
#[derive(Debug)]
pub(crate) struct Batch {
    schema: SchemaRef,
    seq: UInt64Builder,
    at: TimestampMicrosecondBuilder,
    actor: StringBuilder,
    refname: StringBuilder,
    old_oid: FixedSizeBinaryBuilder,
    new_oid: FixedSizeBinaryBuilder,
    symref: StringBuilder,
    message: StringBuilder,
    old_back: UInt32Builder,
    rows: usize,
    text: usize,
}

impl Batch {
    /// For rows with the columns of the live log.
    pub(crate) fn of_moves(objects: ObjectFormat) -> Batch {
        Batch::new(columns::schema(objects, Form::Full), objects)
    }

    pub(crate) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn new(schema: SchemaRef, objects: ObjectFormat) -> Batch {
        let text = || StringBuilder::with_capacity(BATCH_ROWS, 16 * BATCH_ROWS);
        let oids =
            || FixedSizeBinaryBuilder::with_capacity(BATCH_ROWS, columns::oid_width(objects));
        Batch {
            schema,
            seq: UInt64Builder::with_capacity(BATCH_ROWS),
            at: TimestampMicrosecondBuilder::with_capacity(BATCH_ROWS).with_timezone("UTC"),
            actor: text(),
            refname: text(),
            old_oid: oids(),
            new_oid: oids(),
            symref: StringBuilder::new(),
            message: StringBuilder::new(),
            old_back: UInt32Builder::with_capacity(BATCH_ROWS),
            rows: 0,
            text: 0,
        }
    }

    /// Appends a row; its old object id is left out if it is `back` rows above.
    pub(crate) fn push(
        &mut self,
        row: &StoredRow<'_>,
        back: Option<u32>,
    ) -> Result<(), ArrowError> {
        append(&mut self.old_oid, row.old_oid.filter(|_| back.is_none()))?;
        append(&mut self.new_oid, row.new_oid)?;
        self.seq.append_value(row.seq.get());
        self.at.append_value(row.at.as_micros());
        self.actor.append_value(row.actor);
        self.refname.append_value(row.refname);
        self.symref.append_option(row.symref);
        self.message.append_option(row.message);
        self.old_back.append_option(back);
        self.rows += 1;
        self.text += row.actor.len() + row.refname.len();
        self.text += row.symref.map_or(0, str::len) + row.message.map_or(0, str::len);
        Ok(())
    }

    pub(crate) fn is_full(&self) -> bool {
        self.rows >= BATCH_ROWS || self.text >= BATCH_TEXT
    }

    /// The rows so far, and how many bytes of text they have.
    pub(crate) fn take(&mut self) -> Result<(RecordBatch, usize), ArrowError> {
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(self.seq.finish()),
            Arc::new(self.at.finish()),
            Arc::new(self.actor.finish()),
            Arc::new(self.refname.finish()),
            Arc::new(self.old_oid.finish()),
            Arc::new(self.new_oid.finish()),
            Arc::new(self.symref.finish()),
            Arc::new(self.message.finish()),
            Arc::new(self.old_back.finish()),
        ];
        columns.truncate(self.schema.fields().len());
        self.rows = 0;
        let text = std::mem::take(&mut self.text);
        Ok((RecordBatch::try_new(Arc::clone(&self.schema), columns)?, text))
    }
}

fn append(ids: &mut FixedSizeBinaryBuilder, id: Option<&[u8]>) -> Result<(), ArrowError> {
    match id {
        Some(id) => ids.append_value(id),
        None => {
            ids.append_null();
            Ok(())
        }
    }
}
