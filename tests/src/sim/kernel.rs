//! What all processes of a machine share: the disk behind its cache, locks, the clock, faults, and
//! the record of every moment at which the machine might have crashed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::dir::Ino;
use super::disk::Disk;
use super::fault::{Fault, Faults, Op};
use super::keep::Policy;
use super::rng::Rng;

/// The number of a process.
pub(super) type Pid = u64;

/// The state of the disk at one moment.
#[derive(Clone, Debug)]
pub struct Moment {
    /// The disk, with what is uncertain about it.
    pub disk: Disk,
    /// What the test had last [noted](super::SimFs::note).
    pub note: usize,
    /// The operation that had just ended, and how many had been before it.
    pub op: Option<Op>,
    /// How many operations the machine had done.
    pub index: u64,
}

/// More operations than any test needs: past it something loops.
const OPS_MAX: u64 = 10_000_000;

#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) disk: Disk,
    pub(super) locks: BTreeMap<Ino, Pid>,
    /// How many descriptors each file has.
    pub(super) open: BTreeMap<Ino, usize>,
    pub(super) faults: Faults,
    pub(super) counts: BTreeMap<Op, usize>,
    pub(super) clock: i64,
    pub(super) ids: u64,
    pub(super) note: usize,
    alive: BTreeSet<Pid>,
    pids: Pid,
    ops: u64,
    /// After so many more operations clean pages are dropped from memory.
    evict_in: Option<u64>,
    moments: Option<Vec<Moment>>,
}

impl Kernel {
    pub(super) fn boot(disk: Disk) -> Kernel {
        Kernel {
            disk,
            locks: BTreeMap::new(),
            open: BTreeMap::new(),
            faults: Faults::default(),
            counts: BTreeMap::new(),
            clock: 1_000_000,
            ids: 0,
            note: 0,
            alive: BTreeSet::new(),
            pids: 0,
            ops: 0,
            evict_in: None,
            moments: None,
        }
    }

    pub(super) fn spawn(&mut self) -> Pid {
        self.pids += 1;
        self.alive.insert(self.pids);
        self.pids
    }

    /// Ends a process: its locks are free, and it can do no more.
    pub(super) fn kill(&mut self, pid: Pid) {
        self.alive.remove(&pid);
        self.locks.retain(|_, holder| *holder != pid);
    }

    pub(super) fn is_alive(&self, pid: Pid) -> bool {
        self.alive.contains(&pid)
    }

    pub(super) fn evict_in(&mut self, ops: u64) {
        self.evict_in = Some(ops);
    }

    pub(super) fn ops(&self) -> u64 {
        self.ops
    }

    pub(super) fn record(&mut self) {
        self.moments = Some(Vec::new());
    }

    pub(super) fn take_moments(&mut self) -> Vec<Moment> {
        self.moments.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Begins an operation: the machine may crash just before it, and it may meet a fault.
    pub(super) fn begin(&mut self, pid: Pid, op: Op) -> io::Result<Option<Fault>> {
        if !self.is_alive(pid) {
            return Err(io::Error::other("this process is dead"));
        }
        self.remember(None);
        self.ops += 1;
        assert!(self.ops < OPS_MAX, "after {} operations: this looks like a hang", self.ops);
        *self.counts.entry(op).or_default() += 1;
        self.drop_clean_pages();
        Ok(self.faults.meet(op))
    }

    fn drop_clean_pages(&mut self) {
        self.evict_in = match self.evict_in {
            Some(0) => {
                self.disk.evict(Policy::Nothing, &mut Rng::new(0));
                None
            }
            Some(ops) => Some(ops - 1),
            None => None,
        };
    }

    /// Remembers this moment, unless nothing happened since the last one.
    pub(super) fn remember(&mut self, op: Option<Op>) {
        let Some(moments) = &mut self.moments else { return };
        let (note, index) = (self.note, self.ops);
        let same = |last: &Moment| last.disk.tick() == self.disk.tick() && last.note == note;
        if !moments.last().is_some_and(same) {
            moments.push(Moment { disk: self.disk.clone(), note, op, index });
        }
    }
}
