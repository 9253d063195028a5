//! Tables: sorted, immutable files of the refs' state.
//!
//! A table holds, for each ref that the transactions `first..=last` moved, its last state, where
//! its moves are in the history of the same range, and indexes by name and by object. It is a
//! cache: log and history say the same, and a table that is damaged is made anew from them.
//!
//! What is wrong is an error and never a wrong answer: every part of the file is read with its
//! checksum. Blocks and pages are read when they are first needed. Pages, and of a block what lookups
//! need of it, are kept from then on, so that lookups take no lock and, once warm, read nothing. They are read and not mapped: a mapped file
//! that fails to be read kills the process, and here it is an error of one lookup.

// In reading order. The values, and the parts of the file.
mod error;

mod layout;

mod schema;

mod names;

mod block;

mod row;

mod lines;

// Reading.
mod source;

mod open;

mod read;

mod run;

mod cursor;

mod verify;

// Writing.
mod columns;

mod writer;

mod merge;

#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use refstone_log::{Seq, Timestamp};

pub(crate) use cursor::Cursor;
pub(crate) use error::TableError;
pub(crate) use merge::merge;
pub(crate) use run::Run;
pub(crate) use schema::Identity;
pub(crate) use writer::TableWriter;

use crate::edit::Target;
use block::Block;
use layout::{Directory, Footer, Sections};
use lines::Line;
use names::Bucket;
use source::Source;

/// The state of a ref, and the move that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) seq: Seq,
    pub(crate) at: Timestamp,
    /// `None` if the move deleted the ref.
    pub(crate) target: Option<Target>,
}

/// A table that was opened. Its file may be opened anew for each read.
#[derive(Debug)]
pub(crate) struct Table {
    source: Source,
    len: u64,
    identity: Identity,
    footer: Footer,
    directory: Directory,
    sections: Sections,
    /// What was read of the file; a cell is filled once.
    blocks: Box<[OnceLock<Arc<Block>>]>,
    lines: Box<[OnceLock<Box<[Line]>>]>,
    oid_pages: Box<[OnceLock<Box<[u8]>>]>,
    name_pages: Box<[OnceLock<Box<[Bucket]>>]>,
}
