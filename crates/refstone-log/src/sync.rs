//! The locks and atomics on which the log's waiting rests, named once.
//!
//! The models of `tests/tests/models/` put others in their place, which try one interleaving after
//! the other.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
pub(crate) use std::thread_local;

pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
