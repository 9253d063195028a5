//! Writing a table, row by row.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use refstone_log::Env;
use xxhash_rust::xxh3::xxh3_64;

use super::Entry;
use super::block;
use super::columns::Columns;
use super::error::{Flaw, TableError};
use super::layout::{
    self, BLOCK_ROWS, Directory, EOS, Footer, OID_PAGE_ENTRIES, OidPage, Part, Place,
};
use super::names::{self, Geometry};
use super::read::oid_key;
use super::schema::Identity;
use crate::edit::Target;
use crate::name::NAME_LEN_MAX;
use crate::new_file::NewFile;

/// The most history rows of one block: Arrow counts a list's elements with 31 bits.
const BLOCK_HISTORY_MAX: usize = 1 << 29;

/// A table being written: the live rows in order, then, in the lowest table, those that are gone.
///
/// Memory: a block, and some 32 bytes per ref for the indexes. Dropped before it is finished, it
/// leaves nothing.
#[derive(Debug)]
pub(crate) struct TableWriter<'e> {
    path: PathBuf,
    file: NewFile<'e>,
    offset: u64,
    identity: Identity,
    footer: Footer,
    directory: Directory,
    columns: Columns,
    run: Run,
    /// The last name, to compare; and the first of the block.
    last: Option<Vec<u8>>,
    first: Vec<u8>,
    names: Vec<(u64, Place)>,
    oids: Vec<(u64, Place)>,
    cold_sums: Vec<u8>,
}

/// Which rows are being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    Live,
    Gone,
}

