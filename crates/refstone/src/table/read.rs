//! Looking up in a table: by name, and by object.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use super::Table;
use super::block::Block;
use super::error::TableError;
use super::layout::{OID_ENTRY_LEN, OID_PAGE_ENTRIES, OidPage, Part, Place};
use super::lines::{Line, Said, lines};
use super::names::{Bucket, Probe};
use super::row::Row;
use super::schema::Identity;
use crate::edit::Target;
use crate::name::RefName;
use crate::oid::ObjectId;

const BLOCK: &str = "the block at byte";
const NAMES: &str = "the page of the name index at byte";
const OIDS: &str = "the page of the object index at byte";

impl Table {
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(crate) fn path(&self) -> &Path {
        &self.source.path
    }

    /// Refs that exist; in a table that is not the lowest, those deleted too.
    pub(crate) fn live_rows(&self) -> u64 {
        self.footer.live_rows
    }

    /// In the lowest table, refs that were deleted.
    pub(crate) fn gone_rows(&self) -> u64 {
        self.footer.gone_rows
    }

    /// The size of the file.
    pub(crate) fn bytes(&self) -> u64 {
        self.len
    }

    /// What the moves of all refs take.
    pub(crate) fn moves_bytes(&self) -> u64 {
        self.footer.moves_len
    }

    /// Rows of the history of the same range: the moves of all refs.
    pub(crate) fn history_rows(&self) -> u64 {
        self.footer.history_rows
    }

    /// What a ref held at the table's end, if a transaction of the table moved it: `Some(None)` is
    /// a deletion.
    ///
    /// Costs one page and one block. Once they have been read it takes no lock, and allocates
    /// only for a long name that a symbolic ref holds.
    #[inline]
    pub(crate) fn target(&self, name: &[u8]) -> Result<Option<Option<Target>>, TableError> {
        for place in self.places(name)? {
            match self.line(place)?.ask(name) {
                Said::Other => {}
                Said::Holds(oid) => return Ok(Some(oid.map(Target::Object))),
                Said::AskBlock => {
                    let block = self.block_of(place)?;
                    if block.has_name(place.row(), name) {
                        return Ok(Some(block.row(place.row()).target()));
                    }
                }
            }
        }
        Ok(None)
    }

