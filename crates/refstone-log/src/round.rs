//! One leader's round: take, write, and, in a durable log, sync and publish.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use crate::doubt;
use crate::env::EnvFile;
use crate::frame::{EOS, PREFIX_LEN, WORD_LEN};
use crate::gate::{Outcome, Round};
use crate::log::Inner;
use crate::options::Mode;
use crate::sabotage::{self, Sabotage};
use crate::sync::Ordering;
use crate::walk::Tail;
use crate::writer::{GROUP_MAX, Group};

/// What belongs to the leader alone.
#[derive(Debug)]
pub(crate) struct Leader {
    /// Behind the last durable frame.
    pub(crate) tail: Tail,
    /// That of the last group; `None` once the log has rested since.
    pub(crate) file: Option<Arc<dyn EnvFile>>,
    /// How much of the file a sync has covered, in bytes: what is behind is new space.
    pub(crate) synced_extent: u64,
    /// The first slot whose group was written and not published: only in a buffered log does one
    /// stay so after a round.
    pub(crate) withheld: Option<u64>,
    /// The buffer of the last group, to be filled again.
    pub(crate) spare: Vec<u8>,
}

impl Round for Inner {
    fn lead(&self) -> Outcome {
        let mut leader = self.leader.lock();
        if self.gate.check().is_err() {
            // The log stopped since this thread was elected: nothing more is written.
            return Outcome::Acknowledged(self.gate.acknowledged_seq());
        }
        let spare = std::mem::take(&mut leader.spare);
        let Some(group) = self.take_group(&mut leader, spare) else {
            return Outcome::Acknowledged(leader.tail.seq);
        };
        self.gate.note_taken(group.end.seq);
        if let Err(error) = leader.write(&group) {
            return self.undo(&mut leader, &group, &error);
        }
        self.gate.note_written(group.end.seq);
        let before = leader.advance(group);
        self.live_bytes.store(leader.tail.offset, Ordering::Relaxed);
        match self.mode {
            Mode::Durable => self.settle(&mut leader, before),
            Mode::Buffered => {
                self.tell_durable(leader.tail.seq);
                Outcome::Acknowledged(leader.tail.seq)
            }
        }
    }

    fn staged(&self) -> usize {
        self.writer.lock().staged
    }

    fn wait_staged(&self, wanted: usize, deadline: Instant) {
        let mut writer = self.writer.lock();
        writer.awaited = wanted;
        while writer.has_awaited() == Some(false) {
            if self.gathered.wait_until(&mut writer, deadline).timed_out() {
                break;
            }
        }
        writer.awaited = 0;
    }
}

impl Leader {
    fn file(&self) -> io::Result<&dyn EnvFile> {
        self.file.as_deref().ok_or_else(|| io::Error::other("the log is at rest"))
    }

    /// Where the published frames end.
    pub(crate) fn published_end(&self) -> u64 {
        self.withheld.unwrap_or(self.tail.offset)
    }

    /// Writes the group behind the tail slot, which stays as it is: its length word is still zero,
    /// so outside readers do not see the group.
    ///
    /// If an earlier group is withheld nobody comes past its slot, so this group's word is written
    /// at once, with the group.
    fn write(&self, group: &Group) -> io::Result<()> {
        let skipped = if self.withheld.is_some() { 0 } else { PREFIX_LEN };
        self.file()?.write_all_at(&group.frames[skipped..], self.tail.offset + skipped as u64)
    }

    /// Goes behind a group that was written; returns the tail before it.
    fn advance(&mut self, group: Group) -> Tail {
        self.withheld.get_or_insert(self.tail.offset);
        // A buffer that a very large transaction has grown is not kept.
        if group.frames.capacity() <= 2 * GROUP_MAX {
            self.spare = group.frames;
            self.spare.clear();
        }
        std::mem::replace(&mut self.tail, group.end)
    }

    /// Clears what a failed write left behind the tail, in a file of `len` bytes. What stages during a
    /// swap may reach further than that, and there may be no space for zeros either.
    fn clear(&self, group: &Group, len: u64) -> io::Result<()> {
        let file = self.file()?;
        file.write_all_at(&EOS, self.tail.offset)?;
        let end = PREFIX_LEN as u64;
        file.write_zeros_at(self.tail.offset + end..len.min(group.end.offset + end))
    }

