//! What the transactions of the live log did to the refs, above the tables.

use std::cell::Cell;
use std::cmp::Ordering;
use std::slice;
use std::sync::Arc;

use crate::edit::Target;
use crate::name::RefName;
use crate::staged::Move;

/// A persistent ordered map: a clone is O(1), a change copies one path of the tree.
///
/// `None` is a deletion. It is kept, since a table below may still have the ref; there are never
/// more entries than the live log has rows. So nothing is ever removed, and the tree needs to know
/// one thing that maps of libraries do not: how to take a whole transaction, of which most moves
/// that follow one another go to the same leaf. A million new refs are laid out side by side.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recent {
    root: Arc<Node>,
}

/// A ref and its newest state.
type Entry = (RefName, Option<Target>);

/// A change copies the leaf it falls into, so leaves are small.
const LEAF_MAX: usize = 16;
const BRANCH_MAX: usize = 32;

#[derive(Clone, Debug)]
enum Node {
    /// In the order of their names.
    Leaf(Vec<Entry>),
    Branch(Vec<Child>),
}

#[derive(Clone, Debug)]
struct Child {
    /// Not greater than any name in the child, unless the child has no left neighbour: nobody asks
    /// then.
    first: RefName,
    node: Arc<Node>,
}

impl Default for Node {
    fn default() -> Node {
        Node::Leaf(Vec::new())
    }
}

impl Recent {
    /// The newest state of a ref, if one of these transactions moved it.
    pub(crate) fn get(&self, name: &[u8]) -> Option<&Option<Target>> {
        self.get_near(name, &Cell::default())
    }

    /// The same for one of many names: `near` keeps where the last was found, and names that
    /// follow one another are often found there.
    pub(crate) fn get_near<'a>(
        &'a self,
        name: &[u8],
        near: &Cell<Leaf<'a>>,
    ) -> Option<&'a Option<Target>> {
        if !near.get().spans(name) {
            near.set(self.leaf_of(name));
        }
        let Leaf(entries) = near.get();
        Some(&entries[find(entries, name).ok()?].1)
    }

    fn leaf_of(&self, name: &[u8]) -> Leaf<'_> {
        let mut node = &*self.root;
        loop {
            match node {
                Node::Leaf(entries) => return Leaf(entries),
                Node::Branch(children) => node = &children[child_of(children, name)].node,
            }
        }
    }

    pub(crate) fn put(&mut self, name: RefName, target: Option<Target>) {
        let right = Arc::make_mut(&mut self.root).put(name, target);
        self.grow(right.into_iter().collect());
    }

    /// Puts the states that a transaction has left.
    pub(crate) fn put_all(&mut self, moves: &[Move]) {
        if moves.len() > 1 && moves.is_sorted_by(|moved, next| moved.name < next.name) {
            let right = Arc::make_mut(&mut self.root).merge(moves);
            self.grow(right);
        } else {
            moves.iter().for_each(|moved| self.put(moved.name.clone(), moved.new.clone()));
        }
    }

    /// Puts a new root above the old one and what was split off from it.
    fn grow(&mut self, mut right: Vec<Child>) {
        while let Some(first) = right.first() {
            let left = Child { first: first.first.clone(), node: std::mem::take(&mut self.root) };
            let mut root = Node::Branch(Vec::new());
            let children = [left].into_iter().chain(right).collect::<Vec<_>>();
            right = root.fill_with(children);
            self.root = Arc::new(root);
        }
    }

    /// The states from the first name on that is not less than `start`.
    pub(crate) fn from(&self, start: &[u8]) -> Range<'_> {
        let (mut node, mut behind) = (&*self.root, Vec::new());
        loop {
            match node {
                Node::Leaf(entries) => {
                    let leaf = entries[find(entries, start).unwrap_or_else(|at| at)..].iter();
                    return Range { leaf, behind };
                }
                Node::Branch(children) => {
                    let index = child_of(children, start);
                    node = &children[index].node;
                    behind.push(children[index + 1..].iter());
                }
            }
        }
    }
}

/// Some entries that follow one another.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Leaf<'a>(&'a [Entry]);

