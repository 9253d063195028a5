//! Reads a log from its end, so that what is new costs the same in a long log as in a short one.
//!
//! A frame is found without those before it, as after damage (`docs/format.md`, "Gaps"): by its
//! head and its checksum, which the log's identity seeds. That it is published is known as well: a
//! later frame says in its trailer how far the log was durable when that was staged. What is read
//! backwards is joined, block by block, by the chain of checksums.
//!
//! Whatever is not found in this way is left to the walk from the start.

use std::ops::Range;

use crate::error::{DamageKind, OpenError};
use crate::frame::layout::MARKER;
use crate::frame::{Frame, FrameError, PREFIX_LEN};
use crate::reader::LogReader;
use crate::seq::Seq;
use crate::walk::{Tail, Walk};

/// Bytes that are looked at first.
const FIRST: u64 = 16 << 10;

/// The most bytes of a block, but for a transaction that alone has more.
const BLOCK_MAX: u64 = 1 << 20;

/// Where no frame starts in so many bytes, they are read from the start.
const SEARCH_MAX: u64 = 8 << 20;

/// The published transactions of one file, newest first, in blocks whose transactions stand oldest
/// first.
///
/// Reading back to a transaction costs what is behind it. Beside it, the groups that were written
/// last are read, which no frame calls durable yet.
#[derive(Debug)]
pub struct BackwardReader {
    reader: LogReader,
    /// Behind the frame before the oldest block so far.
    oldest: Option<Tail>,
    /// Where the present block ends; the newest has no end yet.
    end: Option<Tail>,
    known: Known,
    /// Bytes of the blocks so far.
    read: u64,
}

impl BackwardReader {
    /// Starts behind the newest transaction. Of those up to `durable` it is known that they are; who
    /// has the log open knows that, and others say zero.
    #[must_use]
    pub fn new(reader: LogReader, durable: Seq) -> BackwardReader {
        BackwardReader { reader, oldest: None, end: None, known: Known::new(durable), read: 0 }
    }

    /// The file, as it was opened.
    #[must_use]
    pub fn reader(&self) -> &LogReader {
        &self.reader
    }

    /// Goes to the start of the file, to read all of it forwards.
    #[must_use]
    pub fn into_start(mut self) -> LogReader {
        let walk = &mut self.reader.walk;
        walk.forget();
        walk.go_to_published(walk.origin());
        self.reader
    }

    /// Goes to the block before; says whether there is one.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn back(&mut self) -> Result<bool, OpenError> {
        let walk = &mut self.reader.walk;
        let start = walk.origin();
        if self.oldest.is_some_and(|oldest| oldest.offset <= start.offset) {
            return Ok(false);
        }
        let end = match self.oldest {
            Some(oldest) => oldest.offset,
            None => walk.written_end()?,
        };
        let mut size = (self.read / 4).clamp(FIRST, BLOCK_MAX);
        let tail = loop {
            let from = aligned(end.saturating_sub(size));
            if from <= start.offset || size > SEARCH_MAX {
                walk.load(start.offset..end.min(start.offset + BLOCK_MAX))?;
                break start;
            }
            walk.load(from..end)?;
            size = match walk.first_in(from..end, &mut self.known) {
                Some(tail) if self.known.has_published(tail) => break tail,
                Some(tail) => self.known.size_to(self.known.durable, end, tail).max(size * 2),
                None => size * 2,
            };
        };
        self.read += end.saturating_sub(tail.offset);
        self.end = self.oldest.replace(tail);
        walk.go_to_published(tail);
        Ok(true)
    }

    /// The next transaction of the block; `None` at its end.
    ///
    /// # Errors
    /// If a published frame is damaged, or missing before the block that was read last.
    #[allow(clippy::should_implement_trait)] // A lending iterator: the frame borrows the reader.
    pub fn next(&mut self) -> Result<Option<Frame<'_>>, OpenError> {
        let Some(end) = self.end else { return self.reader.next() };
        // The newer block begins at its end: a slot before it that is not published is a hole.
        if self.reader.offset() >= end.offset || !self.reader.walk.next_is_published()? {
            return self.reader.walk.expect_to_be(end).map(|()| None);
        }
        self.reader.next()
    }
}

impl LogReader {
    /// Goes to where the transaction after `after` is the next, or shortly before that, at the cost of
    /// what is behind it. Where that cannot be done, the reader stays where it is.
    ///
    /// Of transactions up to `durable` it is known that they are: see [`BackwardReader::new`].
    ///
    /// # Errors
    /// As the operating system says.
    pub fn approach(&mut self, after: Seq, durable: Seq) -> Result<(), OpenError> {
        let here = self.walk.tail.offset;
        let end = self.walk.written_end()?;
        let (mut size, mut known) = (FIRST, Known::new(durable));
        while end.saturating_sub(size) > here {
            let from = aligned(end - size);
            // Near the end what is read will be asked for; far from it a transaction is looked for.
            let part = from..if size > BLOCK_MAX { from + size / 4 } else { end };
            self.walk.load(part.clone())?;
            size = match self.walk.first_in(part, &mut known) {
                Some(tail) if known.has_published(tail) && tail.seq <= after => {
                    self.walk.go_to_published(tail);
                    return Ok(());
                }
                Some(tail) => known.size_to(after.next(), end, tail).max(size * 5 / 4),
                None => size * 2,
            };
        }
        self.walk.forget();
        Ok(())
    }
}

