//! The moves of a store, from its first transaction to the newest that is published.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use refstone_log::{Anchor, BackwardReader, Env, ErrorKind, Frame, LogReader, Seq};

use crate::archive::{Part, Parts, open_unit, os_env};
use crate::error::{OpenError, ReadError};
use crate::fit::open_live;
use crate::name::RefName;
use crate::ranges::{SeqRange, settled};
use crate::row::RefMove;
use crate::sealed::HistoryFile;
use crate::shelves::Shelves;
use crate::store::RefStore;
use crate::table::{Order, Table, Trail};

/// Rows of a history file that are read at a time.
const CHUNK: u32 = 2048;

/// Every move, oldest first, of one ref or of all.
///
/// The moves of a deleted ref are among them: its history outlives it. Takes no lock.
///
/// Costs a read of everything; of one ref, a lookup in each table, what that has of its moves, and the
/// live log.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let dir = &dir.path().join("refstone");
/// # use refstone::{CreateOptions, Edit, ObjectId, RefName, RefStore, Transaction};
/// # RefStore::create(dir, &CreateOptions::default())?;
/// # let store = RefStore::open(dir)?;
/// # let id = ObjectId::from_bytes(&[1; 20])?;
/// let topic = RefName::new("refs/heads/topic")?;
/// let create = Edit::create(topic.clone(), id);
/// store.commit(&Transaction::new("alice").with_message("begun").with(create))?;
/// store.commit(&Transaction::new("bob").with(Edit::delete(topic.clone())))?;
/// for moved in refstone::history(dir, Some(&topic))? {
///     let moved = moved?; // who, when, from where, to where, and why
///     println!("{} {} {:?} -> {:?}", moved.seq, moved.actor, moved.old_oid, moved.new_oid);
/// }
/// let first = refstone::history(dir, Some(&topic))?.next().unwrap()?;
/// assert_eq!(first.message.unwrap(), "begun");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// If there is no log. Damage further on is the last item of the iterator.
pub fn history(dir: &Path, of: Option<&RefName>) -> Result<History, OpenError> {
    history_after(dir, Seq::ZERO, of)
}

/// Every move of the transactions after `after`, oldest first.
///
/// A follower that remembers the last transaction it has dealt with goes on here, each transaction
/// once and in order, whatever was sealed or merged meanwhile.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let dir = &dir.path().join("refstone");
/// # use refstone::{CompactOptions, CreateOptions, Edit, ObjectId, RefName, RefStore, Seq, Transaction};
/// # RefStore::create(dir, &CreateOptions::default())?;
/// # let store = RefStore::open(dir)?;
/// # let id = ObjectId::from_bytes(&[1; 20])?;
/// let create = |name| Ok::<_, refstone::NameError>(Edit::create(RefName::new(name)?, id));
/// let mut follower = refstone::history_after(dir, Seq::ZERO, None)?;
/// store.commit(&Transaction::new("alice").with(create("refs/heads/a")?))?;
/// assert_eq!(follower.next().unwrap()?.actor, "alice");
/// assert!(follower.next().is_none(), "that was all, for now");
///
/// store.commit(&Transaction::new("bob").with(create("refs/heads/b")?))?;
/// store.compact(CompactOptions::default(), &mut |_| ())?; // nothing is left in the live log
/// assert_eq!(follower.next().unwrap()?.actor, "bob");
///
/// // In another process, later.
/// let mut follower = refstone::history_after(dir, follower.seq(), None)?;
/// assert!(follower.next().is_none());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// As [`history`].
pub fn history_after(dir: &Path, after: Seq, of: Option<&RefName>) -> Result<History, OpenError> {
    history_with(&os_env(), dir, after, of)
}

/// The same through another [`Env`].
///
/// # Errors
///
/// As [`history`].
pub fn history_with(
    env: &Arc<dyn Env>,
    dir: &Path,
    after: Seq,
    of: Option<&RefName>,
) -> Result<History, OpenError> {
    follow(env, dir, after, Seq::ZERO, of)
}

