//! redb.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};

use super::{Keep, Peer, Store, Writer, conflict, log_row};
use crate::workload::{Move, Oid};

pub(super) const PEER: Peer = Peer {
    name: "redb",
    setup: "Durability::Immediate, its default; one-phase commit, its faster one",
    product: true,
    open,
};

const REFS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("refs");
const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");

struct Redb {
    db: Database,
    /// The last key of the log; changed by the one write transaction there is.
    seq: AtomicU64,
    keep: Keep,
}

fn open(dir: &Path, keep: Keep) -> Result<Box<dyn Store>> {
    let db = Database::create(dir.join("refs.redb"))?;
    let tx = db.begin_write()?;
    tx.open_table(REFS)?;
    tx.open_table(LOG)?;
    tx.commit()?;
    Ok(Box::new(Redb { db, seq: AtomicU64::new(0), keep }))
}

impl Store for Redb {
    fn writer(&self) -> Result<Box<dyn Writer + '_>> {
        Ok(Box::new(self))
    }

    fn holds(&self, name: &str, value: &Oid) -> Result<bool> {
        let refs = self.db.begin_read()?.open_table(REFS)?;
        Ok(refs.get(name)?.is_some_and(|found| found.value() == value))
    }
}

impl Writer for &Redb {
    fn commit(&mut self, moves: &[Move]) -> Result<()> {
        // One write transaction at a time: this waits for the others.
        let mut tx = self.db.begin_write()?;
        // "guaranteed to be persistent as soon as commit returns" (Durability::Immediate).
        tx.set_durability(Durability::Immediate)?;
        {
            let mut refs = tx.open_table(REFS)?;
            let mut log = tx.open_table(LOG)?;
            for moved in moves {
                let old = refs.get(moved.name.as_str())?.map(|found| found.value().to_vec());
                if old.as_deref() != moved.old.as_ref().map(|old| &old[..]) {
                    return Err(conflict(moved));
                }
                refs.insert(moved.name.as_str(), &moved.new[..])?;
                if self.keep == Keep::StateAndLog {
                    let seq = self.seq.fetch_add(1, Ordering::Relaxed);
                    log.insert(seq, log_row(moved).as_slice())?;
                }
            }
        }
        tx.commit()?;
        Ok(())
    }
}
