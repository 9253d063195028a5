//! The stores that are compared, each behind the same three traits.
//!
//! Each store does for a move what a durable store of references must do: it compares the old
//! value, sets the new one, records the move (sequence, time, actor, name, old, new), and returns
//! when that is on stable storage. Each is set up as its own documentation asks for durable
//! commits, and otherwise in its favour where there is a choice: the reason stands at the setting.

mod fjall;
mod git;
mod lmdb;
mod plain_gate;
mod redb;
mod refstone;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod sqlite;

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;

use crate::workload::{ACTOR, Move, Oid};

/// A store that is open.
pub trait Store: Sync {
    /// A new writer for one thread.
    fn writer(&self) -> Result<Box<dyn Writer + '_>>;

    /// Whether the ref has this value now.
    fn holds(&self, name: &str, value: &Oid) -> Result<bool>;
}

/// What one thread writes with.
pub trait Writer: Send {
    /// Moves all of these refs or none, durably.
    fn commit(&mut self, moves: &[Move]) -> Result<()>;
}

/// What a store keeps of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The ref's value, and a row of the log.
    StateAndLog,
    /// Only the value. Less than refstone does; for those who need no log.
    State,
}

impl Keep {
    /// `REFSTONE_BENCH_PEERS_KEEP=state` relieves the peers of the log.
    pub fn from_env() -> Keep {
        match std::env::var("REFSTONE_BENCH_PEERS_KEEP").as_deref() {
            Ok("state") => Keep::State,
            _ => Keep::StateAndLog,
        }
    }

    pub fn describe(self) -> &'static str {
        match self {
            Keep::StateAndLog => "every store compares, sets and logs each move",
            Keep::State => "peers compare and set; only refstone also logs",
        }
    }
}

/// A store that can be opened.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Begins the keys of its figures.
    pub name: &'static str,
    /// How it is set up to be durable.
    pub setup: &'static str,
    /// Whether it is something people use, rather than a yardstick of this bench.
    pub product: bool,
    /// Opens a new store in an empty directory.
    pub open: fn(&Path, Keep) -> Result<Box<dyn Store>>,
}

/// The subject of all comparisons.
pub const REFSTONE: Peer = refstone::PEER;

/// The subject where a commit is not synced, and whom it is compared with there.
pub const REFSTONE_BUFFERED: Peer = refstone::BUFFERED;
pub const PEERS_BUFFERED: &[Peer] = &[sqlite::NORMAL];

pub use refstone::transaction;

/// The others.
pub const PEERS: &[Peer] = &[
    git::FILES,
    git::REFTABLE,
    sqlite::PEER,
    lmdb::PEER,
    redb::PEER,
    fjall::PEER,
    #[cfg(feature = "rocksdb")]
    rocksdb::PEER,
    plain_gate::PEER,
];

/// All that a run may have measured, this program's features or not, in the order of tables.
pub const NAMES: [&str; 9] = [
    "refstone",
    "git_files",
    "git_reftable",
    "sqlite",
    "lmdb",
    "redb",
    "fjall",
    "rocksdb",
    "plain_gate",
];

/// The peer with this name.
pub fn named(name: &str) -> Option<Peer> {
    PEERS.iter().copied().find(|peer| peer.name == name)
}

/// A row of the log, for stores that keep bytes: fields in a fixed order, lengths before text.
fn log_row(moved: &Move) -> Vec<u8> {
    let mut row = Vec::with_capacity(128);
    row.extend_from_slice(&now_micros().to_be_bytes());
    for text in [ACTOR.as_bytes(), moved.name.as_bytes()] {
        row.extend_from_slice(&(text.len() as u32).to_be_bytes());
        row.extend_from_slice(text);
    }
    row.extend_from_slice(&moved.old.unwrap_or_default());
    row.extend_from_slice(&moved.new);
    row
}

fn now_micros() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_micros()).unwrap_or(u64::MAX))
}

/// What a compare that fails says. The workload never fails one, so it ends the run.
fn conflict(moved: &Move) -> anyhow::Error {
    anyhow::anyhow!("{} is not at its old value", moved.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Mover;

    /// Breaks: a store that does not compare, does not set, or reports another's value.
    fn moves_and_compares(peer: Peer, batch: usize) {
        let dir = tempfile::tempdir().unwrap();
        let store = (peer.open)(dir.path(), Keep::StateAndLog).unwrap();
        let mut mover = Mover::new(0, batch);
        let mut writer = store.writer().unwrap();
        for _ in 0..3 {
            writer.commit(mover.step()).unwrap();
        }
        let last = mover.last()[batch - 1].clone();
        assert!(store.holds(&last.name, &last.new).unwrap());
        assert!(!store.holds(&last.name, &last.old.unwrap()).unwrap());
        assert!(!store.holds("refs/heads/other", &last.new).unwrap());

        let stale = Move { old: last.old, new: last.old.unwrap(), ..last.clone() };
        assert!(writer.commit(&[stale]).is_err(), "the old value does not match");
        assert!(store.holds(&last.name, &last.new).unwrap());
    }

    // Breaks: a peer that reports do not know.
    #[test]
    fn every_store_has_its_place_in_tables() {
        let peers: Vec<_> = std::iter::once(&REFSTONE).chain(PEERS).map(|peer| peer.name).collect();
        let known = NAMES.into_iter().filter(|name| peers.contains(name));
        assert_eq!(known.collect::<Vec<_>>(), peers);
    }

    #[test]
    fn every_store_moves_and_compares() {
        for peer in PEERS.iter().chain([&REFSTONE]) {
            moves_and_compares(*peer, 1);
            moves_and_compares(*peer, 3);
        }
    }
}
