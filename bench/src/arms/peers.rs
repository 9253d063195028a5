//! The same moves through other stores, on the same disk, in the same run.
//!
//! Each run of a peer stands between two of refstone: A B B A. What counts is the median ratio of
//! the pairs.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result};
use refstone::{ObjectId, RefName, Target, View};

use crate::arm::{Arm, Bench, Scale};
use crate::measure::drive::{Length, Run, closed_loop};
use crate::measure::row::{Row, loud};
use crate::measure::stats::{Latencies, median, median_ratio};
use crate::peers::{Keep, PEERS, PEERS_BUFFERED, Peer, REFSTONE, REFSTONE_BUFFERED};
use crate::verdict::{Verdict, all_there};
use crate::workload::{BATCH, Mover, PAYLOAD};

pub(super) const ARM: Arm = Arm { id: "refstone.peers", writes, run };

fn writes(scale: Scale) -> u64 {
    scale.pick(512 << 20, 256 << 20)
}

/// Transactions of one size, which are compared only with each other.
struct Mode {
    /// Follows a store's name in the keys.
    suffix: &'static str,
    subject: Peer,
    peers: &'static [Peer],
    batch: usize,
    writers: &'static [usize],
    length: Length,
    /// How often A B B A is run.
    rounds: usize,
}

/// What one comparison at one number of writers found.
struct Compared {
    ours: Vec<Run>,
    theirs: Vec<Run>,
    lost: u64,
}

fn run(bench: &Bench<'_>) -> Result<(Row, Verdict)> {
    let keep = Keep::from_env();
    let mut row = Row::new("A: per transaction; B: 128 moves in one transaction", 1, PAYLOAD);
    row.say("unsynced", "Buffered against SQLite synchronous=NORMAL: neither is durable");
    row.say("rows", keep.describe());
    if cfg!(not(feature = "rocksdb")) {
        row.note("RocksDB: not measured, built without the feature rocksdb");
    }
    for peer in PEERS.iter().chain(PEERS_BUFFERED).chain([&REFSTONE_BUFFERED]) {
        row.say(format!("{}_setup", peer.name), peer.setup);
    }
    let mut lost = 0;
    for mode in modes(bench.scale) {
        row.put(format!("run_seconds{}", mode.suffix), mode.length.measured.as_secs_f64());
        for &writers in mode.writers {
            lost += compare_all(bench, keep, &mode, writers, &mut row)?;
        }
    }
    Ok((row, all_there("refs away from their last value", 0, lost)))
}

fn modes(scale: Scale) -> [Mode; 3] {
    let a = Mode {
        suffix: "",
        subject: REFSTONE,
        peers: PEERS,
        batch: 1,
        writers: scale.pick(&[1, 16, 64], &[1, 4]),
        // Many short pairs rather than few long ones: both of a pair meet the same neighbours.
        length: Length::millis(scale.pick(400, 50)),
        rounds: scale.pick(4, 1),
    };
    let writers = scale.pick::<&[usize]>(&[1, 16], &[2]);
    [
        a,
        Mode {
            suffix: "_b",
            subject: REFSTONE,
            peers: PEERS,
            batch: BATCH,
            writers,
            length: Length::millis(scale.pick(1_000, 50)),
            rounds: 1,
        },
        Mode {
            suffix: "_unsynced",
            subject: REFSTONE_BUFFERED,
            peers: PEERS_BUFFERED,
            batch: 1,
            writers,
            length: Length::millis(scale.pick(500, 50)),
            rounds: scale.pick(2, 1),
        },
    ]
}

