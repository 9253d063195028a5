//! One row of a table.

use std::borrow::Cow;

use refstone_log::{Seq, Timestamp};

use super::Entry;
use super::block::Block;
use crate::edit::Target;
use crate::name::RefName;
use crate::oid::ObjectId;

/// A ref's last state, each part read when it is asked for: they lie apart from each other, and a
/// lookup takes as long as the memory that it waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    block: &'a Block,
    row: usize,
}

impl<'a> Row<'a> {
    pub(super) fn new(block: &'a Block, row: usize) -> Row<'a> {
        Row { block, row }
    }

    /// The raw name.
    pub(crate) fn name(self) -> Cow<'a, [u8]> {
        self.block.name(self.row)
    }

    /// What the ref holds; `None` if it was deleted. Allocates for a symbolic one alone.
    #[inline]
    pub(crate) fn target(self) -> Option<Target> {
        if let Some(oid) = self.oid() {
            let oid = ObjectId::from_bytes(oid).expect("the schema gives the width of an id");
            return Some(Target::Object(oid));
        }
        self.symref().map(|name| Target::Symbolic(RefName::from_proven(&name)))
    }

    /// The object's raw id, if it holds one.
    #[inline]
    pub(crate) fn oid(self) -> Option<&'a [u8]> {
        self.block.oid(self.row)
    }

    /// The raw name of the ref it points to, if it is symbolic.
    pub(crate) fn symref(self) -> Option<Cow<'a, [u8]>> {
        self.block.symref(self.row)
    }

    /// Whether the state is that the ref was deleted.
    pub(crate) fn is_deletion(self) -> bool {
        self.oid().is_none() && self.symref().is_none()
    }

    /// The transaction that made the state.
    pub(crate) fn seq(self) -> Seq {
        self.block.seq(self.row)
    }

    /// When that was.
    pub(crate) fn at(self) -> Timestamp {
        self.block.at(self.row)
    }

    /// All of it.
    #[inline]
    pub(crate) fn entry(self) -> Entry {
        Entry { seq: self.seq(), at: self.at(), target: self.target() }
    }
}
