//! Takes transactions out of the live log: seals them as history, folds them into tables, and
//! merges what has become many small files.
//!
//! The order is history, table, swap: a crash leaves transactions in two places, never in none. A
//! file that was merged is removed only after the merged one and its table have their names.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use refstone_log::{
    AppendError, CommitError, ErrorKind, Leaving, Log, RewriteError, Sealer, Seq, Timestamp,
};

use crate::error::ReadError;
use crate::making::Making;
use crate::new_file::TEMPORARY;
use crate::progress::{Progress, paced};
use crate::ranges::{SeqRange, Shelf};
use crate::row;
use crate::sealed::{self, Form, HistoryFile, HistoryWriter};
use crate::shelves::Shelves;
use crate::stack::Stack;
use crate::state::State;
use crate::stop::Stop;
use crate::table::{self, Step, Table};

/// How many files of one size are merged into one.
///
/// Each row is then written again once for every factor of this that the history grows by.
const MERGE_FAN: usize = 4;

/// Rows of history below which sizes are not told apart.
const SMALLEST_TIER: u64 = 1 << 14;

/// More rows than one file of history can have.
const ROWS_MAX: u64 = 1 << 32;

/// How a compaction is to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactOptions {
    /// How history is written.
    pub form: Form,
    /// What is merged.
    pub merge: Merge,
}

/// What a compaction merges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Merge {
    /// Files of one size, once there are four of them: the work per transaction then grows with the
    /// logarithm of the history.
    #[default]
    Due,
    /// All history into one file of the form that is asked for, also if it is one of another form.
    All,
}

/// What a compaction did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compacted {
    /// The transactions that left the live log; none if it had none.
    pub sealed: u64,
    /// Rows of history that were written, by sealing and by merging.
    pub rows_written: u64,
    /// Bytes of history and tables that were written.
    pub bytes_written: u64,
    /// History files that were merged into others.
    pub merged: usize,
    /// History files that were written anew in another form, since nothing was to be merged with them.
    pub reformed: usize,
    /// The newest transaction that is no longer in the live log.
    pub sealed_seq: Seq,
}

impl Compacted {
    pub(crate) fn add(&mut self, more: &Compacted) {
        self.sealed += more.sealed;
        self.rows_written += more.rows_written;
        self.bytes_written += more.bytes_written;
        self.merged += more.merged;
        self.reformed += more.reformed;
        self.sealed_seq = more.sealed_seq;
    }
}

/// Why a compaction failed. No transaction is lost, and what was sealed stays sealed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompactError {
    /// The live log could not be rewritten.
    #[error(transparent)]
    Rewrite(#[from] RewriteError),
    /// A file of history or a table could not be read or written.
    #[error(transparent)]
    Files(#[from] ReadError),
    /// The transactions were sealed, but files could not be merged, or what is left over not removed.
    /// The store goes on with more files than it would need.
    #[error("sealed up to transaction {}, but the files were not merged: {source}", done.sealed_seq)]
    Merge {
        /// What was done.
        done: Box<Compacted>,
        /// Why not more.
        source: ReadError,
    },
    /// The log had stopped or was closed.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The store was closed meanwhile, before anything had left the live log.
    #[error("the compaction was stopped, since the store is being closed")]
    Stopped,
}

impl CompactError {
    /// The sort of this error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            CompactError::Rewrite(error) => kind_of_rewrite(error),
            CompactError::Files(error) | CompactError::Merge { source: error, .. } => error.kind(),
            CompactError::Commit(error) => error.kind(),
            CompactError::Stopped => ErrorKind::Closed,
        }
    }
}

/// The sealer is ours, and so is its error.
fn kind_of_rewrite(error: &RewriteError) -> ErrorKind {
    let ours = match error {
        RewriteError::Seal(cause) => cause.downcast_ref::<ReadError>(),
        _ => None,
    };
    ours.map_or_else(|| error.kind(), ReadError::kind)
}

fn was_stopped(error: &RewriteError) -> bool {
    matches!(error, RewriteError::Seal(_)) && kind_of_rewrite(error) == ErrorKind::Closed
}

/// One compaction.
pub(crate) struct Compaction<'s> {
    pub(crate) log: &'s Log,
    pub(crate) state: &'s State,
    pub(crate) shelves: &'s Shelves,
    pub(crate) options: CompactOptions,
    pub(crate) stop: Stop<'s>,
    /// As [`crate::maintenance`] has it.
    pub(crate) merge_behind: &'s AtomicU64,
    /// Merged tables that could not be held open, while older views may read them.
    pub(crate) unheld: &'s Mutex<Vec<Weak<Table>>>,
    pub(crate) progress: &'s mut dyn FnMut(Progress),
    pub(crate) done: Compacted,
}

