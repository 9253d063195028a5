//! What a validator sees: the durable view with the staged moves above it.

use std::cell::Cell;

use refstone_log::Seq;

use crate::edit::Target;
use crate::error::ReadError;
use crate::name::RefName;
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
}

impl<'a> Current<'a> {
    pub(crate) fn new(staged: &'a StagedChanges, durable: &'a Snapshot) -> Current<'a> {
        Current { staged, durable, newest_read: Cell::new(Seq::ZERO) }
    }

    /// What a ref holds.
    pub(crate) fn get(&self, name: &[u8]) -> Result<Option<Target>, ReadError> {
        match self.staged.get(name) {
            Some(staged) => Ok(self.note(staged).cloned()),
            None => self.durable.get(name),
        }
    }

    /// The refs whose names start with `directory` (which ends with a slash), in no useful order.
    ///
    /// A deletion that is staged hides a durable ref, and counts as read.
    pub(crate) fn names_below(
        &self,
        directory: &[u8],
    ) -> impl Iterator<Item = Result<RefName, ReadError>> {
        let staged = self.staged.below(directory);
        let staged = staged.filter(|(_, staged)| self.note(staged).is_some());
        let staged = staged.map(|(name, _)| Ok(name.clone()));
        let hidden = |name: &RefName| self.staged.get(name.as_bytes()).is_some();
        let durable = self.durable.below(directory).map(|item| item.map(|(name, _)| name));
        let durable = durable.filter(move |item| !item.as_ref().is_ok_and(hidden));
        staged.chain(durable)
    }

    /// The newest undurable transaction of which something was read; zero if none.
    pub(crate) fn newest_read(&self) -> Seq {
        self.newest_read.get()
    }

    fn note(&self, staged: &'a StagedRef) -> Option<&'a Target> {
        self.newest_read.set(self.newest_read.get().max(staged.seq));
        staged.target.as_ref()
    }
}
