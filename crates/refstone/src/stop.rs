//! Giving up work that takes long, and telling how far it is.

use std::cell::{Cell, RefCell};

/// Whether work is to be given up. Whoever goes through many rows looks once per batch of them.
#[derive(Clone, Copy)]
pub(crate) struct Stop<'s>(&'s dyn Fn() -> bool);

/// Rows between two looks.
const BATCH_ROWS: u64 = 4096;

/// The work was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("given up, since the store is being closed; nothing is lost by it")]
pub(crate) struct Stopped;

impl<'s> Stop<'s> {
    /// Work that is always done to its end.
    pub(crate) const NEVER: Stop<'static> = Stop(&|| false);

    pub(crate) fn when(asked: &'s dyn Fn() -> bool) -> Stop<'s> {
        Stop(asked)
    }

    pub(crate) fn check(self) -> Result<(), Stopped> {
        if (self.0)() { Err(Stopped) } else { Ok(()) }
    }

    /// Looks before the first row of each batch; rows count from zero.
    pub(crate) fn check_at(self, row: u64) -> Result<(), Stopped> {
        if row.is_multiple_of(BATCH_ROWS) { self.check() } else { Ok(()) }
    }
}

/// Tells how far work is whenever that looks whether it is to be given up.
pub(crate) struct Pace<'p> {
    stop: Stop<'p>,
    looks: Cell<u64>,
    tell: RefCell<&'p mut dyn FnMut(u64)>,
}

impl<'p> Pace<'p> {
    /// `tell` gets how many rows have been gone through, to within a batch of each file.
    pub(crate) fn new(stop: Stop<'p>, tell: &'p mut dyn FnMut(u64)) -> Pace<'p> {
        Pace { stop, looks: Cell::new(0), tell: RefCell::new(tell) }
    }

    /// Whether the work is to be given up: for [`Stop::when`].
    pub(crate) fn look(&self) -> bool {
        let looks = self.looks.get();
        self.looks.set(looks + 1);
        (self.tell.borrow_mut())(looks * BATCH_ROWS);
        (self.stop.0)()
    }
}
