//! Moves that are staged and not yet durable, above the durable view.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use refstone_log::Seq;

use crate::edit::Target;
use crate::name::{NameHashing, RefName};
use crate::oid::ObjectId;
use crate::state::InView;

/// One ref that moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) name: RefName,
    /// The object it named before; `None` if it was absent or symbolic.
    pub(crate) old: Option<ObjectId>,
    /// What it holds now; `None` if it is gone.
    pub(crate) new: Option<Target>,
}

/// The newest undurable state of a ref.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StagedRef<'a> {
    /// The transaction that moved it last.
    pub(crate) seq: Seq,
    /// What it holds; `None` is a staged deletion.
    pub(crate) target: Option<&'a Target>,
}

/// The moves of one transaction. A clone shares them.
#[derive(Clone, Debug)]
pub(crate) struct StagedTransaction {
    pub(crate) seq: Seq,
    pub(crate) moves: Arc<Vec<Move>>,
    /// Many moves, in the order of their names: they can be searched.
    is_large: bool,
}

/// All moves above the durable view.
///
/// `queue` holds them in the order of their transactions, so that a prefix can become durable and a
/// suffix can be withdrawn, even if both moved the same ref. What a ref holds is answered by
/// `newest`, but for the refs of large transactions: those are left where they are and searched
/// there, since to look up each of a million refs takes longer than to write it.
#[derive(Debug, Default)]
pub(crate) struct StagedChanges {
    queue: VecDeque<StagedTransaction>,
    newest: HashMap<RefName, (Seq, Option<Target>), NameHashing>,
    /// The refs of `newest` that a staged transaction has created, and the last one that did: the
    /// others are in the durable view, which finds names below a directory by itself.
    created: BTreeMap<RefName, Seq>,
    large: Vec<StagedTransaction>,
}

/// Moves past which a transaction is searched where it is. The log stages a few MiB, so there are
/// only a few of these.
const LARGE: usize = if cfg!(test) { 3 } else { 1 << 15 };

impl Move {
    /// Whether the ref may have been absent before.
    fn creates(&self) -> bool {
        self.old.is_none() && self.new.is_some()
    }
}

impl StagedTransaction {
    fn new(seq: Seq, moves: Vec<Move>) -> StagedTransaction {
        let is_large = moves.len() >= LARGE && moves.is_sorted_by(|a, b| a.name < b.name);
        StagedTransaction { seq, moves: Arc::new(moves), is_large }
    }

    fn get(&self, name: &[u8]) -> Option<StagedRef<'_>> {
        let found = self.moves.binary_search_by(|moved| moved.name.as_bytes().cmp(name)).ok()?;
        Some(StagedRef { seq: self.seq, target: self.moves[found].new.as_ref() })
    }

    fn names_from(&self, start: &[u8]) -> impl Iterator<Item = &RefName> {
        let first = self.moves.partition_point(|moved| moved.name.as_bytes() < start);
        self.moves[first..].iter().map(|moved| &moved.name)
    }
}

impl StagedChanges {
    /// Adds the moves of a transaction. Sequences only rise.
    pub(crate) fn push(&mut self, seq: Seq, moves: Vec<Move>) {
        debug_assert!(self.queue.back().is_none_or(|last| last.seq < seq));
        let transaction = StagedTransaction::new(seq, moves);
        self.show(&transaction);
        self.queue.push_back(transaction);
    }

    fn show(&mut self, transaction: &StagedTransaction) {
        if transaction.is_large {
            self.large.push(transaction.clone());
            return;
        }
        let seq = transaction.seq;
        for moved in transaction.moves.iter() {
            self.newest.insert(moved.name.clone(), (seq, moved.new.clone()));
            if moved.creates() {
                self.created.insert(moved.name.clone(), seq);
            }
        }
    }

