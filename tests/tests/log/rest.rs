//! A log that nobody writes holds the descriptor of its lock alone, and loses nothing by that.

use std::error::Error;
use std::fs;
use std::io::ErrorKind as Io;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use refstone_log::{
    AppendError, CommitError, ErrorKind, Leaving, Log, LogReader, NoObserver, ObjectFormat, OsEnv,
    RefLogOptions, Sealer, Seq,
};
use refstone_tests::env::{Fault, Op};
use refstone_tests::logs::{Row, ScratchLog, published, push};

const PATIENCE: Duration = Duration::from_secs(30);

/// The names of the files below a directory that this process has open.
fn held(dir: &Path) -> Vec<String> {
    let links = fs::read_dir("/proc/self/fd").unwrap();
    let files = links.filter_map(|link| fs::read_link(link.unwrap().path()).ok());
    let inside = files.filter(|file| file.starts_with(dir));
    let mut names: Vec<String> =
        inside.map(|file| file.file_name().unwrap().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

const LOCK_ALONE: [&str; 1] = ["LOCK"];
const AWAKE: [&str; 3] = ["LOCK", "refs.arrow", "refs.arrow"];

fn append(log: &Log, n: u64) -> Result<u64, AppendError> {
    let commit = log.append(&[Row::numbered(n).as_row()])?;
    Ok(commit.wait()?.seq().get())
}

/// A log with transaction 1, at rest.
fn at_rest() -> (ScratchLog, Log) {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    push(&log, &Row::numbered(1));
    assert!(log.rest().unwrap());
    (scratch, log)
}

/// Opens the log as a program does.
fn open(scratch: &ScratchLog) -> Log {
    Log::open(Arc::new(OsEnv), &scratch.dir(), Arc::new(NoObserver), &mut |_| ()).unwrap().0
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

// Breaks: a file that stays open behind an opening; a duplicate that the gate keeps.
#[test]
fn a_log_that_was_opened_or_put_to_rest_holds_its_lock_alone() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    assert_eq!(held(&scratch.dir()), LOCK_ALONE);
    for n in 1..=3 {
        assert_eq!(push(&log, &Row::numbered(n)), n);
        assert_eq!(held(&scratch.dir()), AWAKE);
        assert!(log.rest().unwrap());
        assert_eq!(held(&scratch.dir()), LOCK_ALONE);
    }
    assert_eq!(scratch.published(), [1, 2, 3]);
    log.close().unwrap();
    let (_log, recovery) = scratch.open().unwrap();
    assert_eq!((recovery.transactions, recovery.proved, recovery.torn), (3, 0, None));
}

// Break: going to rest without a sync. The length word of the last group is in the cache alone, and
// nobody is told if it gets lost there.
#[test]
fn going_to_rest_syncs_what_was_stored_since_the_last_sync() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    push(&log, &Row::numbered(1));
    scratch.env.start_trace();
    assert!(log.rest().unwrap());
    assert_eq!(scratch.env.trace(), [Op::Sync]);
    assert!(log.rest().unwrap());
    log.close().unwrap();
    assert_eq!(scratch.env.trace(), [Op::Sync], "nothing was stored since");
}

// Break: passing over the failure, or letting go of the file and trying again after the next wake.
#[test]
fn a_failed_sync_on_going_to_rest_stops_the_log() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    push(&log, &Row::numbered(1));
    scratch.env.fail(Op::Sync, 0, Fault::Error(Io::Other));
    let error = log.rest().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
    assert_eq!(append(&log, 2).unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(log.durable_seq().get(), 1, "what was acknowledged stays so");
    assert!(scratch.dir().join("refs.arrow.doubted").exists(), "the file is not trusted again");
    drop(log);
    assert_eq!(push(&scratch.log(), &Row::numbered(2)), 2);
    assert_eq!(scratch.published(), [1, 2]);
}

// Break: a panic in the sync that leaves the log going on.
#[test]
fn a_panic_on_going_to_rest_stops_the_log() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    push(&log, &Row::numbered(1));
    scratch.env.fail(Op::Sync, 0, Fault::Panic);
    let rest = std::panic::AssertUnwindSafe(|| log.rest());
    std::panic::catch_unwind(rest).expect_err("planned");
    assert_eq!(append(&log, 2).unwrap_err().kind(), ErrorKind::Poisoned);
}

/// Something that somebody does to the live file.
type Harm = fn(&Path);

