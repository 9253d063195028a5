//! Reading a history file, by row number, in bounded memory.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{TimestampMicrosecondType, UInt64Type};
use arrow_array::{ArrayRef, RecordBatch, new_null_array};
use arrow_schema::SchemaRef;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::{FileMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::file::reader::Length;
use parquet::file::statistics::Statistics;
use refstone_log::{Env, Seq, Timestamp};

use super::checked::Checked;
use super::columns::{self, AT, Form, NEW_OID, SEQ};
use super::error::{Place, SealedError};
use super::footer;
use super::identity::{Identity, Pairs};
use super::pages::{ReadAhead, Request};
use super::rows::{Rows, bytes_at};
use super::scan::{Moves, Scan};
use super::sources::Sources;
use crate::oid::ObjectId;
use crate::row::RefMove;

/// A history file, open for reading. A clone shares it, and so does every iterator over it: the
/// file may be removed meanwhile.
#[derive(Clone, Debug)]
pub(crate) struct HistoryFile(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    rows: u32,
    identity: Identity,
    form: Form,
    schema: SchemaRef,
    checked: Checked,
    /// Without pairs.
    metadata: FileMetaData,
    groups: Vec<Group>,
}

/// A row group.
#[derive(Debug)]
struct Group {
    rows: Range<u32>,
    metadata: RowGroupMetaData,
}

impl HistoryFile {
    /// Opens a file: reads its footer, and nothing else.
    pub(crate) fn open(env: &dyn Env, path: &Path) -> Result<HistoryFile, SealedError> {
        let file = env.open_read(path).map_err(SealedError::io(path, "open"))?;
        let (metadata, start) = footer::read(&*file, path)?;
        let damaged = |problem: String| SealedError::damaged(path, Place::Footer, problem);

        let pairs = metadata.file_metadata().key_value_metadata().map_or(&[][..], Vec::as_slice);
        let pairs = Pairs(pairs);
        let (identity, form) = Identity::from_pairs(&pairs).map_err(damaged)?;
        let checked = Checked::new(file, path, start, pairs.find("blocks").map_err(damaged)?)?;

        let metadata = footer::with_pairs(metadata, None);
        let schema = check_schema(&metadata, &identity, form).map_err(damaged)?;
        let groups = groups(&metadata).ok_or_else(|| damaged("rows cannot be counted".into()))?;
        let rows = groups.last().map_or(0, |group| group.rows.end);
        let metadata = metadata.file_metadata().clone();
        let path = path.to_owned();
        let inner = Inner { path, rows, identity, form, schema, checked, metadata, groups };
        Ok(HistoryFile(Arc::new(inner)))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0.path
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.0.identity
    }

    pub(crate) fn form(&self) -> Form {
        self.0.form
    }

    /// How many rows there are.
    pub(crate) fn rows(&self) -> u32 {
        self.0.rows
    }

    /// The length of the file.
    pub(crate) fn bytes(&self) -> u64 {
        Length::len(&self.0.checked)
    }

    /// The moves in these rows, oldest first. Rows behind the last one are none.
    pub(crate) fn moves(&self, rows: Range<u32>) -> Moves {
        Moves::new(self.scan(rows))
    }

    /// These rows as they are stored, oldest first, some thousands at a time.
    pub(crate) fn scan(&self, rows: Range<u32>) -> Scan {
        Scan::new(self.clone(), rows.start..rows.end.min(self.rows()))
    }

    /// The first row of a transaction not before `seq`; [`rows`](Self::rows) if there is none.
    pub(crate) fn row_at(&self, seq: Seq) -> Result<u32, SealedError> {
        let identity = self.identity();
        if seq <= identity.first_present() || seq > identity.last {
            return Ok(if seq > identity.last { self.rows() } else { 0 });
        }
        let seq = i64::try_from(seq.get()).unwrap_or(i64::MAX);
        self.first_row(SEQ, |found| found >= seq)
    }

    /// The first row that is later than `at`; [`rows`](Self::rows) if there is none.
    pub(crate) fn row_after(&self, at: Timestamp) -> Result<u32, SealedError> {
        self.first_row(AT, |found| found > at.as_micros())
    }

    /// The first row whose value in an ascending column is far enough.
    fn first_row(&self, column: usize, far: impl Fn(i64) -> bool) -> Result<u32, SealedError> {
        for (index, group) in self.0.groups.iter().enumerate() {
            if far(self.greatest(group, column)?) {
                return self.first_row_in(index, column, far);
            }
        }
        Ok(self.rows())
    }

    fn greatest(&self, group: &Group, column: usize) -> Result<i64, SealedError> {
        let greatest = match group.metadata.column(column).statistics() {
            Some(Statistics::Int64(values)) => values.max_opt().copied(),
            _ => None,
        };
        greatest.ok_or_else(|| {
            SealedError::damaged(self.path(), Place::Footer, "a column lacks its statistics")
        })
    }

    fn first_row_in(
        &self,
        index: usize,
        column: usize,
        far: impl Fn(i64) -> bool,
    ) -> Result<u32, SealedError> {
        let rows = self.0.groups[index].rows.clone();
        let mut row = rows.start;
        let numbers: Vec<u32> = rows.clone().collect();
        for batch in self.read(&numbers, &[column])? {
            let values = batch.column(0);
            let value = |index: usize| match column {
                SEQ => values.as_primitive::<UInt64Type>().value(index).cast_signed(),
                _ => values.as_primitive::<TimestampMicrosecondType>().value(index),
            };
            match (0..batch.num_rows()).find(|&index| far(value(index))) {
                Some(index) => return Ok(row + as_u32(index)),
                None => row += as_u32(batch.num_rows()),
            }
        }
        Err(SealedError::damaged(self.path(), Place::Row(rows.end - 1), "the statistics lie"))
    }

    /// The rows that are decoded next when a scan has come to `row`: some thousands, of one group.
    pub(super) fn chunk_from(&self, row: u32, most: u32) -> Range<u32> {
        let rows = &self.0.groups[self.group_of(row)].rows;
        // Aligned to pages, so that none is decoded twice.
        let end = rows.start + (row - rows.start + 1).next_multiple_of(most);
        row..end.min(rows.end)
    }

    fn group_of(&self, row: u32) -> usize {
        self.0.groups.partition_point(|group| group.rows.end <= row)
    }

    /// Decodes rows of one group, all columns.
    pub(super) fn rows_in(
        &self,
        rows: Range<u32>,
        sources: &mut Sources,
    ) -> Result<Vec<Rows>, SealedError> {
        let numbers: Vec<u32> = rows.collect();
        let mut numbers = &numbers[..];
        let mut decoded = Vec::new();
        for batch in self.read_moves(numbers)? {
            let (these, rest) = numbers.split_at(batch.num_rows());
            numbers = rest;
            let old_oid = sources.old_oids(self, these, &batch)?;
            decoded.push(Rows::new(these.to_vec(), &batch, old_oid));
        }
        Ok(decoded)
    }

    /// All columns of some rows, of which those that have no value there are not read.
    fn read_moves(&self, numbers: &[u32]) -> Result<Vec<RecordBatch>, SealedError> {
        let all = 0..self.0.schema.fields().len();
        let told: Vec<usize> =
            all.clone().filter(|column| !self.is_null_in(numbers, *column)).collect();
        let whole = |batch: RecordBatch| {
            let mut read = batch.columns().iter();
            let column = |column: usize| match told.contains(&column) {
                true => read.next().cloned(),
                false => {
                    let data_type = self.0.schema.field(column).data_type();
                    Some(new_null_array(data_type, batch.num_rows()))
                }
            };
            let columns: Option<Vec<ArrayRef>> = all.clone().map(column).collect();
            RecordBatch::try_new(Arc::clone(&self.0.schema), columns.unwrap_or_default())
        };
        let batches = self.read(numbers, &told)?.into_iter().map(whole);
        let first = numbers.first().copied().unwrap_or_default();
        let damaged = SealedError::reading(self.path(), Place::Row(first));
        batches.collect::<Result<_, _>>().map_err(|error| damaged(error.into()))
    }

    /// Whether a column has no value in any row group with one of these rows.
    fn is_null_in(&self, numbers: &[u32], column: usize) -> bool {
        self.by_group(numbers).all(|(group, _)| {
            let group = &self.0.groups[group].metadata;
            let nulls = group.column(column).statistics().and_then(Statistics::null_count_opt);
            nulls.is_some_and(|nulls| i64::try_from(nulls) == Ok(group.num_rows()))
        })
    }

    /// Calls `each` with the new object ids in these rows, where there are any.
    pub(super) fn each_new_oid(
        &self,
        numbers: &[u32],
        mut each: impl FnMut(u32, ObjectId),
    ) -> Result<(), SealedError> {
        for numbers in self.requests(numbers) {
            let mut rows = numbers.iter();
            for batch in self.read(numbers, &[NEW_OID])? {
                let ids = batch.column(0).as_fixed_size_binary();
                for (index, row) in (0..batch.num_rows()).zip(&mut rows) {
                    let id = bytes_at(ids, index).and_then(|id| ObjectId::from_bytes(id).ok());
                    id.into_iter().for_each(|id| each(*row, id));
                }
            }
        }
        Ok(())
    }

    /// Parts of the numbers that are read at once: in bounded memory, also for the page index.
    fn requests<'n>(&self, mut numbers: &'n [u32]) -> impl Iterator<Item = &'n [u32]> {
        const ROWS_MAX: usize = 256;
        const GROUPS_MAX: usize = 64;
        std::iter::from_fn(move || {
            let first = *numbers.first()?;
            let near = numbers
                .partition_point(|row| self.group_of(*row) < self.group_of(first) + GROUPS_MAX);
            let (now, rest) = numbers.split_at(near.min(ROWS_MAX));
            numbers = rest;
            Some(now)
        })
    }

    fn by_group<'n>(&self, numbers: &'n [u32]) -> impl Iterator<Item = (usize, &'n [u32])> {
        numbers.chunk_by(|a, b| self.group_of(*a) == self.group_of(*b)).map(|numbers| {
            assert!(numbers[0] < self.rows(), "row {} of {}", numbers[0], self.rows());
            (self.group_of(numbers[0]), numbers)
        })
    }

    /// Decodes some columns of rows, which ascend; the batches have as many rows as were asked for.
    fn read(&self, numbers: &[u32], columns: &[usize]) -> Result<Vec<RecordBatch>, SealedError> {
        let asked = numbers.len();
        let Some(first) = numbers.first() else { return Ok(Vec::new()) };
        let place = Place::Row(*first);
        let damaged = SealedError::reading(self.path(), place);
        let batches = self.read_unchecked(numbers, columns).map_err(damaged)?;
        let found: usize = batches.iter().map(RecordBatch::num_rows).sum();
        if found != asked {
            let problem = format!("expected {asked} rows from here on, found {found}");
            return Err(SealedError::damaged(self.path(), place, problem));
        }
        Ok(batches)
    }

    fn read_unchecked(
        &self,
        numbers: &[u32],
        columns: &[usize],
    ) -> Result<Vec<RecordBatch>, ParquetError> {
        let Inner { groups, metadata, checked, .. } = &*self.0;
        let part = |(group, numbers)| {
            let Group { rows, metadata } = &groups[group];
            let within = |run: Range<u32>| {
                (run.start - rows.start) as usize..(run.end - rows.start) as usize
            };
            (metadata, runs(numbers).map(within).collect())
        };
        let request = Request::new(checked, metadata, self.by_group(numbers).map(part).collect())?;
        let ahead = ReadAhead::new(checked, request.pages(columns))?;
        let schema = request.metadata.file_metadata().schema_descr_ptr();
        let metadata = ArrowReaderMetadata::try_new(Arc::new(request.metadata), reader_options())?;
        ParquetRecordBatchReaderBuilder::new_with_metadata(ahead, metadata)
            .with_projection(ProjectionMask::leaves(&schema, columns.iter().copied()))
            .with_row_selection(request.selection)
            .with_batch_size(numbers.len())
            .build()?
            .map(|batch| batch.map_err(ParquetError::from))
            .collect()
    }

    pub(super) fn check_bytes(&self) -> Result<(), SealedError> {
        self.0.checked.check_all()
    }

    /// The move of a row, or the error that says that it is none.
    pub(super) fn told<E: ToString>(
        &self,
        row: u32,
        moved: Result<RefMove, E>,
    ) -> Result<RefMove, SealedError> {
        moved.map_err(|problem| {
            SealedError::damaged(self.path(), Place::Row(row), problem.to_string())
        })
    }
}

