//! Moves as a Parquet file, with the columns of the log.

use std::io::Write;

use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use refstone_log::ObjectFormat;
use refstone_log::text::{Backslash, escape_into};

use crate::name::RefName;
use crate::oid::ObjectId;
use crate::row::RefMove;
use crate::sealed::{Batch, StoredRow};

/// Writes moves to a Parquet file (zstd), with the names, types and escapes of the log's columns.
#[derive(Debug)]
pub struct ParquetMoves<W: Write + Send> {
    writer: ArrowWriter<W>,
    batch: Batch,
}

impl<W: Write + Send> ParquetMoves<W> {
    /// Starts a file.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn new(out: W, format: ObjectFormat) -> Result<ParquetMoves<W>, ParquetError> {
        let batch = Batch::of_moves(format);
        let zstd = Compression::ZSTD(Default::default());
        let properties = WriterProperties::builder().set_compression(zstd).build();
        let writer = ArrowWriter::try_new(out, batch.schema(), Some(properties))?;
        Ok(ParquetMoves { writer, batch })
    }

    /// Adds a move.
    ///
    /// # Errors
    ///
    /// If it cannot be written, or its ids are of another format.
    pub fn push(&mut self, moved: &RefMove) -> Result<(), ParquetError> {
        let (actor, name) = (free(&moved.actor), readable_name(&moved.name));
        let symref = moved.symref.as_ref().map(readable_name);
        let message = moved.message.as_ref().map(|message| free(message));
        let row = StoredRow {
            seq: moved.seq,
            at: moved.at,
            actor: &actor,
            refname: &name,
            old_oid: moved.old_oid.as_ref().map(ObjectId::as_bytes),
            new_oid: moved.new_oid.as_ref().map(ObjectId::as_bytes),
            symref: symref.as_deref(),
            message: message.as_deref(),
        };
        self.batch.push(&row, None)?;
        if self.batch.is_full() { self.hand_over() } else { Ok(()) }
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
        let (batch, _) = self.batch.take()?;
        self.writer.write(&batch)
    }
}

fn readable_name(name: &RefName) -> String {
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
    use arrow_array::RecordBatch;
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
        let rows = crate::sealed::BATCH_ROWS as u64 + 1;
        let mut parquet = ParquetMoves::new(Vec::new(), ObjectFormat::Sha1).unwrap();
        (1..=rows).for_each(|seq| parquet.push(&moved(seq)).unwrap());
        let bytes = Bytes::from(parquet.finish().unwrap());
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap();
        let batches: Vec<RecordBatch> = reader.build().unwrap().collect::<Result<_, _>>().unwrap();
        assert_eq!(batches.iter().map(|b| b.num_rows() as u64).sum::<u64>(), rows);
        let batch = &batches[0];
        assert_eq!(batch.schema().fields(), Batch::of_moves(ObjectFormat::Sha1).schema().fields());
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
