//! Opening a large store with a cold cache, in a fresh process, and looking one ref up.

use std::path::Path;

use anyhow::Result;

use super::{move_one_by_one, name, open_by_hand, store_with_refs};
use crate::arm::{Arm, Bench, Scale};
use crate::child::{Child, Reading};
use crate::measure::disk::drop_page_cache;
use crate::measure::row::Row;
use crate::measure::stats::median;
use crate::verdict::{Verdict, all_there};

pub(super) const ARM: Arm = Arm { id: "refstone.cold_open", writes, run };

const TIMES: usize = 3;

fn writes(scale: Scale) -> u64 {
    scale.pick(512 << 20, 32 << 20)
}

fn run(bench: &Bench<'_>) -> Result<(Row, Verdict)> {
    let refs = bench.scale.pick(1_000_000, 10_000);
    let frames = bench.scale.pick(16_384, 256);
    let dir = bench.dir.join("refstone");
    let mut row = Row::new("reads only, cold", refs, "open the store, look one ref up");
    row.put("refs", refs as f64);

    // Few frames: the store was compacted when it was idle.
    store_with_refs(&dir, refs)?.close()?;
    let few = open_cold(&dir, &mut row, "few_frames")?;
    // And as many moves behind them as a live log may have.
    let store = open_by_hand(&dir)?;
    move_one_by_one(&store, 0, frames)?;
    store.close()?;
    drop(store);
    let full = open_cold(&dir, &mut row, "full")?;
    row.put("frames_full", frames as f64);
    Ok((row, all_there("refs found", 2 * TIMES as u64, few + full)))
}

/// Medians of some opens; returns how many found their ref.
fn open_cold(dir: &Path, row: &mut Row, label: &str) -> Result<u64> {
    let mut readings = Vec::new();
    for _ in 0..TIMES {
        drop_page_cache(dir)?;
        readings.push(Child::Open { dir: dir.to_owned(), name: name(4_321) }.read()?);
    }
    let middle =
        |figure: fn(&Reading) -> f64| median(&readings.iter().map(figure).collect::<Vec<_>>());
    row.put(format!("open_{label}_ms"), middle(|r| r.open_ms));
    row.put(format!("lookup_{label}_us"), middle(|r| r.answer_us));
    row.put(format!("memory_{label}_mb"), middle(|r| r.memory_mb));
    row.put(format!("read_from_disk_{label}_mb"), middle(|r| r.read_mb));
    if readings.iter().any(|reading| reading.read_mb < 0.1) {
        row.note("cold_open: NOT COLD: the kernel kept the page cache");
    } else {
        row.say("page_cache", "dropped before each open (fadvise DONTNEED); inodes stayed cached");
    }
    Ok(readings.iter().map(|reading| reading.found).sum())
}
