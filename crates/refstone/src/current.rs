//! What a validator sees: the durable view with the staged moves above it.

use std::cell::Cell;

use refstone_log::Seq;

use crate::edit::Target;
use crate::error::ReadError;
use crate::name::RefName;
use crate::recent::Leaf;
use crate::snapshot::Snapshot;
use crate::staged::{StagedChanges, StagedRef};

/// The newest state, durable or not, which remembers how much of it was undurable when read.
///
/// A verdict is an answer about what was read. It may be given only when all of that is durable,
/// or a crash could take back the state that a client was told about.
#[derive(Debug)]
pub(crate) struct Current<'a> {
    staged: &'a StagedChanges,
    durable: &'a Snapshot,
    newest_read: Cell<Seq>,
    /// Where the last name was looked up.
    near: Cell<Leaf<'a>>,
}

impl<'a> Current<'a> {
    pub(crate) fn new(staged: &'a StagedChanges, durable: &'a Snapshot) -> Current<'a> {
        Current { staged, durable, newest_read: Cell::new(Seq::ZERO), near: Cell::default() }
    }

    /// What a ref holds.
    pub(crate) fn get(&self, name: &[u8]) -> Result<Option<Target>, ReadError> {
        match self.staged.get(name) {
            Some(staged) => Ok(self.note(&staged).cloned()),
            None => self.durable.get_near(name, &self.near),
        }
    }

    /// The refs whose names start with `directory` (which ends with a slash), in no useful order.
    ///
    /// A deletion that is staged hides a durable ref, and counts as read.
    pub(crate) fn names_below(
        &self,
        directory: &[u8],
    ) -> impl Iterator<Item = Result<RefName, ReadError>> {
        let is_there = |name: &RefName| {
            let staged = self.staged.get(name.as_bytes());
            staged.is_none_or(|staged| self.note(&staged).is_some())
        };
        let staged = self.staged.created_below(directory).cloned().map(Ok);
        let durable = self.durable.below(directory).map(|item| item.map(|(name, _)| name));
        staged.chain(durable).filter(move |item| item.as_ref().map_or(true, is_there))
    }

    /// The first name that is not less than `start`, of a ref that is there or was lately.
    pub(crate) fn next_name(&self, start: &[u8]) -> Result<Option<RefName>, ReadError> {
        let staged = self.staged.next_name(start).cloned();
        Ok(staged.into_iter().chain(self.durable.next_name(start)?).min())
    }

    /// The newest undurable transaction of which something was read; zero if none.
    pub(crate) fn newest_read(&self) -> Seq {
        self.newest_read.get()
    }

    fn note(&self, staged: &StagedRef<'a>) -> Option<&'a Target> {
        self.newest_read.set(self.newest_read.get().max(staged.seq));
        staged.target
    }
}
