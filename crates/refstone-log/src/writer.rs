//! What is staged: the group buffer, and where sequence, chain and file stand behind it.
//!
//! All of this lives under the writer mutex. Nothing here waits for a disk, but to reserve space.

use std::io;
use std::sync::Arc;

use crate::env::EnvFile;
use crate::error::AppendError;
use crate::frame::encode::FrameHead;
use crate::frame::{EOS, Layout, PREFIX_LEN};
use crate::kind::Rows;
use crate::rest::Live;
use crate::sabotage::{self, Sabotage};
use crate::seq::{Seq, Timestamp};
use crate::space::Floor;
use crate::walk::Tail;

/// Staged bytes past which `append` waits for a leader to take them.
pub(crate) const GROUP_MAX: usize = 4 << 20;
/// The most zeros written ahead at once.
const EXTENT_STEP_MAX: u64 = 1 << 20;

/// The frames of one group, and the tail behind them.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) frames: Vec<u8>,
    pub(crate) end: Tail,
}

#[derive(Debug)]
pub(crate) struct Writer {
    layout: Layout,
    /// Frames staged since the last group was taken.
    frames: Vec<u8>,
    /// Behind the last staged frame.
    pub(crate) tail: Tail,
    pub(crate) live: Live,
    /// Where the zeros written ahead end.
    extent: u64,
    /// Whether zeros were written ahead, or were to be, since somebody took this back.
    pub(crate) extended: bool,
    floor: Floor,
    pub(crate) closed: bool,
    /// Transactions staged since the last group was taken.
    pub(crate) staged: usize,
    /// A leader waits until so many are staged; 0 if none waits.
    pub(crate) awaited: usize,
}

impl Writer {
    pub(crate) fn new(layout: Layout, tail: Tail, live: Live, extent: u64, floor: Floor) -> Writer {
        Writer {
            layout,
            frames: Vec::new(),
            tail,
            live,
            extent,
            extended: false,
            floor,
            closed: false,
            staged: 0,
            awaited: 0,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.frames.len() >= GROUP_MAX
    }

    /// Encodes one transaction behind the staged ones and takes its sequence.
    ///
    /// On error nothing is staged and no sequence is spent.
    pub(crate) fn stage<R: Rows + ?Sized>(
        &mut self,
        rows: &R,
        now: Timestamp,
        durable_seq: Seq,
    ) -> Result<Seq, AppendError> {
        if self.tail.seq >= Seq::MAX {
            return Err(AppendError::Invalid("the log has used up its sequences".to_owned()));
        }
        let start = self.frames.len();
        let head = FrameHead {
            seq: self.tail.seq.next(),
            at: now.max(self.tail.at),
            previous_crc: self.tail.crc,
            durable_seq,
        };
        let crc = self.layout.encode(&head, rows, &mut self.frames)?;
        let len = (self.frames.len() - start) as u64;
        let offset = self.tail.offset + len;
        if let Err(error) = self.make_room(len, offset + PREFIX_LEN as u64) {
            self.frames.truncate(start);
            return Err(error);
        }
        self.tail = Tail { offset, seq: head.seq, crc, at: head.at };
        self.staged += 1;
        Ok(head.seq)
    }

    /// Whether what a leader waits for is there; `None` if none waits.
    pub(crate) fn has_awaited(&self) -> Option<bool> {
        (self.awaited > 0).then(|| self.staged >= self.awaited || self.is_full())
    }

    /// Refuses to take more of the file system than may be taken.
    pub(crate) fn check_space(&self, bytes: u64) -> Result<(), AppendError> {
        self.floor.look(bytes).map(|_| ())
    }

    fn make_room(&mut self, len: u64, end: u64) -> Result<(), AppendError> {
        let growth = end.saturating_sub(self.extent);
        let spare = self.floor.admit(len, growth)?;
        self.reserve(end, spare).map_err(|source| AppendError::NoSpace { source })
    }

    /// Writes zeros up to at least `end`, so that the group's own write cannot lack space.
    ///
    /// The zeros need no sync of their own: the group's sync covers them. A zero-filled file is
    /// synced 1.3 to 1.8 times as fast as a growing one, so they are written ahead of need, in
    /// steps that grow with the file, as long as the file may grow by so much.
    fn reserve(&mut self, end: u64, spare: u64) -> io::Result<()> {
        if end <= self.extent {
            return Ok(());
        }
        self.extended = true;
        let file = self.live.file()?;
        let step = self.extent.clamp(PREFIX_LEN as u64, EXTENT_STEP_MAX);
        let ahead = if step <= spare { end.max(self.extent + step) } else { end };
        // Where a whole step does not fit any more, what is needed still may.
        for wanted in [ahead, end] {
            match file.write_zeros_at(self.extent..wanted) {
                Ok(()) => {
                    self.extent = wanted;
                    return Ok(());
                }
                Err(error) if wanted == end => return Err(error),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Takes all that is staged, with the next end-of-stream marker behind it.
    pub(crate) fn take_group(&mut self, spare: Vec<u8>) -> Option<Group> {
        if self.frames.is_empty() {
            return None;
        }
        let mut frames = std::mem::replace(&mut self.frames, spare);
        frames.extend_from_slice(&EOS);
        self.staged = 0;
        Some(Group { frames, end: self.tail })
    }

    /// Withdraws all that was staged behind `tail`. Of what counted as reserved, there is what the
    /// file has.
    pub(crate) fn roll_back(&mut self, tail: Tail, len: u64) {
        self.extent = self.extent.min(len.max(tail.offset + PREFIX_LEN as u64));
        self.frames.clear();
        self.staged = 0;
        let spent = self.tail.seq;
        self.tail = tail;
        if sabotage::is(Sabotage::KeepSpentSequence) {
            self.tail.seq = spent;
        }
    }

    /// Where the zeros written ahead end, in bytes.
    pub(crate) fn extent(&self) -> u64 {
        self.extent
    }

    /// The room reserved behind a durable tail.
    pub(crate) fn room_behind(&self, durable: Tail) -> u64 {
        self.extent - durable.offset
    }

    /// Goes on in another file, whose tail lies `shift` bytes before the old one's.
    ///
    /// What is staged may reach past the new extent, by what was reserved in the old file in the
    /// meantime. Nobody else writes there before its group does, so it counts as reserved.
    pub(crate) fn rebind(&mut self, file: Arc<dyn EnvFile>, shift: u64, extent: u64) {
        self.live = Live::Awake(file);
        self.tail.offset -= shift;
        self.extent = extent.max(self.tail.offset + PREFIX_LEN as u64);
    }
}
