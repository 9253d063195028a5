//! What the transactions of the live log did to the refs, above the tables.

use std::ops::Bound;

use imbl::OrdMap;

use crate::edit::Target;
use crate::name::RefName;

/// A persistent ordered map: a clone is O(1), a change copies one path of the tree.
///
/// `None` is a deletion. It is kept, since a table below may still have the ref; there are never
/// more entries than the live log has rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recent(OrdMap<RefName, Option<Target>>);

impl Recent {
    /// The newest state of a ref, if one of these transactions moved it.
    pub(crate) fn get(&self, name: &[u8]) -> Option<&Option<Target>> {
        self.0.get(name)
    }

    pub(crate) fn put(&mut self, name: RefName, target: Option<Target>) {
        self.0.insert(name, target);
    }

    /// The same for a ref that most likely is there, which leaves its name where it is.
    pub(crate) fn update(&mut self, name: &RefName, target: Option<Target>) {
        match self.0.get_mut(name) {
            Some(held) => *held = target,
            None => self.put(name.clone(), target),
        }
    }

    /// The states from the first name on that is not less than `start`.
    pub(crate) fn from(&self, start: &[u8]) -> Range<'_> {
        self.0.range::<_, [u8]>((Bound::Included(start), Bound::Unbounded))
    }
}

pub(crate) type Range<'a> =
    imbl::ordmap::RangedIter<'a, RefName, Option<Target>, imbl::shared_ptr::DefaultSharedPtr>;
