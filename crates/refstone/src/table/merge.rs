//! One table out of adjacent ones.

use std::path::Path;
use std::sync::Arc;

use refstone_log::{Env, Seq};

use super::cursor::Cursor;
use super::error::{Flaw, TableError};
use super::row::Row;
use super::schema::Identity;
use super::{Entry, Table, TableWriter};
use crate::stop::Stop;

/// Merges tables of adjacent ranges, oldest first, and opens what came of it.
///
/// The newest state of a ref wins. Row numbers of a later input count on behind the history rows of
/// those before it, as they do when the histories are joined. If the first input is the lowest
/// table, deletions have nothing left to hide and leave the live rows; a second pass over the
/// inputs puts them behind, which spares keeping them in memory.
pub(crate) fn merge(
    env: &dyn Env,
    path: &Path,
    inputs: &[Arc<Table>],
    stop: Stop<'_>,
) -> Result<Table, TableError> {
    let (identity, history_rows) =
        joined(inputs).map_err(|flaw| TableError::Input { path: path.to_owned(), flaw })?;
    let lowest = identity.is_lowest();
    let mut writer = TableWriter::create(env, path, identity, history_rows)?;
    each_ref(
        inputs,
        stop,
        |deleted| !(lowest && deleted),
        |name, entry, rows| writer.push(name, entry, rows),
    )?;
    if lowest {
        each_ref(
            inputs,
            stop,
            |deleted| deleted,
            |name, entry, rows| writer.push_gone(name, entry, rows),
        )?;
    }
    writer.finish()?;
    Table::open(env, path)
}

/// The identity and history rows of all inputs together.
fn joined(inputs: &[Arc<Table>]) -> Result<(Identity, u64), Flaw> {
    let [first, rest @ ..] = inputs else {
        return Err(Flaw::new("input", 0, "a table", "none"));
    };
    let mut identity = first.identity().clone();
    for (number, table) in (1..).zip(rest) {
        let next = table.identity();
        if (next.log_id, next.object_format) != (identity.log_id, identity.object_format) {
            return Err(Flaw::new("input", number, "a table of the same log", "of another"));
        }
        if next.first != identity.last.next() {
            let after = |seq: Seq| format!("a table from {seq} on");
            let (expected, actual) = (after(identity.last.next()), after(next.first));
            return Err(Flaw::new("input", number, expected, actual));
        }
        identity = Identity { first: identity.first, ..next.clone() };
    }
    let rows: u64 = inputs.iter().map(|table| table.history_rows()).sum();
    if rows > 1 << 32 {
        return Err(Flaw::new("input", inputs.len() as u64, "at most 2^32 rows", rows.to_string()));
    }
    Ok((identity, rows))
}

/// A run of rows, and what its row numbers count on from.
struct Input {
    cursor: Cursor,
    rows_before: u64,
}

impl Input {
    fn stands_on(&self, name: &[u8]) -> bool {
        self.cursor.name() == Some(name)
    }

    fn append_rows(&mut self, rows: &mut Vec<u32>) -> Result<(), TableError> {
        let before = u32::try_from(self.rows_before).expect("all rows together fit 32 bits");
        rows.extend(self.cursor.rows()?.map(|row| before + row));
        Ok(())
    }
}

/// Both runs of each table.
fn open_runs(tables: &[Arc<Table>]) -> Result<Vec<Input>, TableError> {
    let mut inputs = Vec::new();
    let mut rows_before = 0;
    for table in tables {
        for cursor in [table.live_from(b"")?, table.gone_from(b"")?] {
            inputs.push(Input { cursor, rows_before });
        }
        rows_before += table.history_rows();
    }
    Ok(inputs)
}

/// Calls `put` with the name, the last state and all history rows of each ref that is wanted, being
/// deleted or not, in the order of names.
fn each_ref(
    tables: &[Arc<Table>],
    stop: Stop<'_>,
    wanted: impl Fn(bool) -> bool,
    mut put: impl FnMut(&[u8], &Entry, &[u32]) -> Result<(), TableError>,
) -> Result<(), TableError> {
    let mut inputs = open_runs(tables)?;
    let (mut name, mut rows, mut refs) = (Vec::new(), Vec::new(), 0);
    while let Some(least) = inputs.iter().filter_map(|input| input.cursor.name()).min() {
        stop.check_at(refs)?;
        refs += 1;
        name.clear();
        name.extend_from_slice(least);
        let newest = inputs.iter().rev().find(|input| input.stands_on(&name));
        let newest =
            newest.and_then(|input| input.cursor.row()).filter(|row| wanted(row.is_deletion()));
        let newest = newest.map(Row::entry);
        rows.clear();
        for input in inputs.iter_mut().filter(|input| input.stands_on(&name)) {
            if newest.is_some() {
                input.append_rows(&mut rows)?;
            }
            input.cursor.advance()?;
        }
        if let Some(entry) = newest {
            put(&name, &entry, &rows)?;
        }
    }
    Ok(())
}