/// A file that has a name of ours must be the one that the name tells.
fn check_schema(
    metadata: &ParquetMetaData,
    identity: &Identity,
    form: Form,
) -> Result<SchemaRef, String> {
    let metadata = Arc::new(metadata.clone());
    let found = ArrowReaderMetadata::try_new(metadata, reader_options())
        .map_err(|error| error.to_string())?;
    let expected = columns::schema(identity.object_format, form);
    (found.schema().fields() == expected.fields())
        .then_some(expected)
        .ok_or_else(|| "its columns are not those of a history file".to_owned())
}

fn reader_options() -> ArrowReaderOptions {
    ArrowReaderOptions::new().with_skip_arrow_metadata(true)
}

fn groups(metadata: &ParquetMetaData) -> Option<Vec<Group>> {
    let mut start = 0_u32;
    let group = |metadata: &RowGroupMetaData| {
        let rows = start..start.checked_add(u32::try_from(metadata.num_rows()).ok()?)?;
        start = rows.end;
        (!rows.is_empty()).then(|| Group { rows, metadata: metadata.clone() })
    };
    metadata.row_groups().iter().map(group).collect()
}

/// Ascending numbers as runs of neighbours.
fn runs(numbers: &[u32]) -> impl Iterator<Item = Range<u32>> {
    let neighbours = numbers.chunk_by(|a, b| a + 1 == *b);
    neighbours.map(|run| run[0]..run[run.len() - 1] + 1)
}

fn as_u32(rows: usize) -> u32 {
    u32::try_from(rows).expect("rows of one row group")
}
