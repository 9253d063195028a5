//! A buffered log acknowledges what the kernel has; nobody outside sees it before it is durable.

use std::io::ErrorKind as Io;

use refstone_log::{ErrorKind, Seq};
use refstone_tests::env::{Fault, Op};
use refstone_tests::logs::{Drops, Row, ScratchLog, push};

fn syncs(scratch: &ScratchLog) -> usize {
    scratch.env.trace().into_iter().filter(|op| *op == Op::Sync).count()
}

// Breaks: a sync per commit; storing the withheld length word with the second group (a power cut
// could leave a word without its group); not publishing at the barrier.
#[test]
fn commits_cost_no_sync_and_are_published_by_the_one_that_ends_the_load() {
    let scratch = ScratchLog::new();
    let log = scratch.buffered();
    scratch.env.start_trace();
    for n in 1..=5 {
        assert_eq!(push(&log, &Row::numbered(n)), n);
        assert!(scratch.published().is_empty(), "undurable transactions are visible outside");
    }
    assert_eq!((log.written_seq().get(), log.durable_seq().get()), (5, 0));
    assert_eq!(syncs(&scratch), 0);
    assert_eq!(log.sync().unwrap().get(), 5);
    assert_eq!((syncs(&scratch), log.durable_seq().get()), (1, 5));
    assert_eq!(scratch.published(), [1, 2, 3, 4, 5]);
    log.sync().unwrap();
    assert_eq!(syncs(&scratch), 1, "nothing was written since");
    push(&log, &Row::numbered(6));
    assert_eq!(scratch.published().len(), 5);
    log.close().unwrap();
    assert_eq!(scratch.published().len(), 6);
    assert_eq!(scratch.open().unwrap().1.proved, 0, "a closed log is proven to its end");
}

// Break: recovery that trusts the cache of a buffered log, or that drops what was acknowledged.
#[test]
fn a_killed_process_loses_nothing_and_recovery_makes_it_durable() {
    let scratch = ScratchLog::new();
    let log = scratch.buffered();
    for n in 1..=3 {
        push(&log, &Row::numbered(n));
    }
    let killed = scratch.bytes();
    drop(log);
    scratch.set_bytes(&killed);
    let (_log, recovery) = scratch.open().unwrap();
    assert_eq!((recovery.transactions, recovery.proved, recovery.torn), (3, 3, None));
    assert_eq!(scratch.published(), [1, 2, 3]);
}

// Break: copying frames behind the withheld word before they are durable, or with a zero word.
#[test]
fn a_rewrite_first_makes_all_it_copies_durable() {
    let scratch = ScratchLog::new();
    let log = scratch.buffered();
    for n in 1..=6 {
        push(&log, &Row::numbered(n));
    }
    scratch.env.start_trace();
    log.rewrite(Seq::new(4), &mut Drops).unwrap().unwrap();
    assert_eq!(syncs(&scratch), 4, "one for the load, three for the new file");
    assert_eq!(scratch.published(), [5, 6]);
    push(&log, &Row::numbered(7));
    assert_eq!(scratch.published(), [5, 6]);
    log.close().unwrap();
    assert_eq!(scratch.published(), [5, 6, 7]);
}

// Break: taking back a group whose slot held its word without restoring the end of the stream.
#[test]
fn a_failed_write_behind_a_withheld_group_is_not_committed() {
    let scratch = ScratchLog::new();
    let log = scratch.buffered();
    push(&log, &Row::numbered(1));
    scratch.env.fail(Op::Write, 0, Fault::HalfThenNoSpace);
    let error = log.append(&[Row::numbered(2).as_row()]).unwrap().wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotCommitted, "{error}");
    assert_eq!(push(&log, &Row::numbered(3)), 2);
    log.close().unwrap();
    assert_eq!(scratch.published(), [1, 2]);
    assert_eq!(scratch.open().unwrap().1.torn, None);
}

// Break: a barrier whose failed sync is forgotten.
#[test]
fn a_failed_barrier_stops_the_log() {
    let scratch = ScratchLog::new();
    let log = scratch.buffered();
    push(&log, &Row::numbered(1));
    scratch.env.fail(Op::Sync, 0, Fault::Error(Io::Other));
    assert_eq!(log.sync().unwrap_err().kind(), ErrorKind::Unknown);
    assert!(log.append(&[Row::numbered(2).as_row()]).is_err());
    assert!(scratch.published().is_empty());
    drop(log);
    assert_eq!(scratch.open().unwrap().1.proved, 1);
}
