//! One thread's sleep: woken by name, not in a crowd.
//!
//! Not `std::thread::park`: its token belongs to the thread as a whole, and taking one that an
//! outer executor was sent would lose that executor a wake-up.

use std::sync::Arc;
use std::time::Instant;

use crate::sync::{Condvar, Mutex, thread_local};

#[derive(Debug, Default)]
pub(crate) struct Parker {
    woken: Mutex<bool>,
    changed: Condvar,
}

thread_local! {
    static PARKER: Arc<Parker> = Arc::default();
}

impl Parker {
    /// The calling thread's own; every thread waits for one thing at a time.
    pub(crate) fn of_this_thread() -> Arc<Parker> {
        PARKER.with(Arc::clone)
    }

    /// Sleeps until [`wake`](Parker::wake), and takes it.
    pub(crate) fn park(&self) {
        let mut woken = self.woken.lock();
        while !std::mem::take(&mut *woken) {
            self.changed.wait(&mut woken);
        }
    }

    /// As [`park`](Parker::park), but not past the deadline; says whether it was woken.
    pub(crate) fn park_until(&self, deadline: Instant) -> bool {
        let mut woken = self.woken.lock();
        while !*woken {
            if self.changed.wait_until(&mut woken, deadline).timed_out() {
                break;
            }
        }
        std::mem::take(&mut *woken)
    }

    pub(crate) fn wake(&self) {
        *self.woken.lock() = true;
        self.changed.notify_one();
    }
}