fn follow(
    env: &Arc<dyn Env>,
    dir: &Path,
    after: Seq,
    durable: Seq,
    of: Option<&RefName>,
) -> Result<History, OpenError> {
    let mut history = History {
        durable,
        env: env.clone(),
        dir: settled(dir),
        of: of.cloned(),
        after,
        sealed: VecDeque::new(),
        live: None,
        read: VecDeque::new(),
        begun: Vec::new(),
        failed: false,
    };
    history.reopen()?;
    Ok(history)
}

/// The moves of [`history`].
///
/// All of them are durable. At the end of the log it gives `None`, and may be asked again later: it
/// follows the log over compactions.
#[derive(Debug)]
pub struct History {
    env: Arc<dyn Env>,
    dir: PathBuf,
    of: Option<RefName>,
    /// As far as is known, the newest transaction that is durable.
    durable: Seq,
    /// The newest transaction whose moves were read.
    after: Seq,
    /// What is still to be read of history files, each with its last transaction.
    sealed: VecDeque<(Seq, Result<Rows, ReadError>)>,
    live: Option<Result<LogReader, OpenError>>,
    /// Moves read, not given out yet: of whole transactions.
    read: VecDeque<RefMove>,
    /// Moves of a transaction that may go on in the next rows.
    begun: Vec<RefMove>,
    failed: bool,
}

impl Iterator for History {
    type Item = Result<RefMove, OpenError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.read.is_empty() && !self.failed {
            match self.read_more() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => {
                    // A transaction is told whole or not at all.
                    self.read.clear();
                    self.begun.clear();
                    self.failed = true;
                    return Some(Err(error));
                }
            }
        }
        self.read.pop_front().map(Ok)
    }
}

impl History {
    /// The newest transaction that is dealt with: all its moves that were asked for have been given
    /// out. A follower that goes on [after](history_after) it misses none and gets none again.
    #[must_use]
    pub fn seq(&self) -> Seq {
        match self.read.front() {
            Some(next) => Seq::new(next.seq.get().saturating_sub(1)),
            None => self.after,
        }
    }

    /// Reads the next moves; says whether there was anything to read.
    fn read_more(&mut self) -> Result<bool, OpenError> {
        if let Some((last, rows)) = self.sealed.front_mut() {
            let rows = rows.as_mut().map_err(|error| error.clone())?;
            match rows.next_chunk(Order::OldestFirst)? {
                Some(moves) => self.take(moves),
                None => {
                    self.after = self.after.max(*last);
                    self.read.extend(self.begun.drain(..));
                    self.sealed.pop_front();
                }
            }
            return Ok(true);
        }
        self.read_transaction()
    }

    /// Gives out all but the last transaction: its other moves may be in the rows that follow.
    fn take(&mut self, moves: Vec<RefMove>) {
        self.begun.extend(moves);
        let Some(last) = self.begun.last().map(|moved| moved.seq) else { return };
        let whole = self.begun.partition_point(|moved| moved.seq < last);
        if whole > 0 {
            self.after = self.after.max(self.begun[whole - 1].seq);
            self.read.extend(self.begun.drain(..whole));
        }
    }

    fn read_transaction(&mut self) -> Result<bool, OpenError> {
        let live = match &mut self.live {
            Some(Ok(live)) => live,
            lost => return lost.take().transpose().map(|_| false),
        };
        let Some(frame) = live.next()? else { return self.follow() };
        if frame.seq() <= self.after {
            return Ok(true);
        }
        let moves = moves_of(&frame, &self.dir, self.of.as_ref())?;
        self.after = frame.seq();
        self.read.extend(moves);
        Ok(true)
    }

    /// At the end of the live file: goes on in the file that has taken its place, if there is one.
    fn follow(&mut self) -> Result<bool, OpenError> {
        let now = LogReader::open(&*self.env, &self.dir)?;
        if let Some(Ok(live)) = &mut self.live
            && live.go_on_in(now)
        {
            return Ok(live.has_next()?);
        }
        self.reopen()?;
        Ok(true)
    }