    /// What is staged for a ref, if anything.
    pub(crate) fn get(&self, name: &[u8]) -> Option<StagedRef<'_>> {
        let newest = self.newest.get(name);
        let newest = newest.map(|(seq, target)| StagedRef { seq: *seq, target: target.as_ref() });
        let large = self.large.iter().rev().find_map(|transaction| transaction.get(name));
        newest.into_iter().chain(large).max_by_key(|staged| staged.seq)
    }

    /// The first name that is not less than `start`, of a ref that `created_below` would find.
    pub(crate) fn next_name(&self, start: &[u8]) -> Option<&RefName> {
        let large =
            self.large.iter().filter_map(|transaction| transaction.names_from(start).next());
        self.created_from(start).next().into_iter().chain(large).min()
    }

    /// The refs whose names start with `directory` (which ends with a slash) that a staged
    /// transaction has created, in no useful order. Some may be gone again, some have been there
    /// before.
    pub(crate) fn created_below(&self, directory: &[u8]) -> impl Iterator<Item = &RefName> {
        let inside = move |name: &&RefName| name.as_bytes().starts_with(directory);
        let large = self.large.iter();
        let large = large.flat_map(move |staged| staged.names_from(directory).take_while(inside));
        self.created_from(directory).take_while(inside).chain(large)
    }

    fn created_from(&self, start: &[u8]) -> impl Iterator<Item = &RefName> {
        let range = (Bound::Included(start), Bound::Unbounded);
        self.created.range::<[u8], _>(range).map(|(name, _)| name)
    }

    /// The transactions up to `through`, oldest first.
    pub(crate) fn up_to(&self, through: Seq) -> Vec<StagedTransaction> {
        let covered = self.queue.iter().take_while(|staged| staged.seq <= through);
        covered.cloned().collect()
    }

    /// Drops what the view has. Returns the dropped moves, so that a caller may free them later.
    pub(crate) fn forget(&mut self, in_view: &InView) -> StagedChanges {
        let through = in_view.through();
        let dropped = self.queue.partition_point(|staged| staged.seq <= through);
        if dropped == self.queue.len() {
            return std::mem::take(self);
        }
        let queue = self.queue.drain(..dropped).collect::<VecDeque<_>>();
        self.large.retain(|staged| staged.seq > through);
        let small = queue.iter().filter(|staged| !staged.is_large);
        for moved in small.flat_map(|staged| staged.moves.iter()) {
            self.hide(moved, through);
        }
        StagedChanges { queue, ..StagedChanges::default() }
    }

    /// A later transaction may have moved the ref again: that state stays staged.
    fn hide(&mut self, moved: &Move, through: Seq) {
        if self.newest.get(&moved.name).is_some_and(|(seq, _)| *seq <= through) {
            self.newest.remove(&moved.name);
        }
        if moved.creates() && self.created.get(&moved.name).is_some_and(|seq| *seq <= through) {
            self.created.remove(&moved.name);
        }
    }

    /// Withdraws the transactions after `to`; what they covered up shows again.
    ///
    /// Rebuilds the lookup from the queue: a write fails so rarely that nothing is worth keeping
    /// for it on the way there.
    pub(crate) fn withdraw_after(&mut self, to: Seq) {
        let mut queue = std::mem::take(self).queue;
        queue.retain(|staged| staged.seq <= to);
        queue.iter().for_each(|staged| self.show(staged));
        self.queue = queue;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> RefName {
        RefName::new(format!("refs/heads/{name}")).unwrap()
    }

    fn set(of: &str, byte: u8) -> Move {
        let id = ObjectId::from_bytes(&[byte; 20]).unwrap();
        Move { name: name(of), old: None, new: Some(id.into()) }
    }

    fn staged(moves: &[(u64, &str, u8)]) -> StagedChanges {
        let mut staged = StagedChanges::default();
        for &(seq, of, byte) in moves {
            staged.push(Seq::new(seq), vec![set(of, byte)]);
        }
        staged
    }

    fn held(staged: &StagedChanges, of: &str) -> Option<(u64, u8)> {
        let staged = staged.get(name(of).as_bytes())?;
        let id = staged.target?.object()?;
        Some((staged.seq.get(), id.as_bytes()[0]))
    }

    // Breaks: removing the name instead of rebuilding (`a` vanishes).
    #[test]
    fn withdrawing_shows_what_was_covered_up() {
        let mut staged = staged(&[(1, "a", 1), (2, "b", 2), (3, "a", 3), (4, "c", 4)]);
        staged.withdraw_after(Seq::new(2));
        assert_eq!(held(&staged, "a"), Some((1, 1)));
        assert_eq!(held(&staged, "b"), Some((2, 2)));
        assert_eq!(held(&staged, "c"), None);
    }

    // Breaks: removing by name alone (`a` vanishes though transaction 3 is not durable).
    #[test]
    fn forgetting_keeps_what_moved_again() {
        let mut staged = staged(&[(1, "a", 1), (2, "b", 2), (3, "a", 3)]);
        staged.forget(&InView::assume(Seq::new(2)));
        assert_eq!(held(&staged, "a"), Some((3, 3)));
        assert_eq!(held(&staged, "b"), None);
        assert_eq!(staged.up_to(Seq::new(9)).len(), 1);
        staged.forget(&InView::assume(Seq::new(3)));
        assert_eq!(held(&staged, "a"), None);
    }

    #[test]
    fn a_prefix_of_the_queue_is_read_without_removing_it() {
        let staged = staged(&[(1, "a", 1), (2, "b", 2), (3, "a", 3)]);
        let seqs = |through| {
            let covered = staged.up_to(Seq::new(through));
            covered.iter().map(|staged| staged.seq.get()).collect::<Vec<_>>()
        };
        assert_eq!(seqs(0), []);
        assert_eq!(seqs(2), [1, 2]);
        assert_eq!(seqs(3), [1, 2, 3]);
    }

    #[test]
    fn names_below_a_directory_are_neither_beside_nor_above() {
        let staged = staged(&[(1, "a", 1), (2, "a-b", 2), (3, "a/b", 3), (4, "ab", 4)]);
        let below: Vec<_> = staged.created_below(b"refs/heads/a/").cloned().collect();
        assert_eq!(below, [name("a/b")]);
    }

    // Breaks: the small transaction winning because it is looked at first; forgetting or withdrawing
    // a large one from the queue alone; finding no names in it.
    #[test]
    fn a_large_transaction_is_searched_where_it_is() {
        let large = |byte| ["a", "a/b", "b", "c"].map(|of| set(of, byte)).to_vec();
        let mut staged = staged(&[(1, "a", 1)]);
        staged.push(Seq::new(2), large(2));
        staged.push(Seq::new(3), vec![set("b", 3)]);
        staged.push(Seq::new(4), large(4));
        let all = |staged: &StagedChanges| ["a", "b", "c", "d"].map(|of| held(staged, of));
        assert_eq!(all(&staged), [Some((4, 4)), Some((4, 4)), Some((4, 4)), None]);
        staged.withdraw_after(Seq::new(3));
        assert_eq!(all(&staged), [Some((2, 2)), Some((3, 3)), Some((2, 2)), None]);
        assert!(staged.created_below(b"refs/heads/a/").eq([&name("a/b")]));
        assert_eq!(staged.next_name(b"refs/heads/a/"), Some(&name("a/b")));
        assert_eq!(staged.next_name(b"refs/heads/a0"), Some(&name("b")));
        staged.forget(&InView::assume(Seq::new(2)));
        assert_eq!(all(&staged), [None, Some((3, 3)), None, None]);
    }

    // Breaks: not looking at what creates a ref; forgetting by name alone.
    #[test]
    fn a_ref_that_was_created_is_found_below_until_the_view_has_it() {
        let (created, mut updated) = (set("a/b", 1), set("a/c", 2));
        updated.old = Some(ObjectId::from_bytes(&[1; 20]).unwrap());
        let mut staged = StagedChanges::default();
        staged.push(Seq::new(1), vec![created.clone()]);
        staged.push(Seq::new(2), vec![updated]);
        staged.push(Seq::new(3), vec![created]);
        let below = |staged: &StagedChanges| staged.created_below(b"refs/heads/a/").count();
        assert_eq!(below(&staged), 1);
        staged.forget(&InView::assume(Seq::new(2)));
        assert_eq!(below(&staged), 1);
        staged.withdraw_after(Seq::new(2));
        assert_eq!(below(&staged), 0);
    }
}
