//! Threads that lead for futures.
//!
//! A leader blocks in a write and a sync, which a task must not do. So whoever polls a commit has
//! one of a few threads, shared by all logs of the process, lead in its place.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::thread;

use parking_lot::{Condvar, Mutex};

use crate::log::Inner;

/// A thread is blocked for one sync of one log at a time; two logs may sync at once.
const THREADS: usize = 2;

#[derive(Debug, Default)]
struct Pool {
    logs: Mutex<VecDeque<Arc<Inner>>>,
    added: Condvar,
}

/// Has a thread lead for the tasks of this log until none waits.
pub(crate) fn lead(log: Arc<Inner>) {
    let pool = pool();
    pool.logs.lock().push_back(log);
    pool.added.notify_one();
}

fn pool() -> &'static Pool {
    static POOL: OnceLock<Pool> = OnceLock::new();
    let mut fresh = false;
    let pool = POOL.get_or_init(|| {
        fresh = true;
        Pool::default()
    });
    if fresh {
        for number in 0..THREADS {
            let name = format!("refstone-lead-{number}");
            thread::Builder::new()
                .name(name)
                .spawn(|| run(pool))
                .expect("the operating system gives a process a few threads");
        }
    }
    pool
}

fn run(pool: &Pool) {
    loop {
        let log = pool.next();
        // A round that panics stops its own log, and not the other logs of the process.
        let led = std::panic::AssertUnwindSafe(|| log.gate.lead_for_tasks(&*log));
        if std::panic::catch_unwind(led).is_err() {
            log.gate.leave_tasks();
        }
    }
}

impl Pool {
    fn next(&self) -> Arc<Inner> {
        let mut logs = self.logs.lock();
        loop {
            match logs.pop_front() {
                Some(log) => return log,
                None => self.added.wait(&mut logs),
            }
        }
    }
}
