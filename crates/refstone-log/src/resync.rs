//! Finds frames by themselves, wherever they stand, in time that grows with the bytes alone.
//!
//! A frame's checksum covers all of it. Were every place tried by hashing the length that it
//! claims, headers that stand close together, stale or forged, would cost the square of the bytes.
//! So checksums of prefixes are kept, and that of any range follows from two of them.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::env::EnvFile;
use crate::frame::layout::{MARKER, TRAILER_LEN};
use crate::frame::{Layout, PREFIX_LEN, WORD_LEN};
use crate::seq::Seq;

/// Bytes that look like a frame by their length and their checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) range: Range<u64>,
    pub(crate) durable_seq: Seq,
    pub(crate) flags: u8,
}

/// Looks for frames of one log in a file.
#[derive(Debug)]
pub(crate) struct Finder {
    file: Arc<dyn EnvFile>,
    layout: Layout,
    end: u64,
    sums: Sums,
    /// A part of the file in which heads are looked for.
    chunk: Vec<u8>,
    chunk_start: u64,
}

const CHUNK: usize = 64 << 10;

impl Finder {
    /// Looks from `base` on, to the end of the file.
    pub(crate) fn new(file: Arc<dyn EnvFile>, layout: Layout, base: u64) -> io::Result<Finder> {
        let end = file.len()?;
        let sums = Sums { base, sums: vec![0] };
        Ok(Finder { file, layout, end, sums, chunk: Vec::new(), chunk_start: base })
    }

    /// The first frame that starts at or after `from`, an aligned place not before the base.
    pub(crate) fn next(&mut self, from: u64) -> io::Result<Option<Found>> {
        let mut offset = from;
        while offset + self.layout.template.len() as u64 <= self.end {
            if let Some(len) = self.len_claimed_at(offset)?
                && offset + len <= self.end
                && let Some(found) = self.check(offset..offset + len)?
            {
                return Ok(Some(found));
            }
            offset += PREFIX_LEN as u64;
        }
        Ok(None)
    }

    /// The length of the frame whose head stands there, if one does.
    fn len_claimed_at(&mut self, offset: u64) -> io::Result<Option<u64>> {
        let head_len = self.layout.template.len();
        let chunk_end = self.chunk_start + self.chunk.len() as u64;
        if offset < self.chunk_start || offset + head_len as u64 > chunk_end {
            self.chunk.resize(CHUNK, 0);
            let read = self.file.read_full_at(&mut self.chunk, offset)?;
            self.chunk.truncate(read);
            self.chunk_start = offset;
        }
        let at = usize::try_from(offset - self.chunk_start).map_err(io::Error::other)?;
        let head = &self.chunk[at..self.chunk.len().min(at + head_len)];
        if !head.starts_with(&MARKER) {
            return Ok(None);
        }
        Ok(self.layout.frame_len(head).ok().map(|len| len as u64))
    }

    fn check(&mut self, range: Range<u64>) -> io::Result<Option<Found>> {
        let mut trailer = [0; TRAILER_LEN];
        let trailer_start = range.end - TRAILER_LEN as u64;
        if self.file.read_full_at(&mut trailer, trailer_start)? < TRAILER_LEN {
            return Ok(None);
        }
        let [d0, d1, d2, d3, d4, d5, d6, flags, _, _, _, _, crc @ ..] = trailer;
        if self.checksum(&range)? != u32::from_le_bytes(crc) {
            return Ok(None);
        }
        let durable_seq = Seq::new(u64::from_le_bytes([d0, d1, d2, d3, d4, d5, d6, 0]));
        Ok(Some(Found { range, durable_seq, flags }))
    }

    /// What [`Layout::checksum`] gives for the bytes of the range.
    fn checksum(&mut self, range: &Range<u64>) -> io::Result<u32> {
        let (start, end) = (range.start + PREFIX_LEN as u64, range.end - WORD_LEN as u64);
        let before = self.sums.through(&*self.file, start)?;
        let all = self.sums.through(&*self.file, end)?;
        let len = usize::try_from(end - start).map_err(io::Error::other)?;
        // CRC is linear: `combine` shifts its first argument over `len` bytes and adds the second.
        Ok(crc32c::crc32c_combine(self.layout.crc_seed ^ before, all, len))
    }
}

/// The CRC-32C of every prefix that ends at a multiple of the stride behind the base, as far as
/// they were asked for: 4 bytes of memory for each KiB of the file.
#[derive(Debug)]
struct Sums {
    base: u64,
    sums: Vec<u32>,
}

impl Sums {
    const STRIDE: usize = 1 << 10;

    /// The checksum of the bytes from the base to `end`.
    fn through(&mut self, file: &dyn EnvFile, end: u64) -> io::Result<u32> {
        let len = usize::try_from(end - self.base).map_err(io::Error::other)?;
        let whole = len / Self::STRIDE;
        self.extend(file, whole)?;
        let mut rest = [0; Self::STRIDE];
        let rest = &mut rest[..len % Self::STRIDE];
        let start = self.base + (whole * Self::STRIDE) as u64;
        read_exact(file, rest, start)?;
        Ok(crc32c::crc32c_append(self.sums[whole], rest))
    }

