//! The refs as the running store has them: a durable view, and what is staged above it.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use parking_lot::{Mutex, MutexGuard};
use refstone_log::{Observer, Seq};

use crate::current::Current;
use crate::recent::Recent;
use crate::snapshot::Snapshot;
use crate::stack::Stack;
use crate::staged::{Move, StagedChanges, StagedTransaction};
use crate::view::View;

/// Readers load the durable view without a lock; validators lock what is staged.
///
/// Locks are taken in one order: the log's writer mutex, then `staged`. `young` serialises those
/// who swap the view (the leader of a round, and a compaction at its end), and is held while no
/// other lock is taken.
#[derive(Debug, Default)]
pub(crate) struct State {
    durable: ArcSwap<Snapshot>,
    staged: Mutex<StagedChanges>,
    young: Mutex<Option<Recent>>,
}

impl State {
    /// Starts from what a replay found.
    pub(crate) fn start(&self, snapshot: Snapshot) {
        self.durable.store(Arc::new(snapshot));
    }

    pub(crate) fn view(&self) -> View {
        View::new(self.durable.load_full())
    }

    /// All refs now, with the tables below them.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.durable.load_full()
    }

    /// Notes from now on what moves after the transaction that is returned, for
    /// [`State::tables_reach`].
    pub(crate) fn start_young(&self) -> Seq {
        let mut young = self.young.lock();
        *young = Some(Recent::default());
        self.durable.load().seq
    }

    /// Forgets what [`State::start_young`] noted.
    pub(crate) fn forget_young(&self) {
        *self.young.lock() = None;
    }

    /// Puts new tables below the view, which have everything that moved before
    /// [`State::start_young`].
    ///
    /// What the tables have leaves memory. Nobody sees another state: the view only changes where
    /// it is kept.
    pub(crate) fn tables_reach(&self, tables: Arc<Stack>) {
        let mut young = self.young.lock();
        let Some(recent) = young.take() else { return };
        let seq = self.durable.load().seq;
        let old = self.durable.swap(Arc::new(Snapshot { seq, recent, tables }));
        drop(young);
        let_go(old);
    }

    /// Replaces the tables by others with the same content.
    pub(crate) fn tables_merged(&self, tables: Arc<Stack>) {
        let _young = self.young.lock();
        let current = self.durable.load();
        let (seq, recent) = (current.seq, current.recent.clone());
        self.durable.store(Arc::new(Snapshot { seq, recent, tables }));
    }

    fn swap_view(&self, next: Snapshot) -> InView {
        let through = next.seq;
        self.durable.store(Arc::new(next));
        InView { through }
    }

    /// Folds a group into the view.
    fn fold(&self, group: &[StagedTransaction], through: Seq) -> InView {
        let mut young = self.young.lock();
        let mut next = Snapshot::clone(&self.durable.load());
        next.seq = next.seq.max(through);
        for recent in young.iter_mut().chain([&mut next.recent]) {
            group.iter().for_each(|transaction| recent.put_all(&transaction.moves));
        }
        self.swap_view(next)
    }

    /// Locks what is staged, and shows the newest state to a validator.
    ///
    /// The lock comes first and the view second. [`State::durable`] swaps the view before it
    /// forgets what was staged, so whoever holds the lock either still finds a change staged, or
    /// loads a view that has it. The other order misses a change: load the old view, be overtaken
    /// by the swap and the forgetting, then find nothing staged.
    pub(crate) fn newest(&self) -> Newest<'_> {
        let staged = self.staged.lock();
        let durable = self.durable.load();
        Newest { staged, durable }
    }

    /// Adds the moves of a transaction that the log has just staged.
    pub(crate) fn stage(&self, seq: Seq, moves: Vec<Move>) {
        self.staged.lock().push(seq, moves);
    }
}

/// Frees what left memory, which may be a map of a million refs, in this thread: whoever holds the
/// last handle frees it, and a leader or a validator would keep others waiting.
fn let_go(old: Arc<Snapshot>) {
    const MOMENTS: u32 = 100;
    for _ in 0..MOMENTS {
        if Arc::strong_count(&old) == 1 {
            break;
        }
        thread::sleep(Duration::from_millis(1));
    }
    drop(old);
}

