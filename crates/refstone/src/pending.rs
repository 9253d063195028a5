//! Transactions that are staged: their verdicts are known, and wait to become durable.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use refstone_log::{Commit, CommitError, Seq};

use crate::error::TransactionError;
use crate::refusal::Refusal;

/// The answer to a transaction, or to one edit of a batch: it is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    seq: Seq,
    moved: bool,
}

impl Committed {
    /// The transaction's sequence. If nothing moved no sequence was spent, and this is the newest
    /// transaction in the state that was looked at.
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// Whether a ref moved.
    #[must_use]
    pub fn moved(&self) -> bool {
        self.moved
    }
}

/// A staged transaction. Only waiting on it tells what became of it: [`wait`](Pending::wait) from a
/// thread, or `.await`.
///
/// Dropping it neither cancels nor delays the transaction. As a future it needs no runtime of its
/// own and runs on any executor: two threads of the process lead the syncs for all that is polled,
/// so a task that is slow, or dropped, holds up nobody.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let dir = &dir.path().join("refstone");
/// # use refstone::{CreateOptions, Edit, ObjectId, RefName, RefStore, Transaction};
/// # RefStore::create(dir, &CreateOptions::default())?;
/// # let store = RefStore::open(dir)?;
/// # let id = ObjectId::from_bytes(&[1; 20])?;
/// let create = |name| Ok::<_, refstone::NameError>(Edit::create(RefName::new(name)?, id));
/// let first = store.stage(&Transaction::new("alice").with(create("refs/heads/a")?))?;
/// let second = store.stage(&Transaction::new("bob").with(create("refs/heads/b")?))?;
/// let seqs = pollster::block_on(async {
///     // Either may be awaited first, and one sync covers both.
///     Ok::<_, refstone::TransactionError>([second.await?.seq(), first.await?.seq()])
/// })?;
/// assert_eq!(seqs.map(|seq| seq.get()), [2, 1]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the transaction is neither durable nor answered before `wait` returns"]
pub struct Pending {
    pub(crate) commit: Commit,
    pub(crate) verdict: Result<Verdict, Refusal>,
}

/// A staged batch, with a verdict for each edit. Waits, or is awaited, as [`Pending`] is.
#[derive(Debug)]
#[must_use = "the batch is neither durable nor answered before `wait` returns"]
pub struct PendingEach {
    pub(crate) commit: Commit,
    pub(crate) verdicts: Vec<Result<Verdict, Refusal>>,
}

/// What passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Refs move, in the transaction that is waited for.
    Moves,
    /// Nothing moves; the state looked at ends with this transaction.
    Stays(Seq),
}

impl Pending {
    /// Waits until the transaction is durable, or what it was refused for.
    ///
    /// # Errors
    ///
    /// [`TransactionError::Refused`]: nothing happened. [`TransactionError::Commit`]: see there;
    /// also for a refusal, if what it rested on failed to become durable.
    pub fn wait(self) -> Result<Committed, TransactionError> {
        let covered = self.commit.wait()?.seq();
        Ok(self.verdict?.covered_by(covered))
    }
}

impl Future for Pending {
    type Output = Result<Committed, TransactionError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let covered = ready!(Pin::new(&mut self.commit).poll(context))?.seq();
        Poll::Ready(match self.verdict.clone() {
            Ok(verdict) => Ok(verdict.covered_by(covered)),
            Err(refusal) => Err(refusal.into()),
        })
    }
}

impl PendingEach {
    /// Waits until the batch is durable, and with it all that its verdicts rest on.
    ///
    /// # Errors
    ///
    /// [`CommitError`], and then no verdict holds.
    pub fn wait(self) -> Result<Vec<Result<Committed, Refusal>>, CommitError> {
        let covered = self.commit.wait()?.seq();
        Ok(covered_by(covered, self.verdicts))
    }
}

impl Future for PendingEach {
    type Output = Result<Vec<Result<Committed, Refusal>>, CommitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let covered = ready!(Pin::new(&mut self.commit).poll(context))?.seq();
        Poll::Ready(Ok(covered_by(covered, std::mem::take(&mut self.verdicts))))
    }
}

fn covered_by(
    covered: Seq,
    verdicts: Vec<Result<Verdict, Refusal>>,
) -> Vec<Result<Committed, Refusal>> {
    let answer = |verdict: Result<Verdict, Refusal>| verdict.map(|v| v.covered_by(covered));
    verdicts.into_iter().map(answer).collect()
}

impl Verdict {
    pub(crate) fn covered_by(self, covered: Seq) -> Committed {
        match self {
            Verdict::Moves => Committed { seq: covered, moved: true },
            Verdict::Stays(seq) => Committed { seq, moved: false },
        }
    }
}
