//! Checking all of a table: every byte by a checksum, and every index against the rows.

use refstone_log::Seq;

use super::block::Block;
use super::error::TableError;
use super::layout::{BLOCK_ROWS, EOS, FOOTER_LEN, Part, Place};
use super::names::{Bucket, Probe};
use super::read::{oid_entries, oid_key};
use super::trail::Order;
use super::window::Window;
use super::{Table, follows};
use crate::stop::Stop;

/// What the rows say should be in the indexes.
#[derive(Default)]
struct Expected {
    /// The run's last name.
    last: Option<Vec<u8>>,
    oids: Vec<(u64, Place)>,
    /// Where the moves of the last ref end, and how many there were.
    moves_end: u64,
    moves: u64,
    window: Window,
}

impl Table {
    /// Reads the whole file, past what is kept of it, and checks all there is to check.
    ///
    /// Costs the memory of the name index and of 16 bytes per ref.
    pub(crate) fn verify(&self, stop: Stop<'_>) -> Result<(), TableError> {
        self.verify_ends()?;
        let pages = (0..self.name_pages.len()).map(|number| self.read_name_page(number));
        let pages = pages.collect::<Result<Vec<_>, _>>()?;
        let mut expected = Expected { window: Window::shared(), ..Expected::default() };
        for number in 0..self.blocks.len() {
            if number == self.footer.live_blocks() {
                expected.last = None;
            }
            stop.check_at((number * BLOCK_ROWS) as u64)?;
            self.verify_block(number, &pages, &mut expected)?;
        }
        let reached = (expected.moves, expected.moves_end);
        if reached != (self.footer.history_rows, self.footer.moves_len) {
            let wanted = format!("{} to byte {}", self.footer.history_rows, self.footer.moves_len);
            let what = "the moves of all refs, up to byte";
            return Err(self.source.damaged(what, reached.1, wanted, reached.0.to_string()));
        }
        self.verify_names(&pages)?;
        expected.oids.sort_unstable();
        self.verify_oids(&expected.oids)
    }

    /// Footer, directory, schema and the end of the stream, as they were when it was opened.
    fn verify_ends(&self) -> Result<(), TableError> {
        let len = self.source.len()?;
        let footer = self.len - FOOTER_LEN as u64;
        let eos = self.sections.eos;
        if len != self.len {
            return Err(self.source.damaged("the length", len, self.len.to_string(), "another"));
        }
        self.expect_bytes("the footer at byte", footer, &self.footer.encode())?;
        self.expect_bytes("the directory at byte", self.sections.end, &self.directory.encode())?;
        self.expect_bytes("the end of the stream at byte", eos, &EOS)?;
        let schema = Part { len: self.footer.schema_len, crc: self.footer.schema_crc };
        self.source.read("the schema at byte", 0, schema).map(drop)
    }

    fn expect_bytes(
        &self,
        what: &'static str,
        offset: u64,
        expected: &[u8],
    ) -> Result<(), TableError> {
        let found = self.source.read_raw(what, offset, expected.len())?;
        self.source.check(what, offset, crc32c::crc32c(expected), &found)
    }

    fn verify_block(
        &self,
        number: usize,
        pages: &[Box<[Bucket]>],
        expected: &mut Expected,
    ) -> Result<(), TableError> {
        let block = self.read_block(number)?;
        for row in 0..block.rows() {
            let place = Place::new(number, row);
            let place = place.ok_or_else(|| self.wrong_row(0, "fewer rows"))?;
            let name = block.name(row);
            if expected.last.as_deref().is_some_and(|last| *last >= *name) {
                return Err(self.wrong_row(place.0, "a name after that of the row before"));
            }
            self.verify_row(&block, place)?;
            self.verify_moves(&block, place, expected)?;
            self.verify_name(&name, pages, place)?;
            expected.oids.extend(block.oid(row).map(|oid| (oid_key(oid), place)));
            expected.last = Some(name.into_owned());
        }
        let first = self.directory.first_name(&self.directory.blocks[number]);
        match *block.name(0) == *first {
            true => Ok(()),
            false => Err(self.wrong_row(0, "the first name that the directory has")),
        }
    }

