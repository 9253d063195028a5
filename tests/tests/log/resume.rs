//! A log whose live file is lost, or an older copy, goes on behind what was sealed.

use std::fs;
use std::io::ErrorKind as Io;
use std::path::PathBuf;

use refstone_log::{
    Anchor, ErrorKind, ObjectFormat, OpenError, OsEnv, Sealed, Seq, Timestamp, resume, verify,
};
use refstone_tests::env::{Fault, Op};
use refstone_tests::logs::{Row, ScratchLog, push};

/// A log that was sealed up to transaction 40, so many microseconds ago.
fn sealed(us: i64) -> Sealed {
    let at = Timestamp::from_micros(1_700_000_000_000_000);
    Sealed {
        log_id: [7; 16],
        object_format: ObjectFormat::Sha1,
        head: b"refs/heads/main".to_vec(),
        anchor: Anchor { seq: Seq::new(40), crc: 0x1234_5678, at },
        gaps: vec![(Seq::new(3), Seq::new(5))],
        now: Timestamp::from_micros(at.as_micros() + us),
    }
}

fn run(scratch: &ScratchLog) -> Result<Option<PathBuf>, OpenError> {
    resume(&scratch.env, &scratch.dir(), || Ok::<_, OpenError>(sealed(10)))
}

/// A closed log, which stands for the older copy.
fn scratch() -> (ScratchLog, Vec<u8>) {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    push(&log, &Row::numbered(1));
    log.close().unwrap();
    let bytes = scratch.bytes();
    (scratch, bytes)
}

// Breaks: a gap that does not grow with the time; gaps of before that are forgotten.
#[test]
fn sequences_that_may_have_been_given_out_are_not_given_out_again() {
    let given_up = |us| sealed(us).given_up();
    assert_eq!(given_up(0), (Seq::new(41), Seq::new(40 + (1 << 32))));
    assert_eq!(given_up(5_000_000).1, Seq::new(40 + (1 << 32) + 5_000_000));
    assert_eq!(given_up(-5_000_000), given_up(0), "a clock that was set back");
    assert!(given_up(i64::MAX - sealed(0).anchor.at.as_micros()).1 < Seq::MAX);

    let (scratch, _) = scratch();
    run(&scratch).unwrap();
    let report = verify(&OsEnv, &scratch.dir()).unwrap();
    assert!(report.damage.is_none(), "{report:?}");
    assert_eq!(report.gaps, [(Seq::new(3), Seq::new(5)), given_up(10)]);
    let log = scratch.log();
    assert_eq!(push(&log, &Row::numbered(9)), given_up(10).1.next().get());
    log.close().unwrap();
    assert_eq!(verify(&OsEnv, &scratch.dir()).unwrap().transactions, 1);
}

// Breaks: leaving a half-made file in the way; taking the live name before the content, or the second
// name of what was there, is durable.
#[test]
fn one_that_fails_at_any_step_leaves_what_was_there_and_can_be_run_again() {
    let steps = [
        (Op::Create, 1),
        (Op::Write, 3),
        (Op::Sync, 1),
        (Op::Link, 1),
        (Op::SyncDir, 1),
        (Op::Rename, 1),
    ];
    let (scratch, copy) = scratch();
    for (op, count) in steps {
        for nth in 0..count {
            scratch.set_bytes(&copy);
            scratch.env.fail(op, nth, Fault::Error(Io::Other));
            let error = run(&scratch).expect_err("a step failed");
            assert_eq!(error.kind(), ErrorKind::Io, "{op:?} {nth}: {error}");
            assert!(scratch.bytes() == copy, "{op:?} {nth}");
            assert!(!scratch.dir().join("refs.arrow.tmp").exists(), "{op:?} {nth}");
            scratch.env.heal();
            let kept = run(&scratch).unwrap().expect("there was a copy");
            assert!(kept.ends_with("refs.arrow.damaged-1"), "{op:?} {nth}: it is kept once");
            assert!(fs::read(&kept).unwrap() == copy);
            fs::remove_file(kept).unwrap();
        }
    }
    scratch.set_bytes(&copy);
    scratch.env.start_trace();
    run(&scratch).unwrap();
    let trace: Vec<Op> = scratch.env.trace().into_iter().filter(|op| *op != Op::Write).collect();
    assert_eq!(trace[..6], [Op::Create, Op::Sync, Op::Link, Op::SyncDir, Op::Rename, Op::SyncDir]);
}

// Breaks: judging before the lock is there, when a writer may still move what is judged.
#[test]
fn it_is_judged_under_the_lock() {
    let (scratch, copy) = scratch();
    let locked = || scratch.open().map(drop).unwrap_err().kind();
    let judge = || {
        assert_eq!(locked(), ErrorKind::Locked);
        Err(OpenError::Invalid("no".to_owned()))
    };
    let refused = resume::<OpenError>(&scratch.env, &scratch.dir(), judge);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
    assert!(scratch.bytes() == copy);
}
