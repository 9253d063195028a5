//! The locks and atomics on which the log's waiting rests, named once.
//!
//! The models of `tests/tests/models/` put others in their place, which try one interleaving after
//! the other.

use std::sync::atomic::AtomicU32;
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
pub(crate) use std::thread_local;

pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};

/// A word that threads sleep on: the kernel's futex.
#[derive(Debug, Default)]
pub(crate) struct WaitWord(AtomicU32);

impl WaitWord {
    pub(crate) fn value(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// Sleeps as long as the word is as it was seen, and nobody wakes this thread. May return early.
    pub(crate) fn wait(&self, seen: u32) {
        atomic_wait::wait(&self.0, seen);
    }

    /// Wakes one of those who sleep, and all who are about to.
    pub(crate) fn wake_one(&self) {
        self.0.fetch_add(1, Ordering::Release);
        atomic_wait::wake_one(&raw const self.0);
    }

    /// Wakes all.
    pub(crate) fn wake_all(&self) {
        self.0.fetch_add(1, Ordering::Release);
        atomic_wait::wake_all(&raw const self.0);
    }
}
