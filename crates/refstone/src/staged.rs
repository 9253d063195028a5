//! Moves that are staged and not yet durable, above the durable view.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use refstone_log::Seq;

use crate::edit::Target;
use crate::name::RefName;
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StagedRef {
    /// The transaction that moved it last.
    pub(crate) seq: Seq,
    /// What it holds; `None` is a staged deletion.
    pub(crate) target: Option<Target>,
}

/// The moves of one transaction. A clone shares them.
#[derive(Clone, Debug)]
pub(crate) struct StagedTransaction {
    pub(crate) seq: Seq,
    pub(crate) moves: Arc<[Move]>,
}

/// All moves above the durable view.
///
/// `newest` answers what a ref holds. It is ordered, so that names below a directory are found by a
/// seek; it holds no more than a few groups, so the lookup is as fast as hashing. `queue` holds the
/// same moves in the order of their transactions, so that a prefix can become durable and a suffix
/// can be withdrawn, even if both moved the same ref.
#[derive(Debug, Default)]
pub(crate) struct StagedChanges {
    queue: VecDeque<StagedTransaction>,
    newest: BTreeMap<RefName, StagedRef>,
}

impl StagedChanges {
    /// Adds the moves of a transaction. Sequences only rise.
    pub(crate) fn push(&mut self, seq: Seq, moves: Vec<Move>) {
        debug_assert!(self.queue.back().is_none_or(|last| last.seq < seq));
        let transaction = StagedTransaction { seq, moves: moves.into() };
        overlay(&mut self.newest, &transaction);
        self.queue.push_back(transaction);
    }

    /// What is staged for a ref, if anything.
    pub(crate) fn get(&self, name: &[u8]) -> Option<&StagedRef> {
        self.newest.get(name)
    }

    /// Staged refs whose names start with `directory` (which ends with a slash), in order.
    pub(crate) fn below(&self, directory: &[u8]) -> impl Iterator<Item = (&RefName, &StagedRef)> {
        let range = (Bound::Included(directory), Bound::Unbounded);
        let names = self.newest.range::<[u8], _>(range);
        names.take_while(move |(name, _)| name.as_bytes().starts_with(directory))
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
        for moved in queue.iter().flat_map(|staged| staged.moves.iter()) {
            // A later transaction may have moved the ref again: that state stays staged.
            if self.newest.get(&moved.name).is_some_and(|staged| staged.seq <= through) {
                self.newest.remove(&moved.name);
            }
        }
        StagedChanges { queue, newest: BTreeMap::new() }
    }

    /// Withdraws the transactions after `to`; what they covered up shows again.
    ///
    /// Rebuilds the lookup from the queue: a write fails so rarely that nothing is worth keeping
    /// for it on the way there.
    pub(crate) fn withdraw_after(&mut self, to: Seq) {
        self.queue.retain(|staged| staged.seq <= to);
        self.newest.clear();
        for transaction in &self.queue {
            overlay(&mut self.newest, transaction);
        }
    }
}

fn overlay(newest: &mut BTreeMap<RefName, StagedRef>, transaction: &StagedTransaction) {
    for moved in transaction.moves.iter() {
        let staged = StagedRef { seq: transaction.seq, target: moved.new.clone() };
        newest.insert(moved.name.clone(), staged);
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
        let id = staged.target.as_ref()?.object()?;
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
        let below: Vec<_> = staged.below(b"refs/heads/a/").map(|(name, _)| name.clone()).collect();
        assert_eq!(below, [name("a/b")]);
    }
}
