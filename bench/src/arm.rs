//! One arm: what surrounds every measurement.

use std::path::Path;

use anyhow::{Context, Result, bail};
use nornir_bench::BenchResult;
use nornir_bench::api::{Bencher, preview_run};

use crate::measure::disk::Disk;
use crate::measure::host::Processors;
use crate::measure::row::{Row, loud};
use crate::measure::stats::Latencies;
use crate::measure::{floor, host};
use crate::verdict::Verdict;

/// Neighbours that take more make a run noisy, which its row then says.
pub const OTHERS_CORES_MAX: f64 = 0.2;

/// How much an arm does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    Full,
    /// As little as shows that the arm works, for continuous integration.
    Preview,
}

impl Scale {
    pub fn of_this_run() -> Scale {
        if preview_run() { Scale::Preview } else { Scale::Full }
    }

    pub fn pick<T>(self, full: T, preview: T) -> T {
        match self {
            Scale::Full => full,
            Scale::Preview => preview,
        }
    }
}

/// Where and how large an arm runs.
#[derive(Debug)]
pub struct Bench<'a> {
    pub scale: Scale,
    pub disk: &'a Disk,
    /// An empty directory of its own.
    pub dir: &'a Path,
}

/// A measurement with a name.
#[derive(Clone, Copy, Debug)]
pub struct Arm {
    pub id: &'static str,
    /// The most bytes it has on the disk at once.
    pub writes: fn(Scale) -> u64,
    pub run: fn(&Bench<'_>) -> Result<(Row, Verdict)>,
}

impl Bencher for Arm {
    fn id(&self) -> &'static str {
        self.id
    }

    fn run(&self) -> Result<BenchResult> {
        let scale = Scale::of_this_run();
        let disk = Disk::open()?;
        disk.require_room((self.writes)(scale))?;
        let dir = disk.scratch(self.id)?;
        let syncs = scale.pick(100, 20);

        host::reset_peak_memory();
        let load_before = host::load();
        let memory_before = host::memory_mb();
        let before = Processors::now();
        let mut sync_times = floor::sync_times(dir.path(), syncs)?;
        let (mut row, verdict) = (self.run)(&Bench { scale, disk: &disk, dir: dir.path() })?;
        sync_times.extend(floor::sync_times(dir.path(), syncs)?);

        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let others = Processors::now().taken_by_others_since(before, cores);

        let sync = Latencies::of(sync_times);
        row.put("sync_p50_us", sync.percentile_us(0.5));
        row.put("sync_p99_us", sync.percentile_us(0.99));
        row.put("load_before", load_before);
        row.put("load_after", host::load());
        row.put("memory_before_mb", memory_before);
        row.put("peak_memory_mb", host::peak_memory_mb());
        row.say("file_system", &disk.file_system);
        row.say("kernel", host::kernel());
        row.put("free_mb", (disk.free_bytes()? >> 20) as f64);
        row.put("others_cores", others);
        if others > OTHERS_CORES_MAX {
            row.note(format!(
                "{}: NOISY: other processes took {others:.2} of {cores} processors meanwhile",
                self.id
            ));
        }
        if disk.is_memory() {
            row.note(format!("{}: {} - no verdict on durable commits", self.id, disk.file_system));
        }
        judge(self.id, row, verdict)
    }
}

/// A red arm has no result, so its figures travel in the message.
fn judge(id: &str, mut row: Row, verdict: Verdict) -> Result<BenchResult> {
    match verdict {
        Verdict::Green => row.say("verdict", "green"),
        Verdict::Unobservable(why) => {
            loud(&format!("{id}: NO VERDICT: {why}"));
            row.say("verdict", format!("none: {why}"));
        }
        Verdict::Red(why) => bail!("{why}; figures: {}", row.to_line()),
    }
    Ok(row.into_result(id))
}

/// What the example's `main` does.
///
/// # Errors
/// If an arm is red, after the run's JSON was printed.
pub fn main() -> Result<()> {
    if let Some(child) = crate::child::requested() {
        return child.run().context("the measured child process failed");
    }
    nornir_bench::api::run_main_json()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_red_arm_fails_and_tells_its_figures() {
        let mut row = Row::new("durable", 1, "x");
        row.put("bytes_per_push", 681.0);
        let red = judge("a", row, Verdict::Red("too large".to_owned())).unwrap_err().to_string();
        assert!(red.starts_with("too large") && red.contains("681"), "{red}");
    }

    #[test]
    fn an_arm_without_a_verdict_passes_and_says_so() {
        let verdict = Verdict::Unobservable("tmpfs".to_owned());
        let result = judge("a", Row::default(), verdict).unwrap();
        assert_eq!(result.metrics["verdict"], "none: tmpfs");
    }
}
