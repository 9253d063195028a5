//! Bytes that are proven before anybody decodes them.

use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use refstone_log::EnvFile;

use super::error::{Place, SealedError};

/// Bytes under one checksum.
const BLOCK: usize = 8 << 10;

/// The CRC-32C of every block of what is written.
#[derive(Debug, Default)]
pub(super) struct Sums {
    whole: Vec<u32>,
    open: u32,
    open_len: usize,
}

impl Sums {
    pub(super) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, rest) = bytes.split_at(bytes.len().min(BLOCK - self.open_len));
            self.open = crc32c::crc32c_append(self.open, now);
            self.open_len += now.len();
            if self.open_len == BLOCK {
                self.close();
            }
            bytes = rest;
        }
    }

    fn close(&mut self) {
        self.whole.push(self.open);
        (self.open, self.open_len) = (0, 0);
    }

    /// All of them as text: the size of a block, and eight hex digits for each.
    pub(super) fn finish(mut self) -> String {
        if self.open_len > 0 {
            self.close();
        }
        let digits: String = self.whole.iter().map(|sum| format!("{sum:08x}")).collect();
        format!("{BLOCK}:{digits}")
    }
}

/// The sums that [`Sums::finish`] wrote, which must be those of `len` bytes.
fn parse_sums(text: &str, len: u64) -> Result<Vec<u32>, String> {
    let Some(digits) = text.strip_prefix(&format!("{BLOCK}:")) else {
        return Err(format!("expected checksums of blocks of {BLOCK} bytes"));
    };
    let sums: Option<Vec<u32>> = digits.as_bytes().chunks(8).map(parse_sum).collect();
    match sums {
        Some(sums) if sums.len() as u64 == len.div_ceil(BLOCK as u64) => Ok(sums),
        _ => Err(format!("expected the checksums of {len} bytes, found {} digits", digits.len())),
    }
}

fn parse_sum(digits: &[u8]) -> Option<u32> {
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// A file whose bytes are handed out after their blocks were checked; a clone shares it.
#[derive(Clone, Debug)]
pub(super) struct Checked(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: Box<dyn EnvFile>,
    path: PathBuf,
    /// The length of the file.
    file_len: u64,
    /// Bytes under the sums: all before the footer.
    len: u64,
    sums: Vec<u32>,
}

impl Checked {
    /// The first `len` bytes of a file, under the checksums that `sums` tells.
    pub(super) fn new(
        file: Box<dyn EnvFile>,
        path: &Path,
        len: u64,
        sums: &str,
    ) -> Result<Checked, SealedError> {
        let sums = parse_sums(sums, len)
            .map_err(|problem| SealedError::damaged(path, Place::Footer, problem))?;
        let file_len = file.len().map_err(SealedError::io(path, "read the length of"))?;
        Ok(Checked(Arc::new(Inner { file, path: path.to_owned(), file_len, len, sums })))
    }

    /// Reads and checks all of it, in bounded memory.
    pub(super) fn check_all(&self) -> Result<(), SealedError> {
        for block in 0..self.0.sums.len() as u64 {
            let start = block * BLOCK as u64;
            self.read(start, block_len(start, self.0.len))?;
        }
        Ok(())
    }

    /// Ranges as they are best read: whole blocks, ascending, and one where there is no block, or no
    /// more than one, between two of them.
    pub(super) fn joined(&self, mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
        const BLOCK: u64 = self::BLOCK as u64;
        ranges.sort_unstable_by_key(|range| range.start);
        let mut joined: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            let start = range.start / BLOCK * BLOCK;
            let end = range.end.next_multiple_of(BLOCK).min(self.0.len);
            match joined.last_mut() {
                Some(last) if start <= last.end + BLOCK => last.end = last.end.max(end),
                _ => joined.push(start..end),
            }
        }
        joined
    }

    /// Says that these ranges will be read soon. If nobody listens, nothing is lost.
    pub(super) fn announce(&self, ranges: &[Range<u64>]) {
        for range in ranges {
            self.0.file.will_read(range.clone());
        }
    }

    fn read(&self, start: u64, len: usize) -> Result<Bytes, SealedError> {
        let Inner { file, path, len: all, sums, .. } = &*self.0;
        let end = start.saturating_add(len as u64);
        if end > *all {
            let problem = format!("expected bytes up to {end}, and those before the footer end");
            return Err(SealedError::damaged(path, Place::Byte(*all), problem));
        }
        let first = start - start % BLOCK as u64;
        let until = end.next_multiple_of(BLOCK as u64).min(*all);
        let mut bytes = vec![0; usize_of(until - first)];
        let read = file.read_full_at(&mut bytes, first).map_err(SealedError::io(path, "read"))?;
        if read < bytes.len() {
            let place = Place::Byte(first + read as u64);
            return Err(SealedError::damaged(path, place, "the file ends here"));
        }
        for (at, block) in (first..).step_by(BLOCK).zip(bytes.chunks(BLOCK)) {
            check(path, at, block, sums[usize_of(at / BLOCK as u64)])?;
        }
        let skip = usize_of(start - first);
        Ok(Bytes::from(bytes).slice(skip..skip + len))
    }
}

fn check(path: &Path, at: u64, block: &[u8], expected: u32) -> Result<(), SealedError> {
    let found = crc32c::crc32c(block);
    if found == expected {
        return Ok(());
    }
    let problem = format!(
        "the checksum of {} bytes is {found:08x}, and {expected:08x} was written",
        block.len()
    );
    Err(SealedError::damaged(path, Place::Byte(at), problem))
}

/// The bytes of the block at `start` in a file of `len`.
fn block_len(start: u64, len: u64) -> usize {
    usize_of((len - start).min(BLOCK as u64))
}

fn usize_of(number: u64) -> usize {
    usize::try_from(number).expect("a length within a file that is read into memory")
}

impl Length for Checked {
    /// Of all the file: the library compares its footer with it.
    #[allow(clippy::misnamed_getters)]
    fn len(&self) -> u64 {
        self.0.file_len
    }
}

impl ChunkReader for Checked {
    type T = CheckedRead;

    fn get_read(&self, start: u64) -> Result<CheckedRead, ParquetError> {
        Ok(CheckedRead { file: self.clone(), next: start, block: Bytes::new() })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        self.read(start, length).map_err(|error| ParquetError::External(Box::new(error)))
    }
}

/// Reads on from a place, block by block.
#[derive(Debug)]
pub(super) struct CheckedRead {
    file: Checked,
    next: u64,
    block: Bytes,
}

impl Read for CheckedRead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.block.is_empty() && self.next < self.file.0.len {
            let len = block_len(self.next, self.file.0.len);
            self.block = self.file.read(self.next, len).map_err(io::Error::other)?;
            self.next += len as u64;
        }
        let len = buffer.len().min(self.block.len());
        self.block.copy_to_slice(&mut buffer[..len]);
        Ok(len)
    }
}