/// What the frames say that were seen.
#[derive(Debug)]
struct Known {
    /// All up to this one are durable.
    durable: Seq,
    /// The newest of those that were seen.
    newest: Option<Seq>,
}

impl Known {
    fn new(durable: Seq) -> Known {
        Known { durable, newest: Some(durable).filter(|seq| *seq > Seq::ZERO) }
    }

    /// Whether the frame behind this place is published: what is durable is.
    fn has_published(&self, before: Tail) -> bool {
        before.seq < self.durable
    }

    /// How far from the end of what was written a transaction stands that is published and not after
    /// `wanted`, about: as if the transactions before `tail` were as large as those behind it.
    fn size_to(&self, wanted: Seq, end: u64, tail: Tail) -> u64 {
        let wanted = wanted.min(self.durable);
        let newest = self.newest.unwrap_or(self.durable);
        let behind = newest.get().saturating_sub(tail.seq.get()).max(1);
        let more = (tail.seq.get() + 1).saturating_sub(wanted.get());
        let bytes = u128::from(end - tail.offset) * u128::from(behind + more) / u128::from(behind);
        u64::try_from(bytes + bytes / 16).unwrap_or(u64::MAX)
    }
}

fn aligned(offset: u64) -> u64 {
    offset - offset % PREFIX_LEN as u64
}

impl Walk {
    /// An offset behind all that was written, near to it, unless a transaction has long runs of
    /// zeros; then it may be one within that.
    fn written_end(&self) -> Result<u64, OpenError> {
        const NEAR: u64 = 4 << 10;
        let len = self.file_len()?;
        let (mut written, mut blank) = (self.origin().offset, len);
        while blank.saturating_sub(written) > NEAR {
            let middle = written + (blank - written) / 2;
            match self.is_blank(middle..blank)? {
                true => blank = middle,
                false => written = middle,
            }
        }
        // The slot is read with what is before it.
        Ok((blank + PREFIX_LEN as u64).next_multiple_of(PREFIX_LEN as u64).min(len))
    }

    /// Whether there are only zeros at some places in a range, most of them near its start: one place
    /// may lie within a transaction.
    fn is_blank(&self, range: Range<u64>) -> Result<bool, OpenError> {
        const PLACES: [u64; 6] = [0, 256, 1 << 10, 4 << 10, 16 << 10, 128 << 10];
        let mut bytes = [0; 128];
        for place in PLACES.map(|place| range.start + place) {
            if place >= range.end {
                break;
            }
            let read = self.read_into(&mut bytes, place)?;
            if bytes[..read] != [0; 128][..read] {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Behind which frame the first one stands that starts in this part of the file, which is loaded.
    /// If that is not known to be published, looks at those behind it, which may know; the first time at
    /// all of them.
    fn first_in(&self, part: Range<u64>, known: &mut Known) -> Option<Tail> {
        let (mut first, mut newest) = (None, None);
        let mut offset = part.start;
        while offset < part.end {
            let Some(frame) = self.sound_frame_at(offset, part.end) else {
                offset += PREFIX_LEN as u64;
                continue;
            };
            let first = *first.get_or_insert(Tail {
                offset,
                seq: Seq::new(frame.seq().get().saturating_sub(1)),
                crc: frame.previous_crc(),
                at: frame.at(),
            });
            newest = Some(frame.seq());
            known.durable = known.durable.max(frame.durable_seq());
            if known.newest.is_some() && known.has_published(first) {
                break;
            }
            offset += frame.as_bytes().len() as u64;
        }
        known.newest = known.newest.or(newest);
        first
    }

    fn sound_frame_at(&self, offset: u64, end: u64) -> Option<Frame<'_>> {
        let bytes = self.loaded(offset..end);
        if !bytes.starts_with(&MARKER) {
            return None;
        }
        let len = self.layout.frame_len(bytes.get(..self.layout.template.len())?).ok()?;
        let frame = self.layout.verify_alone(bytes.get(..len)?).ok()?;
        let lost = self.identity.gaps.contains(frame.seq());
        (frame.seq() > self.origin().seq && !lost).then_some(frame)
    }

    /// Fails if the walk has not come to where an earlier one began.
    fn expect_to_be(&self, there: Tail) -> Result<(), OpenError> {
        let (here, next) = (self.tail, there.seq.next());
        let gap = here.seq.next() != next;
        let problem = if here.offset != there.offset || self.next_seq() != next {
            FrameError::Sequence { expected: self.next_seq(), found: next }
        } else if !gap && here.crc != there.crc {
            FrameError::Chain { expected: here.crc, found: there.crc }
        } else if there.at < here.at {
            let (not_before, found) = (here.at.as_micros(), there.at.as_micros());
            FrameError::Time { not_before, found }
        } else {
            return Ok(());
        };
        Err(self.damage(DamageKind::from(problem)))
    }
}
