//! Where the time of a commit goes, at one writer and at sixteen.
//!
//! Nothing inside the log is changed: its I/O seam tells when it reads the clock (it is about to
//! encode), writes, syncs and publishes; the caller knows when it staged and when it was answered.
//! Two borders cannot be seen from outside, and are measured beside it:
//!
//! - *encode* is the time of a hot encoder ([`super::serial`]); what staging takes beyond that is
//!   *stage*, so cold caches and waiting for the mutex count as staging.
//! - *fold* is the time from publishing to the answer when one thread stages as many moves as there
//!   are writers and leads them itself, so that nobody is to be woken; what writers wait beyond that
//!   is *wake*.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use refstone::{Pending, RefStore};

use super::seal::FileSealer;
use super::{Probed, serial, timed_ms};
use crate::arm::{Arm, Bench, Scale};
use crate::hooks::{Round, take_clock_read, take_extending};
use crate::measure::row::Row;
use crate::measure::stats::median;
use crate::peers::transaction;
use crate::verdict::{Verdict, phases_cover};
use crate::workload::{Mover, PAYLOAD};

pub(super) const ARM: Arm = Arm { id: "refstone.phases", writes, run };

fn writes(scale: Scale) -> u64 {
    scale.pick(128 << 20, 16 << 20)
}

/// One commit, as its thread saw it.
struct Stamps {
    begun: Instant,
    clock_read: Instant,
    staged: Instant,
    answered: Instant,
    extending: Duration,
}

/// Sums over commits, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Phases {
    validate: f64,
    encode: f64,
    stage: f64,
    extend: f64,
    queue: f64,
    write: f64,
    sync: f64,
    publish: f64,
    /// Fold and wake together.
    after: f64,
}

struct Traced {
    commits: usize,
    phases: Phases,
    /// Of all threads, from their first commit to their last answer.
    wall_us: f64,
}

fn run(bench: &Bench<'_>) -> Result<(Row, Verdict)> {
    let mut row = Row::new("durable, closed loop", 1, PAYLOAD);
    let encode_us = serial::encode_ns(&bench.dir.join("encode"), bench.scale)? / 1e3;
    let mut verdict = Verdict::Green;
    for (writers, each) in [(1, bench.scale.pick(4_000, 200)), (16, bench.scale.pick(1_000, 40))] {
        let dir = bench.dir.join(format!("store-{writers}"));
        let Probed { store, probe } = Probed::create(&dir)?;
        let stamps = trace(writers, |writer| commits(&store, writer, each))?;
        let traced = attribute(&stamps, &probe.rounds(), encode_us);
        let groups = bench.scale.pick(400, 40);
        let fold_us = fold_us(&bench.dir.join(format!("fold-{writers}")), writers, groups)?;
        let rewrite_us = match writers {
            1 => rewrite_us(&store, bench.dir)?,
            _ => 0.0,
        };
        let covered = report(&mut row, writers, &traced, fold_us, rewrite_us);
        verdict = verdict.and(phases_cover(covered));
    }
    row.note("rewrite: the arm rewrites the whole log once after the pushes of one writer");
    Ok((row, verdict))
}

/// Runs one thread per writer to its end.
fn trace<T: Send>(writers: usize, work: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..writers).map(|w| scope.spawn(move || work(w))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a writer panicked")).collect()
    })
}

fn commits(store: &RefStore, writer: usize, count: usize) -> Result<Vec<Stamps>> {
    let mut mover = Mover::new(writer, 1);
    let mut stamps = Vec::with_capacity(count);
    for _ in 0..count {
        take_extending();
        let begun = Instant::now();
        let tx = transaction(mover.step())?;
        let pending = store.stage(&tx)?;
        let staged = Instant::now();
        pending.wait()?;
        let answered = Instant::now();
        let clock_read = take_clock_read().unwrap_or(staged);
        stamps.push(Stamps { begun, clock_read, staged, answered, extending: take_extending() });
    }
    Ok(stamps)
}

fn attribute(threads: &[Vec<Stamps>], rounds: &[Round], encode_us: f64) -> Traced {
    let mut phases = Phases::default();
    let mut wall_us = 0.0;
    for stamps in threads {
        stamps.iter().for_each(|stamps| phases.add(stamps, rounds, encode_us));
        if let (Some(first), Some(last)) = (stamps.first(), stamps.last()) {
            wall_us += micros(first.begun, last.answered);
        }
    }
    Traced { commits: threads.iter().map(Vec::len).sum(), phases, wall_us }
}

