//! A log is created once, whole and durable; and there is one writer.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use refstone_log::{ErrorKind, Log, NoObserver, ObjectFormat, OpenError, OsEnv, RefLogOptions};
use refstone_tests::env::{Fault, Op, TestEnv};
use refstone_tests::logs::{Row, ScratchLog, published, push};

fn options() -> RefLogOptions {
    RefLogOptions { object_format: ObjectFormat::Sha1, head: b"refs/heads/main".into() }
}

#[test]
fn a_new_log_has_spent_no_sequence_and_is_small() {
    let scratch = ScratchLog::new();
    assert!(scratch.published().is_empty());
    assert!(fs::metadata(scratch.live()).unwrap().len() <= 64 << 10);
    let log = scratch.log();
    assert_eq!((log.head(), log.object_format()), (&b"refs/heads/main"[..], ObjectFormat::Sha1));
    assert_eq!(push(&log, &Row::standard()), 1);
}

// Breaks: no sync of the directory; rename before the sync of the file; only the leaf synced.
#[test]
fn creation_syncs_the_file_then_renames_then_syncs_the_directory_and_all_above() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("a/b");
    let env = TestEnv::new();
    env.start_trace();
    Log::create(&env, &dir, &options()).unwrap();
    let trace = env.trace();
    let ancestors = dir.ancestors().count();
    let order: Vec<Op> = trace.into_iter().filter(|op| *op != Op::Write).collect();
    let mut expected = vec![Op::Create, Op::Sync, Op::Rename];
    expected.extend(vec![Op::SyncDir; ancestors]);
    assert_eq!(order, expected);
}

// Breaks: ignoring the error of any step; leaving half a log. Whatever step fails, there is no log or a
// whole one, and a second try succeeds or says that there is one.
#[test]
fn a_creation_that_fails_at_any_step_leaves_no_log_or_a_whole_one() {
    for (op, steps) in
        [(Op::Create, 1), (Op::Write, 2), (Op::Sync, 1), (Op::Rename, 1), (Op::SyncDir, 3)]
    {
        for nth in 0..steps {
            let root = tempfile::tempdir().unwrap();
            let dir = root.path().join("log");
            let env = TestEnv::new();
            env.fail(op, nth, Fault::Error(std::io::ErrorKind::Other));
            let error = Log::create(&env, &dir, &options()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Io, "{op:?} {nth}: {error}");
            assert!(!dir.join("refs.arrow.tmp").exists(), "{op:?} {nth}");
            env.heal();
            match Log::create(&env, &dir, &options()) {
                Ok(()) | Err(OpenError::NotEmpty { .. }) => {}
                Err(error) => panic!("{op:?} {nth}: {error}"),
            }
            assert!(published(&env, &dir).is_empty());
        }
    }
}

#[test]
fn a_log_is_not_created_over_anything() {
    let scratch = ScratchLog::new();
    let error = Log::create(&OsEnv, &scratch.dir(), &options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(error.to_string().contains("refs.arrow"), "{error}");

    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("notes.txt"), "mine").unwrap();
    let error = Log::create(&OsEnv, root.path(), &options()).unwrap_err();
    assert!(error.to_string().contains("notes.txt"), "{error}");
}

#[test]
fn what_a_crash_left_of_a_creation_is_no_obstacle() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("refs.arrow.tmp"), "half").unwrap();
    fs::write(root.path().join("LOCK"), "").unwrap();
    Log::create(&OsEnv, root.path(), &options()).unwrap();
    assert!(published(&OsEnv, root.path()).is_empty());
}

// Break: no lock.
#[test]
fn a_second_writer_is_refused_by_name_and_the_first_goes_on() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    let error = scratch.open().map(drop).expect_err("the lock is held");
    assert_eq!(error.kind(), ErrorKind::Locked);
    assert!(error.to_string().contains("LOCK"), "{error}");
    push(&log, &Row::standard());
    log.close().unwrap();
    assert_eq!(push(&scratch.log(), &Row::standard()), 2);
}

// Break: releasing the lock by closing its descriptor alone. A child that is between fork and exec
// holds a duplicate of it.
#[test]
fn a_closed_log_opens_again_while_other_threads_start_processes() {
    let scratch = ScratchLog::new();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    Command::new("true").status().unwrap();
                }
            });
        }
        let opened: Vec<_> = (0..300).map(|_| scratch.open().map(|(log, _)| log.close())).collect();
        stop.store(true, Ordering::Relaxed);
        for (n, result) in opened.into_iter().enumerate() {
            result.unwrap_or_else(|error| panic!("opening number {n}: {error}")).unwrap();
        }
    });
}

#[test]
fn an_absent_log_says_how_to_make_one() {
    let root = tempfile::tempdir().unwrap();
    for dir in [root.path().to_owned(), root.path().join("absent")] {
        let error =
            Log::open(Arc::new(OsEnv), &dir, Arc::new(NoObserver), &mut |_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("refstone init"), "{error}");
        assert!(!dir.join("LOCK").exists(), "looking for a log left something behind");
    }
}

// Break: advising to create a log where one was lost.
#[test]
fn a_log_whose_live_file_alone_is_gone_is_to_be_restored() {
    let scratch = ScratchLog::new();
    scratch.log().close().unwrap();
    fs::remove_file(scratch.live()).unwrap();
    let error = scratch.open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("backup"), "{error}");
}

// Break: treating an absent or empty live file as a new log.
#[test]
fn a_live_file_that_is_missing_or_empty_beside_history_is_refused_and_not_made_anew() {
    for witness in ["history", "tables", "refs.arrow.cut-1", "refs.arrow.damaged-1"] {
        let scratch = ScratchLog::new();
        fs::create_dir(scratch.dir().join(witness)).unwrap();
        fs::remove_file(scratch.live()).unwrap();
        assert_missing(&scratch, witness, "missing");
        assert!(!scratch.live().exists());

        fs::write(scratch.live(), "").unwrap();
        assert_missing(&scratch, witness, "empty");
        assert_eq!(fs::metadata(scratch.live()).unwrap().len(), 0);

        fs::remove_file(scratch.live()).unwrap();
        let error = Log::create(&OsEnv, &scratch.dir(), &options()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    }
}

fn assert_missing(scratch: &ScratchLog, witness: &str, state: &str) {
    let error = scratch.open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let text = error.to_string();
    for part in ["refs.arrow", witness, state] {
        assert!(text.contains(part), "{text}");
    }
}
