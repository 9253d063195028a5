//! What only happens at a bad moment: panics, closings and reopenings in the middle of things.

use std::error::Error;
use std::future::Future;
use std::io::ErrorKind as Io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use refstone_log::{
    Commit, CommitError, ErrorKind, Leaving, Log, Mode, Observer, OsEnv, Sealer, Seq, verify,
};
use refstone_tests::env::{Fault, Op};
use refstone_tests::logs::{Drops, Row, ScratchLog, push};

const PATIENCE: Duration = Duration::from_secs(20);

/// Runs something that may hang if the promise is broken.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, waiting) = mpsc::channel();
    thread::spawn(move || done.send(work()));
    waiting.recv_timeout(PATIENCE).expect("it does not hang")
}

fn stage(log: &Log, n: u64) -> Commit {
    log.append(&[Row::numbered(n).as_row()]).unwrap()
}

fn panics_while_staging(log: &Log) {
    let staging = AssertUnwindSafe(|| log.append_with(|_| panic!("planned")));
    catch_unwind(staging).expect_err("the panic goes on");
}

/// While it seals, another thread closes the log, and then somebody else wants to open it.
struct Closed<'s> {
    scratch: &'s ScratchLog,
    log: Log,
    closing: Option<thread::JoinHandle<Result<(), CommitError>>>,
    early: Option<Result<(), ErrorKind>>,
}

impl Sealer for Closed<'_> {
    fn seal(&mut self, leaving: &mut Leaving<'_>) -> Result<(), Box<dyn Error + Send + Sync>> {
        let log = self.log.clone();
        self.closing = Some(thread::spawn(move || log.close()));
        while self.log.append_with(|_| ()).is_ok() {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(200));
        self.early = Some(self.scratch.open().map(drop).map_err(|error| error.kind()));
        Drops.seal(leaving)
    }
}

// Break: locking the gate's state before the writer in one place, and after it in another.
#[test]
fn a_panic_while_staging_stops_the_log_also_while_others_wait() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    let commit = stage(&log, 1);
    let (inside, entered) = mpsc::channel();
    let panicking = log.clone();
    let panicker = thread::spawn(move || {
        let _ = panicking.append_with(|_| {
            inside.send(()).unwrap();
            thread::sleep(Duration::from_millis(200));
            panic!("planned");
        });
    });
    entered.recv().unwrap();
    let answer = in_time(move || commit.wait());
    in_time(move || panicker.join().unwrap_err());
    // It was committed before the panic, or the panic left it in doubt.
    assert!(answer.map_or_else(|e| e.kind() == ErrorKind::Unknown, |ack| ack.seq().get() == 1));
    in_time(move || log.append(&[Row::numbered(2).as_row()]).unwrap_err());
}

// Break: giving the lock up while a leader writes. The log is opened again, acknowledges, and the
// old leader then writes over that.
#[test]
fn closing_a_stopped_log_waits_for_the_leader_that_still_writes() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    push(&log, &Row::numbered(1));
    let (at_write, reached) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    scratch.env.call(Op::Write, 0, move || {
        at_write.send(()).unwrap();
        wait.recv().unwrap();
    });
    let commit = stage(&log, 2);
    let leader = thread::spawn(move || commit.wait());
    reached.recv().unwrap();
    panics_while_staging(&log);
    let closing = thread::spawn({
        let log = log.clone();
        move || log.close()
    });
    thread::sleep(Duration::from_millis(200));
    let early = scratch.open().map(drop).expect_err("the leader still writes");
    assert_eq!(early.kind(), ErrorKind::Locked);
    go.send(()).unwrap();
    let _ = in_time(move || leader.join().unwrap());
    let _ = in_time(move || closing.join().unwrap());
    let next = scratch.log();
    assert_eq!(push(&next, &Row::numbered(3)), 3);
}

// Breaks: giving the lock up while a rewrite seals or swaps, in a directory that is another's by then; a
// rewrite that does not ask whether the log is still open, and so swaps the file under the next writer.
#[test]
fn a_log_that_is_closed_while_it_is_rewritten_keeps_its_lock_until_that_is_over() {
    in_time(|| {
        let scratch = ScratchLog::new();
        let log = scratch.log();
        for n in 1..=3 {
            push(&log, &Row::numbered(n));
        }
        let mut sealer = Closed { scratch: &scratch, log: log.clone(), closing: None, early: None };
        let rewritten = log.rewrite(Seq::new(2), &mut sealer);
        let early = sealer.early.unwrap().expect_err("the rewrite still writes");
        assert_eq!(early, ErrorKind::Locked);
        assert!(rewritten.unwrap().is_some());
        sealer.closing.unwrap().join().unwrap().unwrap();
        let next = scratch.log();
        push(&next, &Row::numbered(4));
        assert_eq!(log.rewrite(Seq::new(3), &mut Drops).unwrap_err().kind(), ErrorKind::Closed);
        push(&next, &Row::numbered(5));
        next.close().unwrap();
        assert_eq!(scratch.published(), [3, 4, 5]);
    });
}

