//! Real kernels: power cuts of real file systems, killed writers, failed syncs, damaged files.
//!
//! Each is a short run of a binary of this package that does the same for as long as one likes.
//! What a machine lacks is said on standard error, whatever the test harness captures.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::io::Write;
use std::path::PathBuf;

use refstone_tests::real::Skipped;

mod chaos;
mod failed_sync;
mod kills;
mod power_cuts;

/// The binary that becomes a writer.
fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_power_cuts"))
}

/// Says loudly that a test did not run, and why.
fn skip(test: &str, why: &Skipped) {
    // Not `eprintln!`, which the test harness keeps to itself when a test passes.
    let _ = writeln!(std::io::stderr(), "\n*** SKIPPED {test}: {why}\n");
}

fn assert_no_violations(violations: &[String], again: &str) {
    for violation in violations {
        eprintln!("{violation}\n  more of it: cargo run --release -p refstone-tests --bin {again}");
    }
    assert!(violations.is_empty(), "{} violations", violations.len());
}
