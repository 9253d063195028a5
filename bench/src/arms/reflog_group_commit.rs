//! Many writers, each with its own ref: what sharing syncs is worth.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::Result;
use parking_lot::Mutex;
use refstone::Pending;

use super::Probed;
use crate::arm::{Arm, Bench, Scale};
use crate::hooks::take_own_io;
use crate::measure::drive::{Length, Run, closed_loop};
use crate::measure::row::{Row, loud};
use crate::measure::stats::{Latencies, median};
use crate::peers::transaction;
use crate::verdict::{Grouping, Verdict, all_there, group_commit};
use crate::workload::{Mover, PAYLOAD};

pub(super) const ARM: Arm = Arm { id: "refstone.reflog_group_commit", writes, run };

/// Moves that one thread has outstanding.
const OUTSTANDING: usize = 1_000;
const WRITERS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 256];

/// Set to `alone`, it makes every transaction sync alone, and this arm red. For showing that it can.
const SABOTAGE_VARIABLE: &str = "REFSTONE_BENCH_SABOTAGE";

fn writes(scale: Scale) -> u64 {
    scale.pick(256 << 20, 64 << 20)
}

/// One run at one number of writers.
struct Measured {
    run: Run,
    sync_us: f64,
    syncs_per_push: f64,
    lost: u64,
}

/// All runs at one number of writers.
struct Point {
    runs: Vec<Measured>,
}

fn run(bench: &Bench<'_>) -> Result<(Row, Verdict)> {
    let length = Length::millis(bench.scale.pick(800, 80));
    let points = measure(bench, length, bench.scale.pick(2, 1))?;
    let mut row = Row::new("durable, closed loop, each writer its own ref", 1, PAYLOAD);
    row.put("run_seconds", length.measured.as_secs_f64());
    points.iter().for_each(|point| point.report(&mut row));

    let at = |writers| &points[WRITERS.iter().position(|&w| w == writers).expect("is in the list")];
    let over_one = |writers| at(writers).rate() / at(1).rate();
    row.put("group_commit_x", over_one(16));
    row.put("group_commit_x_64", over_one(64));
    row.put("group_commit_x_256", over_one(256));
    row.put("group_efficiency_16", at(16).median(Measured::efficiency));
    // Neighbours that keep the processors busy delay one writer more than many: its thread alone
    // must be scheduled after every sync. This is the ratio that equal syncs would have given.
    for writers in [16, 64, 256] {
        let carried = |writers| at(writers).median(Measured::efficiency) * writers as f64;
        row.put(format!("group_commit_equal_syncs_x_{writers}"), carried(writers) / carried(1));
    }
    let seen = Grouping {
        group_commit_x: over_one(16),
        syncs_per_push_16: at(16).median(|measured| measured.syncs_per_push),
        lock_wait_ratio_x: at(16).wait_us() / at(1).wait_us(),
        sync_share_1: at(1).median(Measured::sync_share),
        memory: bench.disk.is_memory(),
    };
    row.put("lock_wait_ratio_x", seen.lock_wait_ratio_x);
    row.put("sync_share_1", seen.sync_share_1);
    let observable = seen.unobservable().is_none();
    row.put("grouping_observable", f64::from(u8::from(observable)));
    row.put("outstanding", OUTSTANDING as f64);
    row.put("push_per_sec_outstanding", outstanding(bench, length)?);
    let lost = points.iter().flat_map(|point| &point.runs).map(|m| m.lost).sum();
    Ok((row, all_there("refs away from their last value", 0, lost).and(group_commit(&seen))))
}

/// Up and down through the numbers of writers, so that a slow change of the machine hits all alike.
fn measure(bench: &Bench<'_>, length: Length, rounds: usize) -> Result<Vec<Point>> {
    let alone = std::env::var(SABOTAGE_VARIABLE).is_ok_and(|value| value == "alone");
    if alone {
        loud("sabotage: every transaction syncs alone; this arm must be red");
    }
    let mut points = WRITERS.map(|_| Point { runs: Vec::new() });
    for _ in 0..rounds {
        for index in (0..WRITERS.len()).chain((0..WRITERS.len()).rev()) {
            let dir = tempfile::tempdir_in(bench.dir)?;
            let measured = one_run(dir.path(), WRITERS[index], length, alone)?;
            points[index].runs.push(measured);
        }
    }
    Ok(points.into())
}