    fn reopen(&mut self) -> Result<(), OpenError> {
        let live = open_live(&*self.env, &self.dir);
        self.live = Some(match live {
            Ok(mut live) if live.anchor().seq <= self.after => {
                self.sealed.clear();
                if live.anchor().seq < self.after {
                    live.approach(self.after, self.durable)?;
                }
                Ok(live)
            }
            _ => self.reopen_sealed()?,
        });
        Ok(())
    }

    /// Takes what was sealed after the newest transaction that was read; returns what follows it.
    fn reopen_sealed(&mut self) -> Result<Result<LogReader, OpenError>, OpenError> {
        let (live, sealed) = Sealed::open(&self.env, &self.dir, self.of.as_ref())?;
        let (after, of) = (self.after, self.of.as_ref());
        let span = after.next()..Seq::MAX;
        let newer = sealed.parts.into_iter().filter(|part| part.range.last > after);
        let rows = |part: Part<Source>| {
            let rows = |source| Rows::of(&sealed.shelves, part.range, source, of, &span);
            (part.range.last, part.unit.and_then(rows))
        };
        self.sealed = newer.map(rows).collect();
        Ok(live)
    }
}

/// Every move, newest first, of one ref or of all, as far as there is something sound to read.
///
/// Costs a read of what is taken from the iterator: of the live log from its end on; then, for one ref,
/// a lookup in each table and a read of what that has of its moves.
///
/// # Errors
///
/// If there is no log. Damage is among the items, also a live log that is lost.
pub fn history_newest_first(dir: &Path, of: Option<&RefName>) -> Result<NewestFirst, OpenError> {
    history_newest_first_with(&os_env(), dir, of)
}

/// The same through another [`Env`].
///
/// # Errors
///
/// As [`history`].
pub fn history_newest_first_with(
    env: &Arc<dyn Env>,
    dir: &Path,
    of: Option<&RefName>,
) -> Result<NewestFirst, OpenError> {
    NewestFirst::start(env, dir, Seq::ZERO, of)
}

/// The moves of a ref up to a transaction, newest first, and those of newer ones that lie in the same
/// file.
pub(crate) fn history_back_from(
    env: &Arc<dyn Env>,
    dir: &Path,
    of: &RefName,
    newest: Seq,
) -> Result<NewestFirst, OpenError> {
    let mut moves = NewestFirst::start(env, dir, Seq::ZERO, Some(of))?;
    if moves.live.as_ref().is_some_and(|live| live.reader().anchor().seq >= newest) {
        moves.live = None;
        moves.open_sealed(newest)?;
    }
    Ok(moves)
}

impl RefStore {
    /// As [`history_newest_first`]. Who has the store open knows how far it is durable, and whether the
    /// live log has a move of a ref: if not, it is not read.
    ///
    /// # Errors
    ///
    /// As [`history`].
    pub fn history_newest_first(&self, of: Option<&RefName>) -> Result<NewestFirst, OpenError> {
        let shelves = self.maintenance().shelves();
        let durable = self.log().durable_seq();
        let is_recent = of.is_none_or(|name| self.view().is_recent(name));
        let mut newest = NewestFirst::start(&shelves.env, shelves.dir(), durable, of)?;
        if !is_recent {
            newest.live = None;
            newest.open_sealed(Seq::MAX)?;
        }
        Ok(newest)
    }

    /// As [`history_after`]. Who has the store open knows how far it is durable.
    ///
    /// # Errors
    ///
    /// As [`history`].
    pub fn history_after(&self, after: Seq, of: Option<&RefName>) -> Result<History, OpenError> {
        let shelves = self.maintenance().shelves();
        follow(&shelves.env, shelves.dir(), after, self.log().durable_seq(), of)
    }
}

