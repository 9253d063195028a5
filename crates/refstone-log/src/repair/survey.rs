//! What a damaged file still holds.
//!
//! The walk is that of recovery; only where recovery refuses, this goes on at the next frame that
//! is valid by itself and may follow. So it takes all that recovery takes, and what is whole behind
//! the damage.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::RepairError;
use crate::env::EnvFile;
use crate::error::{Damage, DamageKind, OpenError};
use crate::frame::layout::TRAILER_LEN;
use crate::frame::schema::{self, Identity};
use crate::frame::{EOS, FrameError, PREFIX_LEN};
use crate::resync::Finder;
use crate::seq::Seq;
use crate::walk::{Step, Walk};

/// Sequences that are given up where a file was cut off, so that nobody knows how many it had.
///
/// They cost nothing, and one that is given out twice would make two transactions out of one.
pub(super) const CUT_OFF: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct Survey {
    file: Arc<dyn EnvFile>,
    /// Behind the last sound frame; its identity has the gaps, old and new.
    pub(super) walk: Walk,
    finder: Finder,
    /// Where the last frame that the finder found ends: it looks only behind that.
    searched: u64,
    /// Whether the schema is that of another file.
    pub(super) has_other_schema: bool,
    /// The first damage.
    pub(super) damage: Option<OpenError>,
    /// Whether the last damage is that the file ends too early.
    cut_off: bool,
    /// The parts of the file that hold sound frames, ascending.
    pub(super) sound: Vec<Range<u64>>,
    /// The slots of sound frames whose length word is zero.
    pub(super) unpublished: Vec<u64>,
    pub(super) transactions: u64,
    pub(super) lost: Vec<(Seq, Seq)>,
    pub(super) given_up: Option<(Seq, Seq)>,
    pub(super) damaged: Vec<Range<u64>>,
    pub(super) torn: Option<Range<u64>>,
}

impl Survey {
    /// Surveys a file. If its schema is damaged beyond one bit, `identity` takes its place.
    pub(super) fn run(
        file: Arc<dyn EnvFile>,
        path: &Path,
        identity: impl FnOnce() -> Result<Option<Identity>, RepairError>,
    ) -> Result<Survey, RepairError> {
        let Start { walk, damage, has_other_schema } = Start::find(&file, path, identity)?;
        let finder = walk.finder(walk.tail.offset)?;
        let mut survey = Survey {
            file,
            searched: walk.tail.offset,
            walk,
            finder,
            has_other_schema,
            damage,
            cut_off: false,
            sound: Vec::new(),
            unpublished: Vec::new(),
            transactions: 0,
            lost: Vec::new(),
            given_up: None,
            damaged: Vec::new(),
            torn: None,
        };
        survey.go()?;
        Ok(survey)
    }

    fn go(&mut self) -> Result<(), OpenError> {
        loop {
            let goes_on = match self.walk.step() {
                Ok(Step::Frame { offset, word_is_zero, .. }) => {
                    self.keep(offset, word_is_zero);
                    true
                }
                Ok(Step::End { problem }) => match self.unproven_damage(problem)? {
                    Some(damage) => self.find_next(damage)?,
                    None => return Ok(()),
                },
                Err(error) if is_damage(&error) => self.find_next(error)?,
                Err(error) => return Err(error),
            };
            if !goes_on {
                return self.give_up_the_rest();
            }
        }
    }

    /// Takes the frame that the walk has just passed.
    fn keep(&mut self, offset: u64, word_is_zero: bool) {
        self.transactions += 1;
        self.unpublished.extend(word_is_zero.then_some(offset));
        let end = self.walk.tail.offset;
        match self.sound.last_mut() {
            Some(last) if last.end == offset => last.end = end,
            _ => self.sound.push(offset..end),
        }
    }

    /// The damage behind a slot that proves nothing; `None` if the log ends there, torn or clean.
    fn unproven_damage(&mut self, torn: FrameError) -> Result<Option<OpenError>, OpenError> {
        if self.walk.tail_is_clean()? {
            return Ok(None);
        }
        if let Some((witness_offset, durable)) = self.walk.witness(&mut self.finder)? {
            let damage = DamageKind::NotTorn { torn, witness_offset, durable };
            return Ok(Some(self.walk.damage(damage)));
        }
        let start = self.walk.tail.offset;
        self.torn = self.walk.last_nonzero(start)?.map(|end| start..end);
        Ok(None)
    }

