//! Opens a log after anything: finds its end, takes off what is torn, proves what it accepts.
//!
//! The page cache may hold what the disk does not: after a failed sync, lost bytes are read back
//! from it, and the next sync reports success. So frames that were not proven are *written again*
//! with the same bytes before the sync, and published only after it. Each step may be cut short
//! and repeated: until the last one, the file says the same to a next recovery.

use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::doubt;
use crate::draft::Draft;
use crate::env::{Env, EnvFile};
use crate::error::{DamageKind, OpenError};
use crate::files::{self, Entry};
use crate::frame::schema::Identity;
use crate::frame::{EOS, Frame, FrameError, Layout, PREFIX_LEN, WORD_LEN};
use crate::kind::Kind;
use crate::sabotage::{self, Sabotage};
use crate::seq::Seq;
use crate::walk::{Step, Tail, Walk};
use crate::writer::GROUP_MAX;

/// What opening a log found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// Transactions in the live log.
    pub transactions: u64,
    /// Those of them that were not proven durable, and are now.
    pub proved: u64,
    /// The torn bytes that were taken off the end, if any.
    pub torn: Option<Torn>,
    /// The newest sequence.
    pub last_seq: Seq,
}

/// Bytes taken off the end of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    /// Where they stood in the live log, in bytes.
    pub range: Range<u64>,
    /// Where they are kept.
    pub kept: PathBuf,
    /// Why the first of them are no transaction.
    pub problem: FrameError,
}

/// A log that is ready to be written.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) file: Arc<dyn EnvFile>,
    pub(crate) identity: Identity,
    pub(crate) layout: Layout,
    pub(crate) tail: Tail,
    /// The length of the file: zeros stand from the tail to there.
    pub(crate) extent: u64,
    pub(crate) report: Recovery,
}

/// Recovers the log; the caller holds the lock.
pub(crate) fn recover(
    env: &dyn Env,
    dir: &Path,
    replay: &mut dyn FnMut(&Frame<'_>),
) -> Result<Recovered, OpenError> {
    let path = files::live(dir);
    let file = open_live(env, dir)?;
    let mut scan = Scan::run(file, &path, replay)?;
    let torn_end = scan.torn_end()?;
    if let Some(end) = torn_end {
        scan.refuse_if_not_torn()?;
        scan.keep_torn(env, dir, end)?;
    }
    match doubt::is_marked(env, dir)? && !sabotage::is(Sabotage::TrustCache) {
        true => scan.renew(env, dir)?,
        false => scan.prove(env, dir)?,
    }
    let Scan { file, walk, report, .. } = scan;
    // What a repair gave up behind the newest transaction may have been given out once.
    let tail = Tail { seq: Seq::new(walk.next_seq().get() - 1), ..walk.tail };
    let (identity, layout) = (walk.identity, walk.layout);
    let extent = file.len().map_err(OpenError::io(&path, "measure"))?;
    Ok(Recovered { file, identity, layout, tail, extent, report })
}

/// Opens the live file, or says why there is none.
fn open_live(env: &dyn Env, dir: &Path) -> Result<Arc<dyn EnvFile>, OpenError> {
    let path = files::live(dir);
    let file = env.open_write(&path).map_err(|error| explain_open(env, dir, error))?;
    refuse_empty(env, dir, &*file)?;
    Ok(Arc::from(file))
}

/// Turns a failure to open the live file into what it means for this directory.
pub(crate) fn explain_open(env: &dyn Env, dir: &Path, error: std::io::Error) -> OpenError {
    let path = files::live(dir);
    if error.kind() != std::io::ErrorKind::NotFound {
        return OpenError::io(&path, "open")(error);
    }
    match witness(env, dir) {
        Some(witness) => OpenError::MissingLive { path, state: "missing", witness },
        None if has(env, dir, &files::secrets(dir)) => {
            let (expected, found) = (Kind::Refs.name(), Kind::Secrets.name());
            OpenError::Kind { path: files::secrets(dir), expected, found }
        }
        None if has(env, dir, &files::lock(dir)) => OpenError::OnlyLock { dir: dir.to_owned() },
        None => OpenError::NotFound { dir: dir.to_owned() },
    }
}

pub(crate) fn has(env: &dyn Env, dir: &Path, path: &Path) -> bool {
    env.list(dir).is_ok_and(|names| names.iter().any(|name| path.ends_with(name)))
}

/// An empty live file is never one that was created: creation renames a whole file.
pub(crate) fn refuse_empty(env: &dyn Env, dir: &Path, file: &dyn EnvFile) -> Result<(), OpenError> {
    let path = files::live(dir);
    if file.len().map_err(OpenError::io(&path, "measure"))? > 0 {
        return Ok(());
    }
    // The name itself is a witness: a log gets it when it is whole, and never shrinks.
    let witness = witness(env, dir).unwrap_or_else(|| "its name".to_owned());
    Err(OpenError::MissingLive { path, state: "empty", witness })
}

fn witness(env: &dyn Env, dir: &Path) -> Option<String> {
    let names = env.list(dir).ok()?;
    let witness = names.iter().find(|name| Entry::of(name) == Entry::Witness)?;
    Some(witness.to_string_lossy().into_owned())
}

/// How far back frames are written again for the sake of their length words.
const DOUBT_MAX: u64 = 2 * GROUP_MAX as u64;

/// Frames of which the disk may lack something, as the walk comes to them.
///
/// All unproven ones are. And of the proven ones, the last group: its length word was stored after
/// its own sync, so it waits for the next one, and if that failed the word is in the cache alone.
/// The frames of the last group are among those that are newer than what the newest of them knew
/// to be durable.
#[derive(Debug, Default)]
struct Doubtful {
    /// Behind the frame before the first unproven one.
    unproven: Option<Tail>,
    /// Behind the frames before those that may belong to the last group.
    last_group: VecDeque<Tail>,
}

impl Doubtful {
    fn see(&mut self, before: Tail, frame: &Frame<'_>, proven: bool) {
        if !proven {
            self.unproven.get_or_insert(before);
            return;
        }
        self.last_group.push_back(before);
        let (durable, offset) = (frame.durable_seq(), before.offset);
        let settled = |tail: &Tail| tail.seq < durable || tail.offset + DOUBT_MAX < offset;
        while self.last_group.front().is_some_and(settled) {
            self.last_group.pop_front();
        }
    }

    fn start(&self) -> Option<Tail> {
        self.last_group.front().copied().or(self.unproven)
    }
}

/// What a walk over the whole file found.
struct Scan<'p> {
    file: Arc<dyn EnvFile>,
    path: &'p Path,
    walk: Walk,
    /// Behind which frame on all must be written again: the cache alone may have it.
    doubtful: Doubtful,
    /// The slots whose length word is zero though their frame is accepted.
    unpublished: Vec<u64>,
    problem: FrameError,
    report: Recovery,
}

