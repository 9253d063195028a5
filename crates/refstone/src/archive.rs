//! The live log and what was sealed before it, as one, read without the lock.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use refstone_log::{Anchor, Env, ErrorKind, LogReader, OsEnv, Seq, Timestamp};

use crate::error::{OpenError, ReadError};
use crate::fit::open_live;
use crate::orphaned::Orphaned;
use crate::ranges::{SeqRange, Shelf};
use crate::replay::Replay;
use crate::sealed::HistoryFile;
use crate::shelves::{Shelves, initial_head};
use crate::snapshot::Snapshot;
use crate::stack::Stack;

/// How often a reader begins anew when files are merged while it opens them.
const ATTEMPTS: usize = 16;

/// One live file, and the sealed files before it.
#[derive(Debug)]
pub(crate) struct Archive {
    pub(crate) dir: PathBuf,
    pub(crate) live: LogReader,
    pub(crate) shelves: Shelves,
    pub(crate) anchor: Anchor,
    /// Oldest first.
    pub(crate) sealed: Vec<SealedUnit>,
}

/// A history file that is open. Whoever merges it away does not disturb who has it open.
#[derive(Clone, Debug)]
pub(crate) struct SealedUnit {
    pub(crate) range: SeqRange,
    pub(crate) file: HistoryFile,
}

/// A store as far as it can be read.
#[derive(Debug)]
pub(crate) struct Parts<U = SealedUnit> {
    pub(crate) live: Result<LogReader, OpenError>,
    pub(crate) shelves: Shelves,
    pub(crate) anchor: Anchor,
    /// Oldest first.
    pub(crate) sealed: Vec<Part<U>>,
}

/// A range of sealed transactions, and their file; or why that cannot be read.
#[derive(Debug)]
pub(crate) struct Part<U = SealedUnit> {
    pub(crate) range: SeqRange,
    pub(crate) unit: Result<U, ReadError>,
}

impl Parts {
    /// Opens the live file first and then what was sealed: what is sealed meanwhile is still in it.
    ///
    /// Fails only if nothing can be read.
    pub(crate) fn open(env: &Arc<dyn Env>, dir: &Path) -> Result<Parts, OpenError> {
        Parts::open_with(env, dir, &open_unit)
    }
}

/// Opens what holds a range of transactions, of a store with this anchor.
type OpenUnit<'o, U> = &'o dyn Fn(&Shelves, Anchor, SeqRange) -> Result<U, ReadError>;

impl<U> Parts<U> {
    /// The same where something else than a history file tells of what was sealed.
    pub(crate) fn open_with(
        env: &Arc<dyn Env>,
        dir: &Path,
        open: OpenUnit<'_, U>,
    ) -> Result<Parts<U>, OpenError> {
        let mut attempt = 0;
        loop {
            let parts = Parts::open_once(env, dir, open)?;
            attempt += 1;
            let late = |error: &ReadError| overtaken(&**env, dir, parts.anchor, error);
            let late = parts.sealed.iter().filter_map(|part| part.unit.as_ref().err()).any(late);
            if !late || parts.live.is_err() || attempt == ATTEMPTS {
                return Ok(parts);
            }
        }
    }

    fn open_once(
        env: &Arc<dyn Env>,
        dir: &Path,
        open: OpenUnit<'_, U>,
    ) -> Result<Parts<U>, OpenError> {
        match open_live(&**env, dir) {
            Ok(live) => {
                let shelves = Shelves {
                    env: env.clone(),
                    history: Shelf::history(dir),
                    tables: Shelf::tables(dir),
                    log_id: live.log_id(),
                    object_format: live.object_format(),
                    head: initial_head(dir, live.head())?,
                };
                let anchor = live.anchor();
                let sealed = open_each(&shelves, anchor, open)?;
                Ok(Parts { live: Ok(live), shelves, anchor, sealed })
            }
            Err(problem) if problem.kind() == ErrorKind::Corrupt => {
                let Some(orphaned) = Orphaned::find(env, dir) else { return Err(problem) };
                let Orphaned { shelves, anchor, .. } = orphaned;
                let sealed = open_each(&shelves, anchor, open)?;
                Ok(Parts { live: Err(problem), shelves, anchor, sealed })
            }
            Err(problem) => Err(problem),
        }
    }
}

impl Archive {
    /// Opens a store of which nothing is missing.
    pub(crate) fn open(env: &Arc<dyn Env>, dir: &Path) -> Result<Archive, OpenError> {
        let Parts { live, shelves, anchor, sealed } = Parts::open(env, dir)?;
        let live = live?;
        let sealed = sealed.into_iter().map(|part| part.unit).collect::<Result<_, _>>()?;
        Ok(Archive { dir: dir.to_owned(), live, shelves, anchor, sealed })
    }

