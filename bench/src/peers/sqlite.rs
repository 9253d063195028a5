//! SQLite in WAL mode.

use std::path::Path;

use anyhow::{Result, ensure};
use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

use super::{Keep, Peer, Store, Writer, conflict, now_micros};
use crate::workload::{ACTOR, Move, Oid};

pub(super) const PEER: Peer = Peer {
    name: "sqlite",
    setup: "WAL, synchronous=FULL, one connection behind a mutex, prepared statements",
    product: true,
    open,
};

pub(super) const NORMAL: Peer = Peer {
    name: "sqlite_normal",
    setup: "WAL, synchronous=NORMAL: commits are not synced, checkpoints are",
    product: true,
    open: open_normal,
};

/// One connection that threads take turns with. With a connection each, writers that meet a held
/// lock sleep and retry (`sqlite3_busy_timeout`), which is much slower than a mutex.
struct Sqlite {
    connection: Mutex<Connection>,
    keep: Keep,
}

fn open(dir: &Path, keep: Keep) -> Result<Box<dyn Store>> {
    // "To add additional durability, set synchronous=FULL": in WAL mode NORMAL does not sync
    // commits (pragma.html, synchronous).
    open_synchronous(dir, keep, "FULL")
}

fn open_normal(dir: &Path, keep: Keep) -> Result<Box<dyn Store>> {
    open_synchronous(dir, keep, "NORMAL")
}

fn open_synchronous(dir: &Path, keep: Keep, synchronous: &str) -> Result<Box<dyn Store>> {
    let connection = Connection::open(dir.join("refs.sqlite"))?;
    // "WAL provides more concurrency" and needs one sync per commit, not two (wal.html).
    let mode: String = connection.query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0))?;
    ensure!(mode == "wal", "journal_mode is {mode}");
    connection.execute_batch(&format!("PRAGMA synchronous={synchronous};"))?;
    connection.execute_batch(
        "CREATE TABLE refs (name TEXT PRIMARY KEY, oid BLOB NOT NULL) WITHOUT ROWID;
         CREATE TABLE log (seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, actor TEXT NOT NULL,
                           name TEXT NOT NULL, old BLOB, new BLOB);",
    )?;
    Ok(Box::new(Sqlite { connection: Mutex::new(connection), keep }))
}

impl Store for Sqlite {
    fn writer(&self) -> Result<Box<dyn Writer + '_>> {
        Ok(Box::new(self))
    }

    fn holds(&self, name: &str, value: &Oid) -> Result<bool> {
        let connection = self.connection.lock();
        let found = connection.query_row("SELECT oid FROM refs WHERE name = ?1", [name], |row| {
            row.get::<_, Vec<u8>>(0)
        });
        Ok(found.optional()?.is_some_and(|found| found == value))
    }
}

impl Writer for &Sqlite {
    fn commit(&mut self, moves: &[Move]) -> Result<()> {
        let mut connection = self.connection.lock();
        // The write lock at once: a deferred transaction would take it later all the same.
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        {
            let mut insert = tx.prepare_cached("INSERT INTO refs (name, oid) VALUES (?1, ?2)")?;
            let mut update =
                tx.prepare_cached("UPDATE refs SET oid = ?2 WHERE name = ?1 AND oid = ?3")?;
            let mut log = tx.prepare_cached(
                "INSERT INTO log (at, actor, name, old, new) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?;
            for moved in moves {
                let Move { name, old, new } = moved;
                let changed = match old {
                    Some(old) => update.execute(params![name, new, old])?,
                    None => insert.execute(params![name, new])?,
                };
                if changed != 1 {
                    return Err(conflict(moved));
                }
                if self.keep == Keep::StateAndLog {
                    let at = i64::try_from(now_micros()).unwrap_or(i64::MAX);
                    log.execute(params![at, ACTOR, name, old, new])?;
                }
            }
        }
        tx.commit()?;
        Ok(())
    }
}