/// The moves of [`history_newest_first`]. What is damaged is an error in the place where it is met, and
/// what is sound before and behind it is told.
#[derive(Debug)]
pub struct NewestFirst {
    env: Arc<dyn Env>,
    dir: PathBuf,
    of: Option<RefName>,
    /// All that is older than this is still to be read.
    before: Seq,
    live: Option<BackwardReader>,
    problem: Option<OpenError>,
    /// Oldest first.
    read: Vec<RefMove>,
    sealed: Option<Sealed>,
}

/// What was sealed, as far as it is still to be read.
#[derive(Debug)]
struct Sealed {
    shelves: Arc<(Shelves, Anchor)>,
    /// Oldest first.
    parts: Vec<Part<Source>>,
    /// Of the part that was taken out last.
    rows: Option<Rows>,
}

/// What tells the moves of a range.
#[derive(Debug)]
enum Source {
    /// Of one ref.
    Table(Arc<Table>),
    History(HistoryFile),
}

impl Sealed {
    /// Opens what tells of a ref, or of all, and the live log before that.
    fn open(
        env: &Arc<dyn Env>,
        dir: &Path,
        of: Option<&RefName>,
    ) -> Result<(Result<LogReader, OpenError>, Sealed), OpenError> {
        let Parts { live, shelves, anchor, sealed: parts } = match of {
            Some(_) => Parts::open_with(env, dir, &Source::of_a_ref)?,
            None => Parts::open_with(env, dir, &Source::of_all)?,
        };
        Ok((live, Sealed { shelves: Arc::new((shelves, anchor)), parts, rows: None }))
    }
}

impl Source {
    fn of_all(shelves: &Shelves, anchor: Anchor, range: SeqRange) -> Result<Source, ReadError> {
        Ok(Source::History(open_unit(shelves, anchor, range)?.file))
    }

    /// The table if there is one that opens, or else history.
    fn of_a_ref(shelves: &Shelves, anchor: Anchor, range: SeqRange) -> Result<Source, ReadError> {
        match shelves.open_table(range) {
            Ok(table) if range.last != anchor.seq || table.identity().last_crc == anchor.crc => {
                Ok(Source::Table(Arc::new(table)))
            }
            _ => Source::of_all(shelves, anchor, range),
        }
    }
}

