//! How long staging waits for the writer mutex.

use std::time::Instant;

use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};

/// Counts only who has to wait: who finds the mutex free reads no clock.
#[derive(Debug)]
pub(crate) struct Waits {
    count: AtomicU64,
    nanos: AtomicU64,
}

impl Waits {
    pub(crate) fn new() -> Waits {
        Waits { count: AtomicU64::new(0), nanos: AtomicU64::new(0) }
    }

    pub(crate) fn lock<'m, T>(&self, mutex: &'m Mutex<T>) -> MutexGuard<'m, T> {
        if let Some(guard) = mutex.try_lock() {
            return guard;
        }
        let start = Instant::now();
        let guard = mutex.lock();
        let nanos = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        guard
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub(crate) fn nanos(&self) -> u64 {
        self.nanos.load(Ordering::Relaxed)
    }
}
