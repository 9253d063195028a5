//! Goes on behind sealed history where the live log is lost, or is an older copy of itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use refstone_log::{Anchor, Env, LogReader, ObjectFormat, Sealed, Seq, Timestamp};

use crate::archive::{SealedUnit, open_sealed, os_env};
use crate::error::{OpenError, ReadError};
use crate::fit::{another_log, newer_history};
use crate::history::moves_of;
use crate::name::RefName;
use crate::orphaned::Orphaned;
use crate::ranges::Shelf;
use crate::row::RefMove;
use crate::shelves::Shelves;
use crate::stop::Stop;
use crate::verify::check_history;

/// How a store goes on behind its history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResumeOptions {
    /// Only tell what would be done: take no lock, change nothing.
    pub dry_run: bool,
    /// What `HEAD` pointed to when the store was created. It is needed only if neither an older copy of
    /// the live log nor a table tells.
    pub head: Option<RefName>,
    /// Take a live log whose schema is damaged for lost. That it has nothing that can be saved is for the
    /// caller to know: see [`sealed_identity`].
    pub unreadable: bool,
}

/// What [`resume`] found, and did unless it was a dry run.
#[derive(Debug)]
#[non_exhaustive]
pub struct Resumed {
    /// What is wrong with the live log.
    pub damage: OpenError,
    /// The last transaction of history, which is now the newest one.
    pub sealed_seq: Seq,
    /// Sequences behind it that the lost live log may have given out, the first and the last: recorded
    /// as a gap, and never given out again.
    pub given_up: (Seq, Seq),
    /// Where the older copy is kept, if there was one; `None` after a dry run.
    pub original: Option<PathBuf>,
}

/// Why a store does not go on behind its history. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// The live log is there, and goes as far as history.
    #[error(
        "{dir}: expected a live log that is missing or older than history, found one that is neither"
    )]
    NotLost {
        /// The directory of the store.
        dir: PathBuf,
    },
    /// The live log has what history has not.
    #[error(
        "{dir}: transaction {seq} of refs.arrow is not what history has under that number; it is no \
         older copy of this log. Move it away, keep it, and repair again"
    )]
    Differs {
        /// The directory of the store.
        dir: PathBuf,
        /// The first such transaction.
        seq: Seq,
    },
    /// The live log is not the one that history came from.
    #[error(
        "{dir}: refs.arrow is another log than the one that history came from. Put the right one back; \
         if there is none, move this one away, keep it, and repair again"
    )]
    AnotherLog {
        /// The directory of the store.
        dir: PathBuf,
    },
    /// A table proves that there was more history than there is.
    #[error(
        "{table}: it has the transactions {first} to {last}, and history ends with {sealed}: a file of \
         history is missing. Restore it from a backup; or, to go on without it, move the table away and \
         repair again"
    )]
    MoreSealed {
        /// The table.
        table: PathBuf,
        /// The first of its transactions.
        first: Seq,
        /// The last of them.
        last: Seq,
        /// The last transaction of history.
        sealed: Seq,
    },
    /// Nothing tells what `HEAD` pointed to at first.
    #[error(
        "{dir}: neither a table nor an older copy of refs.arrow tells what HEAD pointed to when the \
         repository was created; say it (--head refs/heads/main)"
    )]
    NoHead {
        /// The directory of the store.
        dir: PathBuf,
    },
    /// There is nothing to go on behind, history is not whole, the lock is held, or the operating
    /// system refused an operation.
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl From<refstone_log::OpenError> for ResumeError {
    fn from(error: refstone_log::OpenError) -> ResumeError {
        ResumeError::Open(error.into())
    }
}

impl From<ReadError> for ResumeError {
    fn from(error: ReadError) -> ResumeError {
        ResumeError::Open(error.into())
    }
}

