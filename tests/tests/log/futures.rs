//! A commit awaited is the same promise as a commit waited for, and a task never leads.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use refstone_log::{Commit, ErrorKind, Log};
use refstone_tests::env::{Fault, Op};
use refstone_tests::logs::{Row, ScratchLog, push};

#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn stage(log: &Log, n: u64) -> Commit {
    log.append(&[Row::numbered(n).as_row()]).unwrap()
}

fn block_on<F: Future + Unpin>(mut future: F) -> F::Output {
    let counter = Arc::new(Counter::default());
    let waker = Waker::from(counter.clone());
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let seen = counter.0.load(Ordering::SeqCst);
        if let Poll::Ready(output) = pin!(&mut future).poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        while counter.0.load(Ordering::SeqCst) == seen {
            assert!(Instant::now() < deadline, "the task was never woken");
            thread::yield_now();
        }
    }
}

// Breaks: a poll that does not see to a leader, or a round that does not wake tasks (times out).
#[test]
fn an_awaited_commit_is_durable() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    let commit = stage(&log, 1);
    assert_eq!(log.durable_seq().get(), 0);
    assert_eq!(block_on(commit).unwrap().seq().get(), 1);
    assert_eq!(log.durable_seq().get(), 1);
    assert_eq!(scratch.published(), [1]);
}

// Break: a sync for each task.
#[test]
fn a_thousand_outstanding_commits_of_one_thread_cost_few_syncs() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    let hold = log.gate().hold();
    let mut commits: Vec<Commit> = (0..1000).map(|n| stage(&log, n)).collect();
    let counter = Arc::new(Counter::default());
    let waker = Waker::from(counter.clone());
    for commit in &mut commits {
        assert!(pin!(commit).poll(&mut Context::from_waker(&waker)).is_pending());
    }
    let before = log.gate().syncs();
    drop(hold);
    for (n, commit) in commits.into_iter().enumerate() {
        assert_eq!(block_on(commit).unwrap().seq().get(), n as u64 + 1);
    }
    assert_eq!(log.gate().syncs(), before + 1);
}

// Break: leadership that lives in a task: the dropped one would hold up the thread for good.
#[test]
fn a_task_that_is_dropped_after_its_first_poll_holds_up_nobody() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    for n in 0..50 {
        let mut commit = stage(&log, n);
        let waker = Waker::noop();
        let _ = pin!(&mut commit).poll(&mut Context::from_waker(waker));
        drop(commit);
    }
    assert_eq!(push(&log, &Row::numbered(50)), 51);
    assert_eq!(scratch.published().len(), 51);
}

// Break: a failure that wakes threads alone.
#[test]
fn a_task_learns_of_failure_too() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    scratch.env.fail(Op::Write, 0, Fault::Error(std::io::ErrorKind::Other));
    assert_eq!(block_on(stage(&log, 1)).unwrap_err().kind(), ErrorKind::NotCommitted);
    scratch.env.fail(Op::Sync, 0, Fault::Error(std::io::ErrorKind::Other));
    assert_eq!(block_on(stage(&log, 2)).unwrap_err().kind(), ErrorKind::Unknown);
}

// Break: a pool thread that dies with the log whose round panicked.
#[test]
fn a_round_that_panics_in_the_pool_stops_its_own_log_only() {
    for _ in 0..4 {
        let scratch = ScratchLog::new();
        let log = scratch.log();
        scratch.env.fail(Op::Sync, 0, Fault::Panic);
        assert_eq!(block_on(stage(&log, 1)).unwrap_err().kind(), ErrorKind::Unknown);
    }
    let scratch = ScratchLog::new();
    let log = scratch.log();
    assert_eq!(block_on(stage(&log, 1)).unwrap().seq().get(), 1);
}

#[test]
fn tasks_and_threads_wait_side_by_side() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    thread::scope(|scope| {
        for t in 0..4 {
            let log = &log;
            scope.spawn(move || {
                for n in 0..50 {
                    push(log, &Row::numbered(t * 50 + n));
                }
            });
            scope.spawn(move || {
                for n in 0..50 {
                    block_on(stage(log, 200 + t * 50 + n)).unwrap();
                }
            });
        }
    });
    assert_eq!(scratch.published(), (1..=400).collect::<Vec<_>>());
}
