//! Into a new store: past moves as rows, one transaction each, then what they do not come to.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use refstone_log::{
    Env, EnvLayer, Log, Mode, NoObserver, ObjectFormat, OsEnv, RefLogOptions, RefRow, Seq,
    Timestamp,
};

use super::{ExchangeError, GitRefs, ReflogEntry, Steps, Tell};
use crate::compact::CompactOptions;
use crate::edit::Target;
use crate::error::OpenError;
use crate::maintenance::Compacting;
use crate::name::RefName;
use crate::oid::ObjectId;
use crate::progress;
use crate::store::{CreateOptions, OpenOptions, RefStore};

/// Who moves refs where the source has a state and no move that leads to it.
///
/// No push has this actor: the user name of HTTP basic authentication has no colon.
pub const IMPORT_ACTOR: &str = "refstone:import";

/// Why: the state of the source.
pub(super) const STATE: &[u8] = b"as it was when it was imported";

/// The same, of a ref whose reflog is there and empty.
pub(super) const EMPTY_REFLOG: &[u8] = b"as it was when it was imported, with an empty reflog";

/// Rows of one transaction of states. Readers hold a transaction in memory.
const STATES_PER_TRANSACTION: usize = 8192;

/// What is appended between two waits for the kernel.
const UNWAITED_MAX: u64 = 1024;

/// What an import wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// References that are there now; `HEAD` is not counted, as nowhere.
    pub refs: u64,
    /// Past moves.
    pub moves: u64,
    /// The newest sequence, durable.
    pub last_seq: Seq,
    /// Whether the source says that this is all. A stream of moves that does not end with the marker
    /// for its end may have been cut off.
    pub is_whole: bool,
}

/// Makes a store of refs and reflogs, in an empty or absent directory; durable when it returns.
///
/// Each reflog entry is one transaction, with the raw identity as its actor; the entries of all
/// reflogs come in the order of their times, those of one reflog always in their own. `at` is the
/// time of the entry as far as that order and the present allow; the exact one stays in the actor.
/// Git logs where a symbolic ref came to, not where it pointed: while entries of `HEAD` are
/// replayed, it is detached.
///
/// Last come the refs as they are now, by [`IMPORT_ACTOR`], where the reflogs do not lead to them. Many
/// moves are sealed as history at once.
/// A 100,000 entries take about a second, since one sync at the end covers all. On an error, or
/// after a crash, the directory holds no complete store and is to be removed.
///
/// # Errors
///
/// If the refs could not be in one store, if it cannot be written, or `tell` says to stop.
pub fn import_refs(
    refs: &GitRefs,
    dir: &Path,
    mut tell: Tell<'_>,
) -> Result<Imported, ExchangeError> {
    check_state(refs.refs.iter(), refs.object_format)?;
    let head = refs.refs.get(&RefName::head());
    let head = head.and_then(Target::symbolic).cloned();
    let head = head.unwrap_or_else(|| CreateOptions::default().head);
    let mut import = Import::create(dir, refs.object_format, head)?;
    let mut steps = Steps::new("writing", Some(refs.steps()), &mut tell);
    for (name, at, entry) in in_order_of_time(refs) {
        steps.step()?;
        import.entry(name, at, entry)?;
    }
    import.come_to(refs, &mut steps)?;
    import.finish(&mut steps)
}

/// All entries, with the seconds since 1970 they are sorted by: no entry comes before one that is
/// before it in its own reflog.
fn in_order_of_time(refs: &GitRefs) -> Vec<(&RefName, u64, &ReflogEntry)> {
    let mut ordered = Vec::new();
    for (name, entries) in &refs.reflogs {
        let mut newest = 0;
        for entry in entries {
            newest = entry.time().max(newest);
            ordered.push((name, newest, entry));
        }
    }
    ordered.sort_by_key(|&(_, time, _)| time);
    ordered
}