/// Makes a new live log behind the sealed history of a store whose live log is missing, or an older
/// copy that ends before history does, or, if asked, unreadable; durable when it returns.
///
/// The transactions that only the lost live log had are lost. How many they were nobody knows, so as
/// many sequences as microseconds since the last sealed transaction, and 2³² more, are recorded as a
/// gap: more than a log can have given out. They are never given out again. All that an older copy has
/// is in history, which is compared; it is kept beside the new log. Costs a read of all history.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let dir = &dir.path().join("refstone");
/// # use refstone::{CompactOptions, CreateOptions, Edit, ObjectId, RefName, RefStore, Transaction};
/// # RefStore::create(dir, &CreateOptions::default())?;
/// # let store = RefStore::open(dir)?;
/// # let id = ObjectId::from_bytes(&[1; 20])?;
/// use refstone::ResumeOptions;
/// let main = RefName::new("refs/heads/main")?;
/// store.commit(&Transaction::new("alice").with(Edit::create(main.clone(), id)))?;
/// store.compact(CompactOptions::default(), &mut |_| ())?;
/// store.close()?;
/// std::fs::remove_file(dir.join("refs.arrow"))?;
///
/// let resumed = refstone::resume(dir, &ResumeOptions::default())?;
/// assert_eq!(resumed.sealed_seq.get(), 1);
/// assert_eq!(RefStore::open(dir)?.view().get(&main)?, Some(id.into()));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`ResumeError`]: above all if the live log is not lost, or if history is not whole.
pub fn resume(dir: &Path, options: &ResumeOptions) -> Result<Resumed, ResumeError> {
    let env = &os_env();
    // Before the lock, which would leave its file where there is nothing to go on behind.
    let mut judged = judge(env, dir, options)?;
    let original = match options.dry_run {
        true => {
            verify_files(&judged.files)?;
            None
        }
        false => refstone_log::resume(&**env, dir, || {
            judged = judge(env, dir, options)?;
            verify_files(&judged.files)?;
            Ok::<_, ResumeError>(judged.sealed.clone())
        })?,
    };
    let Judged { damage, sealed, .. } = judged;
    let given_up = sealed.given_up();
    Ok(Resumed { damage, sealed_seq: sealed.anchor.seq, given_up, original })
}

/// What history tells of the log that it came from, which takes the place of a damaged schema in
/// `refstone_log::RepairOptions::sealed`; `None` if there is no history that can be read. `head` is what
/// `HEAD` pointed to at first, if no table tells. Changes nothing.
///
/// # Errors
///
/// [`ResumeError`] if history is not whole, or if nothing tells what `HEAD` pointed to.
pub fn sealed_identity(dir: &Path, head: Option<RefName>) -> Result<Option<Sealed>, ResumeError> {
    let env = &os_env();
    let Some(whole) = Whole::find(env, dir)? else { return Ok(None) };
    let head = head.or(whole.head.clone()).ok_or(ResumeError::NoHead { dir: dir.to_owned() })?;
    Ok(Some(whole.sealed(&**env, head.as_bytes().to_vec())))
}

/// History of which no file is missing, as far as names and ends of files tell.
struct Whole {
    log_id: [u8; 16],
    object_format: ObjectFormat,
    anchor: Anchor,
    /// What `HEAD` pointed to at first, if a table tells.
    head: Option<RefName>,
    files: Vec<SealedUnit>,
}

impl Whole {
    fn find(env: &Arc<dyn Env>, dir: &Path) -> Result<Option<Whole>, ResumeError> {
        let Some(Orphaned { shelves, anchor, head }) = Orphaned::find(env, dir) else {
            return Ok(None);
        };
        expect_no_more(&shelves, anchor.seq)?;
        let files = open_sealed(&shelves, anchor)?.into_iter().map(|part| part.unit);
        let files = files.collect::<Result<_, _>>()?;
        let Shelves { log_id, object_format, .. } = shelves;
        Ok(Some(Whole { log_id, object_format, anchor, head, files }))
    }

    fn sealed(&self, env: &dyn Env, head: Vec<u8>) -> Sealed {
        let identities = self.files.iter().map(|unit| unit.file.identity());
        let gaps = identities.flat_map(|identity| identity.gaps.iter().copied()).collect();
        let Whole { log_id, object_format, anchor, .. } = *self;
        Sealed { log_id, object_format, head, anchor, gaps, now: env.now() }
    }
}

/// What is wrong with the live log, and the history that a new one goes on behind.
struct Judged {
    damage: OpenError,
    sealed: Sealed,
    files: Vec<SealedUnit>,
}

