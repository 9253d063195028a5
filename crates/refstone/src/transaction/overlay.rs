//! The state as the next edit of a batch finds it.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::current::Current;
use crate::edit::Target;
use crate::error::ReadError;
use crate::name::RefName;
use crate::staged::Move;

/// The newest state, and above it what earlier edits of the same frame have moved.
///
/// A transaction that is judged as a whole sees none of its own moves, so it leaves this empty.
#[derive(Debug)]
pub(crate) struct Overlay<'a, 'c> {
    current: &'c Current<'a>,
    moved: BTreeMap<RefName, Option<Target>>,
}

impl<'a, 'c> Overlay<'a, 'c> {
    pub(crate) fn new(current: &'c Current<'a>) -> Overlay<'a, 'c> {
        Overlay { current, moved: BTreeMap::new() }
    }

    /// Notes an edit that passed.
    pub(crate) fn note(&mut self, moved: &Move) {
        self.moved.insert(moved.name.clone(), moved.new.clone());
    }

    /// What a ref holds.
    pub(crate) fn get(&self, name: &[u8]) -> Result<Option<Target>, ReadError> {
        match self.moved.get(name) {
            Some(target) => Ok(target.clone()),
            None => self.current.get(name),
        }
    }

    /// The first name that is not less than `start`, of a ref that is there or was lately.
    pub(crate) fn next_name(&self, start: &[u8]) -> Result<Option<RefName>, ReadError> {
        let range = (Bound::Included(start), Bound::Unbounded);
        let moved = self.moved.range::<[u8], _>(range).next().map(|(name, _)| name.clone());
        Ok(moved.into_iter().chain(self.current.next_name(start)?).min())
    }

    /// A ref whose name starts with `directory` (which ends with a slash).
    pub(crate) fn any_below(&self, directory: &[u8]) -> Result<Option<RefName>, ReadError> {
        let range = (Bound::Included(directory), Bound::Unbounded);
        let moved = self.moved.range::<[u8], _>(range);
        let mut moved = moved.take_while(|(name, _)| name.as_bytes().starts_with(directory));
        if let Some((name, _)) = moved.find(|(_, target)| target.is_some()) {
            return Ok(Some(name.clone()));
        }
        let hidden = |name: &RefName| self.moved.contains_key(name.as_bytes());
        let mut others = self.current.names_below(directory);
        others.find(|name| !name.as_ref().is_ok_and(hidden)).transpose()
    }
}
