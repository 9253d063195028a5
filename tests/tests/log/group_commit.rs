//! One sync covers everybody who had staged, and nobody waits for a sync that others paid.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use refstone_log::{CommitError, Log, Stage};
use refstone_tests::env::{Fault, Op};
use refstone_tests::logs::{Row, ScratchLog, push};

fn staged(log: &Log) -> u64 {
    log.append_with(|stage| stage.next_seq().get() - 1).unwrap()
}

// Break: syncing inside the writer mutex, or a leader that takes one transaction per round.
#[test]
fn all_writers_that_staged_behind_a_shut_gate_cost_one_sync() {
    const WRITERS: u64 = 16;
    let scratch = ScratchLog::new();
    let log = scratch.log();
    let before = log.gate().syncs();
    let hold = log.gate().hold();
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..WRITERS)
            .map(|n| {
                scope.spawn({
                    let log = &log;
                    move || push(log, &Row::numbered(n))
                })
            })
            .collect();
        while staged(&log) < WRITERS {
            thread::yield_now();
        }
        // The guard's own precondition: all have staged, and nothing has been synced for them.
        assert_eq!((log.gate().syncs(), log.durable_seq().get()), (before, 0));
        assert!(waiting.iter().all(|writer| !writer.is_finished()));
        drop(hold);
    });
    assert_eq!(log.gate().syncs(), before + 1);
    assert_eq!(log.durable_seq().get(), WRITERS);
}

// Break: a barrier that leads a round although its sequence is durable.
#[test]
fn a_follower_is_covered_by_the_leaders_sync() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    let follower = log.append(&[Row::numbered(1).as_row()]).unwrap();
    let leader = log.append(&[Row::numbered(2).as_row()]).unwrap();
    let before = log.gate().syncs();
    assert_eq!(log.durable_seq().get(), 0, "nothing is durable before anybody waits");
    assert_eq!(leader.wait().unwrap().seq().get(), 2);
    assert_eq!(log.gate().syncs(), before + 1, "the leader syncs once");
    assert_eq!(follower.wait().unwrap().seq().get(), 1);
    assert_eq!(log.gate().syncs(), before + 1, "the follower synced again");
}

// Break: keeping the writer mutex through the sync.
#[test]
fn others_stage_while_a_leader_syncs() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    let (result, staged) = mpsc::channel();
    scratch.env.call(Op::Sync, 0, {
        let log = log.clone();
        move || {
            let (done, staging) = mpsc::channel();
            thread::spawn(move || done.send(log.append(&[Row::numbered(2).as_row()]).map(drop)));
            result.send(staging.recv_timeout(Duration::from_secs(5))).unwrap();
        }
    });
    push(&log, &Row::numbered(1));
    staged.recv().unwrap().expect("others stage during the sync").unwrap();
}

// Break: reading only after the sync how far it reaches.
#[test]
fn what_stages_during_a_sync_waits_for_the_next() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    let (late, staged) = mpsc::channel();
    scratch.env.call(Op::Sync, 0, {
        let log = log.clone();
        move || late.send(log.append(&[Row::numbered(2).as_row()]).unwrap()).unwrap()
    });
    assert_eq!(push(&log, &Row::numbered(1)), 1);
    assert_eq!(log.durable_seq().get(), 1, "it staged after the write");
    let (late, syncs) = (staged.recv().unwrap(), log.gate().syncs());
    assert_eq!(late.wait().unwrap().seq().get(), 2);
    assert_eq!(log.gate().syncs(), syncs + 1);
}

// Break: cancelling what a dropped commit had staged.
#[test]
fn a_dropped_commit_is_taken_along_by_the_next_leader_or_by_close() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    drop(log.append(&[Row::numbered(1).as_row()]).unwrap());
    push(&log, &Row::numbered(2));
    assert_eq!(scratch.published(), [1, 2]);
    drop(log.append(&[Row::numbered(3).as_row()]).unwrap());
    log.close().unwrap();
    assert_eq!(scratch.published(), [1, 2, 3]);
}

#[test]
fn dropping_the_last_handle_closes_the_log() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    drop(log.append(&[Row::numbered(1).as_row()]).unwrap());
    drop(log);
    assert_eq!(scratch.published(), [1]);
    assert_eq!(scratch.open().unwrap().1.proved, 0, "a closed log is proven to its end");
}

// Break: an unbounded group buffer, or an append that waits for a leader that never comes.
#[test]
fn a_full_group_buffer_is_committed_by_the_thread_that_finds_it_full() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    let row = Row { message: Some(vec![b'm'; 1 << 20]), ..Row::standard() };
    for _ in 0..12 {
        drop(log.append(&[row.as_row()]).unwrap());
    }
    assert!(log.durable_seq().get() >= 8, "durable {}", log.durable_seq());
}

// Break: giving out a sequence twice, or a gap; a lost wake-up hangs the test.
#[test]
fn many_threads_get_every_sequence_once() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    let mut seqs: Vec<u64> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|t| {
                let log = &log;
                scope.spawn(move || -> Vec<u64> {
                    (0..50).map(|n| push(log, &Row::numbered(t * 50 + n))).collect()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    seqs.sort_unstable();
    assert_eq!(seqs, (1..=400).collect::<Vec<_>>());
    assert_eq!(scratch.published(), seqs);
}

#[test]
fn a_closed_log_takes_nothing_more() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    let clone = log.clone();
    log.close().unwrap();
    let error = clone.append(&[Row::standard().as_row()]).unwrap_err();
    assert!(matches!(error, refstone_log::AppendError::Commit(CommitError::Closed)), "{error}");
    clone.close().unwrap();
}

// Break: leaving `leading` set when the leader panics (hangs), or taking the panic for success.
#[test]
fn a_leader_that_panics_stops_the_log_and_wakes_everybody() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    let hold = log.gate().hold();
    scratch.env.fail(Op::Sync, 0, Fault::Panic);
    let results: Vec<_> = thread::scope(|scope| {
        let waiting: Vec<_> = (0..4)
            .map(|n| {
                let log = &log;
                scope.spawn(move || log.append(&[Row::numbered(n).as_row()]).unwrap().wait())
            })
            .collect();
        while staged(&log) < 4 {
            thread::yield_now();
        }
        drop(hold);
        waiting.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    let panicked = results.iter().filter(|result| result.is_err()).count();
    let unknown = results.iter().filter(|r| matches!(r, Ok(Err(CommitError::Unknown { .. }))));
    assert_eq!((panicked, unknown.count()), (1, 3));
    assert!(log.append(&[Row::standard().as_row()]).is_err());
}

// Break: counting every append, or none.
#[test]
fn only_who_finds_the_writer_taken_is_counted_as_waiting_for_it() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    for n in 0..100 {
        push(&log, &Row::numbered(n));
    }
    assert_eq!((log.lock_waits(), log.lock_wait_nanos()), (0, 0), "nobody was in the way");
    // On a busy machine the second thread may come when the first has gone.
    for _ in 0..100 {
        meet_at_the_writer(&log);
        if log.lock_waits() > 0 {
            break;
        }
    }
    assert_eq!(log.lock_waits(), 1);
    assert!(log.lock_wait_nanos() > 0);
}

/// One thread has the writer mutex for a while, and another one wants it.
fn meet_at_the_writer(log: &Log) {
    let (inside, entered) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let hold = |_: &mut Stage<'_>| {
                inside.send(()).unwrap();
                thread::sleep(Duration::from_millis(20));
            };
            log.append_with(hold).unwrap();
        });
        entered.recv().unwrap();
        push(log, &Row::standard());
    });
}