/// Refuses what a store would not let happen, and no past move is judged for.
pub(super) fn check_state<'a>(
    refs: impl Iterator<Item = (&'a RefName, &'a Target)>,
    format: ObjectFormat,
) -> Result<(), ExchangeError> {
    let refs: HashMap<&[u8], (&RefName, &Target)> =
        refs.map(|(name, target)| (name.as_bytes(), (name, target))).collect();
    for &(name, target) in refs.values() {
        if let Some((directory, _)) = name.directories().find_map(|above| refs.get(above)) {
            let (name, directory) = (name.clone(), (*directory).clone());
            return Err(ExchangeError::DirectoryFile { name, directory });
        }
        check_value(name, target, format)?;
    }
    match refs.contains_key(&b"HEAD"[..]) {
        true => Ok(()),
        false => Err(value_error(&RefName::head(), "a store needs one, and there is none")),
    }
}

fn check_value(name: &RefName, target: &Target, format: ObjectFormat) -> Result<(), ExchangeError> {
    let problem = match target {
        _ if matches!(name.as_bytes(), b"FETCH_HEAD" | b"MERGE_HEAD") => {
            "git keeps more than an object id under this name".to_owned()
        }
        Target::Object(id) if id.format() != format => format!("{id} is no id of {format}"),
        Target::Object(id) if id.is_zero() => "zeros are no object".to_owned(),
        Target::Symbolic(to) if name.is_head() && !to.is_below_refs() => {
            format!("must point below refs/, not to '{to}'")
        }
        _ => return Ok(()),
    };
    Err(value_error(name, problem))
}

fn value_error(name: &RefName, problem: impl Into<String>) -> ExchangeError {
    ExchangeError::Value { name: name.clone(), problem: problem.into() }
}

/// A log being filled, and the refs as its rows leave them.
pub(super) struct Import {
    dir: PathBuf,
    log: Log,
    clock: Arc<Clock>,
    pub(super) refs: HashMap<RefName, Target>,
    moves: u64,
}

impl Import {
    pub(super) fn create(
        dir: &Path,
        object_format: ObjectFormat,
        head: RefName,
    ) -> Result<Import, ExchangeError> {
        let clock = Arc::new(Clock::default());
        let options = RefLogOptions { object_format, head: head.as_bytes().to_vec() };
        Log::create(&OsEnv, dir, &options).map_err(OpenError::from)?;
        // Nothing is acknowledged before the sync at the end, so nothing in between waits for one.
        let observer = Arc::new(NoObserver);
        let opened = Log::open_in(Mode::Buffered, clock.clone(), dir, observer, &mut |_| ());
        let (log, _) = opened.map_err(OpenError::from)?;
        let refs = HashMap::from([(RefName::head(), head.into())]);
        Ok(Import { dir: dir.to_owned(), log, clock, refs, moves: 0 })
    }

    /// Appends one past move.
    pub(super) fn append(
        &mut self,
        name: &RefName,
        new: Option<Target>,
        at_us: i64,
        row: RefRow<'_>,
    ) -> Result<(), ExchangeError> {
        self.clock.set(at_us);
        let commit = self.log.append(&[row])?;
        self.moves += 1;
        if self.moves.is_multiple_of(UNWAITED_MAX) {
            commit.wait()?;
        }
        self.put(name, new);
        Ok(())
    }

    fn put(&mut self, name: &RefName, target: Option<Target>) {
        match target {
            Some(target) => drop(self.refs.insert(name.clone(), target)),
            None => drop(self.refs.remove(name.as_bytes())),
        }
    }

    fn entry(&mut self, name: &RefName, at: u64, entry: &ReflogEntry) -> Result<(), ExchangeError> {
        let new = Some(entry.new).filter(|id| !id.is_zero());
        let old = Some(entry.old).filter(|id| !id.is_zero());
        let row = RefRow {
            actor: &entry.identity,
            refname: name.as_bytes(),
            old_oid: old.as_ref().map(ObjectId::as_bytes),
            new_oid: new.as_ref().map(ObjectId::as_bytes),
            symref: None,
            message: entry.message.as_ref().map(|message| message.as_slice()),
        };
        let at_us = i64::try_from(at).unwrap_or(i64::MAX).saturating_mul(1_000_000);
        self.append(name, new.map(Target::Object), at_us, row)
    }

