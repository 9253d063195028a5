//! Many compactions long: what the micro rate is worth when the store keeps its log short.
//!
//! The store does that by itself, as it does for everybody: rows leave for Parquet and for tables,
//! which are merged as they grow, on the same processors and the same disk.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use refstone::{CreateOptions, RefStore, Totals};

use super::Probed;
use crate::arm::{Arm, Bench, Scale};
use crate::measure::drive::{Length, Run, closed_loop};
use crate::measure::host;
use crate::measure::row::Row;
use crate::measure::stats::median;
use crate::peers::transaction;
use crate::verdict::{Verdict, all_there, memory_is_flat};
use crate::workload::{Mover, PAYLOAD};

pub(super) const ARM: Arm = Arm { id: "refstone.sustained", writes, run };

const WRITERS: usize = 16;
const COMPACTIONS_MIN: usize = 10;
/// The run ends after so long even if the compactions are not done.
const AT_MOST: Duration = Duration::from_secs(90);

fn writes(scale: Scale) -> u64 {
    scale.pick(512 << 20, 32 << 20)
}

/// What the compactions did.
#[derive(Default)]
struct Compactions {
    totals: Totals,
    /// Memory after each.
    memory_mb: Vec<f64>,
    live_frames_max: u64,
}

fn run(bench: &Bench<'_>) -> Result<(Row, Verdict)> {
    let wanted = bench.scale.pick(COMPACTIONS_MIN + 2, 2);
    let length = Length::millis(bench.scale.pick(2_000, 100));

    let before = micro(bench, length)?;
    let (long, seen, lost) = sustained(bench, wanted)?;
    let after = micro(bench, length)?;
    let micro = median(&[before.per_sec(), after.per_sec()]);

    let mut row = Row::new("durable, 16 writers, compacted as it grows", 1, PAYLOAD);
    row.put("writers", WRITERS as f64);
    row.put("compactions", seen.totals.compactions as f64);
    row.put("live_frames_max", seen.live_frames_max as f64);
    row.put("seconds", long.seconds);
    row.put("pushes", long.commits() as f64);
    row.put("push_per_sec", long.per_sec());
    row.put("micro_push_per_sec", micro);
    row.put("sustained_x", long.per_sec() / micro);
    row.put("push_p99_us", long.latency.percentile_us(0.99));
    row.put("push_p999_us", long.latency.percentile_us(0.999));
    row.put("stall_max_ms", long.latency.max_us() / 1e3);
    row.put("micro_stall_max_ms", before.latency.max_us().max(after.latency.max_us()) / 1e3);
    let done = &seen.totals.done;
    row.put("rows_written_per_row", done.rows_written as f64 / done.sealed.max(1) as f64);
    row.put("sealed_bytes_written_per_push", done.bytes_written as f64 / done.sealed.max(1) as f64);
    let memory = &seen.memory_mb;
    let [early, late] = [memory.get(1), memory.last()].map(|mb| mb.copied().unwrap_or_default());
    row.put("memory_early_mb", early);
    row.put("memory_late_mb", late);
    let there = all_there("refs away from their last value", 0, lost);
    if seen.memory_mb.len() < bench.scale.pick(COMPACTIONS_MIN, 1) {
        let why = format!("only {} compactions in the time there is", seen.memory_mb.len());
        return Ok((row, there.and(Verdict::Unobservable(why))));
    }
    Ok((row, there.and(memory_is_flat(early, late))))
}

/// The same writers in a log that nobody compacts.
fn micro(bench: &Bench<'_>, length: Length) -> Result<Run> {
    let dir = tempfile::tempdir_in(bench.dir)?;
    let Probed { store, .. } = Probed::create(&dir.path().join("refstone"))?;
    let (run, _) = push(&store, length, &AtomicBool::new(false))?;
    Ok(run)
}

fn sustained(bench: &Bench<'_>, wanted: usize) -> Result<(Run, Compactions, u64)> {
    let dir = bench.dir.join("refstone");
    RefStore::create(&dir, &CreateOptions::default())?;
    let store = RefStore::open(&dir)?;
    let stop = AtomicBool::new(false);
    let length = Length { warm_up: Duration::ZERO, measured: AT_MOST };
    let (pushed, seen) = thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let seen = watch(&store, wanted, &stop);
            stop.store(true, Ordering::Relaxed);
            seen
        });
        let pushed = push(&store, length, &stop);
        stop.store(true, Ordering::Relaxed);
        (pushed, watcher.join().expect("the watcher panicked"))
    });
    let (run, movers) = pushed?;
    if let Some(failure) = seen.totals.failure {
        anyhow::bail!("a compaction failed: {failure}");
    }
    let view = store.view();
    let lost = movers.iter().filter(|mover| !super::peers::is_at_last(&view, mover)).count();
    Ok((run, seen, lost as u64))
}

fn push(store: &RefStore, length: Length, stop: &AtomicBool) -> Result<(Run, Vec<Mover>)> {
    let movers = (0..WRITERS).map(|writer| Mover::new(writer, 1)).collect();
    closed_loop(movers, length, stop, |mover| {
        store.commit(&transaction(mover.step())?)?;
        Ok(Duration::ZERO)
    })
}

/// Watches the store compact itself.
fn watch(store: &RefStore, wanted: usize, stop: &AtomicBool) -> Compactions {
    let mut seen = Compactions::default();
    while seen.memory_mb.len() < wanted && !stop.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(2));
        let totals = store.maintenance().totals();
        seen.live_frames_max = seen.live_frames_max.max(live_frames(store));
        if totals.compactions as usize > seen.memory_mb.len() {
            seen.memory_mb.resize(totals.compactions as usize, host::memory_mb());
        }
        seen.totals = totals;
    }
    seen
}

fn live_frames(store: &RefStore) -> u64 {
    store.log().durable_seq().get() - store.maintenance().sealed_seq().get()
}
