//! LMDB.
#![allow(unsafe_code)] // Opening an LMDB environment is unsafe; argued at the block.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use heed::types::{Bytes, Str};
use heed::{CommitOrAbort, Database, Env, EnvOpenOptions};

use super::{Keep, Peer, Store, Writer, conflict, log_row};
use crate::workload::{Move, Oid};

pub(super) const PEER: Peer = Peer {
    name: "lmdb",
    setup: "no flags: MDB_NOSYNC and MDB_NOMETASYNC are off, so a commit is synced when it returns",
    product: true,
    open,
};

/// Address space, not memory.
const MAP_BYTES: usize = 4 << 30;

struct Lmdb {
    env: Env,
    refs: Database<'static, Str, Bytes>,
    log: Database<'static, Bytes, Bytes>,
    /// The last key of the log; changed by the one write transaction there is.
    seq: AtomicU64,
    keep: Keep,
}

fn open(dir: &Path, keep: Keep) -> Result<Box<dyn Store>> {
    // SAFETY: the directory was made for this run, so no other process or environment has the
    // files open, and nothing shortens them while they are mapped.
    let env = unsafe { EnvOpenOptions::new().map_size(MAP_BYTES).max_dbs(2).open(dir)? };
    let tx = env.write_txn()?;
    let (refs, log) = env
        .create_databases_and_commit(tx, |opener, tx| -> heed::Result<_> {
            let refs = opener.create_database::<Str, Bytes>(tx, Some("refs"))?;
            let log = opener.create_database::<Bytes, Bytes>(tx, Some("log"))?;
            Ok(CommitOrAbort::<_, ()>::Commit((refs, log)))
        })?
        .unwrap_commit();
    Ok(Box::new(Lmdb { env, refs, log, seq: AtomicU64::new(0), keep }))
}

impl Store for Lmdb {
    fn writer(&self) -> Result<Box<dyn Writer + '_>> {
        Ok(Box::new(self))
    }

    fn holds(&self, name: &str, value: &Oid) -> Result<bool> {
        let tx = self.env.read_txn()?;
        Ok(self.refs.get(&tx, name)? == Some(value.as_slice()))
    }
}

impl Writer for &Lmdb {
    fn commit(&mut self, moves: &[Move]) -> Result<()> {
        // One write transaction at a time: this waits for the others.
        let mut tx = self.env.write_txn()?;
        for moved in moves {
            if self.refs.get(&tx, &moved.name)? != moved.old.as_ref().map(|old| &old[..]) {
                return Err(conflict(moved));
            }
            self.refs.put(&mut tx, &moved.name, &moved.new)?;
            if self.keep == Keep::StateAndLog {
                let seq = self.seq.fetch_add(1, Ordering::Relaxed);
                self.log.put(&mut tx, &seq.to_be_bytes(), &log_row(moved))?;
            }
        }
        tx.commit()?;
        Ok(())
    }
}