    /// Goes to the next frame behind the damage; false if there is none.
    fn find_next(&mut self, damage: OpenError) -> Result<bool, OpenError> {
        self.cut_off = is_cut_off(&damage);
        self.damage.get_or_insert(damage);
        let start = self.walk.tail.offset;
        self.searched = self.searched.max(start);
        while let Some(found) = self.finder.next(self.searched).map_err(self.walk.read_error())? {
            if found.flags != 0 {
                return Err(self.walk.damage(FrameError::Flags { found: found.flags }.into()));
            }
            self.searched = found.range.end;
            let frame = self.walk.frame_that_follows(&found.range)?;
            if let Some(seq) = frame.map(|frame| frame.seq()) {
                self.lost.extend(self.walk.identity.gaps.between(self.walk.tail.seq, seq));
                self.note_damaged(start..found.range.start);
                self.walk.skip_to(found.range.start, seq);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Gives up the sequences that may have stood behind the last sound frame.
    fn give_up_the_rest(&mut self) -> Result<(), OpenError> {
        let len = self.walk.file_len()?;
        let slot = self.walk.tail.offset;
        let mut head = [0; PREFIX_LEN];
        self.file.read_full_at(&mut head, slot).map_err(self.walk.read_error())?;
        let first = self.walk.next_seq();
        let count = self.most_behind_the_end(head, len)?;
        self.note_damaged(slot..len);
        if count == 0 {
            return Ok(());
        }
        let last = Seq::new((first.get() + count - 1).min(Seq::MAX.get() - 1));
        self.walk.identity.gaps.add(first, last);
        let mut unknown = first;
        if self.walk.layout.template.starts_with(&head) {
            // There was one for certain.
            self.lost.push((first, first));
            unknown = first.next();
        }
        self.given_up = (unknown <= last).then_some((unknown, last));
        Ok(())
    }

    /// Gives up what is behind the last sound frame, up to this sequence.
    pub(super) fn give_up_to(&mut self, last: Seq) {
        let next = self.walk.next_seq();
        if next <= last {
            self.walk.identity.gaps.add(next, last);
            let first = self.given_up.map_or(next, |(first, _)| first);
            self.given_up = Some((first, last));
        }
    }

    /// How many transactions may have stood behind the last sound frame, where these bytes begin.
    fn most_behind_the_end(&self, head: [u8; PREFIX_LEN], len: u64) -> Result<u64, OpenError> {
        if self.cut_off {
            return Ok(CUT_OFF);
        }
        let slot = self.walk.tail.offset;
        let wrong_bits = u64::from_le_bytes(head) ^ u64::from_le_bytes(EOS);
        let zeros_follow = self.walk.last_nonzero(slot + PREFIX_LEN as u64)?.is_none();
        if zeros_follow && wrong_bits.count_ones() <= 1 {
            // Only the end-of-stream marker is damaged.
            return Ok(0);
        }
        let least = (self.walk.layout.template.len() + TRAILER_LEN) as u64;
        let count = (len - slot).div_ceil(least).max(1);
        Ok(if self.has_its_end()? { count } else { count.max(CUT_OFF) })
    }

    /// Whether the file ends as every live file does, with the end-of-stream marker and zeros, or with
    /// zeros alone. Otherwise there may have been more of it.
    fn has_its_end(&self) -> Result<bool, OpenError> {
        const SLOT: u64 = PREFIX_LEN as u64;
        let Some(written) = self.walk.last_nonzero(self.walk.tail.offset)? else { return Ok(true) };
        let last = (written - 1) / SLOT * SLOT;
        let mut bytes = [0; PREFIX_LEN];
        let read = self.file.read_full_at(&mut bytes, last).map_err(self.walk.read_error())?;
        Ok(bytes[..read] == EOS)
    }

    fn note_damaged(&mut self, range: Range<u64>) {
        if !range.is_empty() {
            self.damaged.push(range);
        }
    }
}

/// Where the frames start, whatever has become of the schema before them.
struct Start {
    walk: Walk,
    damage: Option<OpenError>,
    has_other_schema: bool,
}

impl Start {
    fn find(
        file: &Arc<dyn EnvFile>,
        path: &Path,
        identity: impl FnOnce() -> Result<Option<Identity>, RepairError>,
    ) -> Result<Start, RepairError> {
        let problem = match Walk::start(file.clone(), path) {
            Ok(walk) => return Ok(Start { walk, damage: None, has_other_schema: false }),
            Err(OpenError::Schema { problem, .. }) => problem,
            Err(error) => return Err(error.into()),
        };
        let path = path.to_owned();
        if !problem.is_damage() {
            return Err(OpenError::Schema { path, problem }.into());
        }
        let (walk, has_other_schema) = match mended(file.clone(), &path)? {
            Some(walk) => (walk, false),
            None => match identity()? {
                Some(identity) => (Walk::behind_schema(file.clone(), &path, identity, 0), true),
                None => return Err(RepairError::Schema { path, problem }),
            },
        };
        let damage = Some(OpenError::Schema { path, problem });
        Ok(Start { walk, damage, has_other_schema })
    }
}

/// A walk behind a schema of which one bit was wrong.
fn mended(file: Arc<dyn EnvFile>, path: &Path) -> Result<Option<Walk>, OpenError> {
    let read_error = |error| OpenError::io(path, "read the schema")(error);
    let len = file.len().map_err(read_error)?;
    let mut head = vec![0; schema::MENDED_MAX];
    let read = file.read_full_at(&mut head, 0).map_err(read_error)?;
    let mended = schema::mend(&head[..read], len);
    Ok(mended.map(|(identity, len)| Walk::behind_schema(file, path, identity, len as u64)))
}

/// Whether bytes are wrong, and not only written by a newer version.
fn is_damage(error: &OpenError) -> bool {
    match error {
        OpenError::Corrupt {
            damage: Damage { problem: DamageKind::Frame(problem), .. }, ..
        } => !problem.is_of_a_newer_version(),
        OpenError::Corrupt { .. } => true,
        _ => false,
    }
}

fn is_cut_off(error: &OpenError) -> bool {
    use DamageKind::{Frame, NoEnd};
    let OpenError::Corrupt { damage, .. } = error else { return false };
    matches!(damage.problem, NoEnd { .. } | Frame(FrameError::Truncated { .. }))
}
