//! What leaving the live log costs: the commits that wait for it, the bytes that are written again
//! and again, and what an open finds afterwards.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use refstone::{CreateOptions, RefStore};

use super::{compact, create_refs, open_by_hand};
use crate::arm::{Arm, Bench, Scale};
use crate::child::Child;
use crate::measure::disk::drop_page_cache;
use crate::measure::drive::{Length, closed_loop};
use crate::measure::row::Row;
use crate::peers::transaction;
use crate::verdict::{Verdict, all_there};
use crate::workload::{Mover, PAYLOAD};

pub(super) const ARM: Arm = Arm { id: "refstone.compaction", writes, run };

const WRITERS: usize = 4;
/// So many transactions more, in a log of their own.
const LONGEST: &str = "REFSTONE_BENCH_LONGEST";
/// Transactions that one thread has outstanding while the long log is made.
const OUTSTANDING: usize = 1_000;

fn writes(scale: Scale) -> u64 {
    scale.pick(6 << 30, 128 << 20)
}

fn run(bench: &Bench<'_>) -> Result<(Row, Verdict)> {
    let mut row = Row::new("durable, beside a compaction", 1, PAYLOAD);
    row.put("writers", WRITERS as f64);
    let sizes = bench.scale.pick([100_000, 1_000_000], [1_000, 10_000]);
    for (refs, label) in sizes.into_iter().zip(["small", "large"]) {
        let dir = tempfile::tempdir_in(bench.dir)?;
        stalls(&dir.path().join("refstone"), refs, label, &mut row)?;
    }
    let mut long = bench.scale.pick([100_000, 1_000_000], [1_000, 20_000]).to_vec();
    // Ten million take minutes, and gigabytes: only when somebody asks.
    long.extend(std::env::var(LONGEST).ok().and_then(|longest| longest.parse::<usize>().ok()));
    let mut verdict = Verdict::Green;
    for (transactions, label) in long.into_iter().zip(["small", "large", "longest"]) {
        let dir = tempfile::tempdir_in(bench.dir)?;
        let dir = dir.path().join("refstone");
        verdict = verdict.and(amplification(&dir, transactions, label, &mut row)?);
    }
    Ok((row, verdict))
}

/// The longest commit while a live log with so many refs is compacted, against the longest before.
fn stalls(dir: &Path, refs: usize, label: &str, row: &mut Row) -> Result<()> {
    RefStore::create(dir, &CreateOptions::default())?;
    let store = open_by_hand(dir)?;
    create_refs(&store, 0, refs)?;
    let quiet = push_while(&store, 5_000, || {
        thread::sleep(Duration::from_secs(1));
        Ok(())
    })?;
    let start = Instant::now();
    let beside = push_while(&store, 6_000, || compact(&store).map(drop))?;
    row.put(format!("refs_{label}"), refs as f64);
    row.put(format!("compaction_{label}_ms"), start.elapsed().as_secs_f64() * 1e3);
    row.put(format!("commit_max_quiet_{label}_ms"), quiet / 1e3);
    row.put(format!("commit_max_beside_{label}_ms"), beside / 1e3);
    let gate = store.log().gate();
    row.put("sync_us", gate.sync_nanos() as f64 / 1e3 / gate.syncs().max(1) as f64);
    Ok(())
}

/// The longest commit of some writers (the first has this number), in microseconds, while something
/// else is done.
fn push_while(store: &RefStore, first: usize, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let stop = AtomicBool::new(false);
    let length = Length { warm_up: Duration::ZERO, measured: Duration::from_secs(60) };
    thread::scope(|scope| {
        let pushers = scope.spawn(|| {
            let movers = (0..WRITERS).map(|writer| Mover::new(first + writer, 1)).collect();
            closed_loop(movers, length, &stop, |mover| {
                store.commit(&transaction(mover.step())?)?;
                Ok(Duration::ZERO)
            })
        });
        let worked = work();
        stop.store(true, Ordering::Relaxed);
        let (run, _) = pushers.join().expect("a writer panicked")?;
        worked.map(|()| run.latency.max_us())
    })
}

/// Bytes and rows that seals and merges write for each that was appended, and a cold open after.
fn amplification(dir: &Path, count: usize, label: &str, row: &mut Row) -> Result<Verdict> {
    RefStore::create(dir, &CreateOptions::default())?;
    let store = RefStore::open(dir)?;
    let mut movers: Vec<Mover> = (0..OUTSTANDING).map(|writer| Mover::new(writer, 1)).collect();
    let start = Instant::now();
    for _ in 0..count / OUTSTANDING {
        let batch =
            movers.iter_mut().map(|mover| transaction(mover.step())).collect::<Result<Vec<_>>>()?;
        store.commit_batch(&batch).into_iter().try_for_each(|outcome| outcome.map(drop))?;
    }
    let seconds = start.elapsed().as_secs_f64();
    compact(&store)?;
    let done = store.maintenance().totals().done;
    store.close()?;
    drop(store);
    let sealed = done.sealed.max(1) as f64;
    row.put(format!("transactions_{label}"), count as f64);
    row.put(format!("per_sec_{label}"), count as f64 / seconds);
    row.put(format!("rows_written_per_row_{label}"), done.rows_written as f64 / sealed);
    row.put(format!("sealed_bytes_written_per_push_{label}"), done.bytes_written as f64 / sealed);
    row.put(format!("disk_bytes_per_push_{label}"), directory_bytes(dir)? as f64 / sealed);
    drop_page_cache(dir)?;
    let reading = Child::Open { dir: dir.to_owned(), name: "refs/heads/none".to_owned() }.read()?;
    row.put(format!("open_{label}_ms"), reading.open_ms);
    row.put(format!("open_memory_{label}_mb"), reading.memory_mb);
    let appended = (count / OUTSTANDING * OUTSTANDING) as u64;
    Ok(all_there("transactions sealed", appended, done.sealed))
}

fn directory_bytes(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        bytes += match entry.metadata()?.is_dir() {
            true => directory_bytes(&entry.path())?,
            false => entry.metadata()?.len(),
        };
    }
    Ok(bytes)
}
