//! The refs that prepared transactions hold.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use bstr::{BStr, BString};
use parking_lot::{Mutex, MutexGuard};

use crate::name::RefName;
use crate::refusal::Reason;

/// What is held by whom; clones share it.
///
/// Names are added and looked up under the log's writer mutex, like everything a verdict rests on.
/// They may be released at any time: that only lets more pass. Nothing of this is on disk, so a
/// process that dies holds nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holds {
    held: Arc<Mutex<Held>>,
}

/// The held names, each with the actor of the transaction that holds it.
///
/// A name has one holder: whoever asks for a name that is held is refused.
#[derive(Debug, Default)]
pub(crate) struct Held {
    by_name: BTreeMap<RefName, BString>,
}

/// Names that are held until this is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    holds: Holds,
    names: BTreeSet<RefName>,
}

impl Holds {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock()
    }

    /// Holds names that [`Held::refuses`] has found free, under the same lock.
    pub(crate) fn hold(&self, held: &mut Held, names: BTreeSet<RefName>, actor: &BStr) -> Hold {
        held.by_name.extend(names.iter().map(|name| (name.clone(), actor.to_owned())));
        Hold { holds: self.clone(), names }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut held = self.holds.lock();
        self.names.iter().for_each(|name| drop(held.by_name.remove(name)));
    }
}

impl Held {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Refuses an edit that rests on a held ref, or whose missing ref is in the way of one.
    ///
    /// A held name may be one that is about to be created, so to the others it is as if the ref
    /// were there already.
    pub(crate) fn refuses<'n>(
        &self,
        rests_on: impl IntoIterator<Item = &'n RefName>,
        missing: Option<&RefName>,
    ) -> Result<(), Reason> {
        let held = rests_on.into_iter().find_map(|name| self.by_name.get_key_value(name));
        match held.or_else(|| self.in_the_way(missing?)) {
            Some((held, by)) => Err(Reason::Locked { held: held.clone(), by: by.clone() }),
            None => Ok(()),
        }
    }

    fn in_the_way(&self, missing: &RefName) -> Option<(&RefName, &BString)> {
        let above = missing.directories().find_map(|name| self.by_name.get_key_value(name));
        above.or_else(|| self.below(&[missing.as_bytes(), b"/"].concat()))
    }

    fn below(&self, directory: &[u8]) -> Option<(&RefName, &BString)> {
        let range = (Bound::Included(directory), Bound::Unbounded);
        let first = self.by_name.range::<[u8], _>(range).next();
        first.filter(|(name, _)| name.as_bytes().starts_with(directory))
    }
}
