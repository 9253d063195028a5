//! The machine while an arm runs: load and memory.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// The load average of the last minute.
pub fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(-1.0)
}

/// Processor time since boot, in ticks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Processors {
    /// Of all processors, idle or not.
    total: u64,
    busy: u64,
    /// Of this process and of the children it has waited for.
    own: u64,
}

impl Processors {
    pub fn now() -> Processors {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        Processors::parse(&stat, &own).unwrap_or_default()
    }

    /// How many processors, on average, worked for others since `earlier`: for neighbours, other
    /// virtual machines, and a little for the kernel's threads that write for us.
    pub fn taken_by_others_since(self, earlier: Processors, cores: usize) -> f64 {
        let total = self.total.saturating_sub(earlier.total).max(1);
        let busy = self.busy.saturating_sub(earlier.busy);
        let others = busy.saturating_sub(self.own.saturating_sub(earlier.own));
        others as f64 * cores as f64 / total as f64
    }

    /// From `/proc/stat` and `/proc/self/stat`, as proc(5) has them.
    fn parse(stat: &str, own: &str) -> Option<Processors> {
        let times = stat.lines().next()?.split_whitespace().skip(1).take(8);
        let times: Vec<u64> = times.map(|ticks| ticks.parse().ok()).collect::<Option<_>>()?;
        let [_user, _nice, _system, idle, iowait, irq, softirq, _steal] = times[..] else {
            return None;
        };
        let total: u64 = times.iter().sum();
        // Interrupts serve our own I/O as well as that of others.
        let idle = idle + iowait + irq + softirq;
        // The name of the program, in brackets, may hold anything.
        let (_, fields) = own.rsplit_once(") ")?;
        let own = fields.split(' ').skip(11).take(4).map(|ticks| ticks.parse::<u64>().ok());
        Some(Processors { total, busy: total - idle, own: own.sum::<Option<u64>>()? })
    }
}

/// The processor time that this thread has taken.
pub fn thread_time() -> Duration {
    let clock = nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID;
    nix::time::clock_gettime(clock).map_or(Duration::ZERO, Duration::from)
}

pub fn kernel() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// Forgets the peak of this process's memory, so that the next arm has its own.
pub fn reset_peak_memory() {
    // Refused in some containers: then the peak is that of the whole run, which is no less.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// The most memory this process has had resident, in MiB.
pub fn peak_memory_mb() -> f64 {
    status_kib("VmHWM:") / 1024.0
}

/// The memory this process has resident now, in MiB.
pub fn memory_mb() -> f64 {
    status_kib("VmRSS:") / 1024.0
}

fn status_kib(field: &str) -> f64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(-1.0)
}

/// Bytes that this process had the disk read, as opposed to the page cache.
///
/// (The count of bytes written says nothing: it takes a whole folio, up to a MiB, for each small
/// write that makes one dirty.)
pub fn bytes_read_from_disk() -> Result<u64> {
    io_count("read_bytes:")
}

/// Bytes that this process has read, wherever they were.
pub fn bytes_read() -> Result<u64> {
    io_count("rchar:")
}

fn io_count(field: &str) -> Result<u64> {
    let text = fs::read_to_string("/proc/self/io").context("read /proc/self/io")?;
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let count = line.and_then(|count| count.trim().parse().ok());
    count.with_context(|| format!("no {field} in /proc/self/io"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_take_is_what_is_busy_and_not_ours() {
        let at = |user: u64, own: u64| {
            let stat = format!("cpu  {user} 0 0 {} 10 0 0 0 0 0\ncpu0 ...", 1_990 - user);
            let own = format!("7 (a ) b) S 1 7 7 0 -1 0 0 0 0 0 {own} 0 0 0 20 0 1 0 5");
            Processors::parse(&stat, &own).unwrap()
        };
        let boot = Processors::default();
        assert_eq!(at(1_000, 400).taken_by_others_since(boot, 2), 0.6);
        assert_eq!(at(1_000, 1_000).taken_by_others_since(boot, 2), 0.0);
    }
}