impl Phases {
    fn add(&mut self, stamps: &Stamps, rounds: &[Round], encode_us: f64) {
        let Stamps { begun, clock_read, staged, answered, extending } = *stamps;
        let extend = extending.as_secs_f64() * 1e6;
        let staging = micros(clock_read, staged) - extend;
        let encode = encode_us.min(staging);
        self.validate += micros(begun, clock_read);
        self.encode += encode;
        self.stage += staging - encode;
        self.extend += extend;

        // The first round that began to write after this commit had staged took it along. (Or the
        // next, if it staged in the microsecond between taking and writing.)
        let index = rounds.partition_point(|round| round.write_start < staged);
        let Some(round) = rounds.get(index).or(rounds.last()) else { return };
        let within = |instant: Instant| instant.clamp(staged, answered);
        let [write, wrote, synced, published] =
            [round.write_start, round.write_end, round.sync_end, round.publish_end].map(within);
        self.queue += micros(staged, write);
        self.write += micros(write, wrote);
        self.sync += micros(wrote, synced);
        self.publish += micros(synced, published);
        self.after += micros(published, answered);
    }
}

fn micros(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64() * 1e6
}

/// Puts the means per commit; returns which share of the wall clock they explain.
fn report(row: &mut Row, writers: usize, traced: &Traced, fold_us: f64, rewrite_us: f64) -> f64 {
    let commits = traced.commits as f64;
    let sums = traced.phases;
    let after = sums.after / commits;
    let fold = fold_us.min(after);
    let named = [
        ("validate", sums.validate / commits),
        ("encode", sums.encode / commits),
        ("stage", sums.stage / commits),
        ("extend", sums.extend / commits),
        ("queue", sums.queue / commits),
        ("write", sums.write / commits),
        ("sync", sums.sync / commits),
        ("publish", sums.publish / commits),
        ("fold", fold),
        ("wake", after - fold),
        ("rewrite", rewrite_us / commits),
    ];
    for (phase, us) in named {
        row.put(format!("{phase}_us_{writers}"), us);
    }
    let explained: f64 = named.iter().map(|(_, us)| us * commits).sum();
    let share = explained / (traced.wall_us + rewrite_us);
    row.put(format!("commit_us_{writers}"), (traced.wall_us + rewrite_us) / commits);
    row.put(format!("explained_{writers}"), share);
    share
}

/// Microseconds to rewrite all of the log.
fn rewrite_us(store: &RefStore, dir: &Path) -> Result<f64> {
    let sealed = dir.join("sealed");
    std::fs::create_dir(&sealed)?;
    let mut sealer = FileSealer::into(&sealed);
    let log = store.log();
    let (ms, _) = timed_ms(|| Ok(log.rewrite(log.durable_seq(), &mut sealer)?))?;
    Ok(ms * 1e3)
}

/// The median time from publishing a group to the answer, where the leader has nobody to wake.
fn fold_us(dir: &Path, group: usize, groups: usize) -> Result<f64> {
    let Probed { store, probe } = Probed::create(dir)?;
    let mut movers: Vec<Mover> = (0..group).map(|writer| Mover::new(writer, 1)).collect();
    let mut answered = Vec::with_capacity(groups);
    for _ in 0..groups {
        let staged: Vec<Pending> = movers
            .iter_mut()
            .map(|mover| Ok(store.stage(&transaction(mover.step())?)?))
            .collect::<Result<_>>()?;
        let mut last = None;
        for pending in staged.into_iter().rev() {
            pending.wait()?;
            last.get_or_insert_with(Instant::now);
        }
        answered.extend(last);
    }
    let rounds = probe.rounds();
    anyhow::ensure!(rounds.len() == groups, "{} rounds for {groups} groups", rounds.len());
    let fold = |(round, answered): (&Round, &Instant)| micros(round.publish_end, *answered);
    Ok(median(&rounds.iter().zip(&answered).map(fold).collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Breaks: a phase that is left out, or counted twice.
    #[test]
    fn phases_add_up_to_the_commit() {
        let start = Instant::now();
        let at = |us| start + Duration::from_micros(us);
        let stamps = Stamps {
            begun: at(0),
            clock_read: at(2),
            staged: at(5),
            answered: at(300),
            extending: Duration::from_micros(1),
        };
        let round = |from| Round {
            write_start: at(from),
            write_end: at(from + 10),
            sync_end: at(from + 200),
            publish_end: at(from + 203),
        };
        let traced = attribute(&[vec![stamps]], &[round(0), round(7)], 0.15);
        let mut row = Row::default();
        let share = report(&mut row, 1, &traced, 20.0, 0.0);
        assert!((share - 1.0).abs() < 1e-9, "{share}");
        assert!((traced.phases.sync - 190.0).abs() < 1e-6, "the second round took it along");
        assert!((traced.phases.after - 90.0).abs() < 1e-6);
    }
}
