//! Walks the frames of a file and tells proven, unproven and torn apart (`docs/format.md`,
//! "Reading").
//!
//! A length word that is not zero was stored after its group was synced. So a frame reached
//! through such words alone is *proven*: if it is invalid, that is damage. Behind the first zero
//! word nothing is proven: a valid frame counts, an invalid one is the torn end.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::env::EnvFile;
use crate::error::{Damage, DamageKind, OpenError};
use crate::frame::decode::Expected;
use crate::frame::layout::MARKER;
use crate::frame::schema::{Identity, message_len};
use crate::frame::{EOS, Frame, FrameError, Layout, PREFIX_LEN, WORD_LEN};
use crate::kind::Kind;
use crate::resync::Finder;
use crate::sabotage::{self, Sabotage};
use crate::seq::{Seq, Timestamp};

/// Where a log stands: behind its last accepted frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    /// Where the tail slot starts, in bytes.
    pub(crate) offset: u64,
    pub(crate) seq: Seq,
    pub(crate) crc: u32,
    pub(crate) at: Timestamp,
}

/// What stands at the walker's place.
#[derive(Debug)]
pub(crate) enum Step {
    /// A valid frame, which [`Walk::frame`] gives; the tail has moved behind it.
    Frame { proven: bool, word_is_zero: bool, offset: u64 },
    /// No valid frame, and none is owed: the end of the log, and why the bytes there are no frame.
    End { problem: FrameError },
}

/// The schema and the frames of one open file.
#[derive(Debug)]
pub(crate) struct Walk {
    file: Arc<dyn EnvFile>,
    path: PathBuf,
    pub(crate) identity: Identity,
    pub(crate) layout: Layout,
    /// Where the first frame starts.
    start: Tail,
    pub(crate) tail: Tail,
    proven: bool,
    window: Window,
    frame: (usize, usize),
}

impl Walk {
    /// Reads and checks the schema message of a ref log.
    pub(crate) fn start(file: Arc<dyn EnvFile>, path: &Path) -> Result<Walk, OpenError> {
        Walk::start_in(Kind::Refs, file, path)
    }

    /// Reads and checks the schema message of a log of this kind.
    pub(crate) fn start_in(
        kind: Kind,
        file: Arc<dyn EnvFile>,
        path: &Path,
    ) -> Result<Walk, OpenError> {
        let (identity, offset) = read_schema(&*file, path)?;
        if identity.kind != kind {
            let (expected, found) = (kind.name(), identity.kind.name());
            return Err(OpenError::Kind { path: path.to_owned(), expected, found });
        }
        Ok(Walk::behind_schema(file, path, identity, offset))
    }

    /// Starts at the place where the first frame is to be, in a log of this identity.
    pub(crate) fn behind_schema(
        file: Arc<dyn EnvFile>,
        path: &Path,
        identity: Identity,
        offset: u64,
    ) -> Walk {
        let layout = Layout::new(identity.columns(), identity.log_id);
        let anchor = identity.anchor;
        let tail = Tail { offset, seq: anchor.seq, crc: anchor.crc, at: anchor.at };
        Walk {
            file,
            path: path.to_owned(),
            identity,
            layout,
            start: tail,
            tail,
            proven: true,
            window: Window::default(),
            frame: (0, 0),
        }
    }

