//! Swaps the live file for a shorter one: the only place that does.
//!
//! Rows that leave are sealed durably elsewhere first. The rest is copied verbatim behind a schema
//! that carries the anchor of the chain. The swap is a leader's turn: no group is in flight,
//! appends keep staging. A crash before the rename leaves the old file, after it the new one; both
//! hold every durable transaction that is not sealed.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::create::FIRST_EXTENT;
use crate::draft::Draft;
use crate::env::{Env, EnvFile};
use crate::error::{OpenError, RewriteError};
use crate::files;
use crate::frame::schema::{Anchor, Identity};
use crate::frame::{EOS, Frame, PREFIX_LEN};
use crate::log::Inner;
use crate::options::Mode;
use crate::recover::copy;
use crate::round::Leader;
use crate::sabotage::{self, Sabotage};
use crate::seq::Seq;
use crate::sync::Ordering;
use crate::walk::{Step, Tail, Walk};
use crate::within::{Held, Within};

/// Takes the transactions that leave the live log.
///
/// It may use the log meanwhile, but neither rewrite nor close it, nor wait for who does.
pub trait Sealer {
    /// Makes all of `leaving` durable elsewhere, with the names of its files, before it returns.
    ///
    /// # Errors
    /// Whatever kept it from doing so. Then nothing leaves the log.
    fn seal(
        &mut self,
        leaving: &mut Leaving<'_>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;
}

/// The transactions that leave, oldest first.
#[derive(Debug)]
pub struct Leaving<'a> {
    walk: &'a mut Walk,
    through: Seq,
}

impl Leaving<'_> {
    /// The next transaction; `None` after the last that leaves.
    ///
    /// # Errors
    /// If the log is damaged.
    #[allow(clippy::should_implement_trait)] // A lending iterator: the frame borrows the reader.
    pub fn next(&mut self) -> Result<Option<Frame<'_>>, OpenError> {
        if self.walk.tail.seq >= self.through {
            return Ok(None);
        }
        match self.walk.step_fresh()? {
            Step::Frame { .. } => Ok(Some(self.walk.frame())),
            Step::End { problem } => Err(self.walk.damage(problem.into())),
        }
    }
}

/// What a rewrite did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rewritten {
    /// The newest transaction that left.
    pub sealed_seq: Seq,
    /// Bytes of transactions that left.
    pub bytes_left: u64,
    /// Bytes of transactions that were copied.
    pub bytes_kept: u64,
}

/// What may be left to copy in the leader's turn, in bytes: that takes less than a sync.
const LAST_COPY: u64 = 64 << 10;

/// How often the new file is brought up to date before it. Each time less is left, unless commits come
/// faster than they can be copied.
const CATCH_UPS: usize = 8;

/// The most bytes that are written to it between two syncs. The sync of a commit, which goes to the
/// same disk, waits for what is written there before it.
const BACKLOG: u64 = 1 << 20;

/// The new file while it is being made; nobody else knows of it.
#[derive(Debug)]
pub(crate) struct Successor<'e> {
    pub(crate) draft: Draft<'e>,
    /// Where its copied frames end, in the old file and in the new one.
    old_end: u64,
    new_end: u64,
    /// Where the zeros end that were written and synced ahead of them, if any were.
    reserved: u64,
}

