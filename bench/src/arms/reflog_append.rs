//! One writer, one ref per transaction: the latency of a durable move, against the bare disk.

use std::time::{Duration, Instant};

use anyhow::Result;
use refstone::RefStore;

use super::{Probed, serial, timed_ms};
use crate::arm::{Arm, Bench, Scale};
use crate::measure::floor::Floor;
use crate::measure::row::Row;
use crate::measure::stats::{Latencies, median, median_ratio};
use crate::peers::transaction;
use crate::verdict::{Verdict, bytes_per_push};
use crate::workload::{Mover, PAYLOAD};

pub(super) const ARM: Arm = Arm { id: "refstone.reflog_append", writes, run };

/// Pushes of a run without a rewrite.
const PUSHES: usize = 4_000;
/// Blocks of pushes that alternate with blocks of bare syncs, A B B A and so on: short ones, so that
/// both of a pair meet the same neighbours.
const BLOCKS: usize = 40;

fn writes(scale: Scale) -> u64 {
    scale.pick(128 << 20, 8 << 20)
}

fn run(bench: &Bench<'_>) -> Result<(Row, Verdict)> {
    let pushes = bench.scale.pick(PUSHES, 200);
    let dir = bench.dir.join("refstone");
    let Probed { store, probe } = Probed::create(&dir)?;
    let mut floor = Floor::create(bench.dir, pushes)?;
    let mut mover = Mover::new(1234, 1);

    // Creating the ref is not a move: its row has no old value.
    store.commit(&transaction(mover.step())?)?;
    let bytes_before = store.log().live_bytes();
    probe.reset();
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    let mut times = Vec::new();
    for block in 0..BLOCKS {
        let count = pushes / BLOCKS;
        if block % 2 == 0 {
            ours.push(push_block(&store, &mut mover, count, &mut times)?);
            bare.push(floor_block(&mut floor, count)?);
        } else {
            bare.push(floor_block(&mut floor, count)?);
            ours.push(push_block(&store, &mut mover, count, &mut times)?);
        }
    }
    let bytes = (store.log().live_bytes() - bytes_before) as f64 / times.len() as f64;
    let sync_time: Duration = probe.syncs().iter().sum();
    let wall: Duration = times.iter().sum();
    store.close()?;
    drop(store);
    let (open_ms, _reopened) = timed_ms(|| Ok(RefStore::open(&dir)?))?;

    let latency = Latencies::of(times);
    let mut row = Row::new("durable, one writer", 1, PAYLOAD);
    row.put("pushes", latency.count() as f64);
    row.put("push_per_sec", median(&ours));
    row.put("us_per_push", 1e6 / median(&ours));
    row.put("push_p50_us", latency.percentile_us(0.5));
    row.put("push_p99_us", latency.percentile_us(0.99));
    row.put("push_max_us", latency.max_us());
    row.put("fsync_pct", 100.0 * sync_time.as_secs_f64() / wall.as_secs_f64());
    row.put("bytes_per_push", bytes);
    row.put("open_ms", open_ms);
    row.put("floor_per_sec", median(&bare));
    row.put("device_floor_x", median_ratio(&ours, &bare));
    row.put(
        "serial_section_ns",
        serial::serial_section_ns(&bench.dir.join("serial"), bench.scale)?,
    );
    row.put("encode_ns", serial::encode_ns(&bench.dir.join("encode"), bench.scale)?);
    row.say("open_ms_means", "page cache warm, one frame per push to replay");
    Ok((row, bytes_per_push(bytes)))
}

/// Pushes per second of one block.
fn push_block(
    store: &RefStore,
    mover: &mut Mover,
    count: usize,
    times: &mut Vec<Duration>,
) -> Result<f64> {
    let start = Instant::now();
    for _ in 0..count {
        let begun = Instant::now();
        store.commit(&transaction(mover.step())?)?;
        times.push(begun.elapsed());
    }
    Ok(count as f64 / start.elapsed().as_secs_f64())
}

/// The same of the bare disk.
fn floor_block(floor: &mut Floor, count: usize) -> Result<f64> {
    let start = Instant::now();
    for _ in 0..count {
        floor.commit()?;
    }
    Ok(count as f64 / start.elapsed().as_secs_f64())
}
