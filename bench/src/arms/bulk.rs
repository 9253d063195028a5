//! Many refs in one transaction: the first push of a large repository.

use anyhow::Result;

use super::timed_ms;
use crate::arm::{Arm, Bench, Scale};
use crate::child::Child;
use crate::measure::row::Row;
use crate::peers::{self, Keep};
use crate::verdict::{Verdict, all_there};
use crate::workload::Mover;

pub(super) const ARM: Arm = Arm { id: "refstone.bulk", writes, run };

/// git files is left out: at 100,000 refs it takes most of a minute.
const COMPARED: [&str; 2] = ["git_reftable", "sqlite"];

fn writes(scale: Scale) -> u64 {
    scale.pick(1 << 30, 64 << 20)
}

fn run(bench: &Bench<'_>) -> Result<(Row, Verdict)> {
    let sizes = bench.scale.pick([100_000, 1_000_000], [1_000, 10_000]);
    let mut row =
        Row::new("durable, one transaction", sizes[0], "refs/heads/topic-NNNNNNN, created");
    let mut verdict = Verdict::Green;
    for (size, label) in sizes.into_iter().zip(["small", "large"]) {
        verdict = verdict.and(ours(bench, size, label, &mut row)?);
    }
    for name in COMPARED {
        match theirs(bench, name, sizes[0]) {
            Ok(seconds) => row.put(format!("{name}_small_s"), seconds),
            Err(error) => row.note(format!("{name}: not measured: {error:#}")),
        }
    }
    row.say(
        "includes",
        "building the transaction from names; peers log each move, as refstone does",
    );
    Ok((row, verdict))
}

/// In a process of its own, so that its memory is its own.
fn ours(bench: &Bench<'_>, refs: usize, label: &str, row: &mut Row) -> Result<Verdict> {
    let dir = tempfile::tempdir_in(bench.dir)?;
    let reading = Child::Create { dir: dir.path().join("refstone"), refs }.read()?;
    row.put(format!("refs_{label}"), refs as f64);
    row.put(format!("refstone_{label}_s"), reading.answer_us / 1e6);
    row.put(format!("bytes_per_ref_{label}"), reading.log_bytes as f64 / refs as f64);
    row.put(format!("memory_{label}_mb"), reading.memory_mb);
    row.put(format!("open_{label}_ms"), reading.open_ms);
    Ok(all_there("refs after opening again", refs as u64, reading.found))
}

fn theirs(bench: &Bench<'_>, name: &str, refs: usize) -> Result<f64> {
    let dir = tempfile::tempdir_in(bench.dir)?;
    let peer = peers::named(name).expect("the name of a peer");
    let store = (peer.open)(dir.path(), Keep::from_env())?;
    let mut writer = store.writer()?;
    let mut mover = Mover::new(0, refs);
    let (ms, ()) = timed_ms(|| writer.commit(mover.step()))?;
    Ok(ms / 1e3)
}
