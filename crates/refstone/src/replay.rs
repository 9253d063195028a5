//! From the transactions of a log to the refs they leave.

use std::path::Path;
use std::sync::Arc;

use refstone_log::{Frame, Seq};

use crate::error::{OpenError, RowProblem};
use crate::recent::Recent;
use crate::row;
use crate::snapshot::Snapshot;
use crate::stack::Stack;

/// Applies the transactions of the live log in order.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    seq: Seq,
    recent: Recent,
    tables: Arc<Stack>,
    problem: Option<(Seq, usize, RowProblem)>,
}

impl Replay {
    /// Starts with what was sealed before the live log.
    pub(crate) fn above(base: Snapshot) -> Replay {
        let Snapshot { seq, recent, tables } = base;
        Replay { seq, recent, tables, problem: None }
    }

    /// Applies one transaction. Where sequences are missing, the log has recorded that a repair lost
    /// them: what they moved is as the transactions before and after left it.
    ///
    /// The first problem ends the replay; [`Replay::finish`] tells it.
    pub(crate) fn apply(&mut self, frame: &Frame<'_>) {
        if self.problem.is_some() {
            return;
        }
        self.seq = frame.seq();
        for row in 0..frame.row_count() {
            match row::decode(&frame.ref_row(row)) {
                Ok((name, target)) => self.recent.put(name, target),
                Err(problem) => {
                    self.problem = Some((frame.seq(), row, problem));
                    return;
                }
            }
        }
    }

    /// The refs after all transactions.
    pub(crate) fn finish(self, dir: &Path) -> Result<Snapshot, OpenError> {
        if let Some((seq, row, problem)) = self.problem {
            let dir = dir.to_owned();
            return Err(OpenError::Row { dir, seq, row, problem });
        }
        Ok(Snapshot { seq: self.seq, recent: self.recent, tables: self.tables })
    }

    /// The same for a replay that started with nothing: what was sealed goes below it.
    pub(crate) fn finish_above(self, dir: &Path, base: &Snapshot) -> Result<Snapshot, OpenError> {
        let mut above = self.finish(dir)?;
        for (name, target) in base.recent.from(b"") {
            if above.recent.get(name.as_bytes()).is_none() {
                above.recent.put(name.clone(), target.clone());
            }
        }
        Ok(Snapshot { seq: above.seq.max(base.seq), tables: base.tables.clone(), ..above })
    }
}