impl Iterator for NewestFirst {
    type Item = Result<RefMove, OpenError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(problem) = self.problem.take() {
                return Some(Err(problem));
            }
            if let Some(moved) = self.read.pop() {
                return Some(Ok(moved));
            }
            match self.read_more() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl NewestFirst {
    fn start(
        env: &Arc<dyn Env>,
        dir: &Path,
        durable: Seq,
        of: Option<&RefName>,
    ) -> Result<NewestFirst, OpenError> {
        let dir = settled(dir);
        let live = open_live(&**env, &dir);
        let mut newest = NewestFirst {
            env: env.clone(),
            dir,
            of: of.cloned(),
            before: Seq::MAX,
            live: None,
            problem: None,
            read: Vec::new(),
            sealed: None,
        };
        match live {
            Ok(live) => newest.live = Some(BackwardReader::new(live, durable)),
            Err(lost) if lost.kind() == ErrorKind::Corrupt => {
                newest.problem = newest.open_sealed(Seq::MAX)?;
            }
            Err(error) => return Err(error),
        }
        Ok(newest)
    }

    /// Reads the moves before those that were read; says whether there was anything to read.
    fn read_more(&mut self) -> Result<bool, OpenError> {
        let Some(mut live) = self.live.take() else {
            return Ok(self.read_sealed()?);
        };
        match self.read_block(&mut live) {
            Ok(true) => self.live = Some(live),
            Ok(false) => drop(self.open_sealed(live.reader().anchor().seq)?),
            Err(problem) => {
                self.read.clear();
                let live = live.into_start();
                let newest = live.anchor().seq;
                self.read_to_damage(live, problem);
                self.open_sealed(newest)?;
            }
        }
        Ok(true)
    }

    fn read_block(&mut self, live: &mut BackwardReader) -> Result<bool, OpenError> {
        let is_block = live.back()?;
        let mut oldest = None;
        while is_block && let Some(frame) = live.next()? {
            oldest.get_or_insert(frame.seq());
            self.read.extend(moves_of(&frame, &self.dir, self.of.as_ref())?);
        }
        self.before = oldest.unwrap_or(self.before);
        Ok(is_block)
    }

    /// What is sound before damage is found from the start of the live log.
    fn read_to_damage(&mut self, mut live: LogReader, met: OpenError) {
        let first = loop {
            match live.next() {
                Ok(Some(frame)) if frame.seq() < self.before => {
                    match moves_of(&frame, &self.dir, self.of.as_ref()) {
                        Ok(moves) => self.read.extend(moves),
                        Err(problem) => break problem,
                    }
                }
                Ok(_) => break met,
                Err(problem) => break problem.into(),
            }
        };
        self.problem = Some(first);
    }

    /// Opens what was sealed up to a transaction; says what is wrong with the live log, if it is lost.
    fn open_sealed(&mut self, newest: Seq) -> Result<Option<OpenError>, OpenError> {
        // The live file may have been swapped since it was opened: what is sealed may be newer.
        self.before = newest.next().min(Seq::MAX);
        if newest == Seq::ZERO {
            return Ok(None);
        }
        let (live, sealed) = Sealed::open(&self.env, &self.dir, self.of.as_ref())?;
        self.sealed = Some(sealed);
        Ok(live.err())
    }

    fn read_sealed(&mut self) -> Result<bool, ReadError> {
        let Some(sealed) = &mut self.sealed else { return Ok(false) };
        if let Some(mut rows) = sealed.rows.take() {
            if let Some(moves) = rows.next_chunk(Order::NewestFirst)? {
                self.read = moves;
                sealed.rows = Some(rows);
            }
            return Ok(true);
        }
        let Some(part) = sealed.parts.pop() else { return Ok(false) };
        if part.range.first < self.before {
            let span = Seq::ZERO..self.before;
            let (shelves, of) = (&sealed.shelves, self.of.as_ref());
            let rows = Rows::of(shelves, part.range, part.unit?, of, &span)?;
            sealed.rows = Some(rows);
        }
        Ok(true)
    }
}

/// Moves of one range that are still to be read.
#[derive(Debug)]
struct Rows {
    shelves: Arc<(Shelves, Anchor)>,
    range: SeqRange,
    /// The one ref they are about, if they are.
    of: Option<RefName>,
    /// The transactions they are of, and the one of those that was told last.
    span: Range<Seq>,
    told: Option<Seq>,
    wanted: Wanted,
}

#[derive(Debug)]
enum Wanted {
    /// What the table has of the ref; nothing if none of these transactions moved it.
    Trail(Option<Trail>),
    /// Those of these rows that are about the ref, if there is one.
    Rows(HistoryFile, Range<u32>),
}

impl Rows {
    /// The moves of a ref, or all, of the transactions in a span.
    fn of(
        shelves: &Arc<(Shelves, Anchor)>,
        range: SeqRange,
        source: Source,
        of: Option<&RefName>,
        span: &Range<Seq>,
    ) -> Result<Rows, ReadError> {
        let trail = |table: &Arc<Table>, name: &RefName| {
            Trail::of(table.clone(), name.as_bytes()).map(Wanted::Trail)
        };
        let history = |file| {
            let rows = rows_in(&file, span)?;
            Ok::<_, ReadError>(Wanted::Rows(file, rows))
        };
        let wanted = match (source, of) {
            (Source::History(file), _) => history(file)?,
            (Source::Table(table), Some(name)) if let Ok(trail) = trail(&table, name) => trail,
            (Source::Table(_), _) => {
                let (shelves, anchor) = &**shelves;
                history(open_unit(shelves, *anchor, range)?.file)?
            }
        };
        let (shelves, of) = (shelves.clone(), of.cloned());
        Ok(Rows { shelves, range, of, span: span.clone(), told: None, wanted })
    }