impl Compaction<'_> {
    pub(crate) fn run(mut self) -> Result<Compacted, CompactError> {
        self.expect_running()?;
        self.seal()?;
        self.done.sealed_seq = self.state.snapshot().tables.reaches();
        match self.tidy() {
            Ok(()) => Ok(self.done),
            Err(source) => Err(CompactError::Merge { done: Box::new(self.done), source }),
        }
    }

    /// Removes what is left over, and merges what is due.
    ///
    /// Files are merged past one that cannot be read, or they would become more and more: it stays as
    /// it is, and so do those before it.
    fn tidy(&mut self) -> Result<(), ReadError> {
        self.sweep()?;
        let mut damaged = None;
        loop {
            match self.merge_next() {
                Ok(true) => {}
                Ok(false) => return damaged.map_or_else(|| self.reform_only(), Err),
                Err(error) => {
                    let Some(last) = self.unreadable(&error) else {
                        return Err(damaged.unwrap_or(error));
                    };
                    self.merge_behind.store(last.get(), Ordering::Relaxed);
                    damaged.get_or_insert(error);
                }
            }
        }
    }

    /// Where the file ends that cannot be read, if the error is about one that was to be merged.
    fn unreadable(&self, error: &ReadError) -> Option<Seq> {
        let path = error.path()?;
        let about = |range: &SeqRange| {
            [&self.shelves.history, &self.shelves.tables]
                .iter()
                .any(|shelf| shelf.path(*range) == path)
        };
        let tables = self.state.snapshot().tables.clone();
        tables.tables().iter().map(|table| range_of(table)).find(about).map(|range| range.last)
    }

    /// A log that has stopped may have been swapped: then only the next open knows what it needs.
    fn expect_running(&self) -> Result<(), CompactError> {
        match self.log.append_with(|_| ()) {
            Err(AppendError::Commit(stopped)) => Err(stopped.into()),
            _ => Ok(()),
        }
    }

    /// Seals all that is durable, and puts the new table below the view.
    fn seal(&mut self) -> Result<(), CompactError> {
        let through = self.state.start_young();
        let sealed = self.rewrite(through);
        let Ok(Some(table)) = sealed else {
            self.state.forget_young();
            return sealed.map(drop);
        };
        let mut tables = self.state.snapshot().tables.tables().to_vec();
        tables.push(Arc::new(table));
        self.state.tables_reach(Arc::new(Stack::new(tables)));
        Ok(())
    }

    /// Returns the table of what has left. It is open before the swap: nothing may fail after it, or
    /// the view would lack what the log has no more.
    fn rewrite(&mut self, through: Seq) -> Result<Option<Table>, CompactError> {
        let first = self.state.snapshot().tables.reaches().next();
        // A range starts where the one before ended, also in a gap. It ends with a transaction.
        let through = self.log.gaps().at_or_before(through);
        if through < first {
            return Ok(None);
        }
        let range = SeqRange { first, last: through };
        let mut seal = Seal { compaction: self, range, table: None };
        let rewritten = self_rewrite(&mut seal);
        let table = seal.table;
        match rewritten? {
            Some(sealed) if sealed == through => Ok(table),
            // Both were read from the same log, and what is in the view is durable.
            sealed => Err(RewriteError::Seal(
                format!("expected the log to give up {through}, it gave up {sealed:?}").into(),
            )
            .into()),
        }
    }

    /// Merges one run of files, if one is due.
    fn merge_next(&mut self) -> Result<bool, ReadError> {
        let tables = self.state.snapshot().tables.clone();
        let Some(from) = self.due_in(&tables) else { return Ok(false) };
        self.stop.check()?;
        let inputs = tables.tables()[from..].to_vec();
        let files = self.open_history(&inputs)?;
        if let Err(error) = self.check_space(&inputs, &files) {
            // Many small files are no harm; one who asks for a single one is told.
            return if self.options.merge == Merge::Due { Ok(false) } else { Err(error) };
        }
        let merged = self.merge(&inputs, &files)?;
        let mut next = tables.tables()[..from].to_vec();
        next.push(Arc::new(merged));
        self.state.tables_merged(Arc::new(Stack::new(next)));
        self.done.merged += inputs.len();
        drop((tables, files));
        inputs.into_iter().for_each(|input| self.retire(input));
        Ok(true)
    }

    /// Removes the files of a table that was merged.
    ///
    /// Older views may still read it. If it cannot be held for them it stays, until it can or no view has
    /// it. If there are none it is closed first, so that the space of what nobody has open can be given
    /// back little by little.
    fn retire(&self, table: Arc<Table>) {
        let range = range_of(&table);
        if let Err(read) = Arc::try_unwrap(table).map(drop)
            && read.hold().is_err()
        {
            return self.unheld.lock().push(Arc::downgrade(&read));
        }
        self.remove(range);
    }

    /// Writes the only file of history anew if it has another form than is asked for.
    ///
    /// Its rows stay what and where they are, so its table stays, and so does the file of who reads the
    /// old one.
    fn reform_only(&mut self) -> Result<(), ReadError> {
        let tables = self.state.snapshot().tables.clone();
        let ([only], Merge::All) = (tables.tables(), self.options.merge) else { return Ok(()) };
        let files = self.open_history(tables.tables())?;
        if files.iter().all(|file| file.form() == self.options.form) {
            return Ok(());
        }
        self.stop.check()?;
        self.check_space(&[], &files)?;
        let path = self.shelves.history.path(range_of(only));
        let (env, form) = (&*self.shelves.env, self.options.form);
        let of = only.history_rows();
        let tell = |done| (self.progress)(Progress::Merging { files: 1, done, of });
        let history =
            paced(self.stop, of, tell, |stop| sealed::merge(env, &path, &files, form, stop))?;
        self.shelves.sync(&self.shelves.history)?;
        self.done.rows_written += u64::from(history.rows());
        self.done.bytes_written += history.bytes();
        self.done.reformed += 1;
        Ok(())
    }

    /// From which file on all are to be merged.
    fn due_in(&self, tables: &Stack) -> Option<usize> {
        let behind = self.merge_behind.load(Ordering::Relaxed);
        let stays = |table: &Arc<Table>| table.identity().last.get() <= behind;
        let first = tables.tables().partition_point(stays);
        let files = tables.tables()[first..].iter();
        let sizes: Vec<u64> = files.map(|table| table.history_rows()).collect();
        Some(first + due(&sizes, self.options.merge)?)
    }

    fn open_history(&self, tables: &[Arc<Table>]) -> Result<Vec<HistoryFile>, ReadError> {
        tables.iter().map(|table| self.shelves.open_history(range_of(table))).collect()
    }

    /// A merge that fills the disk would take the space of transactions, again and again.
    fn check_space(&self, tables: &[Arc<Table>], files: &[HistoryFile]) -> Result<(), ReadError> {
        // Moves wait in a file of their own for their place.
        let bytes = tables.iter().map(|table| table.bytes() + table.moves_bytes()).sum::<u64>()
            + files.iter().map(HistoryFile::bytes).sum::<u64>();
        self.log
            .check_space_for(bytes)
            .map_err(|error| ReadError::because(error.kind(), error.to_string()))
    }

    fn merge(&mut self, inputs: &[Arc<Table>], files: &[HistoryFile]) -> Result<Table, ReadError> {
        let (oldest, newest) = (range_of(&inputs[0]), range_of(&inputs[inputs.len() - 1]));
        let range = SeqRange { first: oldest.first, last: newest.last };
        let (shelves, form) = (self.shelves, self.options.form);
        let of = 2 * inputs.iter().map(|table| table.history_rows()).sum::<u64>();
        let tell = |done| (self.progress)(Progress::Merging { files: inputs.len(), done, of });
        let (history, table) = paced(self.stop, of, tell, |stop| {
            let env = &*shelves.env;
            let path = shelves.history.path(range);
            let history = sealed::merge(env, &path, files, form, stop)?;
            shelves.sync(&shelves.history)?;
            let table = table::merge(env, &shelves.tables.path(range), inputs, stop)?;
            shelves.sync(&shelves.tables)?;
            Ok::<_, ReadError>((history, table))
        })?;
        self.count(&history, &table);
        Ok(self.shelves.own(table))
    }

    /// Notes what was written.
    fn count(&mut self, history: &HistoryFile, table: &Table) {
        self.done.rows_written += u64::from(history.rows());
        self.done.bytes_written += history.bytes() + table.bytes();
    }

    /// Removes what a crash or an earlier merge left: unfinished files, and files whose
    /// transactions are in others that count.
    ///
    /// A file that goes further than those stays: what a crash left behind the live log's first
    /// transaction has been sealed anew by now, and anything else may be the only copy.
    fn sweep(&self) -> Result<(), ReadError> {
        let tables = self.state.snapshot().tables.clone();
        let counts =
            |range: &SeqRange| tables.tables().iter().any(|table| range_of(table) == *range);
        let read = self.read_by_views();
        let stays = |range: &SeqRange| counts(range) || read.contains(range);
        for shelf in [&self.shelves.history, &self.shelves.tables] {
            let listed = self.shelves.list(shelf)?.into_iter();
            let spare = listed.filter(|range| range.last <= tables.reaches() && !stays(range));
            spare.for_each(|range| self.remove_from(shelf, range));
            self.sweep_temporary(shelf);
        }
        Ok(())
    }

    /// Tables that older views open by their names, since they still cannot be held.
    fn read_by_views(&self) -> Vec<SeqRange> {
        let mut unheld = self.unheld.lock();
        unheld.retain(|table| table.upgrade().is_some_and(|table| table.hold().is_err()));
        unheld.iter().filter_map(Weak::upgrade).map(|table| range_of(&table)).collect()
    }

    fn sweep_temporary(&self, shelf: &Shelf) {
        let env = &self.shelves.env;
        for name in env.list(shelf.dir()).unwrap_or_default() {
            if name.to_string_lossy().ends_with(TEMPORARY) {
                let _ = env.remove(&shelf.dir().join(name));
            }
        }
    }

    fn remove(&self, range: SeqRange) {
        self.remove_from(&self.shelves.history, range);
        self.remove_from(&self.shelves.tables, range);
    }

    /// A file that stays is no harm: its range lies in another's, and the next sweep tries again.
    fn remove_from(&self, shelf: &Shelf, range: SeqRange) {
        let _ = self.shelves.env.remove(&shelf.path(range));
    }
}

