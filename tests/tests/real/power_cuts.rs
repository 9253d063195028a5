//! Power cuts of real file systems.

use refstone_tests::real::{Fs, Method, Moment, PowerCuts};

use crate::{assert_no_violations, program, skip};

/// Cuts the power at each of these moments.
fn cut(test: &str, fs: Fs, method: Method, moments: &[Moment]) {
    let mut series = match PowerCuts::new(program(), fs, method, 7) {
        Ok(series) => series,
        Err(why) => return skip(test, &why),
    };
    for &moment in moments {
        series.cut(moment).unwrap();
    }
    let again = format!("power_cuts -- --fs {}", fs.name());
    assert_no_violations(&series.report.violations, &again);
    assert_eq!(series.report.cuts, moments.len() as u64);
    assert!(series.report.acknowledged > 0, "nothing was acknowledged before a cut");
}

const ALL: &[Moment] = &Moment::ALL;
const SOME: &[Moment] = &[Moment::FirstAcknowledgement, Moment::Extension, Moment::Rewritten];

// Break: a gate that does not sync. (Each single sync is held by the simulated crashes.)
#[test]
fn ext4_whose_power_is_cut_keeps_what_was_acknowledged() {
    cut("power cuts of ext4", Fs::Ext4, Method::FileSystem, ALL);
}

#[test]
fn a_disk_under_ext4_that_loses_what_it_was_not_told_to_flush_keeps_what_was_acknowledged() {
    cut("power cuts of a disk under ext4", Fs::Ext4, Method::Disk, SOME);
}

#[test]
fn xfs_whose_power_is_cut_keeps_what_was_acknowledged() {
    cut("power cuts of xfs", Fs::Xfs, Method::FileSystem, SOME);
}

#[test]
fn a_disk_under_btrfs_that_loses_what_it_was_not_told_to_flush_keeps_what_was_acknowledged() {
    cut("power cuts of a disk under btrfs", Fs::Btrfs, Method::Disk, SOME);
}
