//! Threads that lead for futures.
//!
//! A leader blocks in a write and a sync, which a task must not do. So whoever polls a commit has
//! one of a few threads, shared by all logs of the process, lead in its place.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::thread;

use crate::log::Owned;
use crate::sync::{Condvar, Mutex};

/// A thread is blocked for one sync of one log at a time; two logs may sync at once.
const THREADS: usize = 2;

#[derive(Debug, Default)]
struct Pool {
    state: Mutex<State>,
    added: Condvar,
}

#[derive(Debug, Default)]
struct State {
    logs: VecDeque<Arc<Owned>>,
    threads: usize,
}

/// Has a thread lead for the tasks of this log until none waits.
///
/// If the process gets no thread, the caller leads itself: late is better than never.
pub(crate) fn lead(log: Arc<Owned>) {
    static POOL: OnceLock<Pool> = OnceLock::new();
    let pool = POOL.get_or_init(Pool::default);
    let mut state = pool.state.lock();
    while state.threads < THREADS && spawn(pool, state.threads) {
        state.threads += 1;
    }
    if state.threads == 0 {
        drop(state);
        return lead_for(log);
    }
    state.logs.push_back(log);
    drop(state);
    pool.added.notify_one();
}

fn spawn(pool: &'static Pool, number: usize) -> bool {
    let name = format!("refstone-lead-{number}");
    let spawned = thread::Builder::new().name(name).spawn(|| {
        loop {
            lead_for(pool.next());
        }
    });
    spawned.is_ok()
}

/// A round that panics stops its own log, and neither this thread nor the other logs of the
/// process; the same goes for the log's end, if this is its last owner.
fn lead_for(log: Arc<Owned>) {
    let _ = catch_unwind(AssertUnwindSafe(move || {
        if catch_unwind(AssertUnwindSafe(|| log.gate.lead_for_tasks(&**log))).is_err() {
            log.gate.leave_tasks();
        }
        drop(log);
    }));
}

impl Pool {
    fn next(&self) -> Arc<Owned> {
        let mut state = self.state.lock();
        loop {
            match state.logs.pop_front() {
                Some(log) => return log,
                None => self.added.wait(&mut state),
            }
        }
    }
}