// Breaks: waking without a look at the file, at its number, its length, or its end. Transactions
// would go where nobody reads them, or follow on what this log has never seen.
#[test]
fn a_log_wakes_only_with_the_file_that_it_left() {
    let harms: [(&str, Harm); 5] = [
        ("removed", |live| fs::remove_file(live).unwrap()),
        ("replaced", |live| {
            let bytes = fs::read(live).unwrap();
            fs::rename(live, live.with_extension("old")).unwrap();
            fs::write(live, bytes).unwrap();
        }),
        ("longer", |live| {
            let bytes = [fs::read(live).unwrap(), vec![0]].concat();
            fs::write(live, bytes).unwrap();
        }),
        ("an older state", |live| {
            let mut bytes = fs::read(live).unwrap();
            let end = bytes.iter().rposition(|&byte| byte != 0).unwrap();
            bytes[end - 7..].fill(0);
            fs::write(live, bytes).unwrap();
        }),
        ("another last transaction", |live| {
            let mut bytes = fs::read(live).unwrap();
            let end = bytes.iter().rposition(|&byte| byte != 0).unwrap();
            bytes[end - 5] ^= 1;
            fs::write(live, bytes).unwrap();
        }),
    ];
    for (what, harm) in harms {
        let (scratch, log) = at_rest();
        harm(&scratch.live());
        let before = fs::read(scratch.live()).ok();
        let error = append(&log, 2).expect_err(what);
        assert_eq!(error.kind(), ErrorKind::Poisoned, "{what}: {error}");
        let text = error.to_string();
        assert!(text.contains("refs.arrow: the file was re"), "{what}: {text}");
        assert!(text.contains("while the log was at rest"), "{what}: {text}");
        assert_eq!(fs::read(scratch.live()).ok(), before, "{what}: nothing was written");
        assert_eq!(append(&log, 2).unwrap_err().kind(), ErrorKind::Poisoned, "{what}");
        assert_eq!(log.durable_seq().get(), 1, "{what}");
        assert_eq!(held(&scratch.dir()), LOCK_ALONE, "{what}");
    }
}

// Break: stopping the log where the process has merely no descriptor left for the moment.
#[test]
fn a_log_that_cannot_wake_just_now_refuses_and_tries_again() {
    let (scratch, log) = at_rest();
    scratch.env.fail(Op::OpenWrite, 0, Fault::Error(Io::Other));
    let error = append(&log, 2).unwrap_err();
    assert!(matches!(error, AppendError::Wake(_)), "{error}");
    assert_eq!(error.kind(), ErrorKind::Io);
    assert_eq!(append(&log, 2).unwrap(), 2, "no sequence was spent");
    assert_eq!(scratch.published(), [1, 2]);
}

/// Tries to put the log to rest in the middle of its rewrite.
struct Rests(Log);

impl Sealer for Rests {
    fn seal(&mut self, leaving: &mut Leaving<'_>) -> Result<(), Box<dyn Error + Send + Sync>> {
        assert!(!self.0.rest()?, "it is being rewritten");
        while leaving.next()?.is_some() {}
        Ok(())
    }
}

// Breaks: letting go while something is staged, written and not synced, or being rewritten.
#[test]
fn a_log_that_is_written_or_rewritten_does_not_rest() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    let commit = log.append(&[Row::numbered(1).as_row()]).unwrap();
    assert!(!log.rest().unwrap(), "something is staged");
    commit.wait().unwrap();
    log.rewrite(Seq::MAX, &mut Rests(log.clone())).unwrap();
    assert!(log.rest().unwrap());
    log.close().unwrap();
    assert_eq!(log.rest().unwrap_err().kind(), ErrorKind::Closed);

    let log = scratch.buffered();
    push(&log, &Row::numbered(2));
    assert!(!log.rest().unwrap(), "something is not synced");
    log.sync().unwrap();
    assert!(log.rest().unwrap());
    assert_eq!(scratch.published(), [2]);
}

// Break: letting go of zeros that were written ahead after the sync had begun.
#[test]
fn what_is_staged_during_the_sync_keeps_the_log_awake() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    push(&log, &Row::numbered(1));
    let (staging, (tell, told)) = (log.clone(), std::sync::mpsc::channel());
    scratch.env.call(Op::Sync, 0, move || {
        // More than what was reserved; dropped, so that nobody leads.
        let row = Row { message: Some(vec![b'm'; 100_000]), ..Row::numbered(2) };
        drop(staging.append(&[row.as_row()]).unwrap());
        tell.send(()).unwrap();
    });
    assert!(!log.rest().unwrap());
    told.recv().unwrap();
    assert_eq!(held(&scratch.dir()), AWAKE);
    assert_eq!(push(&log, &Row::numbered(3)), 3);
    assert!(log.rest().unwrap());
    assert_eq!(scratch.published(), [1, 2, 3]);
}

