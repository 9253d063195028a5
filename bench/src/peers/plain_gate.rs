//! The group commit that everybody writes first, as a yardstick: append under one mutex, sync
//! under another, and do not sync again what somebody's sync has covered.
//!
//! It is given all the rest that refstone has: the file is filled with zeros ahead, the frame is
//! as long, the compare is one hash lookup, and encoding costs next to nothing.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use parking_lot::Mutex;

use super::{Keep, Peer, Store, Writer, conflict, log_row};
use crate::measure::floor::FRAME_LEN;
use crate::workload::{Move, Oid};

pub(super) const PEER: Peer = Peer {
    name: "plain_gate",
    setup: "two mutexes around append and fdatasync, zero-filled file (a yardstick of this bench)",
    product: false,
    open,
};

const EXTENT: usize = 1 << 20;

struct PlainGate {
    file: File,
    log: Mutex<Log>,
    /// Held through a sync.
    sync: Mutex<()>,
    written: AtomicU64,
    durable: AtomicU64,
}

#[derive(Default)]
struct Log {
    refs: HashMap<String, Oid>,
    seq: u64,
    end: u64,
    extent: u64,
    frame: Vec<u8>,
}

fn open(dir: &Path, _keep: Keep) -> Result<Box<dyn Store>> {
    let options = OpenOptions::new().read(true).write(true).create_new(true).clone();
    let file = options.open(dir.join("log"))?;
    file.sync_all()?;
    File::open(dir)?.sync_all()?;
    Ok(Box::new(PlainGate {
        file,
        log: Mutex::default(),
        sync: Mutex::default(),
        written: AtomicU64::new(0),
        durable: AtomicU64::new(0),
    }))
}

impl Store for PlainGate {
    fn writer(&self) -> Result<Box<dyn Writer + '_>> {
        Ok(Box::new(self))
    }

    fn holds(&self, name: &str, value: &Oid) -> Result<bool> {
        Ok(self.log.lock().refs.get(name) == Some(value))
    }
}

impl Writer for &PlainGate {
    fn commit(&mut self, moves: &[Move]) -> Result<()> {
        let seq = self.append(moves)?;
        self.barrier(seq)
    }
}

impl PlainGate {
    fn append(&self, moves: &[Move]) -> Result<u64> {
        let mut log = self.log.lock();
        if let Some(stale) = moves.iter().find(|m| log.refs.get(&m.name) != m.old.as_ref()) {
            return Err(conflict(stale));
        }
        log.encode(moves);
        log.reserve(&self.file)?;
        self.file.write_all_at(&log.frame, log.end)?;
        log.end += log.frame.len() as u64;
        log.seq += 1;
        for moved in moves {
            log.refs.insert(moved.name.clone(), moved.new);
        }
        self.written.store(log.seq, Ordering::Release);
        Ok(log.seq)
    }

    fn barrier(&self, seq: u64) -> Result<()> {
        if self.durable.load(Ordering::Acquire) >= seq {
            return Ok(());
        }
        let _one_at_a_time = self.sync.lock();
        if self.durable.load(Ordering::Acquire) >= seq {
            return Ok(());
        }
        let covered = self.written.load(Ordering::Acquire);
        self.file.sync_data()?;
        self.durable.store(covered, Ordering::Release);
        Ok(())
    }
}

impl Log {
    fn encode(&mut self, moves: &[Move]) {
        self.frame.clear();
        self.frame.extend_from_slice(&self.seq.to_be_bytes());
        moves.iter().for_each(|moved| self.frame.extend_from_slice(&log_row(moved)));
        let padded = self.frame.len().max(FRAME_LEN);
        self.frame.resize(padded, 0xa5);
    }

    /// Zeros ahead of need, as refstone writes them.
    fn reserve(&mut self, file: &File) -> Result<()> {
        while self.extent < self.end + self.frame.len() as u64 {
            file.write_all_at(&[0; EXTENT], self.extent)?;
            self.extent += EXTENT as u64;
        }
        Ok(())
    }
}