    /// The refs as transaction `seq` left them; as now, if the log does not have it yet.
    pub(crate) fn snapshot(mut self, seq: Seq) -> Result<Snapshot, OpenError> {
        if seq < self.anchor.seq {
            return Ok(self.sealed_snapshot(seq)?);
        }
        let base = self.sealed_snapshot(self.anchor.seq)?;
        let mut replay = Replay::above(base);
        while let Some(frame) = self.live.next()? {
            if frame.seq() > seq {
                break;
            }
            replay.apply(&frame);
        }
        replay.finish(&self.dir)
    }

    /// The newest transaction that was not later than `time`. Reads the live log to there.
    pub(crate) fn newest_at(&mut self, time: Timestamp) -> Result<Seq, OpenError> {
        if time < self.anchor.at {
            return Ok(self.sealed_newest_at(time)?);
        }
        let mut newest = self.anchor.seq;
        while let Some(frame) = self.live.next()? {
            if frame.at() > time {
                break;
            }
            newest = frame.seq();
        }
        Ok(newest)
    }

    fn sealed_newest_at(&self, time: Timestamp) -> Result<Seq, ReadError> {
        let mut newest = Seq::ZERO;
        for unit in &self.sealed {
            if unit.file.identity().last_at <= time {
                newest = unit.range.last;
                continue;
            }
            if let Some(row) = unit.file.row_after(time)?.checked_sub(1) {
                let last = unit.file.moves(row..row + 1).next().transpose()?;
                newest = last.map_or(newest, |moved| moved.seq);
            }
            break;
        }
        Ok(newest)
    }

    /// Tables as far as they reach, and above them the rows of history up to the transaction.
    ///
    /// Whoever made the log may have died before it made a table again, and this reader must not
    /// write: then the rows of history do.
    fn sealed_snapshot(&self, seq: Seq) -> Result<Snapshot, ReadError> {
        let mut tables = Vec::new();
        for unit in self.sealed.iter().take_while(|unit| unit.range.last <= seq) {
            match self.shelves.open_table(unit.range) {
                Ok(table) => tables.push(Arc::new(table)),
                Err(_) => break,
            }
        }
        let mut snapshot = Snapshot::start(&self.shelves.head, Stack::new(tables));
        for unit in &self.sealed[snapshot.tables.tables().len()..] {
            if unit.range.first > seq {
                break;
            }
            for moved in unit.file.moves(0..unit.file.row_at(seq.next())?) {
                let moved = moved?;
                let target = moved.target();
                snapshot.recent.put(moved.name, target);
            }
        }
        snapshot.seq = seq;
        Ok(snapshot)
    }
}

/// The operating system's files.
pub(crate) fn os_env() -> Arc<dyn Env> {
    Arc::new(OsEnv)
}

/// Whether a reader came too late for what it has listed, or for what goes with its live file: that
/// is as missing as if it were lost, once another live file has let it be merged with newer ones.
fn overtaken(env: &dyn Env, dir: &Path, anchor: Anchor, error: &ReadError) -> bool {
    let swapped = || LogReader::open(env, dir).is_ok_and(|now| now.anchor() != anchor);
    error.kind() == ErrorKind::NotFound || swapped()
}

/// The files that count, oldest first.
pub(crate) fn open_sealed(shelves: &Shelves, anchor: Anchor) -> Result<Vec<Part>, ReadError> {
    open_each(shelves, anchor, &open_unit)
}

fn open_each<U>(
    shelves: &Shelves,
    anchor: Anchor,
    open: OpenUnit<'_, U>,
) -> Result<Vec<Part<U>>, ReadError> {
    let part = |piece| match piece {
        Ok(range) => Part { range, unit: open(shelves, anchor, range) },
        Err(range) => Part { range, unit: Err(shelves.missing(range)) },
    };
    Ok(shelves.pieces(anchor)?.into_iter().map(part).collect())
}

/// The history file of a range.
pub(crate) fn open_unit(
    shelves: &Shelves,
    anchor: Anchor,
    range: SeqRange,
) -> Result<SealedUnit, ReadError> {
    let file = shelves.open_history(range)?;
    match file.identity().last_crc == anchor.crc || range.last != anchor.seq {
        true => Ok(SealedUnit { range, file }),
        false => Err(shelves.foreign(range)),
    }
}
