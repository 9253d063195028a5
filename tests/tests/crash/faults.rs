//! Every operation of a scripted life fails once, in every way it can.
//!
//! Whatever fails, the caller gets an error or a success that holds, nothing hangs or panics, and
//! when it has healed the log has all that was acknowledged.

use std::io::ErrorKind as Io;

use refstone_tests::sim::workload::{Exit, Step};
use refstone_tests::sim::{Effort, Fault, Lab, Op, Plan, Policy, Rng, Sabotage, Session};

use crate::lab::assert_promises_kept;

const APPEND: Step = Step::Append { rows: 1, message: 0 };
const APPEND_MANY: Step = Step::Append { rows: 5, message: 30 };
const APPEND_LARGE: Step = Step::Append { rows: 1, message: 45 << 10 };
const WAIT_ALL: Step = Step::WaitAll { newest_first: false };
const WAIT_ALL_NEWEST_FIRST: Step = Step::WaitAll { newest_first: true };

/// Creation, groups waited for in different orders, an extent crossed, a rewrite, a close.
const LIFE: [Step; 17] = [
    APPEND,
    Step::Wait(0),
    APPEND,
    APPEND_MANY,
    APPEND,
    Step::Wait(1),
    WAIT_ALL_NEWEST_FIRST,
    APPEND_LARGE,
    APPEND,
    Step::Wait(1),
    Step::Rewrite { keep: 2 },
    APPEND,
    WAIT_ALL,
    Step::Reopen(Exit::Close),
    APPEND_MANY,
    WAIT_ALL,
    Step::Reopen(Exit::Kill),
];

/// A group that is only in part on the disk when the machine comes up again.
const TORN: [Step; 7] = [
    APPEND,
    WAIT_ALL,
    APPEND,
    APPEND_MANY,
    APPEND_LARGE,
    Step::Fail(Plan { op: Op::Sync, after: 0, fault: Fault::Error(Io::Other), lasting: false }),
    WAIT_ALL,
];

/// A recovery of that, and some use of the log.
const RECOVERY: [Step; 4] = [APPEND, WAIT_ALL, Step::Reopen(Exit::Close), APPEND];

/// All is well again, and what was promised is looked for.
const HEALED: [Step; 7] = [
    Step::Heal,
    Step::Reopen(Exit::Kill),
    APPEND,
    WAIT_ALL,
    Step::Reopen(Exit::PowerCut(Policy::Nothing)),
    APPEND,
    Step::Reopen(Exit::Close),
];

/// The ways in which operations fail; the second number says whether they go on failing.
const FAULTS: [(Fault, bool); 9] = [
    (Fault::Error(Io::Other), false),
    (Fault::Error(Io::Other), true),
    (Fault::Error(Io::StorageFull), true),
    (Fault::Error(Io::Interrupted), false),
    (Fault::DoneBut(Io::Other), false),
    (Fault::HalfThen(Io::StorageFull), false),
    (Fault::HalfThen(Io::StorageFull), true),
    (Fault::Short, true),
    (Fault::NoBytes, false),
];

/// How many operations of each kind a script has, behind what comes before it.
fn counts(before: &[Step], script: &[Step]) -> Vec<(Op, usize)> {
    let mut session = Session::new(Sabotage::None, Rng::new(0));
    before.iter().for_each(|&step| session.step(step).unwrap());
    let start = Op::ALL.map(|op| session.fs().count(op));
    script.iter().for_each(|&step| session.step(step).unwrap());
    let counts = Op::ALL.iter().zip(start);
    counts.map(|(&op, start)| (op, session.fs().count(op) - start)).collect()
}

/// Runs the script once for every operation and every fault; returns how many runs that were.
fn fail_everything(before: &[Step], script: &[Step]) -> u64 {
    let mut lab = Lab::new(Effort::SPARSE, Sabotage::None);
    for (op, count) in counts(before, script) {
        for (fault, lasting) in FAULTS.into_iter().filter(|(fault, _)| fault.suits(op)) {
            for after in 0..count {
                let plan = Plan { op, after, fault, lasting };
                let steps = [before, &[Step::Fail(plan)], script, &HEALED].concat();
                lab.run_steps(lab.report.workloads, &steps);
                assert_promises_kept(&lab.report, &format!("this test fails at {plan:?}, run"));
            }
        }
    }
    lab.report.workloads
}

// Breaks: ignoring an error of any operation; acknowledging in spite of one; losing what was
// acknowledged before; looping over a write that makes no progress.
#[test]
fn every_operation_of_a_life_may_fail() {
    let runs = fail_everything(&[], &LIFE);
    assert!(runs > 300, "{runs} runs");
}

// Breaks: clearing torn bytes before they are kept; a repair that cannot be repeated.
#[test]
fn every_operation_of_a_recovery_may_fail() {
    for per_mille in [300, 700] {
        let cut = Step::Reopen(Exit::PowerCut(Policy::Random { per_mille }));
        // The cut comes first, so that the recovery itself meets the fault.
        let script = [&[cut][..], &RECOVERY].concat();
        let runs = fail_everything(&TORN, &script);
        assert!(runs > 100, "{runs} runs");
    }
}