    /// The frame that the last step found.
    pub(crate) fn frame(&self) -> Frame<'_> {
        let (start, end) = self.frame;
        self.layout.trusted(&self.window.bytes[start..end])
    }

    /// Goes to the next frame, reading the file anew from there.
    pub(crate) fn step(&mut self) -> Result<Step, OpenError> {
        let offset = self.tail.offset;
        let head = self.read(offset, PREFIX_LEN)?.to_vec();
        let word_is_zero = head.len() == PREFIX_LEN && head[PREFIX_LEN - WORD_LEN..] == [0; 4];
        if self.proven {
            if head.len() < PREFIX_LEN {
                return Err(self.damage(DamageKind::NoEnd { found: head.len() as u64 }));
            }
            self.proven = !(word_is_zero && head[..4] == MARKER);
        }
        match self.try_frame(offset) {
            Ok(len) => {
                self.advance(len);
                Ok(Step::Frame { proven: self.proven, word_is_zero, offset })
            }
            Err(Failure::Io(error)) => Err(OpenError::io(&self.path, "read the log")(error)),
            Err(Failure::Frame(problem)) if self.refuses(&problem) => {
                Err(self.damage(problem.into()))
            }
            Err(Failure::Frame(problem)) => Ok(Step::End { problem }),
        }
    }

    /// Whether what is no frame here is damage, and not the end of the log.
    fn refuses(&self, problem: &FrameError) -> bool {
        let proven = self.proven && !sabotage::is(Sabotage::CutInsteadOfRefusing);
        proven || problem.is_of_a_newer_version()
    }

    /// Whether the next frame is published: its length word is not zero.
    pub(crate) fn next_is_published(&mut self) -> Result<bool, OpenError> {
        let head = self.read(self.tail.offset, PREFIX_LEN)?;
        Ok(head != EOS)
    }

    /// Whether the tail is as a closed log leaves it: the end-of-stream marker, then only zeros.
    pub(crate) fn tail_is_clean(&mut self) -> Result<bool, OpenError> {
        let offset = self.tail.offset;
        let marker = self.read(offset, PREFIX_LEN)? == EOS;
        Ok(marker && self.last_nonzero(offset + PREFIX_LEN as u64)?.is_none())
    }

    /// The offset behind the last byte at or after `from` that is not zero.
    pub(crate) fn last_nonzero(&self, from: u64) -> Result<Option<u64>, OpenError> {
        const CHUNK: usize = 256 << 10;
        let mut chunk = vec![0; CHUNK];
        let (mut offset, mut last) = (from, None);
        loop {
            let read = self
                .file
                .read_full_at(&mut chunk, offset)
                .map_err(OpenError::io(&self.path, "read the log's tail"))?;
            if let Some(index) = chunk[..read].iter().rposition(|&byte| byte != 0) {
                last = Some(offset + index as u64 + 1);
            }
            if read < CHUNK {
                return Ok(last);
            }
            offset += CHUNK as u64;
        }
    }

    /// A later frame of this log that was written when the frame missing here was durable.
    ///
    /// Looks at every aligned place; only torn tails pay for this.
    pub(crate) fn later_witness(&self) -> Result<Option<(u64, Seq)>, OpenError> {
        self.witness(&mut self.finder(self.tail.offset)?)
    }

    /// The same, with a finder that has learned something of the file already.
    pub(crate) fn witness(&self, finder: &mut Finder) -> Result<Option<(u64, Seq)>, OpenError> {
        let missing = self.next_seq();
        let mut from = self.tail.offset + PREFIX_LEN as u64;
        while let Some(found) = finder.next(from).map_err(self.read_error())? {
            if found.durable_seq >= missing {
                return Ok(Some((found.range.start, found.durable_seq)));
            }
            from = found.range.end;
        }
        Ok(None)
    }

    /// What a failure to read the file means.
    pub(crate) fn read_error(&self) -> impl FnOnce(io::Error) -> OpenError {
        OpenError::io(&self.path, "read the log")
    }

    /// The length of the file in bytes.
    pub(crate) fn file_len(&self) -> Result<u64, OpenError> {
        self.file.len().map_err(OpenError::io(&self.path, "measure"))
    }

    /// Finds the frames of this log that stand at or after `base`, wherever they are.
    pub(crate) fn finder(&self, base: u64) -> Result<Finder, OpenError> {
        Finder::new(self.file.clone(), self.layout.clone(), base)
            .map_err(OpenError::io(&self.path, "measure"))
    }

    /// The frame in a range of the file, if it is valid by itself and may stand behind what was
    /// found so far, be it with other transactions missing in between.
    pub(crate) fn frame_that_follows(
        &mut self,
        range: &Range<u64>,
    ) -> Result<Option<Frame<'_>>, OpenError> {
        let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        self.read(range.start, len)?;
        let next = self.tail.seq.next();
        let alone = self.layout.verify_alone(self.window.at(range.start, len));
        Ok(alone.ok().filter(|frame| {
            let chained = frame.seq() != next || frame.previous_crc() == self.tail.crc;
            let lost = self.identity.gaps.contains(frame.seq());
            frame.seq() >= next && !lost && frame.at() >= self.tail.at && chained
        }))
    }

    /// Gives up what belongs between the last frame and the place where `seq` stands.
    pub(crate) fn skip_to(&mut self, offset: u64, seq: Seq) {
        let next = self.tail.seq.next();
        if seq > next {
            self.identity.gaps.add(next, Seq::new(seq.get() - 1));
        }
        self.tail.offset = offset;
    }

    /// The sequence of the next frame: the one after the tail's, behind any recorded gap.
    pub(crate) fn next_seq(&self) -> Seq {
        self.identity.gaps.next_after(self.tail.seq)
    }

    fn expected(&self) -> Expected {
        let seq = self.next_seq();
        let gap = seq != self.tail.seq.next();
        let previous_crc = (!gap).then_some(self.tail.crc);
        Expected { seq, previous_crc, not_before: self.tail.at }
    }

    fn try_frame(&mut self, offset: u64) -> Result<usize, Failure> {
        let head_len = self.layout.template.len();
        self.window.fill(&*self.file, offset, head_len)?;
        let len = self.layout.frame_len(self.window.at(offset, head_len))?;
        self.window.fill(&*self.file, offset, len)?;
        self.layout.verify(self.window.at(offset, len), &self.expected())?;
        self.frame = self.window.range(offset, len);
        Ok(len)
    }

    fn advance(&mut self, len: usize) {
        let frame = self.frame();
        let (seq, crc, at) = (frame.seq(), frame.crc(), frame.at());
        self.tail = Tail { offset: self.tail.offset + len as u64, seq, crc, at };
    }

    fn read(&mut self, offset: u64, len: usize) -> Result<&[u8], OpenError> {
        self.window
            .fill(&*self.file, offset, len)
            .map_err(OpenError::io(&self.path, "read the log"))?;
        Ok(self.window.at(offset, len))
    }

    /// As [`step`](Walk::step), beside a running writer.
    ///
    /// The window may have been read before a frame was written whose word was stored meanwhile;
    /// so what looks damaged is read once more, and the file itself decides.
    pub(crate) fn step_fresh(&mut self) -> Result<Step, OpenError> {
        let proven = self.proven;
        self.step().or_else(|_| {
            self.forget();
            self.proven = proven;
            self.step()
        })
    }

    /// Goes back behind an earlier frame. What follows is no longer taken for proven: it is to be
    /// judged anew.
    pub(crate) fn go_back(&mut self, tail: Tail) {
        self.forget();
        self.tail = tail;
        self.proven = false;
    }

    /// Goes back to the first frame; nothing is taken for proven.
    pub(crate) fn restart(&mut self) {
        self.go_back(self.start);
    }

    /// Where the first frame starts.
    pub(crate) fn origin(&self) -> Tail {
        self.start
    }

    /// Goes behind a frame which is known to be published, as all before it are.
    pub(crate) fn go_to_published(&mut self, tail: Tail) {
        self.tail = tail;
        self.proven = true;
    }

    /// Reads a part of the file, of which [`loaded`](Walk::loaded) then gives bytes.
    pub(crate) fn load(&mut self, part: Range<u64>) -> Result<(), OpenError> {
        self.window.load(&*self.file, part).map_err(OpenError::io(&self.path, "read the log"))
    }

    /// As much of this part of the file as is loaded.
    pub(crate) fn loaded(&self, part: Range<u64>) -> &[u8] {
        self.window.at(part.start, usize::try_from(part.end - part.start).unwrap_or(usize::MAX))
    }

    /// Reads at an offset, as far as the file goes.
    pub(crate) fn read_into(&self, bytes: &mut [u8], offset: u64) -> Result<usize, OpenError> {
        self.file.read_full_at(bytes, offset).map_err(OpenError::io(&self.path, "read the log"))
    }

    /// Forgets what was read, so that the next step sees the file as it is then.
    pub(crate) fn forget(&mut self) {
        self.window = Window::default();
        self.frame = (0, 0);
    }

    /// Goes on at the same place in another file of the same identity.
    pub(crate) fn go_on_in(&mut self, other: Walk) {
        self.file = other.file;
        self.forget();
    }

    pub(crate) fn damage(&self, problem: DamageKind) -> OpenError {
        let damage = Damage { offset: self.tail.offset, seq: self.next_seq(), problem };
        OpenError::Corrupt { path: self.path.clone(), damage }
    }
}