// Break: going on behind the rename as if nothing had happened: on a file that has no name.
#[test]
fn a_panic_in_the_middle_of_a_swap_stops_the_log() {
    for op in [Op::Rename, Op::SyncDir] {
        let scratch = ScratchLog::new();
        let log = scratch.log();
        for n in 1..=3 {
            push(&log, &Row::numbered(n));
        }
        scratch.env.fail(op, 0, Fault::Panic);
        let rewrite = AssertUnwindSafe(|| log.rewrite(Seq::new(1), &mut Drops).map(|_| ()));
        catch_unwind(rewrite).expect_err("planned");
        assert_eq!(
            log.append(&[Row::numbered(4).as_row()]).unwrap_err().kind(),
            ErrorKind::Poisoned
        );
        drop(log);
        assert_eq!(push(&scratch.log(), &Row::numbered(4)), 4);
    }
}

#[derive(Debug, Default)]
struct PanicsOn(AtomicU64, u64);

impl Observer for PanicsOn {
    fn durable(&self, _through: Seq) {
        assert!(self.0.fetch_add(1, Ordering::SeqCst) != self.1, "planned");
    }

    fn rolled_back(&self, _to: Seq) {}
}

fn observed(scratch: &ScratchLog, mode: Mode, observer: Arc<dyn Observer>) -> Log {
    let env = Arc::new(scratch.env.clone());
    Log::open_in(mode, env, &scratch.dir(), observer, &mut |_| ()).unwrap().0
}

// Break: a guard around the rounds alone.
#[test]
fn a_panic_of_the_observer_stops_the_log_wherever_it_comes() {
    let scratch = ScratchLog::new();
    let log = observed(&scratch, Mode::Buffered, Arc::new(PanicsOn(AtomicU64::new(0), 1)));
    push(&log, &Row::numbered(1));
    catch_unwind(AssertUnwindSafe(|| log.sync())).expect_err("planned");
    assert_eq!(log.append(&[Row::numbered(2).as_row()]).unwrap_err().kind(), ErrorKind::Poisoned);
}

#[derive(Debug)]
struct Looks(Mutex<Option<Log>>, AtomicU64);

impl Observer for Looks {
    fn durable(&self, _through: Seq) {
        if let Some(log) = &*self.0.lock() {
            self.1.store(log.live_bytes(), Ordering::SeqCst);
        }
    }

    fn rolled_back(&self, _to: Seq) {}
}

// Break: figures behind the leader's own lock.
#[test]
fn an_observer_may_look_at_the_figures_of_its_log() {
    let scratch = ScratchLog::new();
    let looks = Arc::new(Looks(Mutex::new(None), AtomicU64::new(0)));
    let log = observed(&scratch, Mode::Durable, looks.clone());
    *looks.0.lock() = Some(log.clone());
    in_time({
        let log = log.clone();
        move || push(&log, &Row::numbered(1))
    });
    assert_eq!(looks.1.load(Ordering::SeqCst), log.live_bytes());
    looks.0.lock().take();
}

/// A waker that owns a commit, as the waker of a task that holds one does.
struct Owns(#[allow(dead_code, reason = "dropped with the waker")] Mutex<Option<Commit>>);

impl Wake for Owns {
    fn wake(self: Arc<Self>) {}
}

fn poll(commit: &mut Commit, waker: &Waker) {
    assert!(Pin::new(commit).poll(&mut Context::from_waker(waker)).is_pending());
}

// Break: dropping a waker under the gate's lock: it takes that lock itself.
#[test]
fn a_waker_that_owns_another_commit_is_dropped_without_a_lock() {
    for replaced in [false, true] {
        let scratch = ScratchLog::new();
        let log = scratch.log();
        in_time(move || {
            let hold = log.gate().hold();
            let (mut first, mut second) = (stage(&log, 1), stage(&log, 2));
            poll(&mut second, Waker::noop());
            let waker = Waker::from(Arc::new(Owns(Mutex::new(Some(second)))));
            poll(&mut first, &waker);
            drop(waker);
            if replaced {
                poll(&mut first, Waker::noop());
            }
            drop(first);
            drop(hold);
        });
    }
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("planned");
    }
}

struct Tells(Mutex<mpsc::Sender<()>>);

impl Wake for Tells {
    fn wake(self: Arc<Self>) {
        let _ = self.0.lock().send(());
    }
}

fn telling() -> (Waker, mpsc::Receiver<()>) {
    let (sender, receiver) = mpsc::channel();
    (Waker::from(Arc::new(Tells(Mutex::new(sender)))), receiver)
}

