//! One table out of adjacent ones.

use std::path::Path;
use std::sync::Arc;

use refstone_log::{Env, Seq};

use super::cursor::Cursor;
use super::error::{Flaw, TableError};
use super::row::Row;
use super::schema::Identity;
use super::{Entry, Steps, Table, TableWriter};
use crate::stop::Stop;

/// Merges tables of adjacent ranges, oldest first, and opens what came of it.
///
/// The newest state of a ref wins, and its moves are told one after the other. If the first input is
/// the lowest table, deletions have nothing left to hide and leave the live rows; a second pass over
/// the inputs puts them behind, which spares keeping them in memory.
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
        |name, entry, cursors| writer.push(name, entry, |steps| tell(cursors, name, steps)),
    )?;
    if lowest {
        each_ref(
            inputs,
            stop,
            |deleted| deleted,
            |name, entry, cursors| {
                writer.push_gone(name, entry, |steps| tell(cursors, name, steps))
            },
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

/// Both runs of each table.
fn open_runs(tables: &[Arc<Table>]) -> Result<Vec<Cursor>, TableError> {
    let mut cursors = Vec::new();
    for table in tables {
        cursors.extend([table.live_from(b"")?, table.gone_from(b"")?]);
    }
    Ok(cursors)
}

/// Tells all moves of the ref that some of these stand on.
fn tell(cursors: &mut [Cursor], name: &[u8], steps: &mut Steps<'_, '_>) -> Result<(), TableError> {
    let standing = cursors.iter_mut().rev().filter(|cursor| cursor.name() == Some(name));
    for cursor in standing {
        cursor.each_step(|step| steps.push(step))?;
    }
    Ok(())
}

/// Calls `put` with the name and the last state of each ref that is wanted, being deleted or not, in the
/// order of names, and with the cursors, of which those stand on it that have it.
fn each_ref(
    tables: &[Arc<Table>],
    stop: Stop<'_>,
    wanted: impl Fn(bool) -> bool,
    mut put: impl FnMut(&[u8], &Entry, &mut [Cursor]) -> Result<(), TableError>,
) -> Result<(), TableError> {
    let mut cursors = open_runs(tables)?;
    let (mut name, mut refs) = (Vec::new(), 0);
    while let Some(least) = cursors.iter().filter_map(Cursor::name).min() {
        stop.check_at(refs)?;
        refs += 1;
        name.clear();
        name.extend_from_slice(least);
        let newest = cursors.iter().rev().find(|cursor| cursor.name() == Some(&name));
        let newest = newest.and_then(Cursor::row).filter(|row| wanted(row.is_deletion()));
        if let Some(entry) = newest.map(Row::entry) {
            put(&name, &entry, &mut cursors)?;
        }
        for cursor in cursors.iter_mut().filter(|cursor| cursor.name() == Some(&name)) {
            cursor.advance()?;
        }
    }
    Ok(())
}
