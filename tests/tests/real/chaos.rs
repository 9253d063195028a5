//! Damaged logs.

use refstone_tests::real::chaos::{Chaos, scratch_parent};

use crate::assert_no_violations;

#[test]
fn a_flipped_bit_anywhere_in_a_small_log_is_noticed() {
    let mut log = Chaos::new(&scratch_parent(), 1, 7).unwrap();
    // Every byte, each at another bit than the last. The binary flips all of them.
    for bit in (0..log.len() * 8).step_by(7) {
        log.flip(bit).unwrap();
    }
    assert_no_violations(&log.report.violations, "chaos");
    assert!(log.report.damages > log.len() as u64);
    assert!(log.report.saved > 0);
}

#[test]
fn random_damage_is_noticed_and_every_other_transaction_is_found_on_its_own() {
    for transactions in [1, 100, 1000] {
        let mut log = Chaos::new(&scratch_parent(), transactions, transactions).unwrap();
        for _ in 0..50 {
            log.damage_anywhere().unwrap();
        }
        assert_no_violations(&log.report.violations, "chaos");
        assert!(transactions == 1 || log.report.found > 49 * (transactions - 8));
        assert_eq!(log.report.saved, log.report.found, "a repair saves all that is there");
    }
}
