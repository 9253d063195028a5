//! Names that collide: reached twice, or one of them a directory of the other.

use std::collections::{BTreeMap, HashMap};

use crate::edit::{Deref, Target};
use crate::name::RefName;
use crate::refusal::Reason;
use crate::symref::ChainEnd;
use crate::transaction::overlay::Overlay;
use crate::transaction::plan::Plan;

/// The refs that a transaction reaches over symbolic refs, beside those it names.
#[derive(Debug, Default)]
pub(crate) struct Reached<'a> {
    by_name: HashMap<&'a [u8], Reach<'a>>,
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
        let other = plan.named.get(name).copied().or(earlier)?;
        let edits = [other, reach.edit];
        let reason = reach.duplicate(plan, other);
        Some(Shared { edits, reason })
    }

    /// The edit of the transaction that names or reaches this ref.
    fn edit_of(&self, plan: &Plan<'_>, name: &[u8]) -> Option<usize> {
        let reached = || self.by_name.get(name).map(|reach| reach.edit);
        plan.named.get(name).copied().or_else(reached)
    }

    /// Edits of missing refs whose names stand in each other's way, by their index.
    ///
    /// One lookup per directory finds each pair, from its longer name.
    pub(crate) fn crowded(&self, plan: &Plan<'_>, ends: &[ChainEnd]) -> BTreeMap<usize, Reason> {
        let mut crowded = BTreeMap::new();
        for (long, end) in missing(ends) {
            for directory in end.name.directories() {
                let Some(short) = self.edit_of(plan, directory) else {
                    continue;
                };
                let other = &ends[short];
                if other.target.is_none() && other.name.as_bytes() == directory {
                    crowded.entry(long).or_insert_with(|| same_time(end, other));
                    crowded.entry(short).or_insert_with(|| same_time(other, end));
                }
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

/// Refuses a new name if a ref stands in its way: one of its directories, or a ref below it.
///
/// Costs one lookup per directory and two seeks.
pub(crate) fn in_the_way(wanted: &RefName, refs: &Overlay<'_, '_>) -> Result<(), Reason> {
    let refuse = |in_the_way| Reason::DirectoryFile { wanted: wanted.clone(), in_the_way };
    for directory in wanted.directories() {
        if refs.get(directory)?.is_some() {
            let name = RefName::new(directory).expect("the name of a ref was checked before");
            return Err(refuse(name));
        }
    }
    let directory = [wanted.as_bytes(), b"/"].concat();
    refs.any_below(&directory)?.map_or(Ok(()), |name| Err(refuse(name)))
}
