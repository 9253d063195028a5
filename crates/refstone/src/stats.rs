//! What only the writer of a store knows.

use std::time::Duration;

use refstone_log::Seq;

use crate::maintenance::Totals;

/// What a store has done since it was opened. See [`crate::survey`] for what it consists of.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// The newest durable transaction.
    pub durable_seq: Seq,
    /// The newest transaction that is no longer in the live log.
    pub sealed_seq: Seq,
    /// Bytes of the live log, to the end of the last durable transaction.
    pub live_bytes: u64,
    /// Transactions that became durable since then.
    pub transactions: u64,
    /// Syncs of the log that made them so. Those that opening and compacting needed are not counted.
    pub syncs: u64,
    /// How long these syncs took, all together.
    pub sync_time: Duration,
    /// How often a thread that staged a transaction, or asked for a verdict, found another one at it
    /// and had to wait. One that finds nobody is not counted.
    pub lock_waits: u64,
    /// How long they waited for each other, all together. Waiting for the disk, or for room in a full
    /// group, is not in it.
    pub lock_wait_time: Duration,
    /// What compactions did.
    pub compactions: Totals,
}

impl Stats {
    /// How many transactions shared a sync, in the mean; `None` before the first sync.
    #[must_use]
    pub fn group_size_mean(&self) -> Option<f64> {
        (self.syncs > 0).then(|| self.transactions as f64 / self.syncs as f64)
    }

    /// How long a sync took, in the mean; `None` before the first one.
    #[must_use]
    pub fn sync_time_mean(&self) -> Option<Duration> {
        let nanos = self.sync_time.as_nanos().checked_div(u128::from(self.syncs))?;
        u64::try_from(nanos).ok().map(Duration::from_nanos)
    }
}
