//! Where the environment lets a log be read only, opening says so, and reading works.

use std::fs;
use std::io::ErrorKind as Io;

use refstone_log::{ErrorKind, OpenError};
use refstone_tests::env::{Fault, Op};
use refstone_tests::logs::{Row, ScratchLog, push};

/// A log of three durable transactions with a torn one behind them.
fn torn() -> ScratchLog {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    for n in 1..=3 {
        push(&log, &Row::numbered(n));
    }
    let end = usize::try_from(log.live_bytes()).unwrap();
    scratch.env.fail(Op::Sync, 0, Fault::Error(Io::Other));
    log.append(&[Row::numbered(4).as_row()]).unwrap().wait().unwrap_err();
    drop(log);
    let mut bytes = scratch.bytes();
    bytes[end + 300] ^= 1;
    scratch.set_bytes(&bytes);
    scratch
}

/// Opening fails, says that the log can be read, and leaves everything as it is.
fn assert_read_only(scratch: &ScratchLog, words: &str) {
    let bytes = scratch.bytes();
    let error = scratch.open().expect_err("it cannot be written");
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    assert!(matches!(error, OpenError::ReadOnly { .. }));
    for part in ["can be read, but not written", words] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert!(scratch.bytes() == bytes, "it was changed");
    assert_eq!(scratch.published(), [1, 2, 3]);
}

// Breaks: an error that does not say that reading works; half a file of torn bytes, or one without a durable
// name, left with every attempt; clearing them although they could not be saved.
#[test]
fn a_log_whose_torn_bytes_find_no_space_can_be_read() {
    const SAVING: &str = "refs.arrow.cut-1: cannot save torn bytes";
    for (op, kind, words) in [
        (Op::Create, Io::StorageFull, SAVING),
        (Op::Create, Io::ReadOnlyFilesystem, SAVING),
        (Op::Write, Io::StorageFull, SAVING),
        (Op::Write, Io::QuotaExceeded, SAVING),
        (Op::Sync, Io::StorageFull, SAVING),
        (Op::SyncDir, Io::StorageFull, "cannot sync the directory"),
    ] {
        let scratch = torn();
        for _ in 0..2 {
            scratch.env.fail(op, 0, Fault::Error(kind));
            assert_read_only(&scratch, words);
        }
        let names = fs::read_dir(scratch.dir()).unwrap().count();
        assert_eq!(names, 3, "{op:?} {kind:?}: the log, its lock, and the mark of a failed sync");
        let (_, recovery) = scratch.open().unwrap();
        assert!(recovery.torn.is_some(), "the test's own precondition");
    }
}

// Break: passing the error of the lock file on as it came.
#[test]
fn a_log_whose_directory_cannot_be_written_can_be_read() {
    let scratch = torn();
    for kind in [Io::PermissionDenied, Io::ReadOnlyFilesystem] {
        scratch.env.fail(Op::Lock, 0, Fault::Error(kind));
        assert_read_only(&scratch, "LOCK: cannot lock");
    }
}

// Break: calling every failure read-only. What the disk cannot do may be over with the next try, or
// may be worse.
#[test]
fn another_failure_is_told_as_it_is() {
    let scratch = torn();
    for op in [Op::Lock, Op::Create, Op::Sync] {
        scratch.env.fail(op, 0, Fault::Error(Io::Other));
        assert_eq!(scratch.open().unwrap_err().kind(), ErrorKind::Io, "{op:?}");
    }
}
