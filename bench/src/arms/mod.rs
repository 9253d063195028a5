//! The measurements. Each module is one arm: what it does, and what it puts into its row.

mod bulk;
mod capabilities;
mod cold_history;
mod cold_open;
mod compaction;
mod lookup;
mod peers;
mod phases;
mod push_e2e;
mod reader;
mod reflog_append;
mod reflog_group_commit;
mod scan;
mod seal;
mod serial;
mod sustained;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use nornir_bench::register_bench_ordered;
use refstone::{
    CompactOptions, Compacting, CreateOptions, Edit, ObjectId, OpenOptions, RefName, RefStore,
    Transaction,
};

use crate::arm::Arm;
use crate::hooks::{HookedEnv, Probe};
use crate::workload::{ACTOR, oid};

/// All arms, in the order in which they run: small ones first, those that heat the disk last.
pub const ARMS: [Arm; 14] = [
    capabilities::ARM,
    reflog_append::ARM,
    reflog_group_commit::ARM,
    phases::ARM,
    peers::ARM,
    sustained::ARM,
    compaction::ARM,
    lookup::ARM,
    scan::ARM,
    cold_open::ARM,
    cold_history::ARM,
    bulk::ARM,
    reader::ARM,
    push_e2e::ARM,
];

register_bench_ordered!(0, capabilities::ARM);
register_bench_ordered!(1, reflog_append::ARM);
register_bench_ordered!(2, reflog_group_commit::ARM);
register_bench_ordered!(3, phases::ARM);
register_bench_ordered!(4, peers::ARM);
register_bench_ordered!(5, sustained::ARM);
register_bench_ordered!(6, compaction::ARM);
register_bench_ordered!(7, lookup::ARM);
register_bench_ordered!(8, scan::ARM);
register_bench_ordered!(9, cold_open::ARM);
register_bench_ordered!(10, cold_history::ARM);
register_bench_ordered!(11, bulk::ARM);
register_bench_ordered!(12, reader::ARM);
register_bench_ordered!(13, push_e2e::ARM);

/// A new store whose log is watched, and which does not compact itself: that is an arm of its own.
struct Probed {
    store: RefStore,
    probe: Arc<Probe>,
}

impl Probed {
    fn create(dir: &Path) -> Result<Probed> {
        let probe = Arc::new(Probe::default());
        let env = Arc::new(HookedEnv(probe.clone()));
        RefStore::create(dir, &CreateOptions::default())?;
        let options = OpenOptions::default().env(env).compacting(Compacting::ByHand);
        let store = RefStore::open_with(dir, options)?;
        probe.reset();
        Ok(Probed { store, probe })
    }
}

/// The name of one of many refs: the same length for each of ten million.
fn name(number: usize) -> String {
    format!("refs/heads/topic-{number:07}")
}

/// Creates the refs from `first` on in one transaction.
pub(crate) fn create_refs(store: &RefStore, first: usize, count: usize) -> Result<()> {
    let mut tx = Transaction::new(ACTOR);
    for number in first..first + count {
        let id = ObjectId::from_bytes(&oid(1, number as u64))?;
        tx.push(Edit::create(RefName::new(name(number))?, id));
    }
    store.commit(&tx)?;
    Ok(())
}

/// A store that compacts itself only when it is asked to, so that a figure means one thing.
pub(crate) fn open_by_hand(dir: &Path) -> Result<RefStore> {
    Ok(RefStore::open_with(dir, OpenOptions::default().compacting(Compacting::ByHand))?)
}

/// A new store with so many refs, created ten thousand at a time, and compacted.
fn store_with_refs(dir: &Path, count: usize) -> Result<RefStore> {
    const STEP: usize = 10_000;
    RefStore::create(dir, &CreateOptions::default())?;
    let store = open_by_hand(dir)?;
    for first in (0..count).step_by(STEP) {
        create_refs(&store, first, STEP.min(count - first))?;
    }
    compact(&store)?;
    Ok(store)
}

fn compact(store: &RefStore) -> Result<refstone::Compacted> {
    Ok(store.compact(CompactOptions::default(), &mut |_| ())?)
}

/// Moves refs `first..first + count` once, each in a transaction of its own, without waiting for
/// each: the log has them one by one, as pushes leave them.
fn move_one_by_one(store: &RefStore, first: usize, count: usize) -> Result<()> {
    let mut last = None;
    for number in first..first + count {
        let id = ObjectId::from_bytes(&oid(2, number as u64))?;
        let tx = Transaction::new(ACTOR).with(Edit::set(RefName::new(name(number))?, id));
        last = Some(store.stage(&tx)?);
    }
    last.map(refstone::Pending::wait).transpose()?;
    Ok(())
}

/// Runs something, and says how many milliseconds it took.
fn timed_ms<T>(work: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
    let start = Instant::now();
    let result = work()?;
    Ok((start.elapsed().as_secs_f64() * 1e3, result))
}

#[cfg(test)]
mod tests {
    use nornir_bench::api::registered_bench_ids;

    use super::ARMS;

    #[test]
    fn every_arm_is_registered() {
        let mut ids = ARMS.map(|arm| arm.id);
        ids.sort_unstable();
        assert_eq!(registered_bench_ids(), ids);
    }
}