/// Proof that the view has all transactions up to one. Only swapping the view gives it, and only
/// with it is a staged change forgotten, so the two cannot happen in the wrong order.
#[derive(Debug)]
pub(crate) struct InView {
    through: Seq,
}

impl InView {
    pub(crate) fn through(&self) -> Seq {
        self.through
    }

    #[cfg(test)]
    pub(crate) fn assume(through: Seq) -> InView {
        InView { through }
    }
}

/// The newest state, which nobody else changes or forgets meanwhile.
#[derive(Debug)]
pub(crate) struct Newest<'a> {
    staged: MutexGuard<'a, StagedChanges>,
    durable: Guard<Arc<Snapshot>>,
}

impl Newest<'_> {
    pub(crate) fn current(&self) -> Current<'_> {
        Current::new(&self.staged, &self.durable)
    }

    pub(crate) fn durable_seq(&self) -> Seq {
        self.durable.seq
    }
}

impl Observer for State {
    /// Folds the group into a new view outside every lock, swaps it in once, forgets it after.
    fn durable(&self, through: Seq) {
        let group = self.staged.lock().up_to(through);
        let in_view = self.fold(&group, through);
        let forgotten = self.staged.lock().forget(&in_view);
        // Freeing a large group takes long enough that validators should not wait for it.
        drop((group, forgotten));
    }

    fn rolled_back(&self, to: Seq) {
        self.staged.lock().withdraw_after(to);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use super::*;
    use crate::edit::Target;
    use crate::name::RefName;
    use crate::oid::ObjectId;

    fn name() -> RefName {
        RefName::new("refs/heads/a").unwrap()
    }

    fn value(number: u64) -> ObjectId {
        let mut id = [1; 20];
        id[..8].copy_from_slice(&number.to_be_bytes());
        ObjectId::from_bytes(&id).unwrap()
    }

    /// Sets the ref to its sequence.
    fn stage(state: &State, seq: u64) {
        let new = Some(value(seq).into());
        let (name, old) = (name(), None);
        state.stage(Seq::new(seq), vec![Move { name, old, new }]);
    }

    fn newest_value(state: &State) -> Option<ObjectId> {
        let newest = state.newest();
        newest.current().get(b"refs/heads/a").unwrap().as_ref().and_then(Target::object)
    }

    /// Looks again and again; says whether the value ever went back.
    fn goes_back(state: &State, done: &AtomicBool) -> bool {
        let mut last = None;
        while !done.load(Ordering::Relaxed) {
            let now = newest_value(state);
            if now < last {
                return true;
            }
            last = now;
        }
        false
    }

    // Breaks: loading the view before taking the lock.
    #[test]
    fn a_validator_never_misses_a_change() {
        let state = State::default();
        let (staged, done) = (AtomicU64::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            let validators = [(); 2].map(|()| scope.spawn(|| goes_back(&state, &done)));
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    state.durable(Seq::new(staged.load(Ordering::Acquire)));
                }
            });
            for seq in 1..=100_000 {
                stage(&state, seq);
                staged.store(seq, Ordering::Release);
            }
            done.store(true, Ordering::Relaxed);
            assert!(!validators.map(|validator| validator.join().unwrap()).contains(&true));
        });
    }

    #[test]
    fn a_view_has_what_is_durable_and_a_validator_what_is_staged() {
        let state = State::default();
        (1..=3).for_each(|seq| stage(&state, seq));
        assert_eq!(state.view().get(&name()), Ok(None));
        state.durable(Seq::new(2));
        assert_eq!(state.view().get(&name()), Ok(Some(value(2).into())));
        assert_eq!(state.view().seq(), Seq::new(2));
        assert_eq!(newest_value(&state), Some(value(3)));
        state.rolled_back(Seq::new(2));
        assert_eq!(newest_value(&state), Some(value(2)));
        stage(&state, 3);
        assert_eq!(newest_value(&state), Some(value(3)));
    }
}