    /// All of a ref's last state, deleted or not, which takes and keeps the whole block.
    pub(crate) fn row(&self, name: &[u8]) -> Result<Option<Row<'_>>, TableError> {
        let found = self.find(name)?;
        Ok(found.map(|(block, place)| block.row(place.row())))
    }

    /// The refs that had this object at the table's end, sorted. Newer tables may know better.
    pub(crate) fn holding(&self, oid: &ObjectId) -> Result<Vec<RefName>, TableError> {
        let key = oid_key(oid.as_bytes());
        let mut names = Vec::new();
        let pages = &self.directory.oid_pages;
        let start = pages.partition_point(|page| page.first < key).saturating_sub(1);
        for number in (start..pages.len()).take_while(|&number| pages[number].first <= key) {
            for (_, place) in self.oid_page(number)?.filter(|(found, _)| *found == key) {
                let row = self.block_of(place)?.row(place.row());
                if row.oid() == Some(oid.as_bytes()) {
                    names.push(RefName::from_proven(&row.name()));
                }
            }
        }
        Ok(names)
    }

    pub(super) fn find(&self, name: &[u8]) -> Result<Option<(&Block, Place)>, TableError> {
        for place in self.places(name)? {
            let block = self.block_of(place)?;
            if block.has_name(place.row(), name) {
                return Ok(Some((block, place)));
            }
        }
        Ok(None)
    }

    /// Where the row of a name may be.
    #[inline]
    fn places(&self, name: &[u8]) -> Result<Probe<'_>, TableError> {
        if self.name_pages.is_empty() {
            return Ok(Probe::default());
        }
        let hash = self.footer.names.hash(name);
        let page = self.name_page(self.footer.names.page(hash))?;
        Ok(Probe::new(page, hash))
    }

    /// The line of a row that an index names.
    #[inline]
    fn line(&self, place: Place) -> Result<&Line, TableError> {
        let number = place.block();
        if number < self.lines.len() {
            let lines = fill(&self.lines[number], || self.read_lines(number))?;
            if let Some(line) = lines.get(place.row()) {
                return Ok(line);
            }
        }
        Err(self.no_row(place))
    }

    /// The block itself is not kept for it.
    fn read_lines(&self, number: usize) -> Result<Box<[Line]>, TableError> {
        match self.blocks[number].get() {
            Some(block) => Ok(lines(block)),
            None => Ok(lines(&self.read_block(number)?)),
        }
    }

    /// The block of a row that an index names.
    fn block_of(&self, place: Place) -> Result<&Block, TableError> {
        let number = place.block();
        if number < self.blocks.len() {
            let block = self.block(number)?;
            if place.row() < block.rows() {
                return Ok(block);
            }
        }
        Err(self.no_row(place))
    }

    fn no_row(&self, place: Place) -> TableError {
        self.source.damaged("an index, row", place.0.into(), "a row of the table", "none")
    }

    pub(super) fn block(&self, number: usize) -> Result<&Arc<Block>, TableError> {
        fill(&self.blocks[number], || self.read_block(number).map(Arc::new))
    }

    /// Reads a block past what is kept.
    pub(super) fn read_block(&self, number: usize) -> Result<Block, TableError> {
        let entry = &self.directory.blocks[number];
        let bytes = self.source.read(BLOCK, entry.offset, entry.message)?;
        let (rows, width) = (self.footer.rows_of(number), self.identity.object_format.len());
        Block::decode(bytes, rows, width).ok_or_else(|| {
            self.source.damaged(BLOCK, entry.offset, format!("a batch of {rows} rows"), "another")
        })
    }

    pub(super) fn name_page(&self, number: usize) -> Result<&[Bucket], TableError> {
        fill(&self.name_pages[number], || self.read_name_page(number)).map(|page| &**page)
    }

    pub(super) fn read_name_page(&self, number: usize) -> Result<Box<[Bucket]>, TableError> {
        let slots = self.footer.names.slots;
        let part = Part { len: slots * 8, crc: self.directory.name_page_crcs[number] };
        let bytes = self.source.read(NAMES, self.sections.name_page(number, slots), part)?;
        let slots: &[[u8; 8]] = bytes.as_chunks().0;
        Ok(slots.as_chunks().0.iter().map(Bucket::new).collect())
    }

    /// The entries of a page of the object index.
    pub(super) fn oid_page(
        &self,
        number: usize,
    ) -> Result<impl Iterator<Item = (u64, Place)> + use<'_>, TableError> {
        let page = fill(&self.oid_pages[number], || self.read_oid_page(number))?;
        Ok(oid_entries(page))
    }

    pub(super) fn read_oid_page(&self, number: usize) -> Result<Box<[u8]>, TableError> {
        let OidPage { crc, .. } = self.directory.oid_pages[number];
        let offset = self.sections.oid_page(number);
        let full = (OID_PAGE_ENTRIES * OID_ENTRY_LEN) as u64;
        let len = u32::try_from(full.min(self.sections.names - offset)).expect("at most a page");
        self.source.read(OIDS, offset, Part { len, crc })
    }
}

/// What an oid is found by in the index: its first eight bytes, which sort as it does.
pub(super) fn oid_key(oid: &[u8]) -> u64 {
    u64::from_be_bytes(*oid.first_chunk().expect("an id is longer"))
}

pub(super) fn oid_entries(page: &[u8]) -> impl Iterator<Item = (u64, Place)> + use<'_> {
    page.as_chunks().0.iter().map(oid_entry)
}

fn oid_entry(bytes: &[u8; OID_ENTRY_LEN]) -> (u64, Place) {
    let (key, place) = bytes.split_at(8);
    let key = u64::from_le_bytes(key.try_into().expect("eight bytes"));
    (key, Place(u32::from_le_bytes(place.try_into().expect("four bytes"))))
}

/// Fills a cell once. Two threads may both read; an error is forgotten, so that the next lookup
/// tries again.
#[inline]
fn fill<T>(
    cell: &OnceLock<T>,
    read: impl FnOnce() -> Result<T, TableError>,
) -> Result<&T, TableError> {
    match cell.get() {
        Some(kept) => Ok(kept),
        None => {
            let value = read()?;
            Ok(cell.get_or_init(|| value))
        }
    }
}
