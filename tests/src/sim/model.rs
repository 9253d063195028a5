//! What a log must hold, may hold, and must not hold at a given moment.

use std::sync::Arc;

use refstone_log::Frame;

use crate::logs::Row;

/// A check's result: what is wrong, if anything.
pub type Verdict<T = ()> = Result<T, String>;

/// One transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tx {
    /// Its sequence.
    pub seq: usize,
    /// Its time in microseconds.
    pub at: i64,
    /// Its rows.
    pub rows: Vec<Row>,
}

impl From<&Frame<'_>> for Tx {
    fn from(frame: &Frame<'_>) -> Tx {
        Tx {
            seq: usize::try_from(frame.seq().get()).unwrap_or(usize::MAX),
            at: frame.at().as_micros(),
            rows: frame.ref_rows().map(|row| Row::from(&row)).collect(),
        }
    }
}

/// What a reader or a recovery found on a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// No log.
    Absent,
    /// A log.
    Log {
        /// The newest transaction before those in the file.
        anchor: usize,
        /// Those in the file, in order.
        txs: Vec<Arc<Tx>>,
    },
}

impl Found {
    /// A log with these transactions, whose sequences must follow each other.
    ///
    /// # Errors
    /// If they do not.
    pub fn log(anchor: usize, txs: Vec<Arc<Tx>>) -> Verdict<Found> {
        for (index, tx) in txs.iter().enumerate() {
            let expected = anchor + index + 1;
            if tx.seq != expected {
                return Err(format!("sequence {} stands where {expected} belongs", tx.seq));
            }
        }
        Ok(Found::Log { anchor, txs })
    }

    /// The newest transaction.
    #[must_use]
    pub fn newest(&self) -> usize {
        match self {
            Found::Absent => 0,
            Found::Log { anchor, txs } => anchor + txs.len(),
        }
    }

    fn parts(&self) -> (usize, &[Arc<Tx>]) {
        match self {
            Found::Absent => (0, &[]),
            Found::Log { anchor, txs } => (*anchor, txs),
        }
    }
}

/// What the history of a log allows it to hold at one moment.
#[derive(Clone, Debug, Default)]
pub struct Expect {
    /// Every transaction that may be there, in order from sequence 1.
    pub txs: Vec<Arc<Tx>>,
    /// So many of them must be there: durable, or found by a recovery that returned.
    pub must: usize,
    /// So many of them must be there if only the process dies: acknowledged, in any mode.
    pub acked: usize,
    /// So many of them an outside reader must see: the log was closed.
    pub published: usize,
    /// So many of them may have left the live file, since they were sealed elsewhere.
    pub sealed: usize,
    /// Whether there must be a log: a creation or an opening has returned.
    pub exists: bool,
}

impl Expect {
    /// A log that holds these transactions behind others that were sealed, no more and no less.
    #[must_use]
    pub fn whole(found: &Found) -> Expect {
        let (anchor, txs) = found.parts();
        let newest = found.newest();
        let exists = *found != Found::Absent;
        // What was sealed is never looked at, but sequences count from 1.
        let sealed = Arc::new(Tx { seq: 0, at: 0, rows: Vec::new() });
        let txs = std::iter::repeat_n(sealed, anchor).chain(txs.iter().cloned()).collect();
        Expect { txs, must: newest, acked: newest, published: 0, sealed: anchor, exists }
    }

    /// After a recovery that returned: what it found, no more and no less.
    #[must_use]
    pub fn exactly(&self, found: &Found) -> Expect {
        let newest = found.newest();
        Expect {
            txs: self.txs.iter().take(newest).cloned().collect(),
            must: newest,
            acked: newest,
            exists: *found != Found::Absent,
            ..self.clone()
        }
    }

    /// Checks what a recovery found after only the process died.
    ///
    /// # Errors
    /// As [`check_recovered`](Expect::check_recovered), or what was acknowledged and is lost.
    pub fn check_killed(&self, found: &Found) -> Verdict {
        self.check_recovered(found)?;
        if found.newest() >= self.acked {
            return Ok(());
        }
        let (acked, newest) = (self.acked, found.newest());
        Err(format!("transaction {acked} was acknowledged, and the log ends at {newest}"))
    }

    /// Checks what a recovery found after a power cut.
    ///
    /// # Errors
    /// What is lost, invented, changed or unsealed.
    pub fn check_recovered(&self, found: &Found) -> Verdict {
        if self.exists && *found == Found::Absent {
            return Err("the log is gone, though its creation or opening had returned".to_owned());
        }
        let newest = found.newest();
        if newest < self.must {
            let must = self.must;
            return Err(format!("transaction {must} was durable, and the log ends at {newest}"));
        }
        self.check_rows(found)
    }

    /// Checks what an outside reader saw, before any recovery.
    ///
    /// # Errors
    /// What is missing though it was published, or invented or changed.
    pub fn check_seen(&self, found: &Found) -> Verdict {
        let newest = found.newest();
        if newest < self.published {
            let published = self.published;
            return Err(format!(
                "the log was closed at transaction {published}, and a reader sees {newest}"
            ));
        }
        self.check_rows(found)
    }

    fn check_rows(&self, found: &Found) -> Verdict {
        let (anchor, txs) = found.parts();
        if anchor > self.sealed {
            let sealed = self.sealed;
            return Err(format!("transaction {anchor} has left, and only {sealed} are sealed"));
        }
        for tx in txs {
            match self.txs.get(tx.seq - 1) {
                Some(expected) if expected == tx => {}
                Some(expected) => {
                    return Err(format!("transaction {} is {tx:?}, expected {expected:?}", tx.seq));
                }
                None => return Err(format!("transaction {} never happened: {tx:?}", tx.seq)),
            }
        }
        Ok(())
    }
}
