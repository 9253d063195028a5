//! The locks of [shuttle](https://docs.rs/shuttle), which switches threads at each of them, in
//! the shape of the ordinary ones.

#[cfg(not(debug_assertions))]
compile_error!(
    "the feature `shuttle` is for models alone: it is not built without debug assertions"
);

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};
use std::time::Instant;

use shuttle::rand::{Rng, thread_rng};
use shuttle::sync as model;

pub(crate) use shuttle::sync::atomic::{AtomicU64, Ordering};
pub(crate) use shuttle::thread_local;

/// As parking_lot's: a panic does not poison it.
#[derive(Default)]
pub(crate) struct Mutex<T>(model::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Mutex<T> {
        Mutex(model::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { held: Some(self.held()), mutex: self }
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let held = match self.0.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(MutexGuard { held: Some(held), mutex: self })
    }

    fn held(&self) -> model::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex")
    }
}

pub(crate) struct MutexGuard<'a, T> {
    /// `None` only while the thread waits on a condition.
    held: Option<model::MutexGuard<'a, T>>,
    mutex: &'a Mutex<T>,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_deref().expect("a guard that is not waiting")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_deref_mut().expect("a guard that is not waiting")
    }
}

#[derive(Debug, Default)]
pub(crate) struct Condvar(model::Condvar);

/// Whether the time was up.
pub(crate) struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    pub(crate) fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    pub(crate) const fn new() -> Condvar {
        Condvar(model::Condvar::new())
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.held.take().expect("a guard that is not waiting");
        guard.held = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
    }

    /// Shuttle has no clock. Here the time is up whenever the scheduler pleases, woken or not.
    pub(crate) fn wait_until<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        _deadline: Instant,
    ) -> WaitTimeoutResult {
        drop(guard.held.take());
        shuttle::thread::yield_now();
        guard.held = Some(guard.mutex.held());
        WaitTimeoutResult(thread_rng().r#gen())
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// As the kernel's futex: who is woken need not find the word changed, and who finds it changed
/// does not sleep.
#[derive(Debug, Default)]
pub(crate) struct WaitWord {
    value: Mutex<u32>,
    woken: Condvar,
}

impl WaitWord {
    pub(crate) fn value(&self) -> u32 {
        *self.value.lock()
    }

    pub(crate) fn wait(&self, seen: u32) {
        let mut value = self.value.lock();
        if *value == seen {
            self.woken.wait(&mut value);
        }
    }

    pub(crate) fn wake_one(&self) {
        *self.value.lock() += 1;
        self.woken.notify_one();
    }

    pub(crate) fn wake_all(&self) {
        *self.value.lock() += 1;
        self.woken.notify_all();
    }
}
