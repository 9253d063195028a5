//! The section of moves, on its way into a file.

use std::io;
use std::path::PathBuf;

use refstone_log::Env;

use super::layout::{MOVES_PAGE, index};
use super::spool::Spool;
use super::step::{Base, Encoder, Step};

/// The moves of all refs, one after the other. They stand behind all blocks, which end when the last
/// ref is known: until then they wait.
#[derive(Debug)]
pub(super) struct Moves<'e> {
    encoder: Encoder,
    spool: Spool<'e>,
    sums: PageSums,
    /// How many there are.
    pub(super) count: u64,
}

impl<'e> Moves<'e> {
    pub(super) fn new(env: &'e dyn Env, spool: PathBuf) -> Moves<'e> {
        Moves {
            encoder: Encoder::default(),
            spool: Spool::new(env, spool),
            sums: PageSums::default(),
            count: 0,
        }
    }

    /// Bytes of the refs that have ended.
    pub(super) fn len(&self) -> u64 {
        self.spool.len()
    }

    pub(super) fn start_ref(&mut self, base: Base<'_>) {
        self.encoder.start(base);
    }

    /// Adds the next older move of the ref; a new chunk is told by `base`.
    pub(super) fn push(&mut self, step: &Step<'_>, base: Base<'_>) -> io::Result<()> {
        self.count += 1;
        if self.encoder.push(step) {
            self.end_chunk()?;
            self.encoder.start(base);
        }
        Ok(())
    }

    pub(super) fn end_chunk(&mut self) -> io::Result<()> {
        let Moves { encoder, sums, spool, .. } = self;
        encoder.end(|bytes| {
            sums.update(bytes);
            spool.push(bytes)
        })
    }

    /// Gives out the section in pieces; returns the checksums of its pages.
    pub(super) fn finish(
        &mut self,
        put: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<Vec<u8>> {
        self.spool.drain(put)?;
        Ok(std::mem::take(&mut self.sums).finish())
    }
}

/// The checksums of the pages so far.
#[derive(Debug, Default)]
struct PageSums {
    whole: Vec<u8>,
    open: u32,
    open_len: u64,
}

impl PageSums {
    fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = index(MOVES_PAGE - self.open_len);
            let (now, rest) = bytes.split_at(bytes.len().min(room));
            self.open = crc32c::crc32c_append(self.open, now);
            self.open_len += now.len() as u64;
            if self.open_len == MOVES_PAGE {
                self.close();
            }
            bytes = rest;
        }
    }

    fn close(&mut self) {
        self.whole.extend(self.open.to_le_bytes());
        (self.open, self.open_len) = (0, 0);
    }

    fn finish(mut self) -> Vec<u8> {
        if self.open_len > 0 {
            self.close();
        }
        self.whole
    }
}