impl Leaf<'_> {
    /// Whether the name can be nowhere else.
    fn spans(self, name: &[u8]) -> bool {
        match self.0 {
            [(first, _), .., (last, _)] => first.as_bytes() <= name && name <= last.as_bytes(),
            _ => false,
        }
    }
}

fn find(entries: &[Entry], name: &[u8]) -> Result<usize, usize> {
    entries.binary_search_by(|(entry, _)| entry.as_bytes().cmp(name))
}

fn child_of(children: &[Child], name: &[u8]) -> usize {
    children[1..].partition_point(|child| child.first.as_bytes() <= name)
}

impl Node {
    /// Returns what had to be split off, which goes to the right of this.
    fn put(&mut self, name: RefName, target: Option<Target>) -> Option<Child> {
        match self {
            Node::Leaf(entries) => {
                match find(entries, name.as_bytes()) {
                    Ok(at) => entries[at].1 = target,
                    Err(at) => entries.insert(at, (name, target)),
                }
                (entries.len() > LEAF_MAX).then(|| Node::Leaf(split(entries)).into_child())
            }
            Node::Branch(children) => {
                let index = child_of(children, name.as_bytes());
                let right = Arc::make_mut(&mut children[index].node).put(name, target)?;
                children.insert(index + 1, right);
                (children.len() > BRANCH_MAX).then(|| Node::Branch(split(children)).into_child())
            }
        }
    }

    /// The same for moves in the order of their names.
    fn merge(&mut self, moves: &[Move]) -> Vec<Child> {
        match self {
            Node::Leaf(entries) => {
                let new = update(entries, moves);
                if new.is_empty() {
                    return Vec::new();
                }
                let entries = std::mem::take(entries);
                let count = entries.len() + new.len();
                self.fill(count, LEAF_MAX, &mut interleave(entries, new), Node::Leaf)
            }
            Node::Branch(children) => {
                let children = merge_into_each(std::mem::take(children), moves);
                self.fill_with(children)
            }
        }
    }

    /// Becomes a branch of the first of these children.
    fn fill_with(&mut self, children: Vec<Child>) -> Vec<Child> {
        self.fill(children.len(), BRANCH_MAX, &mut children.into_iter(), Node::Branch)
    }

    /// Becomes the first of as few nodes of one size as have room for all items.
    fn fill<T>(
        &mut self,
        count: usize,
        max: usize,
        items: &mut dyn Iterator<Item = T>,
        node: fn(Vec<T>) -> Node,
    ) -> Vec<Child> {
        let nodes = count.div_ceil(max);
        let len = count.div_ceil(nodes);
        let mut take = || {
            let mut taken = Vec::with_capacity(len);
            taken.extend(items.take(len));
            node(taken)
        };
        *self = take();
        (1..nodes).map(|_| take().into_child()).collect()
    }

    fn into_child(self) -> Child {
        let first = match &self {
            Node::Leaf(entries) => entries[0].0.clone(),
            Node::Branch(children) => children[0].first.clone(),
        };
        Child { first, node: Arc::new(self) }
    }
}

/// The right half of what has become too long.
fn split<T>(items: &mut Vec<T>) -> Vec<T> {
    items.split_off(items.len() / 2)
}

/// Puts the states of refs that are there; returns the other moves, and before which entry each
/// belongs.
fn update<'m>(entries: &mut [Entry], moves: &'m [Move]) -> Vec<(usize, &'m Move)> {
    let (mut new, mut at) = (Vec::new(), 0);
    for moved in moves {
        // Most often the moves go on with the next entry.
        let next = entries.get(at).map(|(name, _)| name.cmp(&moved.name));
        if next == Some(Ordering::Less) {
            at += 1;
            at += entries[at..].partition_point(|(name, _)| *name < moved.name);
        }
        match entries.get_mut(at) {
            Some((name, target)) if *name == moved.name => {
                *target = moved.new.clone();
                at += 1;
            }
            _ => new.push((at, moved)),
        }
    }
    new
}

