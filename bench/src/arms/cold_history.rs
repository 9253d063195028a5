//! One ref's history among many rows, and the newest moves of a log, with a cold cache and a warm one,
//! in a fresh process.

use std::path::Path;

use anyhow::Result;
use refstone::{CreateOptions, Edit, ObjectId, RefName, RefStore, Transaction};

use super::{compact, move_one_by_one, name, open_by_hand};
use crate::arm::{Arm, Bench, Scale};
use crate::child::{Child, Reading};
use crate::measure::disk::drop_page_cache;
use crate::measure::row::Row;
use crate::measure::stats::median;
use crate::verdict::{Verdict, all_there, moves_stand_side_by_side, tail_costs_the_same};
use crate::workload::{ACTOR, oid};

pub(super) const ARM: Arm = Arm { id: "refstone.cold_history", writes, run };

const WANTED: &str = "refs/heads/main";
/// Moves of the ref that is asked for.
const PLANTED: usize = 100;
/// Rows of other refs come so many to a transaction: a live log of a million frames would have
/// been rewritten long before.
const ROWS: usize = 100;
const TIMES: usize = 3;
/// The newest moves of all refs.
const TAIL: usize = 100;

fn writes(scale: Scale) -> u64 {
    scale.pick(512 << 20, 16 << 20)
}

fn run(bench: &Bench<'_>) -> Result<(Row, Verdict)> {
    let sizes = bench.scale.pick([10_000, 1_000_000], [10_000, 20_000]);
    let live = bench.scale.pick([TAIL, 16_000], [TAIL, 1_000]);
    let mut row = Row::new("reads only, cold", ROWS, "100 moves of one ref among those of others");
    let mut verdict = Verdict::Green;
    let (mut histories, mut tails) = (Vec::new(), Vec::new());
    for ((rows, live), label) in sizes.into_iter().zip(live).zip(["small", "large"]) {
        let dir = tempfile::tempdir_in(bench.dir)?;
        let dir = dir.path().join("refstone");
        fill(&dir, rows)?;
        row.put(format!("rows_{label}"), rows as f64);
        let moves =
            Child::History { dir: dir.clone(), name: Some(WANTED.to_owned()), most: usize::MAX };
        let history = read(&moves, &dir, &mut row, &format!("history_{label}"))?;
        verdict = verdict
            .and(all_there("moves of the ref", PLANTED as u64, history.found))
            .and(moves_stand_side_by_side(history.asked_kib / PLANTED as f64));
        histories.push(history);

        extend(&dir, live)?;
        row.put(format!("live_{label}"), live as f64);
        let newest = Child::History { dir: dir.clone(), name: None, most: TAIL };
        let tail = read(&newest, &dir, &mut row, &format!("tail_{label}"))?;
        verdict = verdict.and(all_there("newest moves", TAIL as u64, tail.found));
        tails.push(tail.asked_kib);
    }
    verdict = verdict.and(tail_costs_the_same(tails[0], tails[1]));
    let [few, many] = [&histories[0], &histories[1]];
    row.put("history_x", many.answer_us / few.answer_us);
    row.put("history_warm_x", many.again_us / few.again_us);
    Ok((row, verdict))
}

/// Pushes after the compaction: the newest of them one by one, as people wait for them.
fn extend(dir: &Path, live: usize) -> Result<()> {
    let store = open_by_hand(dir)?;
    move_one_by_one(&store, 0, live - TAIL)?;
    for number in live - TAIL..live {
        move_one_by_one(&store, number, 1)?;
    }
    store.close()?;
    Ok(())
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

fn read(child: &Child, dir: &Path, row: &mut Row, label: &str) -> Result<Reading> {
    let mut readings = Vec::new();
    for _ in 0..TIMES {
        drop_page_cache(dir)?;
        readings.push(child.read()?);
    }
    if readings.iter().any(|reading| reading.read_mb == 0.0) {
        row.note("cold_history: NOT COLD: the kernel kept the page cache");
    }
    let middle =
        |figure: fn(&Reading) -> f64| median(&readings.iter().map(figure).collect::<Vec<_>>());
    row.put(format!("{label}_ms"), middle(|reading| reading.answer_us / 1e3));
    row.put(format!("{label}_warm_ms"), middle(|reading| reading.again_us / 1e3));
    row.put(format!("{label}_read_kib"), middle(|reading| reading.asked_kib));
    row.put(format!("{label}_memory_mb"), middle(|reading| reading.memory_mb));
    Ok(Reading {
        answer_us: middle(|reading| reading.answer_us),
        again_us: middle(|reading| reading.again_us),
        asked_kib: middle(|reading| reading.asked_kib),
        ..readings[0]
    })
}
