//! Looks at a simulated disk as its users do: readers of the file, stock Arrow, the log itself.

use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{TimestampMicrosecondType, UInt64Type};
use arrow_array::{Array, RecordBatch};
use arrow_ipc::reader::StreamReader;
use refstone_log::{
    Env, ErrorKind, Frame, Log, LogOptions, LogReader, Mode, NoObserver, ObjectFormat, OpenError,
    Recovery, RefLogOptions, Resting, verify,
};

use super::fs::SimFs;
use super::model::{Found, Tx, Verdict};
use crate::logs::Row;

/// Where the log is on every simulated disk.
#[must_use]
pub fn log_dir() -> PathBuf {
    PathBuf::from("/srv/repository.git/refstone")
}

/// Its live file.
#[must_use]
pub fn live_path() -> PathBuf {
    log_dir().join("refs.arrow")
}

/// Creates the log.
///
/// # Errors
/// As [`Log::create`].
pub fn create(env: &dyn Env) -> Result<(), OpenError> {
    let head = b"refs/heads/main".into();
    Log::create(env, &log_dir(), &RefLogOptions { object_format: ObjectFormat::Sha1, head })
}

/// A log that has been opened, and what it said of itself.
#[derive(Debug)]
pub struct Opened {
    /// The log.
    pub log: Log,
    /// What its recovery reports.
    pub recovery: Recovery,
    /// What it replayed.
    pub found: Found,
}

/// Why a log did not open.
#[derive(Debug)]
pub enum Refusal {
    /// It says so itself.
    Error(OpenError),
    /// What it said was inconsistent.
    Wrong(String),
}

/// Opens the log for writing.
///
/// # Errors
/// If it does not open, or replays sequences that do not follow each other.
pub fn open(env: Arc<dyn Env>, mode: Mode) -> Result<Opened, Refusal> {
    let mut txs = Vec::new();
    // By the clock, no two runs would be alike.
    let options = LogOptions { resting: Resting::ByHand, ..mode.into() };
    let mut replay = |frame: &Frame<'_>| txs.push(Arc::new(Tx::from(frame)));
    let (log, recovery) = Log::open_in(options, env, &log_dir(), Arc::new(NoObserver), &mut replay)
        .map_err(Refusal::Error)?;
    let newest = usize::try_from(recovery.last_seq.get()).unwrap_or(usize::MAX);
    if recovery.transactions != txs.len() as u64 {
        let told = recovery.transactions;
        return Err(Refusal::Wrong(format!("it replayed {} of {told} transactions", txs.len())));
    }
    let found = Found::log(newest - txs.len(), txs).map_err(Refusal::Wrong)?;
    Ok(Opened { log, recovery, found })
}

/// What a reader without the lock sees, and where the published part ends.
///
/// # Errors
/// If it reports damage, which no crash may cause.
pub fn published(fs: &SimFs) -> Verdict<(Found, usize)> {
    let mut reader = match LogReader::open(fs, &log_dir()) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok((Found::Absent, 0)),
        opened => opened.map_err(|error| format!("a reader cannot open the log: {error}"))?,
    };
    let anchor = usize::try_from(reader.seq().get()).unwrap_or(usize::MAX);
    let mut txs = Vec::new();
    while let Some(frame) = reader.next().map_err(|error| format!("a reader: {error}"))? {
        txs.push(Arc::new(Tx::from(&frame)));
    }
    let end = usize::try_from(reader.offset()).unwrap_or(usize::MAX);
    Ok((Found::log(anchor, txs)?, end))
}

/// Checks the whole log as `verify` does, without changing it.
///
/// # Errors
/// If it finds damage, which no crash may cause.
pub fn verified(fs: &SimFs) -> Verdict {
    match verify(fs, &log_dir()) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(format!("verify: {error}")),
        Ok(report) => match report.damage {
            Some(damage) => Err(format!("verify: {damage}")),
            None => Ok(()),
        },
    }
}

/// What a stock reader of Arrow streams sees in the bytes of a live file.
///
/// # Errors
/// If it fails.
pub fn stock(bytes: &[u8]) -> Verdict<Vec<Tx>> {
    let reader = StreamReader::try_new(Cursor::new(bytes), None)
        .map_err(|error| format!("a stock reader cannot open the file: {error}"))?;
    reader
        .map(|batch| batch.map(|batch| decode(&batch)))
        .collect::<Result<_, _>>()
        .map_err(|error| format!("a stock reader: {error}"))
}

/// The rows of a batch. The workloads use text that is stored as it is.
fn decode(batch: &RecordBatch) -> Tx {
    let seq = batch.column(0).as_primitive::<UInt64Type>().value(0);
    let at = batch.column(1).as_primitive::<TimestampMicrosecondType>().value(0);
    let rows = (0..batch.num_rows()).map(|row| decode_row(batch, row)).collect();
    Tx { seq: usize::try_from(seq).unwrap_or(usize::MAX), at, rows }
}

fn decode_row(batch: &RecordBatch, row: usize) -> Row {
    let text = |column: usize| {
        let strings = batch.column(column).as_string::<i32>();
        strings.is_valid(row).then(|| strings.value(row).as_bytes().to_vec())
    };
    let oid = |column: usize| {
        let oids = batch.column(column).as_fixed_size_binary();
        oids.is_valid(row).then(|| oids.value(row).to_vec())
    };
    Row {
        actor: text(2).unwrap_or_default(),
        refname: text(3).unwrap_or_default(),
        old_oid: oid(4),
        new_oid: oid(5),
        symref: text(6),
        message: text(7),
    }
}

/// The bytes of every file that keeps torn bytes.
///
/// # Errors
/// If the directory cannot be listed.
pub fn kept(disk: &super::Disk, dir: &Path) -> std::io::Result<Vec<Vec<u8>>> {
    kept_as(disk, dir, ".cut-")
}

/// The bytes of every file with this in its name.
///
/// # Errors
/// If the directory cannot be listed.
pub fn kept_as(disk: &super::Disk, dir: &Path, part: &str) -> std::io::Result<Vec<Vec<u8>>> {
    let names = disk.list(dir)?;
    let named = names.iter().filter(|name| name.to_string_lossy().contains(part));
    named.map(|name| disk.read(&dir.join(name)).map(<[u8]>::to_vec)).collect()
}