    /// Stores the withheld length word: outside readers see all that was written now.
    ///
    /// Four aligned bytes, so no reader sees half of them.
    fn publish(&mut self, word: [u8; WORD_LEN]) -> io::Result<()> {
        match self.withheld.take() {
            None => Ok(()),
            Some(slot) => self.file()?.write_all_at(&word, slot + (PREFIX_LEN - WORD_LEN) as u64),
        }
    }
}

impl Inner {
    /// Takes all that is staged. What is staged has woken the log, so there is a file to go with it.
    fn take_group(&self, leader: &mut Leader, spare: Vec<u8>) -> Option<Group> {
        let mut writer = self.writer.lock();
        let group = writer.take_group(spare)?;
        if leader.file.is_none() {
            leader.file = writer.live.file().ok().cloned();
        }
        Some(group)
    }

    /// Makes all that was written durable, and publishes it. `before` is the tail behind which all
    /// is of unknown outcome if the sync fails.
    pub(crate) fn settle(&self, leader: &mut Leader, before: Tail) -> Outcome {
        if sabotage::is(Sabotage::PublishBeforeSync) {
            let _ = leader.publish(self.word);
        }
        if let Err(error) = self.sync_file(leader) {
            return poisoned(before, leader.tail, format!("the sync failed: {error}"));
        }
        let published = leader.publish(self.word);
        let durable = match leader.tail.seq {
            _ if sabotage::is(Sabotage::WatermarkAfterSync) => self.writer.lock().tail.seq,
            written => written,
        };
        self.gate.note_durable(durable);
        self.tell_durable(durable);
        match published {
            Ok(()) => Outcome::Acknowledged(durable),
            Err(error) => {
                let cause = format!("publishing the commit failed: {error}");
                poisoned(leader.tail, leader.tail, cause)
            }
        }
    }

    /// Syncs the live file. For who has the leadership.
    ///
    /// Where the sync is the first of new space the mark is there before it, so that one that fails
    /// leaves it, also if nobody lives to see the failure.
    pub(crate) fn sync_file(&self, leader: &mut Leader) -> io::Result<()> {
        let extent = self.writer.lock().extent();
        self.sync_extent(leader, extent)
    }

    /// The same, for who knows where the zeros written ahead end.
    pub(crate) fn sync_extent(&self, leader: &mut Leader, extent: u64) -> io::Result<()> {
        let (env, dir) = (&*self.env, &self.dir);
        let is_new = extent > leader.synced_extent;
        if is_new {
            doubt::mark(env, dir);
        }
        let _writer = sabotage::is(Sabotage::SyncUnderWriter).then(|| self.writer.lock());
        self.gate.sync().inspect_err(|_| doubt::mark(env, dir))?;
        if is_new {
            leader.synced_extent = extent;
            // A mark that stays costs the next open a copy, and no more.
            let _ = doubt::unmark(env, dir);
        }
        Ok(())
    }

    /// Withdraws everything staged and clears what the failed write left, before anybody learns.
    fn undo(&self, leader: &mut Leader, group: &Group, error: &io::Error) -> Outcome {
        let tail = leader.tail;
        let len = leader.file().and_then(EnvFile::len).unwrap_or(u64::MAX);
        let attempted = self.roll_back(tail, len);
        let cause = format!("the write failed: {error}");
        match leader.clear(group, len).and_then(|()| self.sync_file(leader)) {
            Ok(()) => Outcome::RolledBack { to: tail.seq, cause: cause.into() },
            Err(second) => {
                let cause = format!("{cause}; clearing its traces failed too: {second}");
                poisoned(tail, attempted, cause)
            }
        }
    }

    /// Takes sequence, chain and staged state back to `tail`, in a file of `len` bytes; returns where
    /// they stood.
    fn roll_back(&self, tail: Tail, len: u64) -> Tail {
        let mut writer = self.writer.lock();
        let staged = writer.tail;
        self.gate.end_generation();
        writer.roll_back(tail, len);
        self.tell_rolled_back(tail.seq);
        staged
    }
}

fn poisoned(acknowledged: Tail, attempted: Tail, cause: String) -> Outcome {
    Outcome::Poisoned {
        acknowledged: acknowledged.seq,
        attempted: attempted.seq,
        cause: Arc::from(cause),
    }
}