    /// Moves every ref to where the source has it.
    fn come_to(
        &mut self,
        source: &GitRefs,
        steps: &mut Steps<'_, '_>,
    ) -> Result<(), ExchangeError> {
        let mut states = Vec::new();
        let is_empty = |name| source.reflogs.get(name).is_some_and(Vec::is_empty);
        for (name, target) in &source.refs {
            steps.step()?;
            if is_empty(name) || self.refs.get(name) != Some(target) {
                states.push((name, Some(target)));
            }
        }
        // Reflogs that have no ref: those rows say that it is gone.
        let gone = source.reflogs.keys().filter(|name| !source.refs.contains_key(*name));
        states.extend(gone.map(|name| (name, None)));
        for states in states.chunks(STATES_PER_TRANSACTION) {
            let rows = states.iter().map(|&(name, target)| OwnedRow {
                name,
                old: self.refs.get(name).and_then(Target::object),
                target,
                message: if is_empty(name) { EMPTY_REFLOG } else { STATE },
            });
            let rows: Vec<OwnedRow<'_>> = rows.collect();
            let rows: Vec<RefRow<'_>> = rows.iter().map(OwnedRow::borrow).collect();
            self.clock.set(i64::MAX);
            self.log.append(rows.as_slice())?.wait()?;
            states.iter().for_each(|&(name, target)| self.put(name, target.cloned()));
        }
        Ok(())
    }

    /// Makes all durable, and leaves no live log that the first writer would have to compact.
    pub(super) fn finish(self, steps: &mut Steps<'_, '_>) -> Result<Imported, ExchangeError> {
        self.log.sync()?;
        let last_seq = self.log.durable_seq();
        self.log.close()?;
        compact(&self.dir, steps)?;
        let refs = self.refs.keys().filter(|name| !name.is_head()).count() as u64;
        Ok(Imported { refs, moves: self.moves, last_seq, is_whole: true })
    }
}

fn compact(dir: &Path, steps: &mut Steps<'_, '_>) -> Result<(), ExchangeError> {
    let by_hand = OpenOptions::default().compacting(Compacting::ByHand);
    let store = RefStore::open_with(dir, by_hand)?;
    let mut told = Ok(());
    if store.compaction_is_due() {
        store.compact(CompactOptions::default(), &mut |progress| {
            if let progress::Progress::Sealing { done, of } = progress
                && told.is_ok()
            {
                told = steps.tell_of("sealing", done, Some(of));
            }
        })?;
    }
    store.close()?;
    told
}

/// A row that owns the ids it is borrowed with.
struct OwnedRow<'a> {
    name: &'a RefName,
    old: Option<ObjectId>,
    target: Option<&'a Target>,
    message: &'static [u8],
}

impl OwnedRow<'_> {
    fn borrow(&self) -> RefRow<'_> {
        let object = match self.target {
            Some(Target::Object(id)) => Some(id.as_bytes()),
            _ => None,
        };
        RefRow {
            actor: IMPORT_ACTOR.as_bytes(),
            refname: self.name.as_bytes(),
            old_oid: self.old.as_ref().map(ObjectId::as_bytes),
            new_oid: object,
            symref: self.target.and_then(Target::symbolic).map(RefName::as_bytes),
            message: Some(self.message),
        }
    }
}

/// The operating system with a clock that is set, and never runs ahead of the real one: a log's
/// time does not go back, so a move of the future would hold up the clock of all that follow.
#[derive(Debug, Default)]
struct Clock {
    at_us: AtomicI64,
}

impl Clock {
    fn set(&self, at_us: i64) {
        self.at_us.store(at_us, Ordering::Relaxed);
    }
}

impl EnvLayer for Clock {
    fn below(&self) -> &dyn Env {
        &OsEnv
    }

    fn now(&self) -> Timestamp {
        let set = self.at_us.load(Ordering::Relaxed);
        Timestamp::from_micros(set.min(OsEnv.now().as_micros()))
    }
}
