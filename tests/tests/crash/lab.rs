//! Random workloads, crashed at every operation.

use refstone_tests::sim::{Effort, Lab, Report, Sabotage};

/// Panics with every violation, and how to see it again.
pub(crate) fn assert_promises_kept(report: &Report, replay: &str) {
    for violation in &report.violations {
        eprintln!("seed {}: {}", violation.seed, violation.what);
        eprintln!("  replay: {replay} {}", violation.seed);
    }
    assert!(report.violations.is_empty(), "{report}");
}

// Breaks: each of those in `sabotage`, and in the log itself: publishing before the sync, not
// writing accepted frames again, accepting a broken chain, cutting what is damaged, going on after
// a failed sync, not syncing the directory on opening; in a repair, the rename before the new file
// is synced, or before the second name of the damaged one is.
#[test]
fn five_thousand_crashes_break_no_promise() {
    let mut lab = Lab::new(Effort::QUICK, Sabotage::None);
    for seed in 1.. {
        lab.run(seed);
        if lab.report.states >= 5000 || !lab.report.violations.is_empty() {
            break;
        }
    }
    let replay = "cargo run --release -p refstone-tests --bin crash_lab -- --quick --replay";
    assert_promises_kept(&lab.report, replay);
    // The lab's own precondition: it looked into every corner.
    let report = &lab.report;
    assert!(report.nested > 500 && report.repairs > 20, "{report}");
}

#[test]
fn a_seed_says_all_about_a_run() {
    let run = || {
        let mut lab = Lab::new(Effort::QUICK, Sabotage::None);
        lab.run(3);
        lab.report.to_string()
    };
    assert_eq!(run(), run());
}
