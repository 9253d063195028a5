//! Looking refs up in a view, hot, by one to four threads, beside a writer; per second of the
//! processor time that the readers take, since there may be fewer processors than threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use refstone::{RefName, RefStore, View};

use super::{name, store_with_refs};
use crate::arm::{Arm, Bench, Scale};
use crate::measure::host;
use crate::measure::row::Row;
use crate::measure::stats::median;
use crate::peers::transaction;
use crate::verdict::{Verdict, all_there};
use crate::workload::Mover;

pub(super) const ARM: Arm = Arm { id: "refstone.lookup", writes, run };

const THREADS: [usize; 3] = [1, 2, 4];
/// Names are made before the clock runs; a caller has them from a request.
const NAMES: usize = 1 << 16;

fn writes(scale: Scale) -> u64 {
    scale.pick(256 << 20, 16 << 20)
}

fn run(bench: &Bench<'_>) -> Result<(Row, Verdict)> {
    let sizes = bench.scale.pick([100_000, 1_000_000], [1_000, 10_000]);
    let lookups = bench.scale.pick(2_000_000, 100_000);
    let mut row =
        Row::new("reads only", 1, "View::get of names drawn at random, all of them there");
    let (mut expected, mut found) = (0, 0);
    for (refs, label) in sizes.into_iter().zip(["small", "large"]) {
        let dir = tempfile::tempdir_in(bench.dir)?;
        let store = store_with_refs(&dir.path().join("refstone"), refs)?;
        let view = store.view();
        row.put(format!("refs_{label}"), refs as f64);
        // Once, so that what is measured is memory and not the disk.
        look_up(&view, refs, 1, 4 * refs, 9)?;
        let stop = AtomicBool::new(false);
        thread::scope(|scope| -> Result<()> {
            let writer = scope.spawn(|| write(&store, &stop));
            for threads in THREADS {
                let mut rates = Vec::new();
                for seed in 0..3 {
                    let (rate, hits) = look_up(&view, refs, threads, lookups, seed)?;
                    rates.push(rate);
                    expected += (threads * lookups) as u64;
                    found += hits;
                }
                row.put(format!("lookups_per_cpu_sec_{label}_{threads}"), median(&rates));
            }
            stop.store(true, Ordering::Relaxed);
            writer.join().expect("the writer panicked")
        })?;
    }
    Ok((row, all_there("refs found", expected, found)))
}

/// Lookups per second of processor time, and how many found a value.
fn look_up(view: &View, refs: usize, threads: usize, each: usize, seed: u64) -> Result<(f64, u64)> {
    let mut random = fastrand::Rng::with_seed(seed);
    let names: Vec<RefName> =
        (0..NAMES).map(|_| Ok(RefName::new(name(random.usize(..refs)))?)).collect::<Result<_>>()?;
    let read = |thread: usize| {
        let start = host::thread_time();
        let names = names.iter().cycle().skip(thread * 7_919).take(each);
        let found = |name: &&RefName| view.get(name).is_ok_and(|target| target.is_some());
        let hits = names.filter(found).count() as u64;
        (host::thread_time() - start, hits)
    };
    let done: Vec<(Duration, u64)> = thread::scope(|scope| {
        let readers: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || read(thread))).collect();
        readers.into_iter().map(|reader| reader.join().expect("a reader panicked")).collect()
    });
    let time: Duration = done.iter().map(|(time, _)| *time).sum();
    let rate = (threads * each) as f64 / time.as_secs_f64();
    Ok((rate, done.iter().map(|(_, hits)| hits).sum()))
}

/// Moves refs one by one until it is told to stop.
fn write(store: &RefStore, stop: &AtomicBool) -> Result<()> {
    let mut mover = Mover::new(99, 1);
    while !stop.load(Ordering::Relaxed) {
        store.commit(&transaction(mover.step())?)?;
    }
    Ok(())
}
