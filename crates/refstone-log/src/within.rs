//! Code of others that a log runs while it holds something, and what that code must not ask of the
//! same log: it would wait for itself.

use std::cell::RefCell;

use crate::error::CommitError;
use crate::log::Inner;
use crate::sync::thread_local;

/// What is held while code of others runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// The writer mutex: nothing can be staged, and no leader can take what is.
    Writer,
    /// A leader's turn: no other round begins.
    Turn,
    /// The turn to rewrite.
    Rewrite,
}

thread_local! {
    /// By the log, as the address of what its handles share.
    static HERE: RefCell<Vec<(usize, Held)>> = const { RefCell::new(Vec::new()) };
}

/// Code of others runs in this thread until this is dropped.
#[derive(Debug)]
#[must_use = "it is over when this is dropped"]
pub(crate) struct Within(());

impl Within {
    pub(crate) fn enter(log: &Inner, held: Held) -> Within {
        // A thread that ends, and has forgotten its own values, is told of nothing.
        let _ = HERE.try_with(|here| here.borrow_mut().push((address(log), held)));
        Within(())
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        let _ = HERE.try_with(|here| here.borrow_mut().pop());
    }
}

/// Refuses an operation that would wait for one of these in a thread that holds it.
pub(crate) fn refuse(
    log: &Inner,
    waits_for: &[Held],
    operation: &'static str,
) -> Result<(), CommitError> {
    let waits = |(by, held): &(usize, Held)| *by == address(log) && waits_for.contains(held);
    let within = HERE.try_with(|here| here.borrow().iter().any(waits)).unwrap_or(false);
    if within { Err(CommitError::Reentered { operation }) } else { Ok(()) }
}

fn address(log: &Inner) -> usize {
    std::ptr::from_ref(log).addr()
}
