//! One ref's history among many rows, with a cold cache, in a fresh process.

use std::path::Path;

use anyhow::Result;
use refstone::{CreateOptions, Edit, ObjectId, RefName, RefStore, Transaction};

use super::{compact, name};
use crate::arm::{Arm, Bench, Scale};
use crate::child::Child;
use crate::measure::disk::drop_page_cache;
use crate::measure::row::Row;
use crate::measure::stats::median;
use crate::verdict::{Verdict, all_there};
use crate::workload::{ACTOR, oid};

pub(super) const ARM: Arm = Arm { id: "refstone.cold_history", writes, run };

const WANTED: &str = "refs/heads/main";
/// Moves of the ref that is asked for.
const PLANTED: usize = 100;
/// Rows of other refs come so many to a transaction: a live log of a million frames would have
/// been rewritten long before.
const ROWS: usize = 100;
const TIMES: usize = 3;

fn writes(scale: Scale) -> u64 {
    scale.pick(512 << 20, 16 << 20)
}

fn run(bench: &Bench<'_>) -> Result<(Row, Verdict)> {
    let sizes = bench.scale.pick([10_000, 1_000_000], [10_000, 20_000]);
    let mut row = Row::new("reads only, cold", ROWS, "100 moves of one ref among those of others");
    let mut verdict = Verdict::Green;
    for (rows, label) in sizes.into_iter().zip(["small", "large"]) {
        let dir = tempfile::tempdir_in(bench.dir)?;
        let dir = dir.path().join("refstone");
        fill(&dir, rows)?;
        row.put(format!("rows_{label}"), rows as f64);
        verdict = verdict.and(read(&dir, &mut row, label)?);
    }
    Ok((row, verdict))
}

/// Transactions of many refs, and every so often a move of the wanted one.
fn fill(dir: &Path, rows: usize) -> Result<()> {
    RefStore::create(dir, &CreateOptions::default())?;
    let store = RefStore::open(dir)?;
    let transactions = rows / ROWS;
    let mut last = None;
    for number in 0..transactions {
        let mut tx = Transaction::new(ACTOR);
        for row in 0..ROWS {
            let id = ObjectId::from_bytes(&oid(number as u64 + 1, row as u64))?;
            tx.push(Edit::set(RefName::new(name(row))?, id));
        }
        last = Some(store.stage(&tx)?);
        if number % (transactions / PLANTED).max(1) == 0 {
            let id = ObjectId::from_bytes(&oid(number as u64 + 1, 1 << 32))?;
            let tx = Transaction::new(ACTOR).with(Edit::set(RefName::new(WANTED)?, id));
            last = Some(store.stage(&tx)?);
        }
    }
    last.map(refstone::Pending::wait).transpose()?;
    compact(&store)?;
    store.close()?;
    Ok(())
}

fn read(dir: &Path, row: &mut Row, label: &str) -> Result<Verdict> {
    let mut times = Vec::new();
    let mut memory = Vec::new();
    let mut verdict = Verdict::Green;
    for _ in 0..TIMES {
        drop_page_cache(dir)?;
        let reading = Child::History { dir: dir.to_owned(), name: WANTED.to_owned() }.read()?;
        times.push(reading.answer_us / 1e3);
        memory.push(reading.memory_mb);
        if reading.read_mb == 0.0 {
            row.note("cold_history: NOT COLD: the kernel kept the page cache");
        }
        verdict = verdict.and(all_there("moves of the ref", PLANTED as u64, reading.found));
    }
    row.put(format!("history_{label}_ms"), median(&times));
    row.put(format!("memory_{label}_mb"), median(&memory));
    Ok(verdict)
}