fn interleave(entries: Vec<Entry>, new: Vec<(usize, &Move)>) -> impl Iterator<Item = Entry> {
    let mut entries = entries.into_iter().enumerate().peekable();
    let mut new = new.into_iter().peekable();
    std::iter::from_fn(move || {
        let at = entries.peek().map_or(usize::MAX, |(at, _)| *at);
        match new.next_if(|(before, _)| *before <= at) {
            Some((_, moved)) => Some((moved.name.clone(), moved.new.clone())),
            None => entries.next().map(|(_, entry)| entry),
        }
    })
}

fn merge_into_each(children: Vec<Child>, mut moves: &[Move]) -> Vec<Child> {
    let mut merged = Vec::with_capacity(children.len());
    let mut children = children.into_iter().peekable();
    while let Some(mut child) = children.next() {
        let end = children
            .peek()
            .map_or(moves.len(), |next| moves.partition_point(|moved| moved.name < next.first));
        let (inside, behind) = moves.split_at(end);
        moves = behind;
        let right = match inside {
            [] => Vec::new(),
            inside => Arc::make_mut(&mut child.node).merge(inside),
        };
        merged.push(child);
        merged.extend(right);
    }
    merged
}

/// Entries in the order of their names.
#[derive(Clone, Debug)]
pub(crate) struct Range<'a> {
    leaf: slice::Iter<'a, Entry>,
    /// What comes after it, the farthest first.
    behind: Vec<slice::Iter<'a, Child>>,
}

impl<'a> Iterator for Range<'a> {
    type Item = (&'a RefName, &'a Option<Target>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((name, target)) = self.leaf.next() {
                return Some((name, target));
            }
            let Some(child) = self.behind.last_mut()?.next() else {
                self.behind.pop();
                continue;
            };
            match &*child.node {
                Node::Leaf(entries) => self.leaf = entries.iter(),
                Node::Branch(children) => self.behind.push(children.iter()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::oid::ObjectId;

    fn moved(number: u16, byte: u8) -> Move {
        let new = (byte > 0).then(|| ObjectId::from_bytes(&[byte; 20]).unwrap().into());
        Move { name: RefName::new(format!("refs/heads/{number:05}")).unwrap(), old: None, new }
    }

    /// Moves of one transaction, in order or not.
    fn transaction() -> impl Strategy<Value = Vec<Move>> {
        let runs = (0..3_000_u16, 1..9_u16, 0..400_u16, any::<u8>()).prop_map(
            |(first, step, count, byte)| {
                (0..count).map(|number| moved(first + number * step, byte)).collect()
            },
        );
        let scattered =
            prop::collection::vec((0..4_000_u16, any::<u8>()), 0..40).prop_map(|moves| {
                moves.into_iter().map(|(number, byte)| moved(number, byte)).collect()
            });
        prop_oneof![runs, scattered]
    }

    fn entries(model: &BTreeMap<RefName, Option<Target>>) -> Vec<Entry> {
        model.iter().map(|(name, target)| (name.clone(), target.clone())).collect()
    }

    fn listed(recent: &Recent, start: &[u8]) -> Vec<Entry> {
        recent.from(start).map(|(name, target)| (name.clone(), target.clone())).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        // Breaks: a split that is not put beside what it was split off from; a merge that takes a
        // name for the one before; a leaf that is trusted beyond its last name.
        #[test]
        fn it_holds_what_an_ordered_map_holds(
            transactions in prop::collection::vec(transaction(), 1..12),
            starts in prop::collection::vec(0..7_000_u16, 4),
        ) {
            let (mut recent, mut model) = (Recent::default(), BTreeMap::new());
            for moves in &transactions {
                let (before, model_before) = (recent.clone(), model.clone());
                recent.put_all(moves);
                model.extend(moves.iter().map(|moved| (moved.name.clone(), moved.new.clone())));
                prop_assert_eq!(listed(&before, b""), entries(&model_before));
                prop_assert_eq!(listed(&recent, b""), entries(&model));
            }
            let near = Cell::default();
            for number in 0..7_000 {
                let name = moved(number, 1).name;
                prop_assert_eq!(recent.get_near(name.as_bytes(), &near), model.get(&name));
            }
            for number in starts {
                let name = moved(number, 1).name;
                let expected: Vec<_> = entries(&model).into_iter().filter(|e| e.0 >= name).collect();
                prop_assert_eq!(listed(&recent, name.as_bytes()), expected);
            }
        }
    }
}
