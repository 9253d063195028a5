//! What a store consists of, counted without its lock.

use std::io;
use std::path::Path;
use std::sync::Arc;

use refstone_log::{Env, ObjectFormat, OsEnv, Seq};

use crate::archive::Archive;
use crate::error::{OpenError, ReadError};
use crate::ranges::SeqRange;
use crate::sealed::Form;

/// The parts of a store, and their sizes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Survey {
    /// The hash that names the repository's objects.
    pub object_format: ObjectFormat,
    /// The newest transaction that is published, hence durable.
    pub durable_seq: Seq,
    /// The newest transaction that is no longer in the live log.
    pub sealed_seq: Seq,
    /// The live log.
    pub live: LiveFile,
    /// The history files that count, oldest first.
    pub history: Vec<HistoryPart>,
    /// The tables that go with them, oldest first.
    pub tables: Vec<TablePart>,
    /// Tables that are missing or cannot be opened.
    pub unreadable_tables: Vec<ReadError>,
    /// Bytes of all files in the directory, also of those that no longer count.
    pub directory_bytes: u64,
}

/// The live log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LiveFile {
    /// Published transactions.
    pub transactions: u64,
    /// Their rows.
    pub rows: u64,
    /// Bytes to the end of the last of them.
    pub bytes: u64,
    /// Bytes of the file, which is extended ahead of need.
    pub file_bytes: u64,
}

/// A history file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HistoryPart {
    /// Its first transaction.
    pub first: Seq,
    /// Its last one.
    pub last: Seq,
    /// Its rows.
    pub rows: u64,
    /// Its length.
    pub bytes: u64,
    /// How it keeps old object ids.
    pub form: Form,
}

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TablePart {
    /// Its first transaction.
    pub first: Seq,
    /// Its last one.
    pub last: Seq,
    /// Refs in it; in a table that is not the oldest, deletions too.
    pub live_rows: u64,
    /// In the oldest table, refs that were deleted.
    pub gone_rows: u64,
    /// Its length.
    pub bytes: u64,
}

/// Counts what a store consists of. Works beside a running writer.
///
/// Costs a read of the live log, and of the ends of the other files.
///
/// # Errors
///
/// If there is no log, or log or history are damaged.
pub fn survey(dir: &Path) -> Result<Survey, OpenError> {
    let env: Arc<dyn Env> = Arc::new(OsEnv);
    let mut archive = Archive::open(&env, dir)?;
    let (mut tables, mut unreadable_tables) = (Vec::new(), Vec::new());
    for unit in &archive.sealed {
        match table_part(&archive, unit.range) {
            Ok(part) => tables.push(part),
            Err(error) => unreadable_tables.push(error),
        }
    }
    let history = archive.sealed.iter().map(|unit| HistoryPart {
        first: unit.range.first,
        last: unit.range.last,
        rows: unit.file.rows().into(),
        bytes: unit.file.bytes(),
        form: unit.file.form(),
    });
    let history = history.collect();
    let live = live_file(&mut archive)?;
    Ok(Survey {
        object_format: archive.shelves.object_format,
        durable_seq: archive.live.seq(),
        sealed_seq: archive.anchor.seq,
        live,
        history,
        tables,
        unreadable_tables,
        directory_bytes: directory_bytes(&archive)?,
    })
}

fn table_part(archive: &Archive, range: SeqRange) -> Result<TablePart, ReadError> {
    let table = archive.shelves.open_table(range)?;
    Ok(TablePart {
        first: range.first,
        last: range.last,
        live_rows: table.live_rows(),
        gone_rows: table.gone_rows(),
        bytes: table.bytes(),
    })
}

fn live_file(archive: &mut Archive) -> Result<LiveFile, OpenError> {
    let mut live = LiveFile::default();
    while let Some(frame) = archive.live.next()? {
        live.transactions += 1;
        live.rows += frame.row_count() as u64;
    }
    live.bytes = archive.live.offset();
    live.file_bytes = len(&OsEnv, &archive.dir.join("refs.arrow"))?;
    Ok(live)
}

fn directory_bytes(archive: &Archive) -> Result<u64, ReadError> {
    let shelves = [archive.shelves.history.dir(), archive.shelves.tables.dir()];
    let mut bytes = 0;
    for dir in shelves.into_iter().chain([archive.dir.as_path()]) {
        let names = match OsEnv.list(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            names => names.map_err(|error| ReadError::io(dir, "list", &error))?,
        };
        let files = names.iter().map(|name| dir.join(name));
        for file in files.filter(|file| !shelves.contains(&file.as_path())) {
            bytes += len(&OsEnv, &file)?;
        }
    }
    Ok(bytes)
}

/// The length of a file; nothing if it is gone meanwhile.
fn len(env: &dyn Env, path: &Path) -> Result<u64, ReadError> {
    match env.open_read(path).and_then(|file| file.len()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        len => len.map_err(|error| ReadError::io(path, "measure", &error)),
    }
}
