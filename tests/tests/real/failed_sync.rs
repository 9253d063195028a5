//! Syncs that really fail.

use refstone_tests::real::FailedSyncs;

use crate::{assert_no_violations, program, skip};

// Break: opening a marked log as any other, and so writing its file again.
#[test]
fn what_is_opened_after_a_failed_sync_is_on_the_disk() {
    let mut series = FailedSyncs::new(program(), 7);
    for _ in 0..5 {
        if let Err(why) = series.fail() {
            return skip("failed syncs", &why);
        }
    }
    let report = &series.report;
    assert_no_violations(&report.violations, "failed_syncs");
    assert!(report.syncs_failed > 0 && report.unknown > 0, "{report}");
}
