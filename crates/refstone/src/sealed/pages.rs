//! The bytes that rows need: which they are, and reading them ahead.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parquet::arrow::arrow_reader::RowSelection;
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    FileMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataBuilder, ParquetMetaDataReader,
    RowGroupMetaData,
};
use parquet::file::page_index::offset_index::PageLocation;
use parquet::file::reader::{ChunkReader, Length};

use super::checked::{Checked, CheckedRead};

/// The row groups that have some rows, and which of their rows these are.
///
/// The page index of these groups is read anew each time: a file of many row groups takes no more
/// memory than its footer.
pub(super) struct Request {
    /// Of these groups alone, with their page index.
    pub(super) metadata: ParquetMetaData,
    /// Of the rows of all of them.
    pub(super) selection: RowSelection,
    /// Of the rows of each.
    within: Vec<RowSelection>,
}

/// A row group that is asked for: its metadata, and runs of its own rows.
pub(super) type Part<'g> = (&'g RowGroupMetaData, Vec<Range<usize>>);

impl Request {
    pub(super) fn new(
        file: &Checked,
        footer: &FileMetaData,
        parts: Vec<Part<'_>>,
    ) -> Result<Request, ParquetError> {
        let groups = parts.iter().map(|(group, _)| (*group).clone()).collect();
        let metadata = ParquetMetaDataBuilder::new(footer.clone()).set_row_groups(groups).build();
        let (mut all, mut within, mut start) = (Vec::new(), Vec::new(), 0);
        for (group, runs) in parts {
            let rows = usize::try_from(group.num_rows())?;
            all.extend(runs.iter().map(|run| start + run.start..start + run.end));
            within.push(RowSelection::from_consecutive_ranges(runs.into_iter(), rows));
            start += rows;
        }
        let selection = RowSelection::from_consecutive_ranges(all.into_iter(), start);
        Ok(Request { metadata: with_page_index(file, metadata)?, selection, within })
    }

    /// The pages of some columns that have these rows, and their dictionaries.
    pub(super) fn pages(&self, columns: &[usize]) -> Vec<Range<u64>> {
        let mut ranges = Vec::new();
        for (index, selection) in self.within.iter().enumerate() {
            let pages = self.metadata.page_index_for_row_group(index);
            for &column in columns {
                let (start, _) = self.metadata.row_group(index).column(column).byte_range();
                let Some(locations) = pages.page_locations(column) else { continue };
                ranges.extend(dictionary(start, locations));
                ranges.extend(selection.scan_ranges(locations));
            }
        }
        ranges
    }
}

fn with_page_index(
    file: &Checked,
    metadata: ParquetMetaData,
) -> Result<ParquetMetaData, ParquetError> {
    let mut reader = ParquetMetaDataReader::new_with_metadata(metadata)
        .with_column_index_policy(PageIndexPolicy::Skip)
        .with_offset_index_policy(PageIndexPolicy::Required);
    reader.read_page_indexes(file)?;
    reader.finish()
}

/// What stands between the start of a column and its first page.
fn dictionary(start: u64, locations: &[PageLocation]) -> Option<Range<u64>> {
    let first = u64::try_from(locations.first()?.offset).ok()?;
    (start < first).then_some(start..first)
}

/// A file of which some parts were read ahead; what else is asked for is read then.
#[derive(Clone, Debug)]
pub(super) struct ReadAhead {
    file: Checked,
    /// Ascending, with where they start.
    parts: Arc<[(u64, Bytes)]>,
}

impl ReadAhead {
    /// Reads parts of a file. All of them are announced before the first is waited for: a disk
    /// reads many at once, and in one order or the other.
    pub(super) fn new(file: &Checked, ranges: Vec<Range<u64>>) -> Result<ReadAhead, ParquetError> {
        let ranges = file.joined(ranges);
        file.announce(&ranges);
        let read = |range: Range<u64>| {
            let len = usize::try_from(range.end - range.start)?;
            Ok((range.start, file.get_bytes(range.start, len)?))
        };
        let parts = ranges.into_iter().map(read).collect::<Result<Vec<_>, ParquetError>>()?;
        Ok(ReadAhead { file: file.clone(), parts: parts.into() })
    }

    fn part(&self, start: u64, len: usize) -> Option<Bytes> {
        let after = self.parts.partition_point(|(first, _)| *first <= start);
        let (first, bytes) = self.parts.get(after.checked_sub(1)?)?;
        let skip = usize::try_from(start - first).ok()?;
        (skip + len <= bytes.len()).then(|| bytes.slice(skip..skip + len))
    }
}

impl Length for ReadAhead {
    fn len(&self) -> u64 {
        Length::len(&self.file)
    }
}

impl ChunkReader for ReadAhead {
    type T = CheckedRead;

    fn get_read(&self, start: u64) -> Result<CheckedRead, ParquetError> {
        self.file.get_read(start)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        match self.part(start, length) {
            Some(bytes) => Ok(bytes),
            None => self.file.get_bytes(start, length),
        }
    }
}
