//! Killed writers.

use std::path::Path;

use refstone_tests::real::Kills;

use crate::{assert_no_violations, program};

// Break: acknowledging what is not published.
#[test]
fn killed_writers_lose_nothing_and_readers_and_followers_see_every_transaction_once() {
    // Not the temporary directory: where that is memory, a sync costs nothing and groups are small.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut series = Kills::new(program(), target, 7).unwrap();
    for _ in 0..12 {
        series.kill().unwrap();
    }
    let report = &series.report;
    assert_no_violations(&report.violations, "kills");
    assert!(report.acknowledged > 0 && report.reads > 0 && report.followed > 0, "{report}");
}
