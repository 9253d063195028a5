//! Moves as a Parquet file, with the columns of the log.

use std::io::Write;

use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use refstone_log::ObjectFormat;

use crate::row::RefMove;
use crate::sealed::{Batch, Escaper};

/// Writes moves to a Parquet file (zstd), with the names, types and escapes of the log's columns.
#[derive(Debug)]
pub struct ParquetMoves<W: Write + Send> {
    writer: ArrowWriter<W>,
    batch: Batch,
    escaper: Escaper,
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
        Ok(ParquetMoves { writer, batch, escaper: Escaper::default() })
    }

    /// Adds a move.
    ///
    /// # Errors
    ///
    /// If it cannot be written, or its ids are of another format.
    pub fn push(&mut self, moved: &RefMove) -> Result<(), ParquetError> {
        let row = self.escaper.stored(moved.seq, moved.at, &moved.as_row())?;
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

#[cfg(test)]
mod tests {
    use arrow_array::RecordBatch;
    use arrow_array::cast::AsArray;
    use arrow_array::types::{TimestampMicrosecondType, UInt64Type};
    use bytes::Bytes;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use refstone_log::{Seq, Timestamp};

    use super::*;
    use crate::name::RefName;
    use crate::oid::ObjectId;

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