fn self_rewrite(seal: &mut Seal<'_, '_>) -> Result<Option<Seq>, CompactError> {
    let log = seal.compaction.log.clone();
    let through = seal.range.last;
    match log.rewrite(through, seal) {
        Err(error) if was_stopped(&error) => Err(CompactError::Stopped),
        rewritten => Ok(rewritten?.map(|rewritten| rewritten.sealed_seq)),
    }
}

fn range_of(table: &Table) -> SeqRange {
    SeqRange { first: table.identity().first, last: table.identity().last }
}

/// Writes what leaves the log.
struct Seal<'c, 's> {
    compaction: &'c mut Compaction<'s>,
    range: SeqRange,
    table: Option<Table>,
}

impl Sealer for Seal<'_, '_> {
    fn seal(&mut self, leaving: &mut Leaving<'_>) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(self.write(leaving)?)
    }
}

impl Seal<'_, '_> {
    fn write(&mut self, leaving: &mut Leaving<'_>) -> Result<(), ReadError> {
        let shelves = self.compaction.shelves;
        shelves.make_dir(&shelves.history)?;
        let path = shelves.history.path(self.range);
        let form = self.compaction.options.form;
        let mut writer = HistoryWriter::create(&*shelves.env, &path, shelves.object_format, form)?;
        let mut making = shelves.make_table(self.range, self.compaction.stop)?;
        let (crc, at) = self.copy(leaving, &mut writer, &mut making)?;
        writer.finish(&self.identity(crc, at))?;
        making.finish(self.range.last, crc, at)?;
        shelves.sync(&shelves.history)?;
        shelves.sync(&shelves.tables)?;
        let (history, table) = (shelves.open_history(self.range)?, shelves.open_table(self.range)?);
        self.compaction.count(&history, &table);
        self.table = Some(shelves.own(table));
        Ok(())
    }

