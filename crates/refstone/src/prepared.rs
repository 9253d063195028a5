//! Prepared transactions: the verdict is known, and nothing may change it any more.

use refstone_log::AppendError;

use crate::holds::Hold;
use crate::pending::{Committed, Pending, Verdict};
use crate::staged::Move;
use crate::store::RefStore;
use crate::transaction::Transaction;

/// A transaction that passed, and that holds the refs it rests on. See [`RefStore::prepare`].
///
/// Held are the refs that its edits name, those reached over symbolic refs, those whose values were
/// compared, and the names in the way of the refs it creates. Dropping it aborts it.
#[derive(Debug)]
#[must_use = "dropping a prepared transaction aborts it"]
pub struct Prepared {
    pub(crate) store: RefStore,
    pub(crate) tx: Transaction,
    pub(crate) moves: Vec<Move>,
    pub(crate) verdict: Verdict,
    pub(crate) hold: Hold,
}

impl Prepared {
    /// What was prepared.
    #[must_use]
    pub fn transaction(&self) -> &Transaction {
        &self.tx
    }

    /// Commits it and waits until it is durable.
    ///
    /// # Errors
    ///
    /// Only as writing fails; it cannot be refused any more, which is why there is no
    /// [`Refusal`](crate::Refusal) among the errors. It holds nothing then, whatever became of it.
    pub fn commit(self) -> Result<Committed, AppendError> {
        let verdict = self.verdict;
        let store = self.store.clone();
        let covered = store.stage_prepared(self)?.wait()?.seq();
        Ok(verdict.covered_by(covered))
    }

    /// Stages it without waiting for the disk. Later transactions see it at once.
    ///
    /// # Errors
    ///
    /// If it cannot be written; it left no trace then, and holds nothing.
    pub fn stage(self) -> Result<Pending, AppendError> {
        let verdict = Ok(self.verdict);
        let store = self.store.clone();
        Ok(Pending { commit: store.stage_prepared(self)?, verdict })
    }

    /// Lets go of everything. Nothing of it happened.
    pub fn abort(self) {
        drop(self.hold);
    }
}
