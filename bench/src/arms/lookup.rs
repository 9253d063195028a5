//! Looking refs up in a view: hot, by one thread and by two at once.

use std::thread;
use std::time::Instant;

use anyhow::Result;
use refstone::{RefName, View};

use super::{name, store_with_refs};
use crate::arm::{Arm, Bench, Scale};
use crate::measure::row::Row;
use crate::measure::stats::median;
use crate::verdict::{Verdict, all_there};

pub(super) const ARM: Arm = Arm { id: "refstone.lookup", writes, run };

const THREADS: [usize; 2] = [1, 2];
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
        for threads in THREADS {
            let mut rates = Vec::new();
            for seed in 0..3 {
                let (rate, hits) = look_up(&view, refs, threads, lookups, seed)?;
                rates.push(rate);
                expected += (threads * lookups) as u64;
                found += hits;
            }
            row.put(format!("lookups_per_sec_{label}_{threads}"), median(&rates));
        }
    }
    Ok((row, all_there("refs found", expected, found)))
}

/// Lookups per second of all threads, and how many found a value.
fn look_up(view: &View, refs: usize, threads: usize, each: usize, seed: u64) -> Result<(f64, u64)> {
    let mut random = fastrand::Rng::with_seed(seed);
    let names: Vec<RefName> =
        (0..NAMES).map(|_| Ok(RefName::new(name(random.usize(..refs)))?)).collect::<Result<_>>()?;
    let start = Instant::now();
    let hits = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|thread| {
                let names = names.iter().cycle().skip(thread * 7_919).take(each);
                scope.spawn(move || names.filter(|name| view.get(name).is_some()).count() as u64)
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a reader panicked")).sum()
    });
    Ok(((threads * each) as f64 / start.elapsed().as_secs_f64(), hits))
}