impl<'e> TableWriter<'e> {
    /// Starts a table that is to be called `path`; `history_rows` is how many rows the history of
    /// the same range has.
    pub(crate) fn create(
        env: &'e dyn Env,
        path: &Path,
        identity: Identity,
        history_rows: u64,
    ) -> Result<TableWriter<'e>, TableError> {
        let file = NewFile::create(env, path)
            .map_err(|source| TableError::Io { path: path.to_owned(), source })?;
        let schema = identity.encode();
        let Part { len, crc } = Part::of(&schema).expect("a schema is short");
        let seed = xxh3_64(&identity.log_id);
        let mut writer = TableWriter {
            path: path.to_owned(),
            file,
            offset: 0,
            footer: Footer {
                history_rows,
                schema_len: len,
                schema_crc: crc,
                names: Geometry { seed, ..Geometry::default() },
                ..Footer::default()
            },
            directory: Directory::default(),
            columns: Columns::new(&identity),
            identity,
            run: Run::Live,
            last: None,
            first: Vec::new(),
            names: Vec::new(),
            oids: Vec::new(),
            cold_sums: Vec::new(),
        };
        writer.write(&schema)?;
        Ok(writer)
    }

    /// Adds a ref that exists or, in a table that is not the lowest, was deleted. Names ascend.
    ///
    /// `rows` are those of its moves in the history of the same range, ascending.
    pub(crate) fn push(
        &mut self,
        name: &[u8],
        entry: &Entry,
        rows: &[u32],
    ) -> Result<(), TableError> {
        if self.run == Run::Gone {
            return Err(self.refused("no live row behind those that are gone", "one"));
        }
        if entry.target.is_none() && self.identity.is_lowest() {
            return Err(self.refused("no deletion among the live rows", "one"));
        }
        self.add(name, entry, rows)?;
        self.footer.live_rows += 1;
        Ok(())
    }

    /// Adds a ref that was deleted, to the lowest table, behind all that exist. Names ascend.
    pub(crate) fn push_gone(
        &mut self,
        name: &[u8],
        entry: &Entry,
        rows: &[u32],
    ) -> Result<(), TableError> {
        if entry.target.is_some() || !self.identity.is_lowest() {
            return Err(self.refused("a deletion, in the lowest table", "another row"));
        }
        if self.run == Run::Live {
            self.end_block()?;
            self.run = Run::Gone;
            self.last = None;
        }
        self.add(name, entry, rows)?;
        self.footer.gone_rows += 1;
        Ok(())
    }

    /// Writes the indexes, syncs the file and gives it its name, which is durable when the caller
    /// has synced the directory.
    pub(crate) fn finish(mut self) -> Result<(), TableError> {
        self.end_block()?;
        self.write(&EOS)?;
        self.write_oids()?;
        self.write_names()?;
        let sums = std::mem::take(&mut self.cold_sums);
        self.write(&sums)?;
        let directory = self.directory.encode();
        let part =
            Part::of(&directory).ok_or_else(|| self.refused("less than 2^32 bytes", "more"))?;
        self.write(&directory)?;
        (self.footer.directory_len, self.footer.directory_crc) = (part.len, part.crc);
        self.write(&self.footer.encode())?;
        let path = self.path;
        self.file.publish().map_err(|source| TableError::Io { path, source })
    }

    fn add(&mut self, name: &[u8], entry: &Entry, rows: &[u32]) -> Result<(), TableError> {
        self.check_name(name)?;
        self.check_entry(entry)?;
        self.check_rows(rows)?;
        let (block, row) = (self.directory.blocks.len(), self.columns.count());
        let place = Place::new(block, row).ok_or_else(|| self.refused("fewer rows", "more"))?;
        if row == 0 {
            self.first = name.to_vec();
        }
        self.names.push((self.footer.names.hash(name), place));
        if let Some(Target::Object(oid)) = &entry.target {
            self.oids.push((oid_key(oid.as_bytes()), place));
        }
        self.columns.push(name, entry, rows);
        let last = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(name);
        if self.columns.count() == BLOCK_ROWS { self.end_block() } else { Ok(()) }
    }

    fn check_name(&self, name: &[u8]) -> Result<(), TableError> {
        if name.len() > NAME_LEN_MAX || name.contains(&b'\\') {
            return Err(self.refused("a ref name", &String::from_utf8_lossy(name)));
        }
        match &self.last {
            Some(last) if **last >= *name => {
                let expected = format!("a name after {}", String::from_utf8_lossy(last));
                Err(self.refused(&expected, &String::from_utf8_lossy(name)))
            }
            _ => Ok(()),
        }
    }

    fn check_entry(&self, entry: &Entry) -> Result<(), TableError> {
        if !self.identity.covers(entry.seq) {
            let Identity { first, last, .. } = &self.identity;
            let expected = format!("a sequence from {first} to {last}");
            return Err(self.refused(&expected, &entry.seq.to_string()));
        }
        match &entry.target {
            Some(Target::Object(oid)) if oid.format() != self.identity.object_format => {
                Err(self.refused(self.identity.object_format.name(), oid.format().name()))
            }
            _ => Ok(()),
        }
    }

    fn check_rows(&self, rows: &[u32]) -> Result<(), TableError> {
        let rising = rows.is_sorted_by(|a, b| a < b);
        let last = rows.last().map_or(0, |last| u64::from(*last) + 1);
        if !rising || last > self.footer.history_rows {
            let expected = format!("rising row numbers below {}", self.footer.history_rows);
            return Err(self.refused(&expected, "others"));
        }
        if self.columns.row_numbers() + rows.len() > BLOCK_HISTORY_MAX {
            return Err(self.refused("fewer moves of the refs of one block", "too many"));
        }
        Ok(())
    }

    fn end_block(&mut self) -> Result<(), TableError> {
        if self.columns.count() == 0 {
            return Ok(());
        }
        let message = self.columns.take();
        let (hot, cold) = block::split(&message)
            .and_then(|split| message.split_at_checked(split))
            .and_then(|(hot, cold)| {
                let sums = layout::cold_sums(cold);
                let len = u32::try_from(cold.len()).ok()?;
                let cold = Part { len, crc: crc32c::crc32c(&sums) };
                self.cold_sums.extend(sums);
                Some((Part::of(hot)?, cold))
            })
            .ok_or_else(|| self.refused("a block below 4 GiB", "a longer one"))?;
        self.directory.push_block(self.offset, hot, cold, &self.first);
        self.write(&message)
    }

    fn write_oids(&mut self) -> Result<(), TableError> {
        let mut oids = std::mem::take(&mut self.oids);
        oids.sort_unstable();
        self.footer.oid_entries = oids.len() as u64;
        for page in oids.chunks(OID_PAGE_ENTRIES) {
            let mut bytes = Vec::new();
            for (key, place) in page {
                bytes.extend(key.to_le_bytes());
                bytes.extend(place.0.to_le_bytes());
            }
            let entry = OidPage { first: page[0].0, crc: crc32c::crc32c(&bytes) };
            self.directory.oid_pages.push(entry);
            self.write(&bytes)?;
        }
        Ok(())
    }

    fn write_names(&mut self) -> Result<(), TableError> {
        let names = std::mem::take(&mut self.names);
        let (geometry, slots) = Geometry::new(self.footer.names.seed, names.len())
            .and_then(|geometry| names::build(geometry, &names))
            .ok_or_else(|| self.refused("names with different hashes", "others"))?;
        drop(names);
        self.footer.names = geometry;
        for page in slots.chunks(geometry.slots as usize) {
            let bytes: Vec<u8> = page.iter().flat_map(|slot| slot.to_le_bytes()).collect();
            self.directory.name_page_crcs.push(crc32c::crc32c(&bytes));
            self.write(&bytes)?;
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), TableError> {
        self.offset += bytes.len() as u64;
        self.file.write_all(bytes).map_err(|source| self.io(source))
    }

    fn io(&self, source: io::Error) -> TableError {
        TableError::Io { path: self.path.clone(), source }
    }

    fn refused(&self, expected: &str, actual: &str) -> TableError {
        let row = self.footer.live_rows + self.footer.gone_rows;
        let flaw = Flaw::new("row", row, expected, actual);
        TableError::Input { path: self.path.clone(), flaw }
    }
}