impl Inner {
    pub(crate) fn rewrite(
        &self,
        through: Seq,
        sealer: &mut dyn Sealer,
    ) -> Result<Option<Rewritten>, RewriteError> {
        // Whoever closes the log meanwhile gives up its lock only after this.
        let _one_at_a_time = self.rewriting.lock();
        self.check_open()?;
        self.gate.check()?;
        self.sync()?;
        // It stays awake: whoever puts it to rest looks whether it is being rewritten.
        let file = self.wake(&mut self.writer.lock())?;
        let durable = self.gate.durable_seq();
        let path = files::live(&self.dir);
        let mut walk = Walk::start(file.clone(), &path)?;
        // A sequence that a repair lost has no frame to stop at.
        let through = walk.identity.gaps.at_or_before(through.min(durable));
        if through <= walk.identity.anchor.seq {
            return Ok(None);
        }
        let start = walk.tail.offset;
        let late = sabotage::is(Sabotage::SealAfterSwap);
        let first: &mut dyn Sealer = if late { &mut sabotage::Nobody } else { &mut *sealer };
        let within = Within::enter(self, Held::Rewrite);
        seal(&mut walk, through, first)?;
        drop(within);
        let kept_from = walk.tail;
        let identity = Identity { anchor: anchor(kept_from), ..walk.identity.clone() };
        let mut successor = Successor::start(&*self.env, &self.dir, &identity, kept_from.offset)?;
        self.catch_up(&mut successor, &*file)?;
        self.swap(&mut successor, &identity, &*file)?;
        if late {
            seal(&mut Walk::start(file.clone(), &path)?, through, sealer)?;
        }
        drop(walk);
        if Arc::strong_count(&file) == 1 {
            file.give_back();
        }
        Ok(Some(Rewritten {
            sealed_seq: through,
            bytes_left: kept_from.offset - start,
            bytes_kept: successor.old_end - kept_from.offset,
        }))
    }

    /// Copies what is published and syncs it, until little is left: sealing takes seconds, and as many
    /// megabytes of commits would else be copied and synced while all others wait. So would the zeros
    /// that are to come behind them.
    fn catch_up(&self, successor: &mut Successor<'_>, file: &dyn EnvFile) -> Result<(), OpenError> {
        for _ in 0..CATCH_UPS {
            let end = self.leader.lock().published_end();
            successor.follow(file, end)?;
            let left = self.live_bytes.load(Ordering::Relaxed).saturating_sub(end);
            // What a buffered log has is published in that turn.
            if left <= LAST_COPY || self.mode == Mode::Buffered {
                break;
            }
        }
        let extent = self.writer.lock().extent();
        successor.reserve(extent)
    }

    /// The leader's turn: copies what became durable meanwhile, renames, and rebinds.
    fn swap(
        &self,
        successor: &mut Successor<'_>,
        identity: &Identity,
        old: &dyn EnvFile,
    ) -> Result<(), RewriteError> {
        let hold = self.gate.hold();
        self.gate.check()?;
        let mut leader = self.leader.lock();
        self.settle_withheld(&mut leader)?;
        successor.catch_up(old, leader.tail.offset)?;
        let room = self.writer.lock().room_behind(leader.tail);
        let extent = successor.finish(room)?;
        let Draft { file, path, .. } = &successor.draft;
        let duplicate =
            file.try_clone().map_err(OpenError::io(path, "duplicate the descriptor of"))?;
        let guard = self.gate.stop_on_panic("the thread that swapped the live log panicked");
        let synced = self.rename(&mut successor.draft, identity).map(|()| self.sync_swap());
        guard.dismiss();
        if let Err(error) = synced? {
            // The new file has the name, and nobody knows for how long.
            let cause = format!("syncing the directory after a rewrite failed: {error}");
            self.gate.stop(&cause, leader.tail.seq);
            return Err(OpenError::io(&self.dir, "sync the directory")(error).into());
        }
        self.rebind(&mut leader, successor, extent, duplicate);
        drop(hold);
        Ok(())
    }

    fn sync_swap(&self) -> io::Result<()> {
        if sabotage::is(Sabotage::SkipSwapSync) {
            return Ok(());
        }
        self.env.sync_dir(&self.dir)
    }

    /// Gives the new file the live name. If the rename fails the old log serves on, unless the
    /// name has moved all the same.
    fn rename(&self, draft: &mut Draft<'_>, identity: &Identity) -> Result<(), RewriteError> {
        let live = files::live(&self.dir);
        let Err(error) = draft.rename(&live) else { return Ok(()) };
        let now = self
            .env
            .open_read(&live)
            .map_err(OpenError::io(&live, "open"))
            .and_then(|file| Walk::start(Arc::from(file), &live).map(|walk| walk.identity));
        match now {
            Ok(now) if now != *identity => {}
            _ => self.gate.stop("a failed rename left the live log in doubt", Seq::ZERO),
        }
        Err(OpenError::io(&live, "give the rewritten log its name")(error).into())
    }