fn one_run(dir: &Path, writers: usize, length: Length, alone: bool) -> Result<Measured> {
    let Probed { store, .. } = Probed::create(&dir.join("refstone"))?;
    let sabotage = Mutex::new(());
    let movers: Vec<Mover> = (0..writers).map(|writer| Mover::new(writer, 1)).collect();
    let never = AtomicBool::new(false);
    let (run, movers) = closed_loop(movers, length, &never, |mover| {
        let tx = transaction(mover.step())?;
        let _one_at_a_time = alone.then(|| sabotage.lock());
        store.commit(&tx)?;
        Ok(take_own_io())
    })?;
    // Warm-up included: these are ratios of counts.
    let (log, gate) = (store.log(), store.log().gate());
    let syncs = gate.syncs().max(1) as f64;
    let view = store.view();
    let lost = movers.iter().filter(|mover| !super::peers::is_at_last(&view, mover)).count();
    Ok(Measured {
        run,
        sync_us: gate.sync_nanos() as f64 / 1e3 / syncs,
        syncs_per_push: syncs / log.durable_seq().get().max(1) as f64,
        lost: lost as u64,
    })
}

/// Moves per second of one thread that keeps many outstanding and answers each in order, as an
/// event loop would.
fn outstanding(bench: &Bench<'_>, length: Length) -> Result<f64> {
    let dir = tempfile::tempdir_in(bench.dir)?;
    let Probed { store, .. } = Probed::create(&dir.path().join("refstone"))?;
    let mut movers: Vec<Mover> = (0..OUTSTANDING).map(|writer| Mover::new(writer, 1)).collect();
    let mut pending = VecDeque::with_capacity(OUTSTANDING);
    let mut answered = 0;
    let start = Instant::now();
    for mover in 0.. {
        if pending.len() == OUTSTANDING {
            let oldest: Pending = pending.pop_front().expect("it is full");
            oldest.wait()?;
            answered += 1;
            if start.elapsed() >= length.measured {
                break;
            }
        }
        let moves = movers[mover % OUTSTANDING].step();
        pending.push_back(store.stage(&transaction(moves)?)?);
    }
    Ok(f64::from(answered) / start.elapsed().as_secs_f64())
}

impl Measured {
    /// 1 if every sync carried every writer and nothing else took time.
    fn efficiency(&self) -> f64 {
        self.run.per_sec() * self.sync_us / 1e6 / self.run.writers as f64
    }

    fn sync_share(&self) -> f64 {
        self.sync_us * self.syncs_per_push / self.run.latency.mean_us()
    }
}

impl Point {
    fn writers(&self) -> usize {
        self.runs[0].run.writers
    }

    fn median(&self, figure: impl Fn(&Measured) -> f64) -> f64 {
        median(&self.runs.iter().map(figure).collect::<Vec<_>>())
    }

    fn rate(&self) -> f64 {
        self.median(|measured| measured.run.per_sec())
    }

    fn wait_us(&self) -> f64 {
        self.median(|measured| measured.run.wait_per_commit_us())
    }

    fn report(&self, row: &mut Row) {
        let writers = self.writers();
        let latency = Latencies::pooled(self.runs.iter().map(|measured| &measured.run.latency));
        row.put(format!("push_per_sec_{writers}"), self.rate());
        row.put(format!("push_p50_us_{writers}"), latency.percentile_us(0.5));
        row.put(format!("push_p99_us_{writers}"), latency.percentile_us(0.99));
        row.put(format!("push_max_us_{writers}"), latency.max_us());
        row.put(format!("sync_mean_us_{writers}"), self.median(|m| m.sync_us));
        row.put(format!("syncs_per_push_{writers}"), self.median(|m| m.syncs_per_push));
        row.put(format!("lock_wait_us_{writers}"), self.wait_us());
    }
}