    /// Copies the rows; returns checksum and time of the last frame.
    fn copy(
        &mut self,
        leaving: &mut Leaving<'_>,
        writer: &mut HistoryWriter<'_>,
        making: &mut Making<'_>,
    ) -> Result<(u32, Timestamp), ReadError> {
        let of = self.range.last.get() - self.range.first.get() + 1;
        let mut last = (0, Timestamp::default());
        while let Some(frame) = leaving.next()? {
            self.compaction.stop.check()?;
            for stored in frame.ref_rows() {
                let row = writer.rows();
                self.compaction.stop.check_at(row.into())?;
                let step = &stored.as_row();
                writer.push(frame.seq(), frame.at(), step)?;
                let (name, _) = row::decode(&stored).map_err(|problem| {
                    let problem = format!("transaction {}: {problem}", frame.seq());
                    ReadError::because(ErrorKind::Corrupt, problem)
                })?;
                making.note(name, &Step::of(frame.seq(), frame.at(), step))?;
            }
            last = (frame.crc(), frame.at());
            self.compaction.done.sealed += 1;
            if self.compaction.done.sealed.is_multiple_of(1024) {
                (self.compaction.progress)(Progress::Sealing {
                    done: self.compaction.done.sealed,
                    of,
                });
            }
        }
        Ok(last)
    }

