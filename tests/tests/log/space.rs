//! The free-space floor: little space is a clean refusal, and space that is freed is noticed.

use std::sync::Arc;

use refstone_log::{AppendError, Env, ErrorKind, Log, LogOptions, MinFree, NoObserver, OsEnv};
use refstone_tests::env::TestEnv;
use refstone_tests::logs::{Row, ScratchLog, push};

const MIB: u64 = 1 << 20;

fn open(scratch: &ScratchLog, min_free: MinFree) -> Log {
    let options = LogOptions { min_free, ..LogOptions::default() };
    let env: Arc<dyn Env> = Arc::new(scratch.env.clone());
    Log::open_in(options, env, &scratch.dir(), Arc::new(NoObserver), &mut |_| ()).unwrap().0
}

fn refused(log: &Log, n: u64) -> AppendError {
    log.append(&[Row::numbered(n).as_row()]).expect_err("there is too little space")
}

fn large(bytes: usize) -> Row {
    Row { message: Some(vec![b'm'; bytes]), ..Row::standard() }
}

// Breaks: no floor; a sequence spent by a refusal; looking no more after the first refusal.
#[test]
fn below_the_floor_transactions_are_refused_until_there_is_space_again() {
    let scratch = ScratchLog::new();
    scratch.env.set_free_space(Some(64 * MIB - 1));
    let log = open(&scratch, MinFree::Auto);
    for _ in 0..2 {
        let error = refused(&log, 1);
        assert_eq!(error.kind(), ErrorKind::LowSpace, "{error}");
        assert!(matches!(error, AppendError::LowSpace { free, floor, .. }
            if (free, floor) == (64 * MIB - 1, 64 * MIB)));
        let text = error.to_string();
        let dir = scratch.dir().display().to_string();
        for part in [dir.as_str(), "64.0 MiB are free", "--min-free", "free some space"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
    assert_eq!(log.check_space().unwrap_err().kind(), ErrorKind::LowSpace);
    scratch.env.set_free_space(Some(64 * MIB));
    log.check_space().unwrap();
    assert_eq!(push(&log, &Row::numbered(1)), 1);
    assert_eq!(scratch.published(), [1]);
}

// Breaks: a look with every transaction; a look only when the file grows, which it does once in a
// MiB.
#[test]
fn the_space_is_looked_at_every_so_many_bytes() {
    let scratch = ScratchLog::new();
    scratch.env.set_free_space(Some(u64::MAX));
    let log = open(&scratch, MinFree::Auto);
    push(&log, &large(2 << 20));
    let before = scratch.env.looks_at_free_space();
    let per_look = (64 << 10) / 672;
    (0..10 * per_look).for_each(|n| drop(log.append(&[Row::numbered(n).as_row()]).unwrap()));
    let looks = scratch.env.looks_at_free_space() - before;
    assert!((9..=12).contains(&looks), "{looks} looks");
    // So a file system that others fill is noticed within 64 KiB of transactions.
    scratch.env.set_free_space(Some(0));
    let passed = (0..).find(|n| log.append(&[Row::numbered(*n).as_row()]).is_err()).unwrap();
    assert!(passed <= per_look, "{passed} transactions passed");
}

// Breaks: comparing only what is free before; writing a whole step of zeros into the floor.
#[test]
fn a_transaction_does_not_eat_into_the_floor() {
    let scratch = ScratchLog::new();
    let log = open(&scratch, MinFree::Bytes(10 * MIB));
    let len = || std::fs::metadata(scratch.live()).unwrap().len();
    // A file of this size grows by a MiB at once, where there is space.
    push(&log, &large(2 << 20));
    let before = len();
    scratch.env.set_free_space(Some(10 * MIB + 300_000));
    let error = log.append(&[large(400_000 + (1 << 20)).as_row()]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LowSpace, "{error}");
    assert_eq!(len(), before, "a refusal took space");
    while len() == before {
        push(&log, &large(250_000));
    }
    assert!(len() <= before + 300_000, "the file grew by {}", len() - before);
}

#[test]
fn without_a_floor_or_without_figures_nothing_is_refused() {
    let scratch = ScratchLog::new();
    scratch.env.set_free_space(Some(0));
    let log = open(&scratch, MinFree::OFF);
    assert_eq!(push(&log, &Row::numbered(1)), 1);
    drop(log);
    scratch.env.set_free_space(None);
    assert_eq!(push(&open(&scratch, MinFree::Auto), &Row::numbered(2)), 2);
}

#[test]
fn the_operating_system_says_what_is_free() {
    let scratch = tempfile::tempdir().unwrap();
    let free = OsEnv.free_space(scratch.path()).unwrap();
    assert!(free.is_none_or(|bytes| bytes < 1 << 60), "{free:?}");
    assert!(OsEnv.free_space(&scratch.path().join("absent")).is_err());
    assert_eq!(TestEnv::new().free_space(scratch.path()).unwrap(), None);
}
