//! How far work is that takes long.

use std::cell::{Cell, RefCell};

use crate::stop::{BATCH_ROWS, Stop};

/// How far something has come that goes through many transactions or rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// Transactions leave the live log.
    Sealing {
        /// How many have been sealed.
        done: u64,
        /// How many will be.
        of: u64,
    },
    /// History files are merged.
    Merging {
        /// How many files.
        files: usize,
        /// How many rows have been gone through, in files of history and in tables.
        done: u64,
        /// How many there are in both.
        of: u64,
    },
    /// Tables are made anew ([`RefStore::rebuild`](crate::RefStore::rebuild)).
    Rebuilding {
        /// How many rows have been gone through, of history and of the tables made of it.
        done: u64,
        /// How many there are at most.
        of: u64,
    },
    /// History and tables are checked ([`verify`](crate::verify)).
    Checking {
        /// How many rows have been gone through: some more than once.
        done: u64,
        /// How many there are to go through at most.
        of: u64,
    },
}

/// Does work that goes through at most `of` rows. Whenever it looks whether it is to be given up, `tell`
/// gets how many it has gone through, to within a batch of each file.
pub(crate) fn paced<T>(
    stop: Stop<'_>,
    of: u64,
    tell: impl FnMut(u64),
    work: impl FnOnce(Stop<'_>) -> T,
) -> T {
    let (looks, tell) = (Cell::new(0), RefCell::new(tell));
    let look = || {
        let done = looks.get() * BATCH_ROWS;
        looks.set(looks.get() + 1);
        (tell.borrow_mut())(done.min(of));
        stop.is_asked()
    };
    work(Stop::when(&look))
}