// Breaks: losing the wake-ups behind a waker that panics; a thread of the pool that dies of it.
#[test]
fn a_waker_that_panics_costs_nobody_else_a_wake_up() {
    for _ in 0..3 {
        let scratch = ScratchLog::new();
        let log = scratch.log();
        let hold = log.gate().hold();
        let (mut first, mut second) = (stage(&log, 1), stage(&log, 2));
        let (waker, woken) = telling();
        poll(&mut first, &Waker::from(Arc::new(Panics)));
        poll(&mut second, &waker);
        drop(hold);
        woken.recv_timeout(PATIENCE).expect("the second task is woken");
    }
}

#[derive(Debug)]
struct Blocks(Mutex<(mpsc::Sender<()>, mpsc::Receiver<()>)>, AtomicU64);

impl Observer for Blocks {
    fn durable(&self, _through: Seq) {
        match self.1.fetch_add(1, Ordering::SeqCst) {
            0 => {
                let channels = self.0.lock();
                channels.0.send(()).unwrap();
                channels.1.recv().unwrap();
            }
            _ => panic!("planned"),
        }
    }

    fn rolled_back(&self, _to: Seq) {}
}

// Break: dropping the last handle of a log outside the guard of the pool's thread: the panic of
// its closing kills the thread, and with the last of them every future of the process.
#[test]
fn logs_that_panic_while_the_pool_closes_them_cost_no_thread_of_it() {
    for _ in 0..3 {
        let scratch = ScratchLog::new();
        let (inside, entered) = mpsc::channel();
        let (go, wait) = mpsc::channel();
        let observer = Arc::new(Blocks(Mutex::new((inside, wait)), AtomicU64::new(0)));
        let log = observed(&scratch, Mode::Durable, observer);
        let mut commit = stage(&log, 1);
        poll(&mut commit, Waker::noop());
        entered.recv_timeout(PATIENCE).unwrap();
        drop(stage(&log, 2));
        drop(commit);
        drop(log);
        go.send(()).unwrap();
        thread::sleep(Duration::from_millis(100));
    }
    let scratch = ScratchLog::new();
    let log = scratch.log();
    let (waker, woken) = telling();
    let mut commit = stage(&log, 1);
    poll(&mut commit, &waker);
    woken.recv_timeout(PATIENCE).expect("a thread leads for a healthy log");
}

// Break: handing on the error of those who filled the buffer.
#[test]
fn what_was_never_staged_is_not_of_unknown_outcome() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    let large = Row { message: Some(vec![b'x'; 5 << 20]), ..Row::numbered(1) };
    drop(log.append(&[large.as_row()]).unwrap());
    scratch.env.fail(Op::Sync, 0, Fault::Error(Io::Other));
    let error = log.append(&[Row::numbered(2).as_row()]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
}

// Break: judging a slot that was read before its group was published by bytes read after.
#[test]
fn verify_beside_a_writer_does_not_take_fresh_commits_for_damage() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    let fixed = |n: u64| Row { refname: format!("refs/heads/{n:04}").into(), ..Row::numbered(n) };
    // The tail comes to lie just before the end of the first read, so that the next frame needs
    // another one.
    let first_read = 256 << 10;
    let mut n = 0;
    while log.live_bytes() + 8 + 672 < first_read {
        n += 1;
        drop(log.append(&[fixed(n).as_row()]).unwrap());
        log.barrier().unwrap();
    }
    let (writer, last) = (log.clone(), n);
    let reads = scratch.env.clone();
    // The first read is the schema's prefix, the second its message, the third the first frames.
    reads.call(Op::Read, 2, move || {
        for n in last + 1..=last + 4 {
            push(&writer, &fixed(n));
        }
    });
    let report = verify(&scratch.env, &scratch.dir()).unwrap();
    assert!(report.damage.is_none(), "{}", report.damage.unwrap());
    assert_eq!(log.durable_seq().get(), last + 4, "the commits came in the middle of the check");
    assert!(verify(&OsEnv, &scratch.dir()).unwrap().damage.is_none());
}

// Break: asking for a whole step of zeros, and refusing when only that does not fit.
#[test]
fn the_last_bytes_of_a_disk_are_used() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    let large = Row { message: Some(vec![b'x'; 40 << 10]), ..Row::numbered(1) };
    scratch.env.fail(Op::Write, 0, Fault::Error(Io::StorageFull));
    assert_eq!(log.append(&[large.as_row()]).unwrap().wait().unwrap().seq().get(), 1);
    // One failure is the step, two are the disk.
    scratch.env.fail(Op::Write, 0, Fault::Error(Io::StorageFull));
    scratch.env.fail(Op::Write, 0, Fault::Error(Io::StorageFull));
    let error = log.append(&[large.as_row()]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
}

