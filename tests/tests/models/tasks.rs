//! Commits that are awaited, and commits that are polled and forgotten.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use refstone_log::{Commit, ErrorKind, Log};
use refstone_tests::logs::Row;
use refstone_tests::sim::Op;
use shuttle::future::block_on;
use shuttle::thread;

use crate::machine::{Machine, choose, commit, explore, up_to};

fn stage(log: &Log, n: u64) -> Commit {
    log.append(&[Row::numbered(n).as_row()]).unwrap()
}

// Breaks: a task that is registered after the round that decided it; a thread that leads for tasks
// and leaves while one is being registered (deadlock).
#[test]
fn tasks_and_threads_are_all_answered() {
    explore(|| {
        let machine = Arc::new(Machine::new());
        let tasks: Vec<_> = (0..2)
            .map(|n| {
                let machine = machine.clone();
                thread::spawn(move || {
                    let seq = block_on(stage(&machine.log, n)).unwrap().seq();
                    assert!(machine.log.durable_seq() >= seq, "{seq} is not durable");
                })
            })
            .collect();
        commit(&machine.log, 2).unwrap();
        tasks.into_iter().for_each(|task| task.join().unwrap());
        assert_eq!(machine.published(), up_to(3));
    });
}

// Break: a leadership, or a place in the queue, that lives in a task and is dropped with it.
#[test]
fn a_task_that_is_polled_once_and_dropped_holds_up_nobody() {
    explore(|| {
        let machine = Arc::new(Machine::new());
        let task = thread::spawn({
            let machine = machine.clone();
            move || {
                let mut staged = stage(&machine.log, 0);
                let _ = Pin::new(&mut staged).poll(&mut Context::from_waker(Waker::noop()));
            }
        });
        commit(&machine.log, 1).unwrap();
        task.join().unwrap();
        machine.log.close().unwrap();
        assert_eq!(machine.published(), up_to(2));
    });
}

// Break: a failure that is told to threads alone (deadlock).
#[test]
fn a_task_learns_of_a_failure_too() {
    explore(|| {
        let machine = Arc::new(Machine::new());
        let op = [Op::Write, Op::Sync][choose(2)];
        machine.fail(op, 0);
        let task = thread::spawn({
            let machine = machine.clone();
            move || block_on(stage(&machine.log, 0)).map(|ack| ack.seq().get())
        });
        match task.join().unwrap().unwrap_err().kind() {
            ErrorKind::NotCommitted => assert_eq!(op, Op::Write),
            kind => assert_eq!((op, kind), (Op::Sync, ErrorKind::Unknown)),
        }
    });
}
