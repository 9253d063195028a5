//! Going to rest and waking, beside those who write, rewrite and close.

use std::sync::Arc;

use refstone_log::{ErrorKind, Seq};
use refstone_tests::logs::Drops;
use refstone_tests::sim::Op;
use shuttle::thread;

use crate::machine::{Machine, choose, commit, explore, up_to, writers};

// Breaks: letting go of the file while somebody stages or leads; a leader or a gate that is left
// without one; two who think that they hold the gate.
#[test]
fn a_log_that_goes_to_rest_beside_writers_loses_nothing() {
    explore(|| {
        let machine = Arc::new(Machine::new());
        let writers = writers(&machine, 0..2);
        let rests = thread::spawn({
            let machine = machine.clone();
            move || machine.log.rest().unwrap()
        });
        machine.log.rest().unwrap();
        rests.join().unwrap();
        writers.into_iter().for_each(|writer| assert!(writer.join().is_ok()));
        assert!(machine.log.rest().unwrap(), "nobody writes");
        assert_eq!(machine.published(), up_to(2));
        assert_eq!(commit(&machine.log, 2).unwrap(), 3);
        assert_eq!(machine.after_a_power_cut(), up_to(3));
    });
}

// Break: a rewrite whose file is let go of before it was swapped.
#[test]
fn a_log_that_goes_to_rest_beside_a_rewrite_goes_on_in_the_new_file() {
    explore(|| {
        let machine = Arc::new(Machine::new());
        commit(&machine.log, 0).unwrap();
        let rests = thread::spawn({
            let machine = machine.clone();
            move || machine.log.rest().unwrap()
        });
        assert!(machine.log.rewrite(Seq::MAX, &mut Drops).unwrap().is_some());
        rests.join().unwrap();
        assert_eq!(commit(&machine.log, 1).unwrap(), 2);
        assert_eq!(machine.published(), [2]);
        assert_eq!(machine.after_a_power_cut(), [2]);
    });
}

// Break: a lock that is given up while somebody still syncs to put the log to rest.
#[test]
fn a_log_is_closed_before_or_after_it_goes_to_rest() {
    explore(|| {
        let machine = Arc::new(Machine::new());
        commit(&machine.log, 0).unwrap();
        let rests = thread::spawn({
            let machine = machine.clone();
            move || machine.log.rest().err().map(|error| error.kind())
        });
        machine.log.close().unwrap();
        assert!(matches!(rests.join().unwrap(), None | Some(ErrorKind::Closed)));
        assert_eq!(machine.published(), up_to(1));
        assert_eq!(machine.after_a_power_cut(), up_to(1));
    });
}

// Break: a sync that fails beside writers, and is told to nobody.
#[test]
fn a_failed_sync_of_one_who_puts_the_log_to_rest_stops_it() {
    explore(|| {
        let machine = Arc::new(Machine::new());
        commit(&machine.log, 0).unwrap();
        machine.fail(Op::Sync, choose(2));
        let writes = thread::spawn({
            let machine = machine.clone();
            move || {
                machine
                    .log
                    .append(&[refstone_tests::logs::Row::numbered(1).as_row()])
                    .map(|commit| commit.wait().is_ok())
            }
        });
        let rested = machine.log.rest();
        let acknowledged = writes.join().unwrap().unwrap_or(false);
        assert!(rested.is_ok() || machine.log.rest().is_err(), "it has stopped");
        let after = machine.after_a_power_cut();
        assert!(after.len() > usize::from(acknowledged), "{after:?}");
    });
}
