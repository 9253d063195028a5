//! Many rewrites long: what the micro rate is worth once the log must be kept short.
//!
//! The store does not seal by itself yet, so this arm does: when the live log holds as many frames
//! as a rewrite is due at, a thread rewrites it, and its sealer writes what leaves to a file,
//! synced with its directory. The columnar file that will be written instead costs more processor
//! time and fewer bytes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use refstone::RefStore;

use super::Probed;
use super::seal::FileSealer;
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
/// A rewrite is due at so many frames.
const FRAMES_MAX: u64 = 16_384;
const REWRITES_MIN: usize = 10;
/// The run ends after so long even if the rewrites are not done.
const AT_MOST: Duration = Duration::from_secs(90);

fn writes(scale: Scale) -> u64 {
    scale.pick(512 << 20, 32 << 20)
}

/// What the rewrites did.
#[derive(Default)]
struct Rewrites {
    times: Vec<Duration>,
    /// Memory after each.
    memory_mb: Vec<f64>,
    sealed: u64,
}

fn run(bench: &Bench<'_>) -> Result<(Row, Verdict)> {
    let frames = bench.scale.pick(FRAMES_MAX, 128);
    let wanted = bench.scale.pick(REWRITES_MIN + 2, 3);
    let length = Length::millis(bench.scale.pick(2_000, 100));

    let before = micro(bench, length)?;
    let (long, rewrites, lost) = sustained(bench, frames, wanted)?;
    let after = micro(bench, length)?;
    let micro = median(&[before.per_sec(), after.per_sec()]);

    let mut row = Row::new("durable, 16 writers, rewritten as it grows", 1, PAYLOAD);
    row.note(
        "the store does not seal by itself yet: the arm drives the rewrites, and seals to a file",
    );
    row.put("writers", WRITERS as f64);
    row.put("frames_per_rewrite", frames as f64);
    row.put("rewrites", rewrites.times.len() as f64);
    row.put("seconds", long.seconds);
    row.put("pushes", long.commits() as f64);
    row.put("push_per_sec", long.per_sec());
    row.put("micro_push_per_sec", micro);
    row.put("sustained_x", long.per_sec() / micro);
    row.put("push_p99_us", long.latency.percentile_us(0.99));
    row.put("push_p999_us", long.latency.percentile_us(0.999));
    row.put("stall_max_ms", long.latency.max_us() / 1e3);
    row.put("micro_stall_max_ms", before.latency.max_us().max(after.latency.max_us()) / 1e3);
    let times: Vec<f64> = rewrites.times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
    row.put("rewrite_p50_ms", median(&times));
    row.put("rewrite_max_ms", times.iter().copied().fold(0.0, f64::max));
    let memory = &rewrites.memory_mb;
    let [early, late] = [memory.get(1), memory.last()].map(|mb| mb.copied().unwrap_or_default());
    row.put("memory_early_mb", early);
    row.put("memory_late_mb", late);
    let there = all_there("refs away from their last value", 0, lost);
    if rewrites.times.len() < bench.scale.pick(REWRITES_MIN, 2) {
        let why = format!("only {} rewrites in the time there is", rewrites.times.len());
        return Ok((row, there.and(Verdict::Unobservable(why))));
    }
    Ok((row, there.and(memory_is_flat(early, late))))
}

/// The same writers in a log that nobody rewrites.
fn micro(bench: &Bench<'_>, length: Length) -> Result<Run> {
    let dir = tempfile::tempdir_in(bench.dir)?;
    let Probed { store, .. } = Probed::create(&dir.path().join("refstone"))?;
    let (run, _) = push(&store, length, &AtomicBool::new(false))?;
    Ok(run)
}

fn sustained(bench: &Bench<'_>, frames: u64, wanted: usize) -> Result<(Run, Rewrites, u64)> {
    let Probed { store, .. } = Probed::create(&bench.dir.join("refstone"))?;
    let sealed = bench.dir.join("sealed");
    std::fs::create_dir(&sealed)?;
    let stop = AtomicBool::new(false);
    let length = Length { warm_up: Duration::ZERO, measured: AT_MOST };
    let (pushed, rewrites) = thread::scope(|scope| {
        let rewriter = scope.spawn(|| {
            let rewrites = rewrite_as_it_grows(&store, &sealed, frames, wanted, &stop);
            stop.store(true, Ordering::Relaxed);
            rewrites
        });
        let pushed = push(&store, length, &stop);
        stop.store(true, Ordering::Relaxed);
        (pushed, rewriter.join().expect("the rewriter panicked"))
    });
    let (run, movers) = pushed?;
    let view = store.view();
    let lost = movers.iter().filter(|mover| !super::peers::is_at_last(&view, mover)).count();
    Ok((run, rewrites?, lost as u64))
}

fn push(store: &RefStore, length: Length, stop: &AtomicBool) -> Result<(Run, Vec<Mover>)> {
    let movers = (0..WRITERS).map(|writer| Mover::new(writer, 1)).collect();
    closed_loop(movers, length, stop, |mover| {
        store.commit(&transaction(mover.step())?)?;
        Ok(Duration::ZERO)
    })
}

fn rewrite_as_it_grows(
    store: &RefStore,
    sealed: &Path,
    frames: u64,
    wanted: usize,
    stop: &AtomicBool,
) -> Result<Rewrites> {
    let mut rewrites = Rewrites::default();
    while rewrites.times.len() < wanted && !stop.load(Ordering::Relaxed) {
        let durable = store.log().durable_seq();
        if durable.get() - rewrites.sealed < frames {
            thread::sleep(Duration::from_millis(2));
            continue;
        }
        let mut sealer = FileSealer::into(sealed);
        let start = Instant::now();
        store.log().rewrite(durable, &mut sealer)?;
        rewrites.times.push(start.elapsed());
        rewrites.memory_mb.push(host::memory_mb());
        let gone = sealer.last.get() - rewrites.sealed;
        anyhow::ensure!(gone == sealer.count, "{gone} transactions left, {} sealed", sealer.count);
        rewrites.sealed = sealer.last.get();
    }
    Ok(rewrites)
}