fn judge(env: &Arc<dyn Env>, dir: &Path, options: &ResumeOptions) -> Result<Judged, ResumeError> {
    let (damage, copy) = lost(env, dir, options.unreadable)?;
    let Some(whole) = Whole::find(env, dir)? else { return Err(damage.into()) };
    let head = match copy {
        Some(copy) if copy.log_id() != whole.log_id => {
            return Err(ResumeError::AnotherLog { dir: dir.to_owned() });
        }
        Some(copy) => {
            let head = copy.head().to_vec();
            expect_in_history(copy, dir, &whole.files)?;
            head
        }
        None => match options.head.clone().or(whole.head.clone()) {
            Some(head) => head.as_bytes().to_vec(),
            None => return Err(ResumeError::NoHead { dir: dir.to_owned() }),
        },
    };
    let sealed = whole.sealed(&**env, head);
    Ok(Judged { damage, sealed, files: whole.files })
}

/// A table is made of a history file, and outlives it only if that was lost.
fn expect_no_more(shelves: &Shelves, sealed: Seq) -> Result<(), ResumeError> {
    let newest = shelves.list(&shelves.tables)?.into_iter().max_by_key(|range| range.last);
    match newest.filter(|range| range.last > sealed) {
        Some(range) => Err(ResumeError::MoreSealed {
            table: shelves.tables.path(range),
            first: range.first,
            last: range.last,
            sealed,
        }),
        None => Ok(()),
    }
}

/// Reads every byte: once the live log goes on behind them, nobody can tell any more that a file was
/// damaged before.
fn verify_files(files: &[SealedUnit]) -> Result<(), ReadError> {
    let mut reached = Timestamp::default();
    for unit in files {
        check_history(unit, reached, Stop::NEVER)?;
        reached = unit.file.identity().last_at;
    }
    Ok(())
}

/// What is wrong with the live log, and the log, if it is an older copy.
fn lost(
    env: &Arc<dyn Env>,
    dir: &Path,
    unreadable: bool,
) -> Result<(OpenError, Option<LogReader>), ResumeError> {
    use refstone_log::OpenError::{MissingLive, Schema};
    let live = match LogReader::open(&**env, dir) {
        Err(error @ MissingLive { .. }) => return Ok((error.into(), None)),
        Err(Schema { path, problem }) if unreadable && problem.is_damage() => {
            return Ok((Schema { path, problem }.into(), None));
        }
        opened => opened?,
    };
    let mut report = refstone_log::verify(&**env, dir)?;
    if let Some(damage) = report.damage.take() {
        return Err(damage.into());
    }
    let shelf = Shelf::history(dir);
    let files = shelf.list(&**env).map_err(|error| ReadError::io(shelf.dir(), "list", &error))?;
    if another_log(&**env, &shelf, &files, Seq::ZERO, live.log_id()).is_some() {
        return Err(ResumeError::AnotherLog { dir: dir.to_owned() });
    }
    let newest = Seq::new(report.last_seq.get() + report.unpublished);
    match newer_history(&shelf, &files, newest) {
        Some(older) => Ok((older.into(), Some(live))),
        None => Err(ResumeError::NotLost { dir: dir.to_owned() }),
    }
}

/// A copy of the log that was written to since it was made has what history has not.
fn expect_in_history(
    mut copy: LogReader,
    dir: &Path,
    files: &[SealedUnit],
) -> Result<(), ResumeError> {
    let mut sealed = moves_behind(copy.anchor().seq, files)?;
    while let Some(frame) = copy.next()? {
        for moved in moves_of(&frame, dir, None)? {
            if sealed.next().transpose()?.as_ref() != Some(&moved) {
                return Err(ResumeError::Differs { dir: dir.to_owned(), seq: moved.seq });
            }
        }
    }
    Ok(())
}

fn moves_behind(
    seq: Seq,
    files: &[SealedUnit],
) -> Result<impl Iterator<Item = Result<RefMove, ReadError>>, ReadError> {
    let mut moves = Vec::new();
    for SealedUnit { file, .. } in files.iter().filter(|unit| unit.range.last > seq) {
        moves.push(file.moves(file.row_at(seq.next())?..file.rows()));
    }
    Ok(moves.into_iter().flatten().map(|moved| Ok(moved?)))
}
