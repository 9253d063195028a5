//! One leader's round: take, write, sync, publish.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use crate::env::EnvFile;
use crate::frame::{PREFIX_LEN, WORD_LEN};
use crate::gate::{Outcome, Round};
use crate::log::Inner;
use crate::park::Parker;
use crate::walk::Tail;
use crate::writer::Group;

/// What belongs to the leader alone.
#[derive(Debug)]
pub(crate) struct Leader {
    /// Behind the last durable frame.
    pub(crate) tail: Tail,
    pub(crate) file: Arc<dyn EnvFile>,
    /// The buffer of the last group, to be filled again.
    pub(crate) spare: Vec<u8>,
}

impl Round for Inner {
    fn lead(&self) -> Outcome {
        let mut leader = self.leader.lock();
        let spare = std::mem::take(&mut leader.spare);
        let Some(group) = self.writer.lock().take_group(spare) else {
            return Outcome::Durable(leader.tail.seq);
        };
        if let Err(error) = leader.write(&group) {
            return self.undo(&leader, &group, &error);
        }
        self.gate.note_written(group.end.seq);
        if let Err(error) = self.gate.sync() {
            return poisoned(leader.tail, group.end, format!("the sync failed: {error}"));
        }
        let published = leader.publish(self.word);
        leader.tail = group.end;
        leader.spare = group.frames;
        leader.spare.clear();
        self.observer.durable(group.end.seq);
        match published {
            Ok(()) => Outcome::Durable(group.end.seq),
            Err(error) => {
                poisoned(group.end, group.end, format!("publishing the commit failed: {error}"))
            }
        }
    }

    fn staged(&self) -> usize {
        self.writer.lock().staged
    }

    fn wait_staged(&self, wanted: usize, deadline: Instant) -> bool {
        let parker = Parker::of_this_thread();
        {
            let mut writer = self.writer.lock();
            if writer.staged >= wanted {
                return true;
            }
            writer.alarm = Some((wanted, parker.clone()));
        }
        parker.park_until(deadline);
        let mut writer = self.writer.lock();
        writer.alarm = None;
        writer.staged >= wanted
    }
}

impl Leader {
    /// Writes the group behind the tail slot, which stays as it is: its length word is still zero,
    /// so outside readers do not see the group.
    fn write(&self, group: &Group) -> io::Result<()> {
        let behind_slot = self.tail.offset + PREFIX_LEN as u64;
        self.file.write_all_at(&group.frames[PREFIX_LEN..], behind_slot)
    }

    /// Stores the length word of the group's first frame: outside readers see the group now.
    ///
    /// Four aligned bytes, so no reader sees half of them.
    fn publish(&self, word: [u8; WORD_LEN]) -> io::Result<()> {
        let slot_word = self.tail.offset + (PREFIX_LEN - WORD_LEN) as u64;
        self.file.write_all_at(&word, slot_word)
    }
}

impl Inner {
    /// Withdraws everything staged and clears what the failed write left, before anybody learns.
    fn undo(&self, leader: &Leader, group: &Group, error: &io::Error) -> Outcome {
        let tail = leader.tail;
        let attempted = self.roll_back(tail);
        let cause = format!("the write failed: {error}");
        let start = tail.offset + PREFIX_LEN as u64;
        let cleared = leader
            .file
            .write_zeros_at(start..group.end.offset + PREFIX_LEN as u64)
            .and_then(|()| self.gate.sync());
        match cleared {
            Ok(()) => Outcome::RolledBack { to: tail.seq, cause: cause.into() },
            Err(second) => {
                let cause = format!("{cause}; clearing its traces failed too: {second}");
                poisoned(tail, attempted, cause)
            }
        }
    }

    /// Takes sequence, chain and staged state back to `tail`; returns where they stood.
    fn roll_back(&self, tail: Tail) -> Tail {
        let mut writer = self.writer.lock();
        let staged = writer.tail;
        self.gate.end_generation();
        writer.roll_back(tail);
        self.observer.rolled_back(tail.seq);
        staged
    }
}

fn poisoned(durable: Tail, attempted: Tail, cause: String) -> Outcome {
    Outcome::Poisoned { durable: durable.seq, attempted: attempted.seq, cause: Arc::from(cause) }
}
