//! Where an old object id is found above the row that needs it: the reader's side.

use std::collections::{BTreeSet, HashMap};

use arrow_array::builder::FixedSizeBinaryBuilder;
use arrow_array::{FixedSizeBinaryArray, RecordBatch, UInt32Array};

use super::columns::Form;
use super::error::{Place, SealedError};
use super::file::HistoryFile;
use super::rows::{bytes_at, new_oid, old_back, old_oid};
use crate::oid::ObjectId;

/// The most new object ids that are kept for rows to come.
const KEPT_MAX: usize = 1 << 18;

/// New object ids that rows below may ask for, by row number.
///
/// It holds what was read; what a row asks for and was not read is read then. A new object id is
/// asked for once at most, by the next move of the same ref.
#[derive(Debug, Default)]
pub(super) struct Sources {
    kept: HashMap<u32, ObjectId>,
}

impl Sources {
    /// The old object ids of a batch of rows with these numbers.
    pub(super) fn old_oids(
        &mut self,
        file: &HistoryFile,
        numbers: &[u32],
        batch: &RecordBatch,
    ) -> Result<FixedSizeBinaryArray, SealedError> {
        if file.form() == Form::Full {
            return Ok(old_oid(batch).clone());
        }
        let found = find(file, numbers, old_back(batch))?;
        self.read_missing(file, &found)?;
        self.fill(file, numbers, batch, &found)
    }

    fn read_missing(&mut self, file: &HistoryFile, found: &[Found]) -> Result<(), SealedError> {
        let missing: BTreeSet<u32> = found
            .iter()
            .filter_map(|found| match found {
                Found::Above(row) if !self.kept.contains_key(row) => Some(*row),
                _ => None,
            })
            .collect();
        let missing: Vec<u32> = missing.into_iter().collect();
        file.each_new_oid(&missing, |row, id| {
            self.kept.insert(row, id);
        })
    }

    fn fill(
        &mut self,
        file: &HistoryFile,
        numbers: &[u32],
        batch: &RecordBatch,
        found: &[Found],
    ) -> Result<FixedSizeBinaryArray, SealedError> {
        let (stored, new) = (old_oid(batch), new_oid(batch));
        let mut filled = FixedSizeBinaryBuilder::with_capacity(found.len(), stored.value_length());
        let mut asked = vec![false; found.len()];
        for (index, source) in found.iter().enumerate() {
            let id = match source {
                Found::Stored => bytes_at(stored, index).map(ObjectId::from_bytes).transpose(),
                Found::Above(row) => Ok(self.kept.remove(row)),
                Found::Here(above) => {
                    asked[*above] = true;
                    bytes_at(new, *above).map(ObjectId::from_bytes).transpose()
                }
            };
            match id {
                Ok(None) if *source != Found::Stored => {
                    return Err(no_source(file, numbers[index], "the move above has no new_oid"));
                }
                Ok(None) => filled.append_null(),
                Ok(Some(id)) => filled
                    .append_value(id.as_bytes())
                    .map_err(|error| no_source(file, numbers[index], error.to_string()))?,
                Err(error) => return Err(no_source(file, numbers[index], error.to_string())),
            }
        }
        self.keep(numbers, new, &asked);
        Ok(filled.finish())
    }

    /// Keeps the new object ids that no row here has asked for.
    fn keep(&mut self, numbers: &[u32], new: &FixedSizeBinaryArray, asked: &[bool]) {
        if self.kept.len() + numbers.len() > KEPT_MAX {
            self.kept.clear();
        }
        for (index, number) in numbers.iter().enumerate().filter(|(index, _)| !asked[*index]) {
            let id = bytes_at(new, index).and_then(|id| ObjectId::from_bytes(id).ok());
            self.kept.extend(id.map(|id| (*number, id)));
        }
    }
}

/// Where the old object id of a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// In the row.
    Stored,
    /// In the same batch, at this index.
    Here(usize),
    /// In the row with this number, above the batch.
    Above(u32),
}

fn find(
    file: &HistoryFile,
    numbers: &[u32],
    back: &UInt32Array,
) -> Result<Vec<Found>, SealedError> {
    let source = |(number, back): (&u32, Option<u32>)| {
        let Some(back) = back else {
            return Ok(Found::Stored);
        };
        let row = number.checked_sub(back).filter(|row| row < number);
        let row = row.ok_or_else(|| no_source(file, *number, format!("old_back is {back}")))?;
        Ok(numbers.binary_search(&row).map_or(Found::Above(row), Found::Here))
    };
    debug_assert_eq!(numbers.len(), back.len());
    numbers.iter().zip(back).map(source).collect()
}

fn no_source(file: &HistoryFile, row: u32, problem: impl Into<String>) -> SealedError {
    SealedError::damaged(file.path(), Place::Row(row), problem)
}