    fn extend(&mut self, file: &dyn EnvFile, whole: usize) -> io::Result<()> {
        const STRIDES_AT_ONCE: usize = 256;
        let mut chunk = Vec::new();
        while self.sums.len() <= whole {
            let strides = STRIDES_AT_ONCE.min(whole + 1 - self.sums.len());
            chunk.resize(strides * Self::STRIDE, 0);
            let start = self.base + ((self.sums.len() - 1) * Self::STRIDE) as u64;
            read_exact(file, &mut chunk, start)?;
            for stride in chunk.chunks_exact(Self::STRIDE) {
                let before = self.sums.last().copied().unwrap_or_default();
                self.sums.push(crc32c::crc32c_append(before, stride));
            }
        }
        Ok(())
    }
}

fn read_exact(file: &dyn EnvFile, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    match file.read_full_at(buffer, offset)? {
        read if read == buffer.len() => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::frame::encode::FrameHead;
    use crate::frame::layout::BODY_LENGTH;
    use crate::kind::{Kind, ObjectFormat, RefRow};
    use crate::seq::Timestamp;

    /// A file in memory that counts what is read.
    #[derive(Debug)]
    struct Bytes(Vec<u8>, AtomicU64);

    impl EnvFile for Bytes {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            let start = usize::try_from(offset).unwrap().min(self.0.len());
            let len = buffer.len().min(self.0.len() - start);
            buffer[..len].copy_from_slice(&self.0[start..start + len]);
            self.1.fetch_add(len as u64, Ordering::Relaxed);
            Ok(len)
        }

        fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<usize> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn sync_data(&self) -> io::Result<()> {
            Ok(())
        }

        fn len(&self) -> io::Result<u64> {
            Ok(self.0.len() as u64)
        }

        fn try_clone(&self) -> io::Result<Box<dyn EnvFile>> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    fn layout() -> Layout {
        Layout::new(Kind::Refs.columns(ObjectFormat::Sha1), [7; 16])
    }

    fn frame(seq: u64, message: &[u8]) -> Vec<u8> {
        let head = FrameHead {
            seq: Seq::new(seq),
            at: Timestamp::from_micros(1),
            previous_crc: 0,
            durable_seq: Seq::new(seq - 1),
        };
        let row = RefRow {
            actor: b"alice",
            refname: b"refs/heads/main",
            old_oid: None,
            new_oid: Some(&[1; 20]),
            symref: None,
            message: Some(message),
        };
        let mut bytes = Vec::new();
        layout().encode(&head, &[row], &mut bytes).unwrap();
        bytes
    }

    fn finder(bytes: Vec<u8>, base: u64) -> (Arc<Bytes>, Finder) {
        let file = Arc::new(Bytes(bytes, AtomicU64::new(0)));
        (file.clone(), Finder::new(file, layout(), base).unwrap())
    }

    /// The starts and durable sequences of all that is found.
    fn all(finder: &mut Finder, base: u64) -> Vec<(u64, u64)> {
        let (mut found, mut from) = (Vec::new(), base);
        while let Some(next) = finder.next(from).unwrap() {
            from = next.range.end;
            found.push((next.range.start, next.durable_seq.get()));
        }
        found
    }

    // Breaks: a checksum that is off by the prefix, the word or the base; a stride too many.
    #[test]
    fn frames_are_found_between_garbage_of_any_length() {
        for (base, gap) in [(0, 0), (8, 8), (16, 1016), (1024, 4096), (8, 70_000)] {
            let mut bytes = vec![0xa5; base];
            let mut expected = Vec::new();
            for seq in 1..=4 {
                bytes.extend(vec![0xff; gap]);
                expected.push((bytes.len() as u64, seq - 1));
                bytes.extend(frame(seq, &vec![b'm'; 700 * usize::try_from(seq).unwrap()]));
            }
            let (_, mut finder) = finder(bytes, base as u64);
            assert_eq!(all(&mut finder, base as u64), expected, "{gap} bytes between");
        }
    }

    #[test]
    fn a_damaged_frame_is_not_found() {
        let whole = frame(1, b"whole");
        for byte in PREFIX_LEN..whole.len() {
            let mut bytes = whole.clone();
            bytes[byte] ^= 1;
            let (_, mut finder) = finder(bytes, 0);
            assert_eq!(finder.next(0).unwrap(), None, "byte {byte}");
        }
    }

    // Break: hashing, for every head, the bytes that it claims.
    #[test]
    fn heads_that_claim_much_cost_no_more_than_a_few_readings_of_the_file() {
        let head = frame(1, b"")[..layout().template.len()].to_vec();
        let (heads, len) = (2000, 2000 * head.len());
        let mut bytes: Vec<u8> = Vec::with_capacity(len);
        for _ in 0..heads {
            let mut head = head.clone();
            let body = (len - bytes.len() - head.len()).max(TRAILER_LEN) as u64;
            head[PREFIX_LEN + BODY_LENGTH..][..8].copy_from_slice(&body.to_le_bytes());
            bytes.extend(head);
        }
        bytes.resize(len + TRAILER_LEN, 0);
        let (file, mut finder) = finder(bytes, 0);
        assert_eq!(finder.next(0).unwrap(), None);
        assert_eq!(finder.sums.sums.len(), len / Sums::STRIDE + 1, "the heads were believed");
        let read = file.1.load(Ordering::Relaxed);
        assert!(read < 8 * len as u64, "{read} bytes were read of {len}");
    }
}
