//! Giving up work that takes long.

/// Whether work is to be given up. Whoever goes through many rows looks once per batch of them.
#[derive(Clone, Copy)]
pub(crate) struct Stop<'s>(&'s dyn Fn() -> bool);

/// Rows between two looks.
pub(crate) const BATCH_ROWS: u64 = 4096;

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

    pub(crate) fn is_asked(self) -> bool {
        (self.0)()
    }

    pub(crate) fn check(self) -> Result<(), Stopped> {
        if self.is_asked() { Err(Stopped) } else { Ok(()) }
    }

    /// Looks before the first row of each batch; rows count from zero.
    pub(crate) fn check_at(self, row: u64) -> Result<(), Stopped> {
        if row.is_multiple_of(BATCH_ROWS) { self.check() } else { Ok(()) }
    }
}
