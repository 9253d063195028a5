//! From the transactions of a log to the refs they leave.

use std::path::Path;

use refstone_log::{Frame, Seq};

use crate::edit::Target;
use crate::error::{OpenError, RowProblem};
use crate::name::RefName;
use crate::row;
use crate::view::{Refs, Snapshot};

/// Applies transactions in order.
///
/// Until a row moves it, `HEAD` is what the log's schema says; a row that deletes it counts as a
/// move, so that `HEAD` then stays away on every replay.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    seq: Seq,
    refs: Refs,
    head_moved: bool,
    problem: Option<(Seq, usize, RowProblem)>,
    /// The newest transaction that came where another was expected.
    missing: Option<Seq>,
}

impl Replay {
    /// Applies one transaction. The first problem ends the replay; [`Replay::finish`] tells it.
    pub(crate) fn apply(&mut self, frame: &Frame<'_>) {
        if self.problem.is_some() {
            return;
        }
        if frame.seq() != self.seq.next() {
            self.missing = Some(frame.seq());
        }
        self.seq = frame.seq();
        for row in 0..frame.row_count() {
            match row::decode(&frame.ref_row(row)) {
                Ok((name, target)) => self.put(name, target),
                Err(problem) => {
                    self.problem = Some((frame.seq(), row, problem));
                    return;
                }
            }
        }
    }

    fn put(&mut self, name: RefName, target: Option<Target>) {
        self.head_moved |= name.is_head();
        self.refs.put(name, target);
    }

    /// The refs after all transactions, in a log whose `HEAD` started at `head`.
    ///
    /// `sealed` is the newest transaction that is no longer in the log. Without it, or behind a
    /// gap, the refs would be those of another history.
    pub(crate) fn finish(
        mut self,
        dir: &Path,
        head: &[u8],
        sealed: Seq,
    ) -> Result<Snapshot, OpenError> {
        let dir = || dir.to_owned();
        if sealed > Seq::ZERO || self.missing.is_some() {
            let sealed = if sealed > Seq::ZERO { sealed } else { self.seq };
            return Err(OpenError::Sealed { dir: dir(), sealed });
        }
        if let Some((seq, row, problem)) = self.problem {
            let dir = dir();
            return Err(OpenError::Row { dir, seq, row, problem });
        }
        if !self.head_moved {
            let head = RefName::new(head);
            let head = head.map_err(|problem| OpenError::Head { dir: dir(), problem })?;
            self.refs.put(RefName::head(), Some(head.into()));
        }
        Ok(Snapshot { seq: self.seq, refs: self.refs })
    }
}
