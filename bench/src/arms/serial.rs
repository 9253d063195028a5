//! What a commit costs while it holds the writer mutex: hot, alone, without a disk.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use refstone::{CreateOptions, RefStore};
use refstone_log::{Log, NoObserver, ObjectFormat, RefLogOptions, RefRow};

use crate::arm::Scale;
use crate::hooks::{HookedEnv, Quiet};
use crate::measure::stats::median;
use crate::peers::transaction;
use crate::workload::{ACTOR, Mover, oid};

const IN_A_BATCH: usize = 500;

/// Nanoseconds per transaction to stage it in the store, its syncs not counted.
///
/// Read as an upper bound: what needs no lock (checking the edits) is included, and so are the
/// zeros written ahead.
pub(super) fn serial_section_ns(dir: &Path, scale: Scale) -> Result<f64> {
    RefStore::create(dir, &CreateOptions::default())?;
    let store = RefStore::open(dir)?;
    let mut mover = Mover::new(0, 1);
    let mut batches = Vec::new();
    for _ in 0..scale.pick(100, 4) {
        let txs = (0..IN_A_BATCH).map(|_| transaction(mover.step())).collect::<Result<Vec<_>>>()?;
        let start = Instant::now();
        let pending = txs.iter().map(|tx| store.stage(tx)).collect::<Result<Vec<_>, _>>()?;
        batches.push(per_transaction_ns(start));
        pending.into_iter().try_for_each(|pending| pending.wait().map(drop))?;
    }
    Ok(median(&batches))
}

/// Nanoseconds per frame to encode it, checksum included.
///
/// Read as an upper bound: taking the sequence and making the `Commit` are included. Clock, zeros
/// ahead and sync are left out.
pub(super) fn encode_ns(dir: &Path, scale: Scale) -> Result<f64> {
    let env = Arc::new(HookedEnv(Arc::new(Quiet)));
    let options =
        RefLogOptions { object_format: ObjectFormat::Sha1, head: b"refs/heads/main".to_vec() };
    Log::create(&*env, dir, &options)?;
    let (log, _) = Log::open(env, dir, Arc::new(NoObserver), &mut |_| ())?;
    let (old, new) = (oid(1, 0), oid(2, 0));
    let row = RefRow {
        actor: ACTOR.as_bytes(),
        refname: b"refs/heads/topic-1234",
        old_oid: Some(&old),
        new_oid: Some(&new),
        symref: None,
        message: None,
    };
    let mut batches = Vec::new();
    for _ in 0..scale.pick(400, 4) {
        batches.push(log.append_with(|stage| {
            let start = Instant::now();
            for _ in 0..IN_A_BATCH {
                drop(stage.append(&[row])?);
            }
            Ok::<_, refstone_log::AppendError>(per_transaction_ns(start))
        })??);
        log.barrier()?;
    }
    Ok(median(&batches))
}

fn per_transaction_ns(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64 / IN_A_BATCH as f64
}