fn read_schema(file: &dyn EnvFile, path: &Path) -> Result<(Identity, u64), OpenError> {
    let schema_error = |problem| OpenError::Schema { path: path.to_owned(), problem };
    let io_error = |error| OpenError::io(path, "read the schema")(error);
    let file_len = file.len().map_err(io_error)?;
    let mut prefix = [0; PREFIX_LEN];
    file.read_full_at(&mut prefix, 0).map_err(io_error)?;
    let len = message_len(prefix, file_len).map_err(schema_error)?;
    let mut message = vec![0; len];
    file.read_full_at(&mut message, 0).map_err(io_error)?;
    let identity = Identity::decode(&message).map_err(schema_error)?;
    Ok((identity, len as u64))
}

enum Failure {
    Io(io::Error),
    Frame(FrameError),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Io(error)
    }
}

impl From<FrameError> for Failure {
    fn from(error: FrameError) -> Self {
        Failure::Frame(error)
    }
}

/// A part of the file in memory.
#[derive(Debug, Default)]
struct Window {
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    const CHUNK: usize = 256 << 10;

    /// Holds `len` bytes from `offset`, or as many as the file has.
    fn fill(&mut self, file: &dyn EnvFile, offset: u64, len: usize) -> io::Result<()> {
        let end = self.start + self.bytes.len() as u64;
        if offset >= self.start && offset + len as u64 <= end {
            return Ok(());
        }
        // The file's length bounds the allocation: a length in the file is not to be trusted.
        let left = file.len()?.saturating_sub(offset);
        let wanted = (len.max(Self::CHUNK) as u64).min(left);
        self.load(file, offset..offset + wanted)
    }

    fn load(&mut self, file: &dyn EnvFile, part: Range<u64>) -> io::Result<()> {
        let len = usize::try_from(part.end - part.start).map_err(io::Error::other)?;
        self.bytes.resize(len, 0);
        let read = file.read_full_at(&mut self.bytes, part.start)?;
        self.bytes.truncate(read);
        self.start = part.start;
        Ok(())
    }

    fn range(&self, offset: u64, len: usize) -> (usize, usize) {
        let start =
            usize::try_from(offset - self.start).unwrap_or(usize::MAX).min(self.bytes.len());
        (start, (start + len).min(self.bytes.len()))
    }

    fn at(&self, offset: u64, len: usize) -> &[u8] {
        let (start, end) = self.range(offset, len);
        &self.bytes[start..end]
    }
}
