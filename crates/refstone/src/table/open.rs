//! Opening a table: footer, directory and schema, and no row.

use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use refstone_log::Env;

use super::Table;
use super::error::TableError;
use super::layout::{Directory, FOOTER_LEN, Footer, Part, Sections};
use super::schema::Identity;
use super::source::Source;

/// What is read from the end at first: footer and, up to some hundred thousand refs, the whole directory.
const TAIL: usize = 16 << 10;

impl Table {
    /// Opens a table, and keeps the file open. It costs two reads, or three if there are more than some
    /// hundred thousand refs.
    ///
    /// # Errors
    ///
    /// If the operating system fails, or if the file is not as it was written.
    pub(crate) fn open(env: &dyn Env, path: &Path) -> Result<Table, TableError> {
        let at_path = |source: io::Error| TableError::Io { path: path.to_owned(), source };
        let file = env.open_read(path).map_err(at_path)?;
        let len = file.len().map_err(at_path)?;
        let source = Source::held(path.to_owned(), file);
        let tail = read_tail(&source, len)?;
        let footer = footer(&source, len, &tail)?;
        let (directory, sections) = directory(&source, len, &tail, &footer)?;
        let identity = identity(&source, &footer)?;
        Ok(Table {
            blocks: cells(directory.blocks.len()),
            lines: cells(directory.blocks.len()),
            oid_pages: cells(directory.oid_pages.len()),
            name_pages: cells(directory.name_page_crcs.len()),
            source,
            len,
            identity,
            footer,
            directory,
            sections,
        })
    }
}

impl Table {
    /// The same table, which opens its file anew for each read and keeps no descriptor.
    ///
    /// Who removes the file, or gives its name to another one, must [hold](Table::hold) it first.
    pub(crate) fn let_go(self, env: Arc<dyn Env>) -> Table {
        Table { source: self.source.let_go(env), ..self }
    }

    /// Keeps the file open from now on: those who still read this table must not miss it.
    ///
    /// # Errors
    ///
    /// If it cannot be opened.
    pub(crate) fn hold(&self) -> Result<(), TableError> {
        self.source.hold()
    }
}

fn cells<T>(count: usize) -> Box<[OnceLock<T>]> {
    std::iter::repeat_with(OnceLock::new).take(count).collect()
}

fn read_tail(source: &Source, len: u64) -> Result<Box<[u8]>, TableError> {
    let tail = usize::try_from(len).map_or(TAIL, |len| len.min(TAIL));
    if tail < FOOTER_LEN {
        let expected = format!("at least {FOOTER_LEN} bytes");
        return Err(source.damaged("the file's end at byte", len, expected, len.to_string()));
    }
    source.read_raw("the file's end at byte", len - tail as u64, tail)
}

fn footer(source: &Source, len: u64, tail: &[u8]) -> Result<Footer, TableError> {
    let bytes = &tail[tail.len() - FOOTER_LEN..];
    Footer::decode(bytes, len - FOOTER_LEN as u64).map_err(|flaw| source.flawed(flaw))
}

fn directory(
    source: &Source,
    len: u64,
    tail: &[u8],
    footer: &Footer,
) -> Result<(Directory, Sections), TableError> {
    const WHAT: &str = "the directory at byte";
    let part = Part { len: footer.directory_len, crc: footer.directory_crc };
    let end = len - FOOTER_LEN as u64;
    let offset = end.checked_sub(u64::from(part.len)).ok_or_else(|| {
        source.damaged(WHAT, end, format!("{} bytes before it", part.len), "fewer")
    })?;
    let held = tail[..tail.len() - FOOTER_LEN].len().checked_sub(part.len as usize);
    let bytes = match held {
        Some(start) => {
            let bytes = &tail[start..][..part.len as usize];
            source.check(WHAT, offset, part.crc, bytes)?;
            bytes.into()
        }
        None => source.read(WHAT, offset, part)?,
    };
    let directory = Directory::decode(&bytes, footer);
    let found = directory.and_then(|directory| {
        let sections = Sections::new(footer, &directory)?;
        (sections.end == offset).then_some((directory, sections))
    });
    found.ok_or_else(|| source.damaged(WHAT, offset, "lengths that sum up to it", "others"))
}

fn identity(source: &Source, footer: &Footer) -> Result<Identity, TableError> {
    let part = Part { len: footer.schema_len, crc: footer.schema_crc };
    let message = source.read("the schema at byte", 0, part)?;
    Identity::decode(&message).map_err(|flaw| source.flawed(flaw))
}