fn compare_all(
    bench: &Bench<'_>,
    keep: Keep,
    mode: &Mode,
    writers: usize,
    row: &mut Row,
) -> Result<u64> {
    let mut ours = Vec::new();
    let mut ratios = BTreeMap::new();
    let mut lost = 0;
    for peer in mode.peers {
        // A store that cannot be opened is not there; one that fails a commit must not pass for
        // one that is not there, or the best peer would be another.
        if let Err(error) = try_open(bench, *peer, keep) {
            row.note(format!("{}: not measured: it does not open: {error:#}", peer.name));
            continue;
        }
        let compared = compare(bench, *peer, keep, mode, writers)?;
        report(row, peer.name, mode, writers, &compared.theirs);
        if compared.theirs.iter().any(|run| run.commits() == 0) {
            row.note(format!(
                "{}{} at {writers} writers: not one commit in the time of a run",
                peer.name, mode.suffix
            ));
        } else {
            let ratio = median_ratio(&rates(&compared.ours), &rates(&compared.theirs));
            row.put(format!("{}{}_x_{writers}", peer.name, mode.suffix), ratio);
            if peer.product {
                ratios.insert(peer.name, ratio);
            }
        }
        lost += compared.lost;
        ours.extend(compared.ours);
    }
    report(row, mode.subject.name, mode, writers, &ours);
    if let Some((best, ratio)) = ratios.iter().min_by(|a, b| a.1.total_cmp(b.1)) {
        row.say(format!("best_peer{}_{writers}", mode.suffix), *best);
        row.put(format!("best_peer{}_x_{writers}", mode.suffix), *ratio);
    }
    Ok(lost)
}

fn compare(
    bench: &Bench<'_>,
    peer: Peer,
    keep: Keep,
    mode: &Mode,
    writers: usize,
) -> Result<Compared> {
    let mut compared = Compared { ours: Vec::new(), theirs: Vec::new(), lost: 0 };
    let ours = mode.subject;
    for subject in [ours, peer, peer, ours].repeat(mode.rounds) {
        let (run, lost) = one_run(bench, subject, keep, mode, writers)
            .with_context(|| format!("{} with {writers} writers", subject.name))?;
        compared.lost += lost;
        let runs =
            if subject.name == ours.name { &mut compared.ours } else { &mut compared.theirs };
        runs.push(run);
    }
    Ok(compared)
}

fn try_open(bench: &Bench<'_>, peer: Peer, keep: Keep) -> Result<()> {
    let dir = tempfile::tempdir_in(bench.dir)?;
    (peer.open)(dir.path(), keep).map(drop)
}

/// One store, fresh, for one run. Also says how many writers' refs are not where they were moved.
fn one_run(
    bench: &Bench<'_>,
    peer: Peer,
    keep: Keep,
    mode: &Mode,
    writers: usize,
) -> Result<(Run, u64)> {
    let dir = tempfile::tempdir_in(bench.dir)?;
    let store = (peer.open)(dir.path(), keep)?;
    let writing = (0..writers)
        .map(|writer| Ok((Mover::new(writer, mode.batch), store.writer()?)))
        .collect::<Result<Vec<_>>>()?;
    let never = AtomicBool::new(false);
    let (run, writing) = closed_loop(writing, mode.length, &never, |(mover, writer)| {
        writer.commit(mover.step())?;
        Ok(Duration::ZERO)
    })?;
    let mut lost = 0;
    // Asking git starts a process each, so a few of many writers must do.
    for (mover, _) in writing.iter().step_by(writing.len().div_ceil(8)) {
        let last = mover.last().last().expect("a transaction has a move");
        if !store.holds(&last.name, &last.new)? {
            loud(&format!("{}: {} is not at its last value", peer.name, last.name));
            lost += 1;
        }
    }
    Ok((run, lost))
}

fn rates(runs: &[Run]) -> Vec<f64> {
    runs.iter().map(Run::per_sec).collect()
}

fn report(row: &mut Row, name: &str, mode: &Mode, writers: usize, runs: &[Run]) {
    let moves_per_sec = median(&rates(runs)) * mode.batch as f64;
    let latency = Latencies::pooled(runs.iter().map(|run| &run.latency));
    let key = |figure: &str| format!("{name}{}_{figure}_{writers}", mode.suffix);
    row.put(key("moves_per_sec"), moves_per_sec);
    for (figure, share) in [("p50_us", 0.5), ("p90_us", 0.9), ("p99_us", 0.99), ("p999_us", 0.999)]
    {
        row.put(key(figure), latency.percentile_us(share));
    }
    row.put(key("max_us"), latency.max_us());
}

/// Whether a view has the writer's refs where it moved them last.
pub(super) fn is_at_last(view: &View, mover: &Mover) -> bool {
    mover.last().iter().all(|moved| {
        let name = RefName::new(moved.name.as_str());
        let value = ObjectId::from_bytes(&moved.new).map(Target::Object);
        matches!((name, value), (Ok(name), Ok(value)) if view.get(&name) == Ok(Some(value.clone())))
    })
}
