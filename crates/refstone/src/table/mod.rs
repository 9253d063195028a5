//! Tables: sorted, immutable files of the refs' state.
//!
//! A table holds, for each ref that the transactions `first..=last` moved, its last state and all its
//! moves in them, and indexes by name and by object. It is a cache: log and history say the same, and
//! a table that is damaged is made anew from them.
//!
//! What is wrong is an error and never a wrong answer: every part of the file is read with its checksum.
//! Blocks and pages are read when they are first needed. Pages, and of a block what lookups need of it,
//! are kept from then on, so that lookups take no lock and, once warm, read nothing. They are read and
//! not mapped: a mapped file that fails to be read kills the process, and here it is an error of one
//! lookup.

// In reading order. The values, and the parts of the file.
mod error;

mod layout;

mod schema;

mod names;

mod block;

mod row;

mod step;

mod lines;

// Reading.
mod source;

mod open;

mod read;

mod run;

mod window;

mod trail;

mod cursor;

mod verify;

// Writing.
mod columns;

mod spool;

mod moves;

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
pub(crate) use step::{Step, decode_alone, encode_alone};
pub(crate) use trail::{Order, Trail};
pub(crate) use writer::{Steps, TableWriter};

use crate::edit::Target;
use crate::name::RefName;
use crate::oid::ObjectId;
use block::Block;
use layout::{Directory, Footer, Sections};
use lines::Line;
use names::Bucket;
use source::Source;
use step::Base;

/// The state of a ref, and the move that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) seq: Seq,
    pub(crate) at: Timestamp,
    /// `None` if the move deleted the ref.
    pub(crate) target: Option<Target>,
}

impl Entry {
    /// The state that a move makes. A checksum proves what it says.
    pub(crate) fn of(step: &Step<'_>) -> Entry {
        let object = step.new_oid.and_then(|oid| ObjectId::from_bytes(oid).ok());
        let symbolic = || step.symref.map(RefName::from_proven);
        let target = object.map(Target::Object).or_else(|| symbolic().map(Target::Symbolic));
        Entry { seq: step.seq, at: step.at, target }
    }

    /// What the newest move is told by.
    fn base(&self) -> Base<'_> {
        let oid = match &self.target {
            Some(Target::Object(oid)) => Some(oid.as_bytes()),
            _ => None,
        };
        Base { seq: self.seq, at: self.at, oid }
    }

    /// Whether that is the move that made this state.
    fn is_of(&self, step: &Step<'_>) -> bool {
        let symbolic = self.target.as_ref().and_then(Target::symbolic).map(RefName::as_bytes);
        (step.seq, step.at) == (self.seq, self.at)
            && (step.new_oid, step.symref) == (self.base().oid, symbolic)
    }
}

/// Whether a move of a ref may stand behind a newer one, or, if there is none, be the newest.
fn follows(identity: &Identity, entry: &Entry, newer: Option<Seq>, step: &Step<'_>) -> bool {
    let in_order = match newer {
        None => entry.is_of(step),
        Some(newer) => step.seq <= newer,
    };
    in_order && step.seq != Seq::ZERO && identity.covers(step.seq)
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
