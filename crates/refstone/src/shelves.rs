//! The files of what was sealed: which of them count, and how the tables are made anew.

use std::path::Path;
use std::sync::Arc;

use refstone_log::{Anchor, Env, ErrorKind, Gaps, ObjectFormat, Seq};

use crate::comparing::Said;
use crate::error::{OpenError, ReadError};
use crate::fit::{another_log, given_up_history, newer_history, of_another_log};
use crate::making::Making;
use crate::name::RefName;
use crate::ranges::{SeqRange, Shelf, chain, pieces};
use crate::sealed::{self, HistoryFile};
use crate::stack::Stack;
use crate::stop::Stop;
use crate::table::{self, Table};

/// The directory of a store, and what of its log the files beside it must agree with.
#[derive(Clone, Debug)]
pub(crate) struct Shelves {
    pub(crate) env: Arc<dyn Env>,
    pub(crate) history: Shelf,
    pub(crate) tables: Shelf,
    pub(crate) log_id: [u8; 16],
    pub(crate) object_format: ObjectFormat,
    /// What `HEAD` points to until a row moves it.
    pub(crate) head: RefName,
}

impl Shelves {
    /// The tables that reach the anchor of the live log. Writes nothing.
    fn load(&self, anchor: Anchor) -> Result<Stack, ReadError> {
        let open = |range| Ok(Arc::new(self.own(self.open_table(range)?)));
        let tables = self.units(anchor)?.into_iter().map(open);
        let tables = tables.collect::<Result<Vec<_>, ReadError>>()?;
        match tables.last() {
            Some(last) if last.identity().last_crc != anchor.crc => {
                let problem = format!("{}: it is of another log", last.path().display());
                Err(ReadError::because(ErrorKind::Corrupt, problem))
            }
            _ => Ok(Stack::new(tables)),
        }
    }

    /// The tables that reach the anchor; what is missing or damaged is made anew from history.
    ///
    /// The caller holds the lock of the store.
    pub(crate) fn load_or_rebuild(&self, anchor: Anchor) -> Result<Stack, ReadError> {
        let tables = self.load(anchor).or_else(|_| self.rebuild(anchor, Keep::Sound, Stop::NEVER));
        tables.map_err(|error| {
            // Of another log there may be no history up to its anchor: that is not what is wrong.
            let files = self.list(&self.history).unwrap_or_default();
            another_log(&*self.env, &self.history, &files, Seq::ZERO, self.log_id).unwrap_or(error)
        })
    }

    /// Makes tables from history, unless it is asked to stop.
    pub(crate) fn rebuild(
        &self,
        anchor: Anchor,
        keep: Keep,
        stop: Stop<'_>,
    ) -> Result<Stack, ReadError> {
        let mut tables = Vec::new();
        for range in self.units(anchor)? {
            stop.check()?;
            let sound = match keep {
                Keep::Sound => self.open_table(range).ok(),
                Keep::Nothing => None,
            };
            // Of the last one also the checksum is known, and it must be the right one.
            let fits =
                |table: &Table| range.last != anchor.seq || table.identity().last_crc == anchor.crc;
            let table = match sound.filter(fits) {
                Some(table) => table,
                None => self.table_of_history(range, anchor, stop)?,
            };
            tables.push(Arc::new(self.own(table)));
        }
        Ok(Stack::new(tables))
    }

    /// The ranges of the history files that count, up to the anchor.
    pub(crate) fn units(&self, anchor: Anchor) -> Result<Vec<SeqRange>, ReadError> {
        let pieces = self.pieces(anchor)?.into_iter();
        pieces.map(|piece| piece.map_err(|missing| self.missing(missing))).collect()
    }

    /// The ranges of the history files that count, up to the anchor, oldest first: those that have a
    /// table, or else those that there are. As errors, the ranges that are in none.
    pub(crate) fn pieces(
        &self,
        anchor: Anchor,
    ) -> Result<Vec<Result<SeqRange, SeqRange>>, ReadError> {
        let history = self.list(&self.history)?;
        let mut both = self.list(&self.tables)?;
        both.retain(|range| history.contains(range));
        let ranges = if chain(&both, anchor.seq).is_some() { both } else { history };
        Ok(pieces(&ranges, anchor.seq))
    }

    /// The directory of the store.
    pub(crate) fn dir(&self) -> &Path {
        self.history.dir().parent().unwrap_or(self.history.dir())
    }

    /// What is wrong where no file holds these transactions.
    pub(crate) fn missing(&self, SeqRange { first, last }: SeqRange) -> ReadError {
        let dir = self.history.dir().display();
        let problem = format!(
            "{dir}: expected files that hold the transactions {first} to {last}, which have left the \
             live log, and found none. Restore them from a backup: their names say what they hold"
        );
        ReadError::because(ErrorKind::Corrupt, problem)
    }

    /// Refuses history that did not come from the live log, or goes further: its anchor, its newest
    /// transaction and its gaps are given.
    pub(crate) fn refuse_misfit(
        &self,
        anchor: Anchor,
        newest: Seq,
        gaps: &Gaps,
    ) -> Result<(), ReadError> {
        let (env, shelf, files) = (&*self.env, &self.history, self.list(&self.history)?);
        let misfit = another_log(env, shelf, &files, anchor.seq, self.log_id)
            .or_else(|| newer_history(shelf, &files, newest))
            .or_else(|| given_up_history(shelf, &files, gaps));
        match misfit {
            Some(problem) => Err(problem),
            None => Ok(()),
        }
    }

