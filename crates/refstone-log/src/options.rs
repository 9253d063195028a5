//! How a log is opened: when it acknowledges, when it rests, what it leaves free, whom it tells.

use std::fmt;

use crate::seq::Seq;
use crate::space::MinFree;

/// Told of the log's progress by the leader of each round.
///
/// A panic in either method stops the log, as a panic of the leader does. Neither can wait on its
/// own log, since the leader is waiting for it: it gets [`Reentered`](crate::CommitError::Reentered).
pub trait Observer: fmt::Debug + Send + Sync {
    /// All up to `through` is acknowledged: durable, unless the log is [`Buffered`](Mode::Buffered).
    ///
    /// Called in order, by one thread at a time, without the writer mutex, and before any waiter
    /// returns. A sequence may be told more than once.
    fn durable(&self, through: Seq);

    /// All that was staged after `to` has failed and is withdrawn.
    ///
    /// Called under the writer mutex, before the sequences are given out again.
    fn rolled_back(&self, to: Seq);
}

/// An observer with nothing to do.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {
    fn durable(&self, _through: Seq) {}
    fn rolled_back(&self, _to: Seq) {}
}

/// When a transaction is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// When frame, file name and directory are on stable storage. Survives a power cut.
    #[default]
    Durable,
    /// When the kernel has the bytes. Survives a killed process; a power cut takes what was not
    /// followed by [`Log::sync`](crate::Log::sync). For bulk loads, ended by one sync.
    ///
    /// Readers in this process see what is acknowledged; readers of the file only what is durable.
    Buffered,
}

/// When a log that nobody writes closes its file; see [`Log::rest`](crate::Log::rest).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resting {
    /// After a second or two, or earlier if more than 256 logs of the process are awake. One thread
    /// of the process sees to that while any log is awake.
    #[default]
    WhenIdle,
    /// When it is opened, and when [`Log::rest`](crate::Log::rest) is called.
    ByHand,
}

/// How a log is opened. The default is a durable log that leaves 64 MiB of its file system free, and
/// that keeps its file open while it is written.
///
/// ```
/// use refstone_log::{LogOptions, MinFree};
/// let options = LogOptions { min_free: MinFree::Bytes(1 << 30), ..LogOptions::default() };
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// When a transaction is acknowledged.
    pub mode: Mode,
    /// How much of the file system stays free.
    pub min_free: MinFree,
    /// When it closes its file.
    pub resting: Resting,
}

impl From<Mode> for LogOptions {
    fn from(mode: Mode) -> LogOptions {
        LogOptions { mode, ..LogOptions::default() }
    }
}