// Break: waking for what writes nothing.
#[test]
fn verdicts_barriers_and_readers_leave_a_log_at_rest() {
    let (scratch, log) = at_rest();
    let mut reader = LogReader::open(&OsEnv, &scratch.dir()).unwrap();
    assert_eq!(reader.next().unwrap().unwrap().seq().get(), 1);
    assert!(reader.next().unwrap().is_none());
    drop(reader);
    let verdict = log.append_with(|stage| stage.covering(Seq::new(1))).unwrap();
    assert_eq!(verdict.wait().unwrap().seq().get(), 1);
    assert_eq!(log.barrier().unwrap().get(), 1);
    assert_eq!(log.sync().unwrap().get(), 1);
    log.check_space().unwrap();
    assert_eq!(held(&scratch.dir()), LOCK_ALONE);
}

#[test]
fn a_reader_follows_a_log_over_its_rest() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    let mut reader = LogReader::open(&OsEnv, &scratch.dir()).unwrap();
    for n in 1..=3 {
        push(&log, &Row::numbered(n));
        assert!(log.rest().unwrap());
        assert_eq!(reader.next().unwrap().unwrap().seq().get(), n);
        assert!(reader.next().unwrap().is_none());
    }
}

// Break: a rewrite of a log at rest that leaves leader, writer or gate without the new file.
#[test]
fn a_log_at_rest_is_rewritten_and_goes_on_in_the_new_file() {
    let (scratch, log) = at_rest();
    let mut sealer = Rests(log.clone());
    assert_eq!(log.rewrite(Seq::MAX, &mut sealer).unwrap().unwrap().sealed_seq.get(), 1);
    assert_eq!(push(&log, &Row::numbered(2)), 2);
    assert_eq!(scratch.published(), [2]);
    assert!(log.rest().unwrap());
    assert_eq!(push(&log, &Row::numbered(3)), 3);
    assert_eq!(scratch.published(), [2, 3]);
}

// Break: a failed write of the first group after a wake that finds no file to undo it in.
#[test]
fn a_failed_write_after_a_wake_is_undone() {
    let (scratch, log) = at_rest();
    scratch.env.fail(Op::Write, 0, Fault::HalfThenNoSpace);
    let error = append(&log, 2).unwrap_err();
    assert!(matches!(error, AppendError::Commit(CommitError::NotCommitted { .. })), "{error}");
    assert_eq!(append(&log, 3).unwrap(), 2);
    assert!(log.rest().unwrap());
    assert_eq!(scratch.published(), [1, 2]);
}

// Breaks: nobody who looks after idle logs; one who does, and never ends, or keeps a log open that
// its owner has dropped.
#[test]
fn an_idle_log_goes_to_rest_by_itself_and_the_thread_that_saw_to_it_ends() {
    let scratch = ScratchLog::new();
    let log = open(&scratch);
    push(&log, &Row::numbered(1));
    wait_until("it goes to rest", || held(&scratch.dir()) == LOCK_ALONE);
    assert_eq!(scratch.published(), [1]);
    push(&log, &Row::numbered(2));
    drop(log);
    assert_eq!(push(&open(&scratch), &Row::numbered(3)), 3, "a dropped log is closed");
    wait_until("the thread ends", || !is_watched());
}

fn is_watched() -> bool {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.into_iter().any(|name| name.trim() == "refstone-rest")
}

// Break: as many awake logs as are written. (They are in memory, so that none is idle for long.)
#[test]
fn of_many_logs_that_are_written_only_some_are_awake() {
    let root = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let options =
        RefLogOptions { object_format: ObjectFormat::Sha1, head: b"refs/heads/main".into() };
    let dirs: Vec<_> = (0..280).map(|n| root.path().join(n.to_string())).collect();
    let open = |dir| {
        Log::create(&OsEnv, dir, &options).unwrap();
        Log::open(Arc::new(OsEnv), dir, Arc::new(NoObserver), &mut |_| ()).unwrap().0
    };
    let logs: Vec<Log> = dirs.iter().map(|dir| open(dir)).collect();
    logs.iter().for_each(|log| assert_eq!(push(log, &Row::numbered(1)), 1));
    let descriptors = held(root.path()).len();
    assert!(descriptors <= 280 + 2 * 256, "{descriptors} descriptors");
    logs.iter().for_each(|log| assert_eq!(push(log, &Row::numbered(2)), 2));
    assert!(dirs.iter().all(|dir| published(&OsEnv, dir) == [1, 2]));
}
