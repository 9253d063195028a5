//! RocksDB, which commits in groups itself: a leader writes and syncs for those who queue.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use rocksdb::{ColumnFamilyDescriptor, DB, Options, WriteBatch, WriteOptions};

use super::{Keep, Peer, Store, Writer, conflict, log_row};
use crate::workload::{Move, Oid};

pub(super) const PEER: Peer = Peer {
    name: "rocksdb",
    setup: "WriteOptions::sync, its own group commit, WAL files recycled before the run begins",
    product: true,
    open,
};

/// Without RocksDB's transactions: each ref has one writer here, so a look before the batch
/// compares as well, and is cheaper.
struct Rocks {
    db: DB,
    seq: AtomicU64,
    keep: Keep,
}

fn open(dir: &Path, keep: Keep) -> Result<Box<dyn Store>> {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    // Overwriting an old log file spares the journal commit of a growing one.
    options.set_recycle_log_file_num(4);
    let families =
        ["refs", "log", FILLING].map(|n| ColumnFamilyDescriptor::new(n, Options::default()));
    let mut db = DB::open_cf_descriptors(&options, dir.join("rocksdb"), families)?;
    recycle(&mut db)?;
    Ok(Box::new(Rocks { db, seq: AtomicU64::new(0), keep }))
}

/// What fills log files that are to be used again.
const FILLING: &str = "filling";

/// A log file is used again once another has come after it and all in it is flushed: a run is too short
/// for that.
fn recycle(db: &mut DB) -> Result<()> {
    const FILE_LEN: usize = 16 << 20;
    let value = vec![0x5a; 64 << 10];
    for _ in 0..3 {
        let filling = db.cf_handle(FILLING).expect("opened with it");
        for number in 0..FILE_LEN / value.len() {
            db.put_cf(filling, number.to_be_bytes(), &value)?;
        }
        db.flush_cf(filling)?;
    }
    db.drop_cf(FILLING)?;
    Ok(())
}

impl Store for Rocks {
    fn writer(&self) -> Result<Box<dyn Writer + '_>> {
        Ok(Box::new(self))
    }

    fn holds(&self, name: &str, value: &Oid) -> Result<bool> {
        let refs = self.db.cf_handle("refs").expect("opened with it");
        Ok(self.db.get_cf(refs, name)?.is_some_and(|found| found == value))
    }
}

impl Writer for &Rocks {
    fn commit(&mut self, moves: &[Move]) -> Result<()> {
        let refs = self.db.cf_handle("refs").expect("opened with it");
        let log = self.db.cf_handle("log").expect("opened with it");
        let mut batch = WriteBatch::default();
        for moved in moves {
            let old = self.db.get_pinned_cf(refs, &moved.name)?;
            if old.as_deref() != moved.old.as_ref().map(|old| &old[..]) {
                return Err(conflict(moved));
            }
            batch.put_cf(refs, &moved.name, moved.new);
            if self.keep == Keep::StateAndLog {
                let seq = self.seq.fetch_add(1, Ordering::Relaxed);
                batch.put_cf(log, seq.to_be_bytes(), log_row(moved));
            }
        }
        // "If true, the write will be flushed from the operating system buffer cache before the
        // write is considered complete" (WriteOptions::sync, off by default).
        let mut options = WriteOptions::default();
        options.set_sync(true);
        self.db.write_opt(batch, &options)?;
        Ok(())
    }
}
