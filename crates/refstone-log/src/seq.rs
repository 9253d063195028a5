//! The numbers a log counts in: commit sequences and points in time.

use std::fmt;

/// The commit sequence of a transaction.
///
/// Sequences start at 1 and rise by one with every transaction, across restarts, failures and
/// rewrites. [`Seq::ZERO`] stands for "before the first transaction".
///
/// ```
/// use refstone_log::Seq;
/// assert_eq!(Seq::ZERO.next(), Seq::new(1));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(u64);

impl Seq {
    /// Before the first transaction.
    pub const ZERO: Seq = Seq(0);

    /// The largest sequence that format 1 can name: a trailer keeps 56 bits of it.
    pub const MAX: Seq = Seq((1 << 56) - 1);

    /// The sequence with this number.
    #[must_use]
    pub const fn new(number: u64) -> Seq {
        Seq(number)
    }

    /// The number itself.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The sequence of the transaction after this one.
    #[must_use]
    pub const fn next(self) -> Seq {
        Seq(self.0 + 1)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A point in time: microseconds since the Unix epoch, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The point that many microseconds after (before, if negative) the Unix epoch.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Timestamp {
        Timestamp(micros)
    }

    /// Microseconds since the Unix epoch.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }
}
