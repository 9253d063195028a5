//! Crashes worth a name: each is the shortest way to a fault that logs have had.

use std::io::ErrorKind as Io;

use refstone_log::{ErrorKind, Mode};
use refstone_tests::logs::Row;
use refstone_tests::sim::model::{Expect, Found};
use refstone_tests::sim::observe::{self, Refusal};
use refstone_tests::sim::workload::{Exit, Step};
use refstone_tests::sim::{
    Disk, Effort, Fault, Lab, Moment, Op, Plan, Policy, Rng, Sabotage, Session, SimFs,
};

use crate::lab::assert_promises_kept;

const SECTOR: usize = 512;

const APPEND: Step = Step::Append { rows: 1, message: 0 };
const WAIT_ALL: Step = Step::WaitAll { newest_first: false };
const POWER_CUT: Step = Step::Reopen(Exit::PowerCut(Policy::Nothing));

const fn fail(op: Op, after: usize, fault: Fault) -> Step {
    Step::Fail(Plan { op, after, fault, lasting: false })
}

/// Does the steps on a fresh machine, and crashes them at every operation, on many disks.
fn crash(steps: &[Step]) {
    let mut lab = Lab::new(Effort { nested: 300, ..Effort::QUICK }, Sabotage::None);
    for seed in 0..8 {
        lab.run_steps(seed, steps);
    }
    assert_promises_kept(&lab.report, "this test, seed");
}

fn session(steps: &[Step]) -> Session {
    let mut session = Session::new(Sabotage::None, Rng::new(0));
    steps.iter().for_each(|&step| session.step(step).unwrap());
    session
}

/// The processes of each moment are killed, and the next one commits: then the power fails.
fn commit_after_a_kill_at_each(moments: Vec<(Moment, Expect)>) {
    for (moment, expect) in moments {
        let fs = SimFs::boot(moment.disk);
        let mut next = Session::resume(&fs, Sabotage::None, Rng::new(1), expect);
        for step in [APPEND, WAIT_ALL, POWER_CUT] {
            let done = next.step(step);
            done.unwrap_or_else(|what| panic!("after operation {}: {what}", moment.index));
        }
    }
}

// Break: an opening that does not sync the directory. The creator may have died after the rename
// and before its own sync; then a later acknowledgement is for a file that has no durable name.
#[test]
fn a_log_whose_creator_was_killed_keeps_what_it_acknowledges() {
    commit_after_a_kill_at_each(session(&[APPEND]).take_moments());
}

// Break: as above. The old file comes back under the name, without what was acknowledged since.
#[test]
fn a_log_whose_rewriter_was_killed_keeps_what_it_acknowledges() {
    let mut session = session(&[APPEND, APPEND, WAIT_ALL]);
    drop(session.take_moments());
    session.step(Step::Rewrite { keep: 1 }).unwrap();
    commit_after_a_kill_at_each(session.take_moments());
}

// Break: a gate that goes on syncing the old file.
#[test]
fn what_is_committed_after_a_rewrite_survives_a_power_cut() {
    let mut session = session(&[APPEND, APPEND, WAIT_ALL, Step::Rewrite { keep: 1 }]);
    for step in [APPEND, WAIT_ALL, POWER_CUT] {
        session.step(step).unwrap();
    }
}

// Break: an opening that believes the zeros behind the last frame. They are in the cache, to clear a
// failed group, and the disk has the group: after a power cut it would be back.
#[test]
fn what_an_opening_says_did_not_happen_does_not_happen_later() {
    // What is written beside it may clear the group by chance, but not where a sector ends.
    for message in (8..=SECTOR).step_by(8) {
        let mut session = session(&[
            Step::Append { rows: 1, message },
            WAIT_ALL,
            fail(Op::Write, 0, Fault::HalfThen(Io::StorageFull)),
            fail(Op::Sync, 0, Fault::Error(Io::Other)),
            APPEND,
            APPEND,
            APPEND,
            APPEND,
            WAIT_ALL,
            Step::Reopen(Exit::Kill),
        ]);
        session.step(Step::Heal).unwrap();
        let disk = session.fs().disk();
        for tick in disk.uncertain_ticks() {
            let survivor = disk.survivor(Policy::Until(tick), &mut Rng::new(tick));
            let found = recover(&SimFs::boot(survivor)).unwrap();
            session.expect().check_recovered(&found).unwrap();
        }
    }
}

// Break: an opening that does not write again the length words that a failed sync may have lost.
// A log that was closed since then still ends for readers where that sync failed.
#[test]
fn a_closed_log_is_published_to_its_end_also_after_an_old_failed_sync() {
    crash(&[
        APPEND,
        WAIT_ALL,
        fail(Op::Sync, 0, Fault::Error(Io::Other)),
        APPEND,
        WAIT_ALL,
        Step::Reopen(Exit::Kill),
        APPEND,
        WAIT_ALL,
        Step::Reopen(Exit::Close),
    ]);
}

