//! The lab finds what it should: each test betrays the log in one way, and the lab must notice.
//!
//! Were one of these to fail, the lab would be blind to that fault in the log itself.

use refstone_tests::sim::{Effort, Lab, Sabotage, Violation};

/// Runs the lab until it finds a violation with this symptom.
fn finds(sabotage: Sabotage, symptom: &str) {
    let mut lab = Lab::new(Effort::QUICK, sabotage);
    found(symptom, |seed| {
        lab.run(seed);
        lab.report.violations.clone()
    });
}

/// Runs seed after seed until a violation has this symptom; `run` gives all violations so far.
pub(crate) fn found(symptom: &str, mut run: impl FnMut(u64) -> Vec<Violation>) {
    let mut violations = Vec::new();
    for seed in 1..=200 {
        violations = run(seed);
        if violations.iter().any(|violation| violation.what.contains(symptom)) {
            return;
        }
    }
    panic!("it never showed as `{symptom}`: {violations:#?}");
}

#[test]
fn a_log_that_does_not_sync() {
    finds(Sabotage::NoSync("refs.arrow"), "before a crash, a reader sees transaction");
}

#[test]
fn a_creation_that_does_not_sync_its_file() {
    finds(Sabotage::NoSync("refs.arrow.tmp"), "a reader cannot open the log");
}

#[test]
fn a_recovery_that_does_not_sync_what_it_keeps() {
    finds(Sabotage::NoSync(".cut-1"), "are not kept");
}

#[test]
fn a_log_that_does_not_sync_its_directory() {
    finds(Sabotage::NoSyncDir, "the log is gone");
}

#[test]
fn a_rewrite_whose_rename_is_not_made_durable() {
    finds(Sabotage::NoSyncAfterReplacing, "before a crash, a reader sees transaction");
}

#[test]
fn a_log_that_publishes_before_it_syncs() {
    finds(Sabotage::LateSync, "were durable");
}

#[test]
fn a_log_that_takes_a_failed_sync_for_a_success() {
    finds(Sabotage::FailedSyncIsSuccess, "before a crash, a reader sees transaction");
}

#[test]
fn a_recovery_that_does_not_write_again_what_it_accepts() {
    // Only a process that is killed between a failed sync and its mark leaves this to recovery.
    finds(Sabotage::NoWriteAgain, "a reader sees transaction");
}

#[test]
fn a_recovery_that_does_not_keep_torn_bytes() {
    finds(Sabotage::NothingKept, "are not kept");
}