/// Asks a log, from code that it runs, for what that code must not ask.
#[derive(Debug, Default)]
struct AsksBack {
    log: Mutex<Option<Log>>,
    answers: Mutex<Vec<(&'static str, ErrorKind)>>,
}

impl AsksBack {
    fn ask_to_wait(&self, log: &Log) {
        let kind = |told: Result<Seq, CommitError>| told.unwrap_err().kind();
        let mut answers = self.answers.lock();
        answers.push(("barrier", kind(log.barrier())));
        answers.push(("sync", kind(log.sync())));
        answers.push(("close", kind(log.close().map(|()| Seq::ZERO))));
        answers.push(("rewrite", log.rewrite(Seq::MAX, &mut Drops).unwrap_err().kind()));
    }

    fn ask_for_the_writer(&self, log: &Log) {
        self.ask_to_wait(log);
        let mut answers = self.answers.lock();
        let row = Row::standard();
        answers.push(("append", log.append(&[row.as_row()]).unwrap_err().kind()));
        answers.push(("append_with", log.append_with(|_| ()).unwrap_err().kind()));
        answers.push(("check_space", log.check_space().unwrap_err().kind()));
    }

    fn all_were_refused(&self) -> usize {
        let answers = std::mem::take(&mut *self.answers.lock());
        let refused = |(_, kind): &(_, _)| *kind == ErrorKind::Reentered;
        assert!(answers.iter().all(refused), "{answers:?}");
        answers.len()
    }
}

impl Observer for AsksBack {
    fn durable(&self, _: Seq) {
        let log = self.log.lock().take();
        if let Some(log) = log {
            let commit = stage(&log, 7);
            self.ask_to_wait(&log);
            self.answers.lock().push(("wait", commit.wait().unwrap_err().kind()));
        }
    }

    fn rolled_back(&self, _: Seq) {
        let log = self.log.lock().take();
        log.iter().for_each(|log| self.ask_for_the_writer(log));
    }
}

impl Sealer for AsksBack {
    fn seal(&mut self, leaving: &mut Leaving<'_>) -> Result<(), Box<dyn Error + Send + Sync>> {
        let log = self.log.lock().take();
        if let Some(log) = log {
            push(&log, &Row::numbered(8));
            let rewrite = log.rewrite(Seq::MAX, &mut Drops).unwrap_err().kind();
            let close = log.close().unwrap_err().kind();
            self.answers.lock().extend([("rewrite", rewrite), ("close", close)]);
        }
        Drops.seal(leaving)
    }
}

// Breaks: locking without asking who runs (it waits for itself for ever); refusing other logs, or what is
// asked afterwards.
#[test]
fn code_that_a_log_runs_under_its_lock_is_refused_what_would_wait_for_itself() {
    in_time(|| {
        let (scratch, beside) = (ScratchLog::new(), ScratchLog::new());
        let (log, other) = (scratch.log(), beside.log());
        let asks = AsksBack::default();
        let staged = log.append_with(|inside| {
            asks.ask_for_the_writer(&log);
            push(&other, &Row::standard());
            let commit = inside.append(&[Row::numbered(1).as_row()]).unwrap();
            asks.answers.lock().push(("wait", commit.wait().unwrap_err().kind()));
        });
        staged.unwrap();
        assert_eq!(asks.all_were_refused(), 8);
        assert_eq!(push(&log, &Row::numbered(2)), 2, "it goes on");

        let mut sealer = AsksBack { log: Mutex::new(Some(log.clone())), ..AsksBack::default() };
        log.rewrite(Seq::MAX, &mut sealer).unwrap();
        assert_eq!(sealer.all_were_refused(), 2);
        log.close().unwrap();
    });
}

// Breaks: as above.
#[test]
fn an_observer_is_refused_to_wait_for_its_own_leader() {
    in_time(|| {
        let scratch = ScratchLog::new();
        let observer = Arc::new(AsksBack::default());
        let env = Arc::new(scratch.env.clone());
        let (log, _) = Log::open(env, &scratch.dir(), observer.clone(), &mut |_| ()).unwrap();
        *observer.log.lock() = Some(log.clone());
        assert_eq!(push(&log, &Row::numbered(1)), 1);
        assert_eq!(observer.all_were_refused(), 5);
        assert_eq!(log.barrier().unwrap().get(), 2, "what it staged stays staged");

        *observer.log.lock() = Some(log.clone());
        scratch.env.fail(Op::Write, 0, Fault::Error(Io::Other));
        assert_eq!(stage(&log, 3).wait().unwrap_err().kind(), ErrorKind::NotCommitted);
        assert_eq!(observer.all_were_refused(), 7);
        log.close().unwrap();
    });
}