impl<'p> Scan<'p> {
    fn run(
        file: Arc<dyn EnvFile>,
        path: &'p Path,
        replay: &mut dyn FnMut(&Frame<'_>),
    ) -> Result<Scan<'p>, OpenError> {
        let mut walk = Walk::start(file.clone(), path)?;
        let (mut doubtful, mut unpublished) = (Doubtful::default(), Vec::new());
        let mut report = Recovery { last_seq: walk.tail.seq, ..Recovery::default() };
        let problem = loop {
            let before = walk.tail;
            match walk.step()? {
                Step::End { problem } => break problem,
                Step::Frame { proven, word_is_zero, offset } => {
                    doubtful.see(before, &walk.frame(), proven);
                    report.proved += u64::from(!proven);
                    unpublished.extend(word_is_zero.then_some(offset));
                    report.transactions += 1;
                    report.last_seq = walk.tail.seq;
                    replay(&walk.frame());
                }
            }
        };
        Ok(Scan { file, path, walk, doubtful, unpublished, problem, report })
    }

    /// The end of the torn bytes; `None` if the tail is clean.
    fn torn_end(&mut self) -> Result<Option<u64>, OpenError> {
        if self.walk.tail_is_clean()? {
            return Ok(None);
        }
        // Where only the marker is missing there is nothing to keep: it is written again anyway.
        self.walk.last_nonzero(self.walk.tail.offset)
    }

    /// A torn frame cannot be followed by one that was written when it was durable.
    fn refuse_if_not_torn(&self) -> Result<(), OpenError> {
        match self.walk.later_witness()? {
            Some((witness_offset, durable)) if !sabotage::is(Sabotage::IgnoreWitness) => {
                let torn = self.problem.clone();
                Err(self.walk.damage(DamageKind::NotTorn { torn, witness_offset, durable }))
            }
            _ => Ok(()),
        }
    }

    /// Saves the torn bytes under a new name, durable, before anything is overwritten.
    fn keep_torn(&mut self, env: &dyn Env, dir: &Path, end: u64) -> Result<(), OpenError> {
        if sabotage::is(Sabotage::DropTornBytes) {
            return Ok(());
        }
        let start = self.walk.tail.offset;
        let kept = new_cut(env, dir)?;
        let saving = || OpenError::io(&kept, "save torn bytes in");
        let mut draft = Draft::create(env, &kept).map_err(saving())?;
        copy(&*self.file, start..end, &*draft.file, 0)
            .and_then(|()| draft.file.sync_data())
            .map_err(saving())?;
        env.sync_dir(dir).map_err(OpenError::io(dir, "sync the directory"))?;
        draft.keep();
        self.report.torn = Some(Torn { range: start..end, kept, problem: self.problem.clone() });
        Ok(())
    }

