//! Going through a history file, downwards and upwards.

use std::ops::Range;

use super::error::SealedError;
use super::file::HistoryFile;
use super::rows::Rows;
use super::sources::Sources;
use crate::row::RefMove;

/// Rows decoded at once.
const CHUNK: u32 = 8192;

/// Rows as they are stored, oldest first, in chunks.
#[derive(Debug)]
pub(crate) struct Scan {
    file: HistoryFile,
    left: Range<u32>,
    sources: Sources,
    /// Decoded and not given out, newest first.
    decoded: Vec<Rows>,
}

impl Scan {
    pub(super) fn new(file: HistoryFile, left: Range<u32>) -> Scan {
        Scan { file, left, sources: Sources::default(), decoded: Vec::new() }
    }

    fn decode(&mut self) -> Result<(), SealedError> {
        let chunk = self.file.chunk_from(self.left.start, CHUNK);
        let chunk = chunk.start..chunk.end.min(self.left.end);
        self.decoded = self.file.rows_in(chunk.clone(), &mut self.sources)?;
        self.decoded.reverse();
        self.left.start = chunk.end;
        Ok(())
    }
}

impl Iterator for Scan {
    type Item = Result<Rows, SealedError>;

    /// The next rows. After an error there are none.
    fn next(&mut self) -> Option<Self::Item> {
        if self.decoded.is_empty()
            && !self.left.is_empty()
            && let Err(error) = self.decode()
        {
            self.left = 0..0;
            return Some(Err(error));
        }
        self.decoded.pop().map(Ok)
    }
}

/// Moves, oldest first.
#[derive(Debug)]
pub(crate) struct Moves {
    scan: Scan,
    rows: Option<Rows>,
    next: usize,
}

impl Moves {
    pub(super) fn new(scan: Scan) -> Moves {
        Moves { scan, rows: None, next: 0 }
    }
}

impl Iterator for Moves {
    type Item = Result<RefMove, SealedError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(rows) = self.rows.as_ref().filter(|rows| self.next < rows.len()) {
                let moved = rows.row(self.next).ref_move();
                let row = rows.number(self.next);
                self.next += 1;
                return Some(self.scan.file.told(row, moved));
            }
            match self.scan.next()? {
                Ok(rows) => (self.rows, self.next) = (Some(rows), 0),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