// Break: as above, where a recovery had stored several length words, and the next sync failed.
#[test]
fn a_closed_log_is_published_to_its_end_also_after_a_recovery_and_a_failed_sync() {
    const FAILED_SYNC: Step = fail(Op::Sync, 0, Fault::Error(Io::Other));
    let mut session = session(&[APPEND, WAIT_ALL, APPEND, FAILED_SYNC, WAIT_ALL]);
    // The second group survives the power cut, the length word of the first does not. The last
    // change of all is the mark that the failed sync left.
    let ticks = session.fs().disk().uncertain_ticks();
    let second = ticks[ticks.len() - 2];
    session.step(Step::Reopen(Exit::PowerCut(Policy::From(second - 1)))).unwrap();
    assert_eq!(session.expect().must, 2, "the scene's own precondition");
    for step in [APPEND, FAILED_SYNC, WAIT_ALL, Step::Reopen(Exit::Kill), APPEND] {
        session.step(step).unwrap();
    }
    session.step(Step::Reopen(Exit::Close)).unwrap();
    let floor = session.fs().disk().survivor(Policy::Nothing, &mut Rng::new(0));
    let (seen, _) = observe::published(&SimFs::boot(floor)).unwrap();
    session.expect().check_seen(&seen).unwrap();
}

// Breaks: going on in the file whose sync has failed, after writing all of it again; no mark that
// says so. Blocks of new space may never be written then, whatever later syncs say.
#[test]
fn a_log_whose_sync_failed_in_new_space_goes_on_in_another_file() {
    crash(&[
        APPEND,
        WAIT_ALL,
        Step::Append { rows: 1, message: 60_000 },
        fail(Op::Sync, 0, Fault::Error(Io::Other)),
        WAIT_ALL,
        Step::Reopen(Exit::Kill),
        APPEND,
        WAIT_ALL,
        Step::Reopen(Exit::Kill),
    ]);
}

// Break: a barrier that knows only what is staged now.
#[test]
fn a_barrier_behind_an_unknown_outcome_is_no_success() {
    let mut session = session(&[
        APPEND,
        fail(Op::Write, 0, Fault::Error(Io::StorageFull)),
        fail(Op::Sync, 0, Fault::Error(Io::Other)),
        WAIT_ALL,
    ]);
    session.step(Step::Barrier).unwrap();
}

// Break: as above. The first transaction was dropped unwaited, so nobody but the barrier can tell
// that it was withdrawn with the second.
#[test]
fn a_barrier_tells_of_what_was_dropped_and_withdrawn() {
    let session = session(&[]);
    let fs = session.fs();
    observe::create(fs).unwrap();
    let log = observe::open(Sabotage::None.env(fs), Mode::Durable).unwrap().log;
    drop(log.append(&[Row::numbered(1).as_row()]).unwrap());
    let second = log.append(&[Row::numbered(2).as_row()]).unwrap();
    let fault = Fault::Error(Io::StorageFull);
    fs.plan(Plan { op: Op::Write, after: 0, fault, lasting: false });
    assert_eq!(second.wait().unwrap_err().kind(), ErrorKind::NotCommitted);
    let told = log.barrier().map_err(|error| error.kind());
    assert_eq!(told, Err(ErrorKind::NotCommitted));
    assert_eq!(log.barrier().unwrap().get(), 0, "it tells once");
}

// Break: reading the frames for the second time, to write them again, without checking them for
// the second time: the kernel may have dropped the pages that a failed sync left in its cache.
#[test]
fn a_recovery_short_of_memory_publishes_nothing_that_the_disk_lacks() {
    let failed = session(&[
        APPEND,
        WAIT_ALL,
        fail(Op::Sync, 0, Fault::Error(Io::Other)),
        APPEND,
        Step::Append { rows: 3, message: 500 },
        WAIT_ALL,
    ]);
    let expect = Expect { acked: failed.expect().must, ..failed.expect().clone() };
    for ops in 0..40 {
        let fs = SimFs::boot(failed.fs().disk());
        fs.evict_in(ops);
        // It may refuse, if it cannot make sense of what it reads; it may not bless it.
        let opened = observe::open(Sabotage::None.env(&fs), Mode::Durable);
        let expect = match &opened {
            Ok(opened) => expect.exactly(&opened.found),
            Err(_) => expect.clone(),
        };
        let next = fs.kill();
        drop(opened);
        let found = recover(&next).unwrap_or_else(|what| panic!("evicted at {ops}: {what}"));
        expect.check_recovered(&found).unwrap_or_else(|what| panic!("evicted at {ops}: {what}"));
        let cut = next.power_cut(Policy::Nothing, &mut Rng::new(0));
        let found = recover(&cut).unwrap_or_else(|what| panic!("evicted at {ops}, cut: {what}"));
        expect.check_recovered(&found).unwrap_or_else(|what| panic!("evicted at {ops}: {what}"));
    }
}

