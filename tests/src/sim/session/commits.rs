//! What is staged, and what its commits are told.

use std::sync::Arc;

use refstone_log::{CommitError, ErrorKind, Log, Mode, RefRow, Seq};

use super::{Pending, Session, index};
use crate::logs::Row;
use crate::sim::model::{Tx, Verdict};

impl Session {
    fn row(&mut self, message: usize) -> Row {
        self.rows += 1;
        let letter = b'a' + u8::try_from(self.rows % 26).unwrap_or(0);
        let message = (message > 0).then(|| vec![letter; message]);
        Row { message, ..Row::numbered(self.rows) }
    }

    pub(super) fn append(&mut self, log: &Log, rows: usize, message: usize) -> Verdict {
        let rows: Vec<Row> = (0..rows).map(|_| self.row(message)).collect();
        let now = self.fs.clock();
        // Whatever the log does with it from now on, the transaction may become durable.
        let mut ahead = self.expect.clone();
        ahead.txs.push(Arc::new(self.tx(ahead.txs.len() + 1, now, rows.clone())));
        self.note_as(ahead);
        let refs: Vec<RefRow<'_>> = rows.iter().map(Row::as_row).collect();
        let staged = log.append_with(|stage| (stage.next_seq(), stage.append(&refs[..])));
        match staged {
            Ok((seq, Ok(commit))) => {
                let seq = index(seq);
                self.stage(seq)?;
                self.expect.txs.push(Arc::new(self.tx(seq, now, rows)));
                self.pending.push(Pending { commit, seq, generation: self.rollbacks.len() });
                Ok(())
            }
            Ok((_, Err(error))) | Err(error) => self.excuse("append", &error),
        }
    }

    /// A sequence was given out. If it is an old one, those that had it were withdrawn.
    fn stage(&mut self, seq: usize) -> Verdict {
        if seq <= self.expect.txs.len() {
            self.roll_back(seq - 1)?;
        }
        let newest = self.expect.txs.len();
        if seq == newest + 1 { Ok(()) } else { Err(format!("sequence {seq} follows {newest}")) }
    }

    fn tx(&self, seq: usize, now: i64, rows: Vec<Row>) -> Tx {
        let before = seq.checked_sub(2).and_then(|index| self.expect.txs.get(index));
        Tx { seq, at: before.map_or(now, |tx| now.max(tx.at)), rows }
    }

    /// A generation has ended: all that was staged behind `to` did not happen.
    fn roll_back(&mut self, to: usize) -> Verdict {
        if to < self.expect.acked {
            return Err(format!("{} was acknowledged and is withdrawn", self.expect.acked));
        }
        self.expect.txs.truncate(to);
        self.rollbacks.push(to);
        Ok(())
    }

    pub(super) fn wait(&mut self, index: usize) -> Verdict {
        if self.pending.is_empty() {
            return Ok(());
        }
        let pending = self.pending.remove(index % self.pending.len());
        let (seq, generation) = (pending.seq, pending.generation);
        let answer = pending.commit.wait();
        self.judge(seq, generation, answer.map(|ack| usize::try_from(ack.seq().get())))
    }

    /// Checks the answer to a wait against the model, and learns from it.
    fn judge<E>(
        &mut self,
        seq: usize,
        generation: usize,
        answer: Result<Result<usize, E>, CommitError>,
    ) -> Verdict {
        let withdrawn = self.rollbacks.get(generation).is_some_and(|&to| seq > to);
        match answer {
            Ok(_) if withdrawn => Err(format!("{seq} was withdrawn, and is acknowledged")),
            Ok(Ok(acked)) if acked == seq => {
                self.expect.acked = self.expect.acked.max(seq);
                if self.mode == Mode::Durable {
                    self.expect.must = self.expect.must.max(seq);
                }
                Ok(())
            }
            Ok(_) => Err(format!("{seq} is acknowledged by another number")),
            Err(error) => {
                self.learn(seq, generation, &error)?;
                self.excuse("wait", &error)
            }
        }
    }

    /// Drops a pending commit.
    pub(super) fn forget(&mut self, index: usize) {
        if !self.pending.is_empty() {
            drop(self.pending.remove(index % self.pending.len()));
        }
    }

    /// Learns from an error what did not happen.
    fn learn(&mut self, seq: usize, generation: usize, error: &CommitError) -> Verdict {
        if generation < self.rollbacks.len() {
            return match error.kind() {
                ErrorKind::NotCommitted => Ok(()),
                _ => Err(format!("{seq} was withdrawn, and the answer is: {error}")),
            };
        }
        match error.kind() {
            ErrorKind::NotCommitted => {
                let written = self.log.as_ref().map_or(0, |log| index(log.written_seq()));
                self.roll_back(written.max(self.expect.acked))
            }
            ErrorKind::Unknown => Ok(()),
            // It did not happen, and nothing can have happened after it.
            ErrorKind::Poisoned | ErrorKind::Closed if seq > self.expect.acked => {
                self.expect.txs.truncate(seq - 1);
                Ok(())
            }
            _ => Err(format!("{seq} was acknowledged, and the answer is: {error}")),
        }
    }

    pub(super) fn wait_all(&mut self, newest_first: bool) -> Verdict {
        while !self.pending.is_empty() {
            self.wait(if newest_first { self.pending.len() - 1 } else { 0 })?;
            self.note_durable()?;
        }
        Ok(())
    }

    pub(super) fn barrier(
        &mut self,
        log: &Log,
        name: &str,
        barrier: impl Fn(&Log) -> Result<Seq, CommitError>,
    ) -> Verdict {
        match barrier(log) {
            Ok(seq) if index(seq) >= self.expect.txs.len() => {
                self.expect.acked = self.expect.txs.len();
                Ok(())
            }
            Ok(seq) => Err(format!("{name} ended at {seq}, before what was staged")),
            Err(error) => {
                // It names no transaction; but a withdrawal takes all that was not yet written.
                let written = index(log.written_seq()).max(self.expect.acked);
                if error.kind() == ErrorKind::NotCommitted && written < self.expect.txs.len() {
                    self.roll_back(written)?;
                }
                self.excuse(name, &error)
            }
        }
    }
}
