//! Who is told what, and when.

use std::sync::Arc;

use refstone_log::{Gathering, Mode, NoObserver};
use refstone_tests::logs::Row;
use shuttle::thread;

use crate::machine::{Machine, commit, explore, up_to, writers};

const WRITERS: u64 = 3;

/// Every writer commits, and looks at once whether it was told the truth.
fn writers_are_told_the_truth(gathering: Gathering, commits: u64) {
    let machine = Arc::new(Machine::new());
    machine.log.gate().set_gathering(gathering);
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let machine = machine.clone();
            thread::spawn(move || -> Vec<u64> {
                (0..commits)
                    .map(|n| {
                        let seq = commit(&machine.log, writer * commits + n).unwrap();
                        let durable = machine.log.durable_seq().get();
                        assert!(durable >= seq, "{seq} was acknowledged at {durable}");
                        assert!(machine.published().contains(&seq), "{seq} is not published");
                        seq
                    })
                    .collect()
            })
        })
        .collect();
    let told = writers.into_iter().flat_map(|writer| writer.join().unwrap());
    let mut told: Vec<u64> = told.collect();
    told.sort_unstable();
    assert_eq!(told, up_to(WRITERS * commits), "every sequence once");
    assert_eq!(machine.after_a_power_cut(), told);
}

// Breaks: a wake-up that is lost between the look at the watermark and the sleep, or by a leader that
// wakes its heir alone (deadlock); a watermark that runs ahead of the sync.
#[test]
fn everybody_is_acknowledged_once_what_it_committed_is_durable() {
    explore(|| writers_are_told_the_truth(Gathering::Off, 1));
}

// Break: an alarm that outlives the leader that set it.
#[test]
fn a_leader_that_waits_for_others_goes_on_whether_they_come_or_not() {
    explore(|| writers_are_told_the_truth(Gathering::On, 2));
}

// Breaks: a commit that is withdrawn when it is dropped; a close that leaves before the group of
// another leader is through.
#[test]
fn a_dropped_commit_is_durable_once_the_log_is_closed() {
    explore(|| {
        let machine = Arc::new(Machine::new());
        let droppers: Vec<_> = (0..2)
            .map(|n| {
                let machine = machine.clone();
                thread::spawn(move || {
                    let staged = machine.log.append(&[Row::numbered(n).as_row()]);
                    u64::from(staged.map(drop).is_ok())
                })
            })
            .collect();
        let closed = machine.log.close();
        closed.unwrap();
        let staged: u64 = droppers.into_iter().map(|dropper| dropper.join().unwrap()).sum();
        assert_eq!(machine.published(), up_to(staged));
        assert_eq!(machine.after_a_power_cut(), up_to(staged));
    });
}

// Breaks: a leadership that is handed on while somebody holds the gate; a holder that is not woken
// (deadlock).
#[test]
fn a_holder_of_the_gate_goes_before_the_next_leader() {
    explore(|| {
        let machine = Arc::new(Machine::new());
        let writers = writers(&machine, 0..2);
        let hold = machine.log.gate().hold();
        let syncs = machine.log.gate().syncs();
        thread::yield_now();
        assert_eq!(machine.log.gate().syncs(), syncs, "somebody led beside the holder");
        drop(hold);
        writers.into_iter().for_each(|writer| assert!(writer.join().is_ok()));
        assert_eq!(machine.published(), up_to(2));
    });
}

// Break: a sync that covers less than what was acknowledged before it.
#[test]
fn a_sync_of_a_buffered_log_covers_all_that_came_before_it() {
    explore(|| {
        let machine = Arc::new(Machine::observed(Mode::Buffered, Arc::new(NoObserver)));
        let writers: Vec<_> = (0..2)
            .map(|n| {
                let machine = machine.clone();
                thread::spawn(move || {
                    let seq = commit(&machine.log, n).unwrap();
                    let durable = machine.log.sync().unwrap().get();
                    assert!(durable >= seq, "{seq} was synced at {durable}");
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert_eq!(machine.after_a_power_cut(), up_to(2));
    });
}
