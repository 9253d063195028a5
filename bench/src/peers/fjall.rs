//! fjall.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::{Keep, Peer, Store, Writer, conflict, log_row};
use crate::workload::{Move, Oid};

pub(super) const PEER: Peer = Peer {
    name: "fjall",
    setup: "a batch with PersistMode::SyncData, which on Linux also syncs the file's size",
    product: true,
    open,
};

/// Without fjall's transactions: each ref has one writer here, so a look before the batch compares
/// as well, and is cheaper.
struct Fjall {
    db: Database,
    refs: Keyspace,
    log: Keyspace,
    seq: AtomicU64,
    keep: Keep,
}

fn open(dir: &Path, keep: Keep) -> Result<Box<dyn Store>> {
    let db = Database::builder(dir.join("fjall")).open()?;
    let refs = db.keyspace("refs", KeyspaceCreateOptions::default)?;
    let log = db.keyspace("log", KeyspaceCreateOptions::default)?;
    Ok(Box::new(Fjall { db, refs, log, seq: AtomicU64::new(0), keep }))
}

impl Store for Fjall {
    fn writer(&self) -> Result<Box<dyn Writer + '_>> {
        Ok(Box::new(self))
    }

    fn holds(&self, name: &str, value: &Oid) -> Result<bool> {
        Ok(self.refs.get(name)?.is_some_and(|found| *found == value[..]))
    }
}

impl Writer for &Fjall {
    fn commit(&mut self, moves: &[Move]) -> Result<()> {
        // "By default, any operation will flush to OS buffers, but not to disk" (README): the mode
        // of the batch makes its commit durable.
        let mut batch = self.db.batch().durability(Some(PersistMode::SyncData));
        for moved in moves {
            let old = self.refs.get(&moved.name)?;
            if old.as_deref() != moved.old.as_ref().map(|old| &old[..]) {
                return Err(conflict(moved));
            }
            batch.insert(&self.refs, moved.name.as_str(), moved.new);
            if self.keep == Keep::StateAndLog {
                let seq = self.seq.fetch_add(1, Ordering::Relaxed);
                batch.insert(&self.log, seq.to_be_bytes(), log_row(moved));
            }
        }
        batch.commit()?;
        Ok(())
    }
}
