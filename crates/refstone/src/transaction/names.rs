//! Names that collide: reached twice, or one of them a directory of the other.

use std::collections::{BTreeMap, HashMap};

use crate::edit::{Deref, Target};
use crate::error::ReadError;
use crate::name::{NameHashing, RefName};
use crate::refusal::Reason;
use crate::symref::ChainEnd;
use crate::transaction::overlay::Overlay;
use crate::transaction::plan::Plan;

/// The refs that a transaction reaches over symbolic refs, beside those it names.
#[derive(Debug, Default)]
pub(crate) struct Reached<'a> {
    by_name: HashMap<&'a [u8], Reach<'a>, NameHashing>,
}

/// How an edit gets to a ref that it does not name.
#[derive(Clone, Copy, Debug)]
struct Reach<'a> {
    edit: usize,
    name: &'a RefName,
    via: &'a RefName,
}

impl Reach<'_> {
    /// Git words it from the side of the edit it comes to first, and from that of `HEAD` if an edit
    /// of `HEAD` itself meets one of its branch.
    fn duplicate(&self, plan: &Plan<'_>, other: usize) -> Reason {
        let unfollowed = plan.edits[self.edit].deref == Deref::NoFollow;
        let from_head = self.via.is_head() && (unfollowed || other < self.edit);
        let (shared, via) = match from_head {
            true => (self.via, self.name),
            false => (self.name, self.via),
        };
        let (shared, via) = (shared.clone(), Some(via.clone()));
        Reason::Duplicate { shared, via }
    }
}

/// Two edits get to one ref.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) edits: [usize; 2],
    pub(crate) reason: Reason,
}

impl<'a> Reached<'a> {
    /// Notes what one edit reaches; reports each ref that another edit gets to as well.
    pub(crate) fn add(&mut self, plan: &Plan<'_>, edit: usize, end: &'a ChainEnd) -> Vec<Shared> {
        let reaches = reaches(plan, edit, end);
        reaches.into_iter().filter_map(|reach| self.note(plan, reach)).collect()
    }

    fn note(&mut self, plan: &Plan<'_>, reach: Reach<'a>) -> Option<Shared> {
        let name = reach.name.as_bytes();
        let earlier = self.by_name.insert(name, reach).map(|earlier| earlier.edit);
        let other = plan.named.get(name).or(earlier)?;
        let edits = [other, reach.edit];
        let reason = reach.duplicate(plan, other);
        Some(Shared { edits, reason })
    }

    /// The edit of the transaction that names or reaches this ref.
    fn edit_of(&self, plan: &Plan<'_>, name: &[u8]) -> Option<usize> {
        let reached = || self.by_name.get(name).map(|reach| reach.edit);
        plan.named.get(name).or_else(reached)
    }

    /// Edits of missing refs whose names stand in each other's way, by their index.
    ///
    /// One lookup per directory finds each pair, from its longer name. A directory in which a name
    /// was alone is not looked up again for the next name.
    pub(crate) fn crowded(&self, plan: &Plan<'_>, ends: &[ChainEnd]) -> BTreeMap<usize, Reason> {
        let mut crowded = BTreeMap::new();
        let mut alone: &[u8] = b"";
        for (long, end) in missing(ends) {
            for directory in end.name.directories_beside(std::mem::take(&mut alone)) {
                let Some(short) = self.edit_of(plan, directory) else {
                    continue;
                };
                let other = &ends[short];
                if other.target.is_none() && other.name.as_bytes() == directory {
                    crowded.entry(long).or_insert_with(|| same_time(end, other));
                    crowded.entry(short).or_insert_with(|| same_time(other, end));
                }
            }
            if !crowded.contains_key(&long) {
                alone = end.name.as_bytes();
            }
        }
        crowded
    }
}

fn missing(ends: &[ChainEnd]) -> impl Iterator<Item = (usize, &ChainEnd)> {
    let ends = ends.iter().enumerate();
    ends.filter(|(_, end)| end.target.is_none())
}

fn same_time(wanted: &ChainEnd, other: &ChainEnd) -> Reason {
    Reason::SameTime { wanted: wanted.name.clone(), other: other.name.clone() }
}

fn reaches<'a>(plan: &Plan<'_>, edit: usize, end: &'a ChainEnd) -> Vec<Reach<'a>> {
    // Git logs every move of the branch that HEAD points to for HEAD too, and therefore refuses an
    // edit of HEAD itself beside an edit of that branch. So does this store.
    if let (true, Some(Target::Symbolic(name))) = (end.name.is_head(), &end.target) {
        debug_assert_eq!(plan.edits[edit].deref, Deref::NoFollow);
        let via = &end.name;
        return vec![Reach { edit, name, via }];
    }
    let names = end.through.iter().skip(1).chain([&end.name]);
    let pairs = end.through.iter().zip(names);
    pairs.map(|(via, name)| Reach { edit, name, via }).collect()
}