    /// Moves leader, writer and gate to the new file. What is staged keeps its sequences and its
    /// chain; only its offsets change.
    fn rebind(
        &self,
        leader: &mut Leader,
        successor: &Successor<'_>,
        extent: u64,
        duplicate: Box<dyn EnvFile>,
    ) {
        if sabotage::is(Sabotage::SkipRebind) {
            return;
        }
        let mut writer = self.writer.lock();
        self.gate.rebind(duplicate);
        leader.file = Some(successor.draft.file.clone());
        leader.tail.offset = successor.new_end;
        leader.synced_extent = extent;
        writer.rebind(successor.draft.file.clone(), successor.old_end - successor.new_end, extent);
        self.live_bytes.store(successor.new_end, Ordering::Relaxed);
    }
}

/// Hands everything up to `through` to the sealer, and insists that it took all of it.
fn seal(walk: &mut Walk, through: Seq, sealer: &mut dyn Sealer) -> Result<(), RewriteError> {
    let mut leaving = Leaving { walk, through };
    sealer.seal(&mut leaving).map_err(RewriteError::Seal)?;
    match walk.tail.seq {
        seq if seq >= through => Ok(()),
        seq => Err(RewriteError::Seal(format!("the sealer stopped at {seq} of {through}").into())),
    }
}

fn anchor(tail: Tail) -> Anchor {
    Anchor { seq: tail.seq, crc: tail.crc, at: tail.at }
}

impl<'e> Successor<'e> {
    pub(crate) fn start(
        env: &'e dyn Env,
        dir: &Path,
        identity: &Identity,
        old_start: u64,
    ) -> Result<Successor<'e>, OpenError> {
        let draft = Draft::start(env, &files::live_temporary(dir))?;
        let schema = identity.encode();
        draft.write(&schema, 0)?;
        let new_end = schema.len() as u64;
        Ok(Successor { draft, old_end: old_start, new_end, reserved: 0 })
    }

    /// Leaves out the old file's bytes up to `old_end`; returns where the next ones come in the new.
    pub(crate) fn skip_to(&mut self, old_end: u64) -> u64 {
        self.old_end = old_end;
        self.new_end
    }

    /// Copies the old file's frames up to `end`, as they are.
    pub(crate) fn catch_up(&mut self, old: &dyn EnvFile, end: u64) -> Result<(), OpenError> {
        let range: Range<u64> = self.old_end..end;
        let len = end - self.old_end;
        copy(old, range, &*self.draft.file, self.new_end)
            .map_err(OpenError::io(&self.draft.path, "copy transactions to"))?;
        self.old_end = end;
        self.new_end += len;
        Ok(())
    }

    /// The same, synced as it goes.
    fn follow(&mut self, old: &dyn EnvFile, end: u64) -> Result<(), OpenError> {
        while self.old_end < end {
            self.catch_up(old, end.min(self.old_end + BACKLOG))?;
            self.draft.sync()?;
        }
        Ok(())
    }

    /// Writes the zeros ahead that the old file has up to `old_extent`, synced as it goes.
    fn reserve(&mut self, old_extent: u64) -> Result<(), OpenError> {
        let mut zeros = self.new_end..self.extent(old_extent - self.old_end);
        while !zeros.is_empty() {
            let end = zeros.end.min(zeros.start + BACKLOG);
            self.draft.write_zeros(zeros.start..end)?;
            self.draft.sync()?;
            zeros.start = end;
        }
        self.reserved = zeros.end;
        Ok(())
    }

    /// Where the file ends with so much room behind the copied frames.
    fn extent(&self, room: u64) -> u64 {
        self.new_end + room.max(FIRST_EXTENT).max(PREFIX_LEN as u64)
    }

    /// Ends the file with the marker and as much room as the old one had; returns its extent.
    pub(crate) fn finish(&self, room: u64) -> Result<u64, OpenError> {
        let after = self.new_end + PREFIX_LEN as u64;
        let extent = self.extent(room).max(self.reserved);
        self.draft.write(&EOS, self.new_end)?;
        self.draft.write_zeros(after.max(self.reserved)..extent)?;
        self.draft.sync()?;
        Ok(extent)
    }
}