    /// A history file that ends with another transaction than the live log starts behind.
    pub(crate) fn foreign(&self, range: SeqRange) -> ReadError {
        let path = self.history.path(range);
        let problem = format!(
            "{}: expected it to end with transaction {} of this log, found another one of that number. \
             Is it, or the live log, from another backup?",
            path.display(),
            range.last
        );
        ReadError::because(ErrorKind::Corrupt, problem)
    }

    pub(crate) fn open_history(&self, range: SeqRange) -> Result<HistoryFile, ReadError> {
        let path = self.history.path(range);
        let file = HistoryFile::open(&*self.env, &path)?;
        let sealed::Identity { log_id, first, last, .. } = *file.identity();
        if log_id != self.log_id {
            return Err(of_another_log(&path));
        }
        self.check(&path, range, log_id, SeqRange { first, last })?;
        Ok(file)
    }

    /// A table of a store that is open: nobody else removes its file, so it need not be kept open.
    pub(crate) fn own(&self, table: Table) -> Table {
        table.let_go(self.env.clone())
    }

    pub(crate) fn open_table(&self, range: SeqRange) -> Result<Table, ReadError> {
        let path = self.tables.path(range);
        let table = Table::open(&*self.env, &path)?;
        let table::Identity { log_id, first, last, .. } = *table.identity();
        self.check(&path, range, log_id, SeqRange { first, last })?;
        Ok(table)
    }

    fn check(
        &self,
        path: &Path,
        named: SeqRange,
        log_id: [u8; 16],
        holds: SeqRange,
    ) -> Result<(), ReadError> {
        if log_id == self.log_id && holds == named {
            return Ok(());
        }
        let problem =
            format!("{}: expected a file of this log and of the range in its name", path.display());
        Err(ReadError::because(ErrorKind::Corrupt, problem).about(path))
    }

    fn table_of_history(
        &self,
        range: SeqRange,
        anchor: Anchor,
        stop: Stop<'_>,
    ) -> Result<Table, ReadError> {
        let history = self.open_history(range)?;
        let last_crc = history.identity().last_crc;
        if range.last == anchor.seq && last_crc != anchor.crc {
            return Err(self.foreign(range));
        }
        let mut making = self.make_table(range, stop)?;
        making.take(&history)?;
        making.finish(range.last, last_crc, history.identity().last_at)?;
        self.sync(&self.tables)?;
        self.open_table(range)
    }

    /// Checks that a table says what the history file of its range says.
    ///
    /// Costs a read of both, and memory for each ref.
    pub(crate) fn compare(
        &self,
        table: &Arc<Table>,
        history: &HistoryFile,
        stop: Stop<'_>,
    ) -> Result<(), ReadError> {
        let (held, sealed) = (table.identity(), history.identity());
        let ends = (held.last_crc, held.last_at) == (sealed.last_crc, sealed.last_at);
        let mut said = Said::by(history, stop)?;
        if sealed.first == Seq::ZERO.next() {
            said.start_head(self.head.clone());
        }
        let differs = match ends && table.history_rows() == u64::from(history.rows()) {
            true => said.difference(table)?,
            false => Some("its range ends otherwise".to_owned()),
        };
        let Some(differs) = differs else { return Ok(()) };
        let (table, history) = (table.path().display(), history.path().display());
        let problem = format!("{table}: it does not say what {history} says: {differs}");
        Err(ReadError::because(ErrorKind::Corrupt, problem))
    }

    /// Starts the table of a range.
    pub(crate) fn make_table<'s>(
        &'s self,
        range: SeqRange,
        stop: Stop<'s>,
    ) -> Result<Making<'s>, ReadError> {
        self.make_dir(&self.tables)?;
        Ok(Making::start(self, self.tables.path(range), range.first, stop))
    }

    pub(crate) fn make_dir(&self, shelf: &Shelf) -> Result<(), ReadError> {
        self.env
            .create_dir_all(shelf.dir())
            .map_err(|error| ReadError::io(shelf.dir(), "create", &error))
    }

    /// Makes the names in a shelf durable, and its own.
    pub(crate) fn sync(&self, shelf: &Shelf) -> Result<(), ReadError> {
        let parent = shelf.dir().parent().unwrap_or(shelf.dir());
        for dir in [shelf.dir(), parent] {
            self.env.sync_dir(dir).map_err(|error| ReadError::io(dir, "sync", &error))?;
        }
        Ok(())
    }

    pub(crate) fn list(&self, shelf: &Shelf) -> Result<Vec<SeqRange>, ReadError> {
        shelf.list(&*self.env).map_err(|error| ReadError::io(shelf.dir(), "list", &error))
    }
}

/// Which tables a rebuild keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Those that open and fit.
    Sound,
    /// None.
    Nothing,
}

/// The initial target of `HEAD`, from the raw bytes in the log's schema.
pub(crate) fn initial_head(dir: &Path, head: &[u8]) -> Result<RefName, OpenError> {
    RefName::new(head).map_err(|problem| OpenError::Head { dir: dir.to_owned(), problem })
}
