//! Stores that compact, merge and rebuild, crashed at every operation.

use refstone_tests::sim::{Sabotage, StoreLab, fail_every_operation_of_a_compaction};

// Breaks: swapping the live log before its transactions are sealed; not syncing the directory of
// history; removing merged files before the merged one has its name; taking a table for one that
// it is not.
#[test]
fn crashes_of_compactions_lose_nothing_and_invent_nothing() {
    let mut lab = StoreLab::default();
    for seed in 1.. {
        lab.run(seed);
        if lab.report.states >= 1500 || !lab.report.violations.is_empty() {
            break;
        }
    }
    for violation in &lab.report.violations {
        eprintln!("seed {}: {}", violation.seed, violation.what);
    }
    assert!(lab.report.violations.is_empty(), "{}", lab.report);
    assert!(lab.report.sealed > 10 && lab.report.merged > 10, "{}", lab.report);
}

/// Runs the lab of stores until it finds a violation with this symptom.
fn finds(sabotage: Sabotage, symptom: &str) {
    let mut lab = StoreLab::sabotaged(sabotage);
    crate::sabotage::found(symptom, |seed| {
        lab.run(seed);
        lab.report.violations.clone()
    });
}

#[test]
fn history_whose_bytes_are_not_synced() {
    finds(Sabotage::NoSync(".parquet.tmp"), "parquet");
}

#[test]
fn history_whose_name_is_not_synced() {
    finds(Sabotage::NoSyncDirOf("history"), "the store does not open");
}

#[test]
fn a_directory_of_history_whose_name_is_not_synced() {
    finds(Sabotage::NoSyncDirOf("refstone"), "the store does not open");
}

// Breaks: opening the new table after the swap only, and sweeping before sealing or with a log that
// has stopped, files that no table goes with (the only copy of what was just sealed); going on after
// an error of any operation that must not be passed over.
#[test]
fn every_operation_of_a_compaction_may_fail() {
    let report = fail_every_operation_of_a_compaction().unwrap();
    eprintln!("{report:?}");
    assert!(report.runs > 300 && report.failed > 200 && report.stopped > 0, "{report:?}");
    assert!(report.stopped * 10 < report.runs, "{report:?}");
}
