//! Moves as a Parquet file, with the columns of the log.

use std::io::Write;
use std::sync::Arc;

use arrow_array::builder::{
    FixedSizeBinaryBuilder, StringBuilder, TimestampMicrosecondBuilder, UInt64Builder,
};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use refstone_log::ObjectFormat;
use refstone_log::text::{Backslash, escape_into};

use crate::name::RefName;
use crate::oid::ObjectId;
use crate::row::RefMove;

/// Moves are handed over in batches of this many.
const BATCH_ROWS: usize = 8192;

/// Writes moves to a Parquet file (zstd), with the names, types and escapes of the log's columns.
#[derive(Debug)]
pub struct ParquetMoves<W: Write + Send> {
    writer: ArrowWriter<W>,
    columns: Columns,
}

#[derive(Debug)]
struct Columns {
    schema: SchemaRef,
    width: i32,
    rows: usize,
    seq: UInt64Builder,
    at: TimestampMicrosecondBuilder,
    actor: StringBuilder,
    refname: StringBuilder,
    old_oid: FixedSizeBinaryBuilder,
    new_oid: FixedSizeBinaryBuilder,
    symref: StringBuilder,
    message: StringBuilder,
}

impl<W: Write + Send> ParquetMoves<W> {
    /// Starts a file.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn new(out: W, format: ObjectFormat) -> Result<ParquetMoves<W>, ParquetError> {
        let columns = Columns::new(format);
        let zstd = Compression::ZSTD(Default::default());
        let properties = WriterProperties::builder().set_compression(zstd).build();
        let writer = ArrowWriter::try_new(out, columns.schema.clone(), Some(properties))?;
        Ok(ParquetMoves { writer, columns })
    }

    /// Adds a move.
    ///
    /// # Errors
    ///
    /// If it cannot be written, or its ids are of another format.
    pub fn push(&mut self, moved: &RefMove) -> Result<(), ParquetError> {
        self.columns.push(moved)?;
        if self.columns.rows >= BATCH_ROWS { self.hand_over() } else { Ok(()) }
    }

    /// Ends the file, and gives back what it was written to.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn finish(mut self) -> Result<W, ParquetError> {
        self.hand_over()?;
        self.writer.into_inner()
    }

    fn hand_over(&mut self) -> Result<(), ParquetError> {
        let batch = self.columns.take()?;
        self.writer.write(&batch)
    }
}

impl Columns {
    fn new(format: ObjectFormat) -> Columns {
        let width = match format {
            ObjectFormat::Sha1 => 20,
            ObjectFormat::Sha256 => 32,
        };
        Columns {
            schema: schema(width),
            width,
            rows: 0,
            seq: UInt64Builder::new(),
            at: TimestampMicrosecondBuilder::new().with_timezone("UTC"),
            actor: StringBuilder::new(),
            refname: StringBuilder::new(),
            old_oid: FixedSizeBinaryBuilder::new(width),
            new_oid: FixedSizeBinaryBuilder::new(width),
            symref: StringBuilder::new(),
            message: StringBuilder::new(),
        }
    }

    fn push(&mut self, moved: &RefMove) -> Result<(), ArrowError> {
        self.seq.append_value(moved.seq.get());
        self.at.append_value(moved.at.as_micros());
        self.actor.append_value(free(&moved.actor));
        self.refname.append_value(name(&moved.name));
        put_id(&mut self.old_oid, moved.old_oid)?;
        put_id(&mut self.new_oid, moved.new_oid)?;
        self.symref.append_option(moved.symref.as_ref().map(name));
        self.message.append_option(moved.message.as_ref().map(|message| free(message)));
        self.rows += 1;
        Ok(())
    }

    fn take(&mut self) -> Result<RecordBatch, ArrowError> {
        self.rows = 0;
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.seq.finish()),
            Arc::new(self.at.finish()),
            Arc::new(self.actor.finish()),
            Arc::new(self.refname.finish()),
            Arc::new(self.old_oid.finish()),
            Arc::new(self.new_oid.finish()),
            Arc::new(self.symref.finish()),
            Arc::new(self.message.finish()),
        ];
        debug_assert_eq!(self.schema, schema(self.width));
        RecordBatch::try_new(self.schema.clone(), columns)
    }
}

fn schema(width: i32) -> SchemaRef {
    let at = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    Arc::new(Schema::new(vec![
        Field::new("seq", DataType::UInt64, false),
        Field::new("at", at, false),
        Field::new("actor", DataType::Utf8, false),
        Field::new("refname", DataType::Utf8, false),
        Field::new("old_oid", DataType::FixedSizeBinary(width), true),
        Field::new("new_oid", DataType::FixedSizeBinary(width), true),
        Field::new("symref", DataType::Utf8, true),
        Field::new("message", DataType::Utf8, true),
    ]))
}

fn put_id(column: &mut FixedSizeBinaryBuilder, id: Option<ObjectId>) -> Result<(), ArrowError> {
    match id {
        Some(id) => column.append_value(id.as_bytes()),
        None => {
            column.append_null();
            Ok(())
        }
    }
}

fn name(name: &RefName) -> String {
    readable(name.as_bytes(), Backslash::Forbidden)
}

fn free(raw: &[u8]) -> String {
    readable(raw, Backslash::Escaped)
}

/// Text as the log's columns hold it.
fn readable(raw: &[u8], backslash: Backslash) -> String {
    let mut out = Vec::with_capacity(raw.len());
    escape_into(raw, backslash, &mut out);
    String::from_utf8(out).expect("escaped text is UTF-8")
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::{TimestampMicrosecondType, UInt64Type};
    use bytes::Bytes;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use refstone_log::{Seq, Timestamp};

    use super::*;

    fn moved(seq: u64) -> RefMove {
        RefMove {
            seq: Seq::new(seq),
            at: Timestamp::from_micros(1_700_000_000_123_456),
            actor: r"a\b".into(),
            name: RefName::new(b"refs/heads/\xff").unwrap(),
            old_oid: None,
            new_oid: Some(ObjectId::from_bytes(&[7; 20]).unwrap()),
            symref: None,
            message: Some("".into()),
        }
    }

    // Breaks: dropping the last batch; raw bytes in a column of text.
    #[test]
    fn moves_come_back_from_parquet_in_the_columns_of_the_log() {
        let rows = BATCH_ROWS as u64 + 1;
        let mut parquet = ParquetMoves::new(Vec::new(), ObjectFormat::Sha1).unwrap();
        (1..=rows).for_each(|seq| parquet.push(&moved(seq)).unwrap());
        let bytes = Bytes::from(parquet.finish().unwrap());
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap();
        let batches: Vec<RecordBatch> = reader.build().unwrap().collect::<Result<_, _>>().unwrap();
        assert_eq!(batches.iter().map(|b| b.num_rows() as u64).sum::<u64>(), rows);
        let batch = &batches[0];
        assert_eq!(batch.schema().fields(), schema(20).fields());
        assert_eq!(batch["seq"].as_primitive::<UInt64Type>().value(0), 1);
        let at = batch["at"].as_primitive::<TimestampMicrosecondType>().value(0);
        assert_eq!(at, 1_700_000_000_123_456);
        assert_eq!(batch["actor"].as_string::<i32>().value(0), r"a\\b");
        assert_eq!(batch["refname"].as_string::<i32>().value(0), r"refs/heads/\xff");
        assert!(batch["old_oid"].is_null(0) && batch["symref"].is_null(0));
        assert_eq!(batch["new_oid"].as_fixed_size_binary().value(0), [7; 20]);
        assert_eq!(batch["message"].as_string::<i32>().value(0), "");
    }
}