    fn identity(&self, last_crc: u32, last_at: Timestamp) -> sealed::Identity {
        let shelves = self.compaction.shelves;
        let gaps = self.compaction.log.gaps().ranges().iter().copied();
        sealed::Identity {
            log_id: shelves.log_id,
            object_format: shelves.object_format,
            first: self.range.first,
            last: self.range.last,
            last_crc,
            last_at,
            gaps: gaps
                .filter(|(first, last)| *first <= self.range.last && *last >= self.range.first)
                .collect(),
        }
    }
}

/// From which file on all are merged into one, given their rows, oldest first.
///
/// One file holds less than 2³² rows: older ones that do not fit stay as they are.
fn due(sizes: &[u64], merge: Merge) -> Option<usize> {
    let fits = |rows: &u64| *rows < ROWS_MAX;
    let sums = sizes.iter().rev().scan(0_u64, |sum, rows| {
        *sum = sum.saturating_add(*rows);
        Some(*sum)
    });
    let kept = sizes.len() - sums.take_while(fits).count();
    let from = due_among(&sizes[kept..], merge)?;
    Some(kept + from)
}

fn due_among(sizes: &[u64], merge: Merge) -> Option<usize> {
    if merge == Merge::All {
        return (sizes.len() > 1).then_some(0);
    }
    let tier =
        |rows: u64| (rows / SMALLEST_TIER).checked_ilog(MERGE_FAN as u64).map_or(0, |t| t + 1);
    let tiers: Vec<u32> = sizes.iter().map(|rows| tier(*rows)).collect();
    (0..=tiers.iter().copied().max()?).find_map(|size| {
        let run = tiers.iter().rev().take_while(|tier| **tier <= size).count();
        let newest = &tiers[tiers.len() - run..];
        // Smaller ones are merged along, but do not make a merge due: that would write a large file
        // again for every few small ones.
        let of_size = newest.iter().filter(|tier| **tier == size).count();
        (of_size >= MERGE_FAN).then_some(tiers.len() - run)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Breaks: counting smaller files towards a merge (a large one is written again for each few).
    #[test]
    fn the_work_per_row_grows_with_the_logarithm() {
        let mut written = Vec::new();
        for seals in [64_u64, 512, 4096] {
            let (mut sizes, mut rows) = (Vec::new(), 0);
            for _ in 0..seals {
                sizes.push(8192);
                rows += 8192;
                while let Some(from) = due(&sizes, Merge::Due) {
                    let merged: u64 = sizes.drain(from..).sum();
                    rows += merged;
                    sizes.push(merged);
                }
                assert!(sizes.len() <= 3 * 8, "{sizes:?}");
            }
            written.push(rows as f64 / (seals * 8192) as f64);
        }
        assert!(written[1] - written[0] < 2.1 && written[2] - written[1] < 2.1, "{written:?}");
        assert!(written[2] < 8.0, "{written:?}");
    }

    // Breaks: merging what is too large for one file (it fails again with every compaction, after all
    // of it was written).
    #[test]
    fn what_does_not_fit_one_file_is_not_merged() {
        let large = 1 << 30;
        assert_eq!(due(&[large; 3], Merge::All), Some(0));
        assert_eq!(due(&[large; 4], Merge::All), Some(1));
        assert_eq!(due(&[large; 4], Merge::Due), None);
        assert_eq!(due(&[large, large, large, large, 5, 5, 5, 5], Merge::Due), Some(4));
        assert_eq!(due(&[ROWS_MAX - 6, 5], Merge::All), Some(0));
        assert_eq!(due(&[ROWS_MAX - 5, 5], Merge::All), None);
        assert_eq!(due(&[1, u64::MAX], Merge::All), None);
    }

    #[test]
    fn four_of_one_size_are_merged_and_a_large_one_is_left_alone() {
        let small = SMALLEST_TIER / 2;
        assert_eq!(due(&[small; 3], Merge::Due), None);
        assert_eq!(due(&[small; 4], Merge::Due), Some(0));
        assert_eq!(due(&[1 << 20, small, small, small, small], Merge::Due), Some(1));
        assert_eq!(due(&[1 << 20, small], Merge::Due), None);
        assert_eq!(due(&[1 << 20, small], Merge::All), Some(0));
        assert_eq!(due(&[1 << 20], Merge::All), None);
        assert_eq!(due(&[], Merge::Due), None);
    }
}