    fn verify_row(&self, block: &Block, place: Place) -> Result<(), TableError> {
        let row = place.row();
        if !self.identity.covers(block.seq(row)) {
            return Err(self.wrong_row(place.0, "a sequence of the table's range"));
        }
        if !self.may_hold(block.oid(row).is_some(), block.symref(row).is_some(), place) {
            return Err(self.wrong_row(place.0, "an object or a symbolic target, if it is live"));
        }
        Ok(())
    }

    /// The newest is the one that made the ref's state, and the others are of the table's transactions.
    fn verify_moves(
        &self,
        block: &Block,
        place: Place,
        expected: &mut Expected,
    ) -> Result<(), TableError> {
        let mut left = self.moves_at(block, place.block(), place.row())?;
        let entry = block.row(place.row()).entry();
        expected.moves_end = left.end();
        let mut newer = None;
        while let Some(steps) = left.next_chunk(self, &mut expected.window, Order::NewestFirst)? {
            for step in steps {
                if !follows(&self.identity, &entry, newer, &step) {
                    return Err(self.wrong_row(place.0, "moves that lead to its state"));
                }
                newer = Some(step.seq);
                expected.moves += 1;
            }
        }
        match newer.is_some() || entry.seq == Seq::ZERO {
            true => Ok(()),
            false => Err(self.wrong_row(place.0, "the move that made its state")),
        }
    }

    /// Whether a row of its run may hold an object, a symbolic target, both or neither.
    fn may_hold(&self, oid: bool, symref: bool, place: Place) -> bool {
        let gone = place.block() >= self.footer.live_blocks();
        match (oid, symref) {
            (true, true) => false,
            (false, false) => gone == self.identity.is_lowest(),
            _ => !gone,
        }
    }

    fn verify_name(
        &self,
        name: &[u8],
        pages: &[Box<[Bucket]>],
        place: Place,
    ) -> Result<(), TableError> {
        let hash = self.footer.names.hash(name);
        let page = pages.get(self.footer.names.page(hash));
        match page.is_some_and(|page| Probe::new(page, hash).any(|found| found == place)) {
            true => Ok(()),
            false => Err(self.wrong_row(place.0, "an entry in the name index")),
        }
    }

    /// Every row has been found by its name; there must be nothing else.
    fn verify_names(&self, pages: &[Box<[Bucket]>]) -> Result<(), TableError> {
        let slots = pages.iter().flatten().flat_map(Bucket::slots);
        let used = slots.filter(|slot| **slot != 0).count() as u64;
        let rows = self.footer.live_rows + self.footer.gone_rows;
        if used == rows {
            return Ok(());
        }
        let (what, at) = ("the name index at byte", self.sections.names);
        Err(self.source.damaged(what, at, format!("{rows} entries"), used.to_string()))
    }

    fn verify_oids(&self, expected: &[(u64, Place)]) -> Result<(), TableError> {
        let mut found = Vec::new();
        for (number, page) in self.directory.oid_pages.iter().enumerate() {
            let start = found.len();
            found.extend(oid_entries(&self.read_oid_page(number)?));
            if found.get(start).map(|entry: &(u64, Place)| entry.0) != Some(page.first) {
                return Err(self.wrong_oids(number));
            }
        }
        if found == expected { Ok(()) } else { Err(self.wrong_oids(0)) }
    }

    fn wrong_oids(&self, page: usize) -> TableError {
        let (what, page) = ("the object index, page", page as u64);
        self.source.damaged(what, page, "the objects of the rows, sorted", "others")
    }

    fn wrong_row(&self, place: u32, expected: &str) -> TableError {
        self.source.damaged("row", place.into(), expected, "another")
    }
}
