//! Writing a table, row by row.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use refstone_log::{Env, Seq};
use xxhash_rust::xxh3::xxh3_64;

use super::columns::Columns;
use super::error::{Flaw, TableError};
use super::layout::{
    BLOCK_ROWS, Directory, EOS, Footer, OID_PAGE_ENTRIES, OidPage, Part, Place, SUMS_PAGE, index,
};
use super::moves::Moves;
use super::names::{self, Geometry};
use super::read::oid_key;
use super::schema::Identity;
use super::step::Step;
use super::{Entry, follows};
use crate::edit::Target;
use crate::name::NAME_LEN_MAX;
use crate::new_file::{NewFile, TEMPORARY};

/// A table being written: the live rows in order, then, in the lowest table, those that are gone.
///
/// Memory: a block, some MiB of moves, and some 32 bytes per ref for the indexes. Dropped before it is
/// finished, it leaves nothing.
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
    moves: Moves<'e>,
    /// Where those of the open block begin.
    moves_start: u64,
}

/// Which rows are being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    Live,
    Gone,
}

impl<'e> TableWriter<'e> {
    /// Starts a table that is to be called `path`; `history_rows` is how many rows the history of
    /// the same range has, and so how many moves there will be.
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
            moves: Moves::new(env, spool_of(path)),
            moves_start: 0,
        };
        writer.write(&schema)?;
        Ok(writer)
    }

    /// Adds a ref that exists or, in a table that is not the lowest, was deleted. Names ascend.
    ///
    /// `tell` tells its moves, newest first, of which the newest is the one that made its state.
    pub(crate) fn push(
        &mut self,
        name: &[u8],
        entry: &Entry,
        tell: impl FnOnce(&mut Steps<'_, 'e>) -> Result<(), TableError>,
    ) -> Result<(), TableError> {
        if self.run == Run::Gone {
            return Err(self.refused("no live row behind those that are gone", "one"));
        }
        if entry.target.is_none() && self.identity.is_lowest() {
            return Err(self.refused("no deletion among the live rows", "one"));
        }
        self.add(name, entry, tell)?;
        self.footer.live_rows += 1;
        Ok(())
    }

    /// Adds a ref that was deleted, to the lowest table, behind all that exist. Names ascend.
    pub(crate) fn push_gone(
        &mut self,
        name: &[u8],
        entry: &Entry,
        tell: impl FnOnce(&mut Steps<'_, 'e>) -> Result<(), TableError>,
    ) -> Result<(), TableError> {
        if entry.target.is_some() || !self.identity.is_lowest() {
            return Err(self.refused("a deletion, in the lowest table", "another row"));
        }
        if self.run == Run::Live {
            self.end_block()?;
            self.run = Run::Gone;
            self.last = None;
        }
        self.add(name, entry, tell)?;
        self.footer.gone_rows += 1;
        Ok(())
    }

    /// Writes moves and indexes, syncs the file and gives it its name, which is durable when the caller
    /// has synced the directory.
    pub(crate) fn finish(mut self) -> Result<(), TableError> {
        self.end_block()?;
        self.write(&EOS)?;
        let sums = self.write_moves()?;
        self.write_oids()?;
        self.write_names()?;
        for page in sums.chunks(index(SUMS_PAGE)) {
            self.directory.sums_page_crcs.push(crc32c::crc32c(page));
        }
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

    fn add(
        &mut self,
        name: &[u8],
        entry: &Entry,
        tell: impl FnOnce(&mut Steps<'_, 'e>) -> Result<(), TableError>,
    ) -> Result<(), TableError> {
        self.check_name(name)?;
        self.check_entry(entry)?;
        self.add_moves(entry, tell)?;
        let (block, row) = (self.directory.blocks.len(), self.columns.count());
        let place = Place::new(block, row).ok_or_else(|| self.refused("fewer rows", "more"))?;
        if row == 0 {
            self.first = name.to_vec();
        }
        self.names.push((self.footer.names.hash(name), place));
        if let Some(Target::Object(oid)) = &entry.target {
            self.oids.push((oid_key(oid.as_bytes()), place));
        }
        self.columns.push(name, entry, self.moves.len());
        let last = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(name);
        if self.columns.count() == BLOCK_ROWS { self.end_block() } else { Ok(()) }
    }

    /// A ref without moves is `HEAD` as the log began with it.
    fn add_moves(
        &mut self,
        entry: &Entry,
        tell: impl FnOnce(&mut Steps<'_, 'e>) -> Result<(), TableError>,
    ) -> Result<(), TableError> {
        self.moves.start_ref(entry.base());
        let before = self.moves.count;
        tell(&mut Steps { writer: self, entry, newer: None })?;
        if self.moves.count == before && entry.seq != Seq::ZERO {
            return Err(self.refused("the move that made a state", "none"));
        }
        self.moves.end_chunk().map_err(|source| self.io(source))
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

    fn end_block(&mut self) -> Result<(), TableError> {
        if self.columns.count() == 0 {
            return Ok(());
        }
        let bytes = self.columns.take();
        let message =
            Part::of(&bytes).ok_or_else(|| self.refused("a block below 4 GiB", "a longer one"))?;
        self.directory.push_block(self.offset, message, self.moves_start, &self.first);
        self.moves_start = self.moves.len();
        self.write(&bytes)
    }

    /// Returns the checksums of its pages.
    fn write_moves(&mut self) -> Result<Vec<u8>, TableError> {
        let rows = self.footer.history_rows;
        if self.moves.count != rows {
            let expected = format!("the moves of {rows} rows of history");
            return Err(self.refused(&expected, &self.moves.count.to_string()));
        }
        self.footer.moves_len = self.moves.len();
        self.offset += self.moves.len();
        let written = self.moves.finish(|piece| self.file.write_all(piece));
        written.map_err(|source| self.io(source))
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

/// Takes the moves of one ref, newest first.
pub(crate) struct Steps<'w, 'e> {
    writer: &'w mut TableWriter<'e>,
    entry: &'w Entry,
    newer: Option<Seq>,
}

impl Steps<'_, '_> {
    pub(crate) fn push(&mut self, step: &Step<'_>) -> Result<(), TableError> {
        let Steps { writer, entry, newer } = self;
        if !follows(&writer.identity, entry, *newer, step) {
            let expected = "the move that made the state, or the one before another";
            return Err(writer.refused(expected, &format!("a move of transaction {}", step.seq)));
        }
        *newer = Some(step.seq);
        let base = writer.identity.base();
        writer.moves.push(step, base).map_err(|source| writer.io(source))
    }
}

/// Where moves wait for their place.
fn spool_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".moves");
    name.push(TEMPORARY);
    name.into()
}
