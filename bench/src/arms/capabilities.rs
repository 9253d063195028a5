//! What the machine is; nothing is timed but the probe of the disk that every row has.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use nornir_bench::machine_capabilities;

use crate::arm::{Arm, Bench};
use crate::git;
use crate::measure::row::Row;
use crate::verdict::{Verdict, all_there};

pub(super) const ARM: Arm = Arm { id: "refstone.capabilities", writes: |_| 1 << 20, run };

fn run(bench: &Bench<'_>) -> Result<(Row, Verdict)> {
    let mut row = Row::new("none: static facts", 0, "none");
    let facts = machine_capabilities("machine").metrics;
    let known: BTreeMap<_, _> = facts.iter().filter_map(|(k, v)| Some((k, v.as_f64()?))).collect();
    known.iter().for_each(|(key, value)| row.put(key.as_str(), *value));
    row.put("crc32c_in_hardware", f64::from(u8::from(crc_in_hardware())));
    row.put("memory_file_system", f64::from(u8::from(bench.disk.is_memory())));
    row.say("git", git::version().unwrap_or_else(|error| format!("absent: {error}")));
    row.say("scheduler", scheduler().unwrap_or_else(|| "unknown".to_owned()));
    Ok((row, all_there("facts of the machine", facts.len() as u64, known.len() as u64)))
}

#[cfg(target_arch = "x86_64")]
fn crc_in_hardware() -> bool {
    std::arch::is_x86_feature_detected!("sse4.2")
}

#[cfg(not(target_arch = "x86_64"))]
fn crc_in_hardware() -> bool {
    cfg!(target_feature = "crc")
}

/// Which I/O schedulers the block devices have: the kernel prints the chosen one in brackets.
fn scheduler() -> Option<String> {
    let devices = std::fs::read_dir(Path::new("/sys/block")).ok()?;
    let line = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.ok()?.path();
        let loop_device = path.file_name()?.to_string_lossy().starts_with("loop");
        if loop_device {
            return None;
        }
        let text = std::fs::read_to_string(path.join("queue/scheduler")).ok()?;
        Some(format!("{}: {}", path.file_name()?.to_string_lossy(), text.trim()))
    };
    Some(devices.filter_map(line).collect::<Vec<_>>().join(", "))
}
