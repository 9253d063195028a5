//! The closed loop: each writer commits, waits for the answer, and commits again.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::measure::stats::Latencies;

/// How long a run is. All runs that are compared have the same.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// Not counted: threads start, caches fill, a gate learns.
    pub warm_up: Duration,
    pub measured: Duration,
}

impl Length {
    pub fn millis(measured: u64) -> Length {
        let measured = Duration::from_millis(measured);
        Length { warm_up: measured / 8, measured }
    }
}

/// What a run did.
#[derive(Clone, Debug)]
pub struct Run {
    pub writers: usize,
    pub seconds: f64,
    pub latency: Latencies,
    /// Time that writers spent in I/O themselves, for whomever, rather than waiting.
    pub own_io: Duration,
}

impl Run {
    pub fn commits(&self) -> usize {
        self.latency.count()
    }

    pub fn per_sec(&self) -> f64 {
        self.commits() as f64 / self.seconds
    }

    /// The mean time a commit took in which its thread did no I/O itself: it waited for the mutex
    /// and the gate, apart from about a microsecond of work.
    pub fn wait_per_commit_us(&self) -> f64 {
        self.latency.mean_us() - self.own_io.as_secs_f64() * 1e6 / self.commits().max(1) as f64
    }
}

const WARM_UP: u8 = 0;
const MEASURED: u8 = 1;
const OVER: u8 = 2;

#[derive(Default)]
struct Worked {
    times: Vec<Duration>,
    own_io: Duration,
}

/// Runs one thread per writer until the time is over, or `stop` is set. A commit counts if its
/// answer comes within the measured time.
///
/// `commit` returns how long its thread did I/O itself (zero where that is not known). Returns the
/// writers too, as the last commit of each left them.
pub fn closed_loop<S: Send>(
    mut writing: Vec<S>,
    length: Length,
    stop: &AtomicBool,
    commit: impl Fn(&mut S) -> Result<Duration> + Sync,
) -> Result<(Run, Vec<S>)> {
    let writers = writing.len();
    let phase = AtomicU8::new(WARM_UP);
    let start = Barrier::new(writers + 1);
    let (seconds, worked) = thread::scope(|scope| {
        let threads: Vec<_> = writing
            .iter_mut()
            .map(|writer| {
                let (phase, start, commit) = (&phase, &start, &commit);
                scope.spawn(move || work(writer, phase, start, commit))
            })
            .collect();
        start.wait();
        sleep_until(Instant::now() + length.warm_up, stop, &phase);
        let began = Instant::now();
        // A writer that failed has ended the run already.
        let _ = phase.compare_exchange(WARM_UP, MEASURED, Ordering::Relaxed, Ordering::Relaxed);
        sleep_until(began + length.measured, stop, &phase);
        phase.store(OVER, Ordering::Relaxed);
        let seconds = began.elapsed().as_secs_f64();
        let worked: Vec<Result<Worked>> =
            threads.into_iter().map(|t| t.join().expect("a writer panicked")).collect();
        (seconds, worked)
    });
    let worked: Vec<Worked> = worked.into_iter().collect::<Result<_>>()?;
    let own_io = worked.iter().map(|worked| worked.own_io).sum();
    let latency = Latencies::of(worked.into_iter().flat_map(|worked| worked.times));
    Ok((Run { writers, seconds, latency, own_io }, writing))
}

fn work<S>(
    writer: &mut S,
    phase: &AtomicU8,
    start: &Barrier,
    commit: impl Fn(&mut S) -> Result<Duration>,
) -> Result<Worked> {
    let mut worked = Worked::default();
    start.wait();
    loop {
        let begun = Instant::now();
        let own_io = commit(writer).inspect_err(|_| phase.store(OVER, Ordering::Relaxed));
        let own_io = own_io.context("a commit failed")?;
        let took = begun.elapsed();
        match phase.load(Ordering::Relaxed) {
            WARM_UP => {}
            MEASURED => {
                worked.times.push(took);
                worked.own_io += own_io;
            }
            _ => return Ok(worked),
        }
    }
}

fn sleep_until(deadline: Instant, stop: &AtomicBool, phase: &AtomicU8) {
    const STEP: Duration = Duration::from_millis(20);
    while !stop.load(Ordering::Relaxed) && phase.load(Ordering::Relaxed) != OVER {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(STEP));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_counts_what_is_answered_in_its_time() {
        let slow = |count: &mut u64| {
            thread::sleep(Duration::from_millis(1));
            *count += 1;
            Ok(Duration::ZERO)
        };
        let never = AtomicBool::new(false);
        let (run, counts) = closed_loop(vec![0, 0], Length::millis(80), &never, slow).unwrap();
        assert!(run.commits() > 0 && run.commits() as u64 <= counts.iter().sum());
        assert!(run.seconds >= 0.08);
        assert!(run.latency.percentile_us(0.0) >= 1000.0);
    }

    #[test]
    fn a_commit_that_fails_ends_the_run_at_once() {
        let begun = Instant::now();
        let fail = |_: &mut ()| anyhow::bail!("no");
        let never = AtomicBool::new(false);
        assert!(closed_loop(vec![()], Length::millis(60_000), &never, fail).is_err());
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
}