/// Where new names can be.
///
/// What was not there need not be looked for again while no ref moves, and names that follow one
/// another lie in the same directories, and in the same gap between the refs that are there.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// A name none of whose directories is a ref.
    free: Option<RefName>,
    gap: Option<Gap>,
    /// The last directory that was looked below.
    directory: Vec<u8>,
}

/// No ref has a name from `start` on and before `end`; `None` is the end of all names.
#[derive(Debug)]
struct Gap {
    start: Vec<u8>,
    end: Option<RefName>,
}

impl Gap {
    /// Whether no name starts with these bytes.
    fn has_all_of(&self, prefix: &[u8]) -> bool {
        let before = |end: &RefName| prefix < end.as_bytes() && !end.as_bytes().starts_with(prefix);
        self.start.as_slice() <= prefix && self.end.as_ref().is_none_or(before)
    }
}

impl Places {
    /// Refuses a new name if a ref stands in its way: one of its directories, or a ref below it.
    ///
    /// Costs one lookup per directory and a seek, where they are not known.
    pub(crate) fn check(&mut self, wanted: &RefName, refs: &Overlay<'_, '_>) -> Result<(), Reason> {
        let refuse = |in_the_way| Reason::DirectoryFile { wanted: wanted.clone(), in_the_way };
        let free = self.free.as_ref().map_or(&b""[..], RefName::as_bytes);
        for directory in wanted.directories_beside(free) {
            if refs.get(directory)?.is_some() {
                let name = RefName::new(directory).expect("the name of a ref was checked before");
                return Err(refuse(name));
            }
        }
        self.free = Some(wanted.clone());
        self.below(wanted, refs)?.map_or(Ok(()), |name| Err(refuse(name)))
    }

    /// A ref below a name.
    fn below(
        &mut self,
        wanted: &RefName,
        refs: &Overlay<'_, '_>,
    ) -> Result<Option<RefName>, ReadError> {
        self.directory.clear();
        self.directory.extend_from_slice(wanted.as_bytes());
        self.directory.push(b'/');
        if self.gap.as_ref().is_some_and(|gap| gap.has_all_of(&self.directory)) {
            return Ok(None);
        }
        let gap = Gap { start: self.directory.clone(), end: refs.next_name(&self.directory)? };
        if gap.has_all_of(&self.directory) {
            self.gap = Some(gap);
            return Ok(None);
        }
        refs.any_below(&self.directory)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use refstone_log::Seq;

    use super::*;
    use crate::current::Current;
    use crate::oid::ObjectId;
    use crate::snapshot::Snapshot;
    use crate::staged::{Move, StagedChanges};

    fn names() -> impl Strategy<Value = BTreeSet<RefName>> {
        let level = prop::sample::select(vec!["a", "a-", "ab", "b"]);
        let name = prop::collection::vec(level, 1..4);
        let name =
            name.prop_map(|levels| RefName::new(format!("refs/{}", levels.join("/"))).unwrap());
        prop::collection::btree_set(name, 0..8)
    }

    fn id() -> ObjectId {
        ObjectId::from_bytes(&[1; 20]).unwrap()
    }

    fn moved(name: &RefName, exists: bool) -> Move {
        let value = |there: bool| there.then(id);
        Move { name: name.clone(), old: value(!exists), new: value(exists).map(Target::Object) }
    }

    fn stands_in_the_way(there: &BTreeSet<RefName>, wanted: &RefName) -> bool {
        let lies_in = |name: &RefName, other: &RefName| {
            name.directories().any(|directory| directory == other.as_bytes())
        };
        there.iter().any(|name| lies_in(name, wanted) || lies_in(wanted, name))
    }

    proptest! {
        // Breaks: a gap that ends at a name below the wanted one; a directory remembered as free
        // for a name that does not lie in it; a staged deletion that hides nothing.
        #[test]
        fn what_is_remembered_of_places_refuses_the_same_names(
            durable in names(),
            created in names(),
            deleted in names(),
            wanted in prop::collection::vec(names(), 1..3),
        ) {
            let (mut view, mut staged) = (Snapshot::default(), StagedChanges::default());
            for name in &durable {
                view.recent.put(name.clone(), Some(id().into()));
            }
            let created: BTreeSet<_> = created.difference(&durable).cloned().collect();
            staged.push(Seq::new(1), created.iter().map(|name| moved(name, true)).collect());
            staged.push(Seq::new(2), deleted.iter().map(|name| moved(name, false)).collect());
            let there = durable.union(&created).filter(|name| !deleted.contains(*name));
            let there: BTreeSet<_> = there.cloned().collect();
            let current = Current::new(&staged, &view);
            let (refs, mut places) = (Overlay::new(&current), Places::default());
            for wanted in wanted.iter().flatten().filter(|name| !there.contains(*name)) {
                let refused = places.check(wanted, &refs).is_err();
                prop_assert_eq!(refused, stands_in_the_way(&there, wanted), "{}", wanted);
            }
        }
    }
}