fn recover(fs: &SimFs) -> Result<Found, String> {
    match observe::open(Sabotage::None.env(fs), Mode::Durable) {
        Ok(opened) => Ok(opened.found),
        Err(Refusal::Wrong(wrong)) => Err(wrong),
        Err(Refusal::Error(error)) => Err(error.to_string()),
    }
}

/// Commits one transaction on a disk, or, without power in time, two; returns the live file.
fn branch(disk: &Disk, expect: &Expect, clock: i64, appends: usize, policy: Policy) -> Vec<u8> {
    let fs = SimFs::boot(disk.clone());
    fs.set_clock(clock);
    let mut session = Session::resume(&fs, Sabotage::None, Rng::new(1), expect.clone());
    for _ in 0..appends {
        session.step(APPEND).unwrap();
    }
    session.step(WAIT_ALL).unwrap();
    let disk = session.fs().disk().survivor(policy, &mut Rng::new(0));
    disk.read(&observe::live_path()).unwrap().to_vec()
}

// Break: accepting a frame that does not continue the one before it. Two failed syncs in a row
// (of a group, and of the recovery that clears it) leave its frames on the disk, where the cache
// has zeros. The next transaction takes the place of the first; the second, valid by itself and
// with just the sequence that comes next, stands behind it.
#[test]
fn a_frame_of_a_lost_group_does_not_join_another() {
    const FRAME: usize = 672;
    let base = session(&[APPEND, WAIT_ALL, Step::Reopen(Exit::Close)]);
    let (disk, expect) = (base.fs().disk(), base.expect());
    let end = observe::published(base.fs()).unwrap().1;
    let lost = branch(&disk, expect, 3_000_000, 2, Policy::Everything);
    let mut bytes = branch(&disk, expect, 2_000_000, 1, Policy::Nothing);
    let stale = end + FRAME + 8..end + 2 * FRAME;
    bytes[stale.clone()].copy_from_slice(&lost[stale]);
    let mut image = disk.survivor(Policy::Nothing, &mut Rng::new(0));
    image.damage(&observe::live_path(), |live| *live = bytes).unwrap();
    let opened = observe::open(Sabotage::None.env(&SimFs::boot(image)), Mode::Durable).unwrap();
    assert_eq!(opened.found.newest(), 2);
    assert!(opened.recovery.torn.is_some(), "the scene's own precondition");
}

/// A disk with a torn group behind two durable transactions.
fn torn() -> Disk {
    let steps = [APPEND, APPEND, WAIT_ALL, APPEND, Step::Append { rows: 9, message: 900 }];
    let mut session = session(&steps);
    drop(session.take_moments());
    session.step(fail(Op::Sync, 0, Fault::Error(Io::Other))).unwrap();
    session.step(WAIT_ALL).unwrap();
    session.fs().disk().survivor(Policy::Random { per_mille: 700 }, &mut Rng::new(4))
}

// Break: clearing the torn bytes although they could not be kept.
#[test]
fn a_repair_without_space_changes_nothing_and_succeeds_when_there_is_some() {
    let disk = torn();
    for op in [Op::Create, Op::Write] {
        let fs = SimFs::boot(disk.clone());
        fs.plan(Plan { op, after: 0, fault: Fault::Error(Io::StorageFull), lasting: true });
        match observe::open(Sabotage::None.env(&fs), Mode::Durable) {
            Err(Refusal::Error(error)) => assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}"),
            other => panic!("{op:?}: {other:?}"),
        }
        let live = observe::live_path();
        assert_eq!(fs.disk().read(&live).unwrap(), disk.read(&live).unwrap(), "{op:?}");
        fs.heal();
        let opened = observe::open(Sabotage::None.env(&fs), Mode::Durable).unwrap();
        assert!(opened.recovery.torn.is_some(), "the scene's own precondition");
        assert!(opened.found.newest() >= 2);
    }
}

// Break: counting on room that a full buffer took; losing the groups that its finder committed.
#[test]
fn a_full_group_buffer_is_crashed_too() {
    let large = Step::Append { rows: 1, message: 1200 << 10 };
    let mut lab = Lab::new(Effort { moments: 25, ..Effort::SPARSE }, Sabotage::None);
    let steps = [large, large, large, large, large, APPEND, WAIT_ALL, Step::Reopen(Exit::Kill)];
    lab.run_steps(0, &steps);
    assert_promises_kept(&lab.report, "this test, seed");
}
