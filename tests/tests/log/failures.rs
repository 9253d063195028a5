//! What an error means: old state, new state, or unknown; and what the log does next.

use std::io::ErrorKind as Io;

use refstone_log::{AppendError, CommitError, ErrorKind, Log};
use refstone_tests::env::{Fault, Op};
use refstone_tests::logs::{Row, ScratchLog, push};

fn wait_for(log: &Log, n: u64) -> Result<u64, CommitError> {
    log.append(&[Row::numbered(n).as_row()]).unwrap().wait().map(|ack| ack.seq().get())
}

// Breaks: keeping the staged sequence or chain; going on behind the partial bytes; answering
// before they are cleared.
#[test]
fn a_failed_write_is_not_committed_and_the_log_goes_on() {
    for fault in [Fault::Error(Io::Other), Fault::HalfThenNoSpace] {
        let scratch = ScratchLog::new();
        let log = scratch.log();
        push(&log, &Row::numbered(1));
        scratch.env.fail(Op::Write, 0, fault);
        let queued = log.append(&[Row::numbered(2).as_row()]).unwrap();
        let error = wait_for(&log, 3).expect_err("its write failed");
        assert_eq!(error.kind(), ErrorKind::NotCommitted, "{error}");
        // Sequence 2 is given out again; the old waiter must not take the new one for its own.
        assert_eq!(wait_for(&log, 4).unwrap(), 2, "no sequence was spent");
        assert_eq!(queued.wait().unwrap_err().kind(), ErrorKind::NotCommitted);
        assert_eq!(scratch.published(), [1, 2]);
        log.close().unwrap();
        let (log, recovery) = scratch.open().unwrap();
        assert_eq!((recovery.transactions, recovery.torn), (2, None));
        assert_eq!(push(&log, &Row::numbered(5)), 3);
    }
}

// Break: answering `NotCommitted` although the traces could not be cleared.
#[test]
fn a_failed_write_whose_traces_stay_stops_the_log() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    push(&log, &Row::numbered(1));
    scratch.env.fail(Op::Write, 0, Fault::Error(Io::Other));
    scratch.env.fail(Op::Sync, 0, Fault::Error(Io::Other));
    let error = wait_for(&log, 2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
    assert!(matches!(
        log.append(&[Row::numbered(3).as_row()]),
        Err(AppendError::Commit(CommitError::Poisoned { .. }))
    ));
}

// Breaks: ignoring a failed sync; retrying it; forgetting it after one report; reporting a commit
// that was never written as unknown.
#[test]
fn a_failed_sync_is_unknown_and_stops_the_log_until_it_is_reopened() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    push(&log, &Row::numbered(1));
    let syncs = log.gate().syncs();
    scratch.env.fail(Op::Sync, 0, Fault::Error(Io::Other));
    let error = wait_for(&log, 2).expect_err("its sync failed");
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
    assert_eq!(log.gate().syncs(), syncs + 1, "a failed sync is never retried");
    for _ in 0..2 {
        let error = log.append(&[Row::numbered(3).as_row()]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
    }
    assert_eq!(log.durable_seq().get(), 1);
    assert_eq!(log.close().unwrap_err().kind(), ErrorKind::Unknown);

    let (log, recovery) = scratch.open().unwrap();
    assert_eq!((recovery.transactions, recovery.proved), (2, 1));
    assert_eq!(push(&log, &Row::numbered(3)), 3);
}

// Break: answering `Unknown` to those whose group was never written.
#[test]
fn what_staged_behind_a_failed_sync_did_not_happen() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    scratch.env.fail(Op::Sync, 0, Fault::Error(Io::Other));
    let first = log.append(&[Row::numbered(1).as_row()]).unwrap();
    assert_eq!(first.wait().unwrap_err().kind(), ErrorKind::Unknown);
    assert!(scratch.published().is_empty());
}

// Break: reporting the group of a failed publish as lost. It was synced, so it is acknowledged.
#[test]
fn a_failed_publish_acknowledges_the_group_and_then_stops_the_log() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    push(&log, &Row::numbered(1));
    scratch.env.fail(Op::Write, 1, Fault::Error(Io::Other));
    assert_eq!(wait_for(&log, 2).unwrap(), 2);
    assert!(log.append(&[Row::numbered(3).as_row()]).is_err());
    assert_eq!(scratch.published(), [1], "nobody outside sees it yet");
    assert_eq!(log.sync().unwrap().get(), 2, "all is durable");
    drop(log);
    let (_log, recovery) = scratch.open().unwrap();
    assert_eq!((recovery.transactions, recovery.proved), (2, 1));
    assert_eq!(scratch.published(), [1, 2]);
}

// Break: taking the sequence before the space is reserved.
#[test]
fn no_space_is_a_clean_refusal() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    let row = Row { message: Some(vec![b'm'; 1 << 20]), ..Row::standard() };
    scratch.env.fail(Op::Write, 0, Fault::HalfThenNoSpace);
    let error = log.append(&[row.as_row()]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert_eq!(push(&log, &Row::numbered(1)), 1);
    assert_eq!(log.append(&[row.as_row()]).unwrap().wait().unwrap().seq().get(), 2);
    assert_eq!(scratch.published(), [1, 2]);
}

#[test]
fn a_panic_while_staging_stops_the_log() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    let panicking = log.clone();
    std::thread::spawn(move || {
        let _ = panicking.append_with(|stage| {
            let _commit = stage.append(&[Row::numbered(1).as_row()]);
            panic!("between staging and remembering");
        });
    })
    .join()
    .unwrap_err();
    let error = log.append(&[Row::numbered(2).as_row()]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
}