    /// Clears what is behind the accepted frames, writes the unproven ones again, syncs, and then
    /// publishes.
    ///
    /// What is behind is cleared also where it reads as zeros: those may be in the cache alone,
    /// over the first half of a group whose failed write could not be taken back. If they were
    /// believed, a later power cut would bring back what this recovery has denied.
    fn prove(&mut self, env: &dyn Env, dir: &Path) -> Result<(), OpenError> {
        let slot = self.walk.tail.offset;
        let write = |result: std::io::Result<()>| result.map_err(OpenError::io(self.path, "write"));
        let after = slot + PREFIX_LEN as u64;
        write(self.file.write_all_at(&EOS, slot))?;
        write(self.file.write_zeros_at(after..self.cleared_end(after)?))?;
        if !sabotage::is(Sabotage::TrustCache) {
            self.write_again()?;
        }
        if sabotage::is(Sabotage::PublishBeforeSync) {
            self.publish(env, dir)?;
        }
        self.sync(env, dir)?;
        self.publish(env, dir)
    }

    fn sync(&self, env: &dyn Env, dir: &Path) -> Result<(), OpenError> {
        let synced = self.file.sync_data().inspect_err(|_| doubt::mark(env, dir));
        synced.map_err(OpenError::io(self.path, "sync"))
    }

    /// Goes on in a new file, since a sync of this one has failed.
    fn renew(&mut self, env: &dyn Env, dir: &Path) -> Result<(), OpenError> {
        self.file = doubt::renew(env, dir, &*self.file, &mut self.walk, &self.unpublished)?;
        doubt::unmark(env, dir)?;
        self.publish(env, dir)
    }

    /// Writes the doubtful frames again.
    fn write_again(&mut self) -> Result<(), OpenError> {
        let Some(start) = self.doubtful.start() else { return Ok(()) };
        let end = self.walk.tail.seq;
        self.walk.go_back(start);
        write_verified(&mut self.walk, end, &self.unpublished, &*self.file, self.path)
    }

    /// Where the bytes that are cleared end: behind all that is not zero, and behind all that one
    /// group may have left (of a larger one, enough that nothing of it can be valid).
    fn cleared_end(&self, after: u64) -> Result<u64, OpenError> {
        let len = self.file.len().map_err(OpenError::io(self.path, "measure"))?;
        let torn = self.walk.last_nonzero(after)?.unwrap_or(after);
        Ok(torn.max(len.min(after + GROUP_MAX as u64)))
    }

    fn publish(&self, env: &dyn Env, dir: &Path) -> Result<(), OpenError> {
        if self.unpublished.is_empty() {
            return Ok(());
        }
        let word = self.walk.layout.word();
        for slot in &self.unpublished {
            let offset = slot + (PREFIX_LEN - WORD_LEN) as u64;
            let written = self.file.write_all_at(&word, offset);
            written.map_err(OpenError::io(self.path, "write"))?;
        }
        // A commit's word waits for the next sync, and recovery writes the last group again for it.
        // These may be the words of more groups than one.
        self.sync(env, dir)
    }
}

/// Verifies the frames up to `end` once more, and writes each where it stands, in the same file or another.
/// Those at the slots in `unpublished` stay so.
///
/// The bytes that were verified are written: between two readings the kernel may drop the pages that a
/// failed sync left in its cache alone.
pub(crate) fn write_verified(
    walk: &mut Walk,
    end: Seq,
    unpublished: &[u64],
    file: &dyn EnvFile,
    path: &Path,
) -> Result<(), OpenError> {
    let word = walk.layout.word();
    while walk.tail.seq < end {
        let slot = walk.tail.offset;
        if let Step::End { problem } = walk.step()? {
            return Err(walk.damage(problem.into()));
        }
        let mut bytes = walk.frame().as_bytes().to_vec();
        // The word of a proven frame may be among what the kernel has dropped.
        if !unpublished.contains(&slot) {
            bytes[PREFIX_LEN - WORD_LEN..PREFIX_LEN].copy_from_slice(&word);
        }
        file.write_all_at(&bytes, slot).map_err(OpenError::io(path, "write"))?;
    }
    Ok(())
}

/// The first name for torn bytes that is free.
fn new_cut(env: &dyn Env, dir: &Path) -> Result<PathBuf, OpenError> {
    let names = env.list(dir).map_err(OpenError::io(dir, "list the directory"))?;
    let used: HashSet<u32> = names.iter().filter_map(|name| files::parse_cut(name)).collect();
    let free = (1..=u32::MAX).find(|number| !used.contains(number)).unwrap_or(u32::MAX);
    Ok(files::cut(dir, free))
}

/// Copies a range to an offset of a file; of the same file too, to write the same bytes again.
pub(crate) fn copy(
    source: &dyn EnvFile,
    range: Range<u64>,
    target: &dyn EnvFile,
    to: u64,
) -> std::io::Result<()> {
    const CHUNK: u64 = 256 << 10;
    let mut chunk = Vec::new();
    let mut offset = range.start;
    while offset < range.end {
        let len = CHUNK.min(range.end - offset);
        chunk.resize(usize::try_from(len).map_err(std::io::Error::other)?, 0);
        let read = source.read_full_at(&mut chunk, offset)?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        target.write_all_at(&chunk[..read], to + (offset - range.start))?;
        offset += read as u64;
    }
    Ok(())
}