    /// Some more moves, oldest first; `None` if there are no more.
    fn next_chunk(&mut self, order: Order) -> Result<Option<Vec<RefMove>>, ReadError> {
        match (&mut self.wanted, &self.of) {
            (Wanted::Trail(Some(trail)), Some(name)) => {
                match told(trail, name, &self.span, order) {
                    Ok(moves) => {
                        let last = match order {
                            Order::OldestFirst => moves.as_ref().and_then(|moves| moves.last()),
                            Order::NewestFirst => moves.as_ref().and_then(|moves| moves.first()),
                        };
                        self.told = last.map(|moved| moved.seq).or(self.told);
                        Ok(moves)
                    }
                    Err(_) => {
                        self.search_on(order)?;
                        self.next_chunk(order)
                    }
                }
            }
            (Wanted::Rows(file, range), of) if range.start < range.end => {
                let moves = file.moves(split(range, order));
                let about = |moved: &Result<RefMove, _>| match (moved, of) {
                    (Ok(moved), Some(name)) => moved.name == *name,
                    _ => true,
                };
                Ok(Some(moves.filter(about).collect::<Result<_, _>>()?))
            }
            _ => Ok(None),
        }
    }

    /// History has what the table does not tell any more.
    fn search_on(&mut self, order: Order) -> Result<(), ReadError> {
        match (order, self.told) {
            (Order::OldestFirst, Some(told)) => self.span.start = told.next(),
            (Order::NewestFirst, Some(told)) => self.span.end = told,
            (_, None) => {}
        }
        let (shelves, anchor) = &*self.shelves;
        let file = open_unit(shelves, *anchor, self.range)?.file;
        let rows = rows_in(&file, &self.span)?;
        self.wanted = Wanted::Rows(file, rows);
        Ok(())
    }
}

fn rows_in(file: &HistoryFile, span: &Range<Seq>) -> Result<Range<u32>, ReadError> {
    Ok(file.row_at(span.start)?..file.row_at(span.end)?)
}

/// The moves of the next chunk of a trail that are of a span, oldest first.
fn told(
    trail: &mut Trail,
    name: &RefName,
    span: &Range<Seq>,
    order: Order,
) -> Result<Option<Vec<RefMove>>, ReadError> {
    let Some(steps) = trail.next_chunk(order)? else { return Ok(None) };
    let steps = steps.iter().rev().filter(|step| span.contains(&step.seq));
    let moves = steps.map(|step| step.ref_move(name)).collect::<Result<_, _>>();
    moves.map(Some).map_err(|problem| ReadError::because(ErrorKind::Corrupt, problem.to_string()))
}

/// Takes a chunk off one end of a range.
fn split(range: &mut Range<u32>, order: Order) -> Range<u32> {
    match order {
        Order::OldestFirst => {
            let end = range.end.min(range.start + CHUNK);
            std::mem::replace(&mut range.start, end)..end
        }
        Order::NewestFirst => {
            let start = range.start.max(range.end.saturating_sub(CHUNK));
            start..std::mem::replace(&mut range.end, start)
        }
    }
}

/// The moves of a transaction, all or those of one ref.
pub(crate) fn moves_of(
    frame: &Frame<'_>,
    dir: &Path,
    of: Option<&RefName>,
) -> Result<Vec<RefMove>, OpenError> {
    let mut moves = Vec::with_capacity(frame.row_count());
    for row in 0..frame.row_count() {
        let moved = RefMove::from_row(frame, row).map_err(|problem| OpenError::Row {
            dir: dir.to_owned(),
            seq: frame.seq(),
            row,
            problem,
        })?;
        if of.is_none_or(|of| *of == moved.name) {
            moves.push(moved);
        }
    }
    Ok(moves)
}
