//! Stock Arrow readers over a log of many small transactions: what an auditor waits for.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::{move_one_by_one, store_with_refs};
use crate::arm::{Arm, Bench, Scale};
use crate::measure::row::Row;
use crate::verdict::{Verdict, all_there};

pub(super) const ARM: Arm = Arm { id: "refstone.reader", writes, run };

const PYTHON_VARIABLE: &str = "REFSTONE_BENCH_PYTHON";
const SCRIPT: &str = include_str!("reader.py");
/// duckdb has no reader of Arrow streams of its own: it queries pyarrow's.
const LIBRARIES: [&str; 3] = ["pyarrow", "polars", "duckdb"];

fn writes(scale: Scale) -> u64 {
    scale.pick(128 << 20, 8 << 20)
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Answer {
    Absent {
        absent: String,
    },
    Read {
        seconds: f64,
        memory_mb: f64,
        memory_before_mb: f64,
        rows: u64,
        sum: u64,
        version: String,
    },
}

fn run(bench: &Bench<'_>) -> Result<(Row, Verdict)> {
    let transactions = bench.scale.pick(100_000, 1_000);
    let dir = bench.dir.join("refstone");
    let store = store_with_refs(&dir, 0)?;
    move_one_by_one(&store, 0, transactions)?;
    store.close()?;
    let last = store.log().durable_seq().get();

    let mut row = Row::new("outside readers of the live file", 1, "one row per transaction");
    row.put("transactions", transactions as f64);
    let mut verdict = all_there("transactions", transactions as u64, last);
    for library in LIBRARIES {
        match read(library, &dir.join("refs.arrow")) {
            Ok(Answer::Read { seconds, memory_mb, memory_before_mb, rows, sum, version }) => {
                row.put(format!("{library}_s"), seconds);
                row.put(format!("{library}_memory_mb"), memory_mb);
                row.put(format!("{library}_memory_before_mb"), memory_before_mb);
                row.say(format!("{library}_version"), version);
                let rows = all_there(&format!("rows ({library})"), last, rows);
                let sums =
                    all_there(&format!("sum of seq ({library})"), last * (last + 1) / 2, sum);
                verdict = verdict.and(rows).and(sums);
            }
            Ok(Answer::Absent { absent }) => row.note(format!("reader: not measured: {absent}")),
            Err(error) => verdict = verdict.and(Verdict::Red(format!("{library}: {error:#}"))),
        }
    }
    Ok((row, verdict))
}

fn read(library: &str, file: &Path) -> Result<Answer> {
    let python = python();
    let output = match Command::new(&python).args(["-c", SCRIPT, library]).arg(file).output() {
        Ok(output) => output,
        Err(error) => {
            let absent = format!("{library}: {} does not start: {error}", python.display());
            return Ok(Answer::Absent { absent });
        }
    };
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("understand the script")
}

/// The one that is asked for, else that of the test suite, else the system's.
fn python() -> PathBuf {
    if let Some(python) = env::var_os(PYTHON_VARIABLE) {
        return python.into();
    }
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/venv/bin/python");
    if tests.exists() { tests } else { "python3".into() }
}
