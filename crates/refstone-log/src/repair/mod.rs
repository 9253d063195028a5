//! Salvages the sound part of a damaged log into a new one that records what is missing.
//!
//! Nothing is overwritten: the damaged file keeps its bytes under another name, and gets it before
//! the new file, whole, checked and synced, takes the live name. A crash leaves the damaged log or
//! the repaired one, and the repair can be run again.

mod resume;
mod survey;

use std::collections::HashSet;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use self::resume::{Sealed, resume};
use self::survey::Survey;
use crate::create;
use crate::env::{Env, EnvFile};
use crate::error::{ErrorKind, OpenError};
use crate::files;
use crate::frame::schema::{Identity, SCHEMA_MAX, SchemaError};
use crate::frame::{PREFIX_LEN, WORD_LEN};
use crate::recover::{explain_open, refuse_empty};
use crate::rewrite::Successor;
use crate::seq::Seq;
use crate::walk::{Step, Walk};

/// How a log is repaired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairOptions {
    /// Only tell what a repair would do: take no lock, change nothing.
    pub dry_run: bool,
    /// A copy of this log's file, whose schema takes the place of a damaged one. It is needed only if
    /// more than one bit of the schema is wrong. It must have been made since transactions last left
    /// the live log.
    pub schema_from: Option<PathBuf>,
    /// What sealed history tells of the log, which takes the place of a damaged schema if no copy is named.
    /// History must be whole: what it lacks at its end is recorded as lost. What may have been given up
    /// behind the end, which no history tells, is given up again: see [`Sealed::given_up`].
    pub sealed: Option<Sealed>,
}

/// What a repair found, and did unless it was a dry run.
#[derive(Debug)]
#[non_exhaustive]
pub struct Repaired {
    /// The first damage, as [`verify`](crate::verify) tells it.
    pub damage: OpenError,
    /// Sound transactions: those of the repaired log.
    pub transactions: u64,
    /// The newest of them.
    pub last_seq: Seq,
    /// The sequences of transactions that are lost for certain, as inclusive ranges.
    pub lost: Vec<(Seq, Seq)>,
    /// Sequences behind these and the sound ones that may have been given out: what stood there is
    /// damaged. They are never given out again.
    pub given_up: Option<(Seq, Seq)>,
    /// Where the damaged bytes stand in the original, in bytes.
    pub damaged: Vec<Range<u64>>,
    /// Where the bytes of a write stand that a crash cut short, if any. They are no damage: an
    /// opening would have taken them off.
    pub torn: Option<Range<u64>>,
    /// Where the original is kept; `None` after a dry run.
    pub original: Option<PathBuf>,
}

/// Why a log was not repaired. Its file is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    /// There is nothing to repair. What a crash left is no damage: opening the log is enough.
    #[error("{path}: nothing in this log is damaged, so there is nothing to repair")]
    NotDamaged {
        /// The live file.
        path: PathBuf,
    },
    /// The schema message is damaged, and with it what makes transactions recognisable.
    #[error(
        "{path}, byte 0: {problem}; more than one bit of the schema is wrong, and only with the \
         schema can transactions be told from garbage: name a copy of this log's file \
         (--schema-from)"
    )]
    Schema {
        /// The live file.
        path: PathBuf,
        /// What is wrong.
        problem: SchemaError,
    },
    /// No transaction fits the schema that was given.
    #[error("{path}: no transaction of the damaged log fits this schema: it is another log's")]
    Foreign {
        /// The file with the schema.
        path: PathBuf,
    },
    /// No transaction fits what sealed history tells of the log.
    #[error(
        "{path}: {problem}, and no transaction in it is one of the log that history came from: nothing in \
         this file can be saved"
    )]
    NothingSaved {
        /// The live file.
        path: PathBuf,
        /// What is wrong with its schema.
        problem: SchemaError,
    },
    /// A file of sealed history holds transactions that the live log has lost.
    #[error(
        "{path}: this file holds transactions that the damaged log lacks, and by the schema the log \
         was sealed up to {anchor} only; a repair would give them up. If the schema is a copy's, name \
         a newer copy; else move the file away, keep it, and repair again"
    )]
    Sealed {
        /// The file.
        path: PathBuf,
        /// The newest transaction that had left the live log, as its schema tells.
        anchor: Seq,
    },
    /// The schema message has no room for so many gaps.
    #[error("{path}: the damage leaves {gaps} gaps, which are more than a log can record")]
    TooManyGaps {
        /// The live file.
        path: PathBuf,
        /// How many there are.
        gaps: usize,
    },
    /// There is no log, it is locked, a newer version wrote it, or the operating system refused an
    /// operation.
    #[error(transparent)]
    Log(#[from] OpenError),
}

impl RepairError {
    /// The sort of this error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            RepairError::NotDamaged { .. } | RepairError::Foreign { .. } => ErrorKind::Invalid,
            RepairError::Schema { .. }
            | RepairError::NothingSaved { .. }
            | RepairError::Sealed { .. }
            | RepairError::TooManyGaps { .. } => ErrorKind::Corrupt,
            RepairError::Log(error) => error.kind(),
        }
    }
}

/// Makes a new live log of every sound transaction of a damaged one, with the lost sequences
/// recorded as gaps, durable when it returns. The damaged file stays beside it as
/// `refs.arrow.damaged-<n>`.
///
/// Sound is a transaction whose checksum is right, wherever it stands. What an opening would take
/// up or take off behind the published end is judged as an opening does. Needs as much space as the
/// log takes.
///
/// # Errors
/// If nothing is damaged, if a writer has the lock, if the schema is damaged beyond repair, or as
/// the operating system says. The log is as it was then, and the repair can be run again.
pub fn repair(env: &dyn Env, dir: &Path, options: &RepairOptions) -> Result<Repaired, RepairError> {
    let path = files::live(dir);
    // Before the lock, which would leave its file where there is no log.
    let file = env.open_read(&path).map_err(|error| explain_open(env, dir, error))?;
    let _lock = if options.dry_run { None } else { Some(create::lock(env, dir)?) };
    refuse_empty(env, dir, &*file)?;
    let file: Arc<dyn EnvFile> = Arc::from(file);
    let mut survey = Survey::run(file.clone(), &path, || other_schema(env, options))?;
    refuse_foreign(&path, &survey, options)?;
    if let (true, None, Some(sealed)) =
        (survey.has_other_schema, &options.schema_from, &options.sealed)
    {
        // What earlier repairs gave up behind the end, only the schema told.
        survey.give_up_to(sealed.given_up().1);
    }
    refuse_to_lose_sealed(env, dir, &survey)?;
    let original = match options.dry_run || survey.damage.is_none() {
        true => None,
        false => Some(replace(env, dir, &*file, &survey)?),
    };
    report(survey, original, path)
}

/// A schema under which nothing is found is another log's, or there is nothing to be found.
fn refuse_foreign(
    path: &Path,
    survey: &Survey,
    options: &RepairOptions,
) -> Result<(), RepairError> {
    if !survey.has_other_schema || survey.transactions > 0 {
        return Ok(());
    }
    match (&options.schema_from, &survey.damage) {
        (Some(path), _) => Err(RepairError::Foreign { path: path.clone() }),
        (None, Some(OpenError::Schema { problem, .. })) => {
            Err(RepairError::NothingSaved { path: path.to_owned(), problem: problem.clone() })
        }
        _ => Ok(()),
    }
}

/// What was sealed and not yet taken out of the live log is not lost; but a store that believes the
/// gaps would take the file for a leftover.
fn refuse_to_lose_sealed(env: &dyn Env, dir: &Path, survey: &Survey) -> Result<(), RepairError> {
    let history = files::history(dir);
    let names = match env.list(&history) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        names => names.map_err(OpenError::io(&history, "list the directory"))?,
    };
    let anchor = survey.walk.identity.anchor.seq;
    let lost = survey.lost.iter().chain(&survey.given_up);
    for name in names {
        let Some((first, last)) = files::parse_sealed(&name) else { continue };
        let holds = |(from, to): &(Seq, Seq)| *from <= last && first <= *to;
        if last > anchor && lost.clone().any(holds) {
            return Err(RepairError::Sealed { path: history.join(name), anchor });
        }
    }
    Ok(())
}

fn report(
    survey: Survey,
    original: Option<PathBuf>,
    path: PathBuf,
) -> Result<Repaired, RepairError> {
    let Some(damage) = survey.damage else { return Err(RepairError::NotDamaged { path }) };
    Ok(Repaired {
        damage,
        transactions: survey.transactions,
        last_seq: survey.walk.tail.seq,
        lost: survey.lost,
        given_up: survey.given_up,
        damaged: survey.damaged,
        torn: survey.torn,
        original,
    })
}

/// The identity that takes the place of a damaged schema: that of a copy, or what history tells.
fn other_schema(env: &dyn Env, options: &RepairOptions) -> Result<Option<Identity>, RepairError> {
    let Some(path) = &options.schema_from else {
        return Ok(options.sealed.clone().map(Sealed::identity));
    };
    let file = env.open_read(path).map_err(OpenError::io(path, "open"))?;
    Ok(Some(Walk::start(Arc::from(file), path)?.identity))
}

/// Writes the new log, keeps the old one, and swaps them; returns where the old one is.
fn replace(
    env: &dyn Env,
    dir: &Path,
    file: &dyn EnvFile,
    survey: &Survey,
) -> Result<PathBuf, RepairError> {
    let identity = &survey.walk.identity;
    if identity.encode().len() > SCHEMA_MAX {
        let gaps = identity.gaps.ranges().len();
        return Err(RepairError::TooManyGaps { path: files::live(dir), gaps });
    }
    let mut successor = Successor::start(env, dir, identity, 0)?;
    write(&mut successor, file, survey)?;
    check(&successor, survey)?;
    let kept = keep_original(env, dir, file)?;
    let live = files::live(dir);
    let named = successor.draft.rename(&live);
    named.map_err(OpenError::io(&live, "give the repaired log its name"))?;
    create::sync_names(env, dir)?;
    Ok(kept)
}

/// Copies the sound frames, all of them published, and syncs.
fn write(
    successor: &mut Successor<'_>,
    file: &dyn EnvFile,
    survey: &Survey,
) -> Result<(), OpenError> {
    let mut unpublished = survey.unpublished.iter().peekable();
    let word = survey.walk.layout.word();
    for range in &survey.sound {
        let new_start = successor.skip_to(range.start);
        successor.catch_up(file, range.end)?;
        while let Some(slot) = unpublished.next_if(|slot| **slot < range.end) {
            let offset = new_start + (slot - range.start) + (PREFIX_LEN - WORD_LEN) as u64;
            successor.draft.write(&word, offset)?;
        }
    }
    successor.finish(0).map(|_| ())
}

/// Reads the new log before it gets the name: it must have all that it is to have.
fn check(successor: &Successor<'_>, survey: &Survey) -> Result<(), OpenError> {
    let mut walk = Walk::start(successor.draft.file.clone(), &successor.draft.path)?;
    let mut transactions = 0;
    let problem = loop {
        match walk.step()? {
            Step::Frame { proven: true, .. } => transactions += 1,
            Step::Frame { .. } => break None,
            Step::End { problem } => break Some(problem),
        }
    };
    let whole = transactions == survey.transactions
        && walk.next_seq() == survey.walk.next_seq()
        && walk.tail_is_clean()?;
    match problem {
        Some(_) if whole => Ok(()),
        Some(problem) => Err(walk.damage(problem.into())),
        None => Err(OpenError::Invalid("the repaired log is not whole".to_owned())),
    }
}

/// Gives the damaged file its second name, durable; returns that.
fn keep_original(env: &dyn Env, dir: &Path, file: &dyn EnvFile) -> Result<PathBuf, OpenError> {
    let names = env.list(dir).map_err(OpenError::io(dir, "list the directory"))?;
    let used: HashSet<u32> = names.iter().filter_map(|name| files::parse_damaged(name)).collect();
    // A repair that was cut short may have kept it already.
    for number in &used {
        let kept = files::damaged(dir, *number);
        if same_bytes(env, &kept, file).map_err(OpenError::io(&kept, "read"))? {
            env.sync_dir(dir).map_err(OpenError::io(dir, "sync the directory"))?;
            return Ok(kept);
        }
    }
    let free = (1..=u32::MAX).find(|number| !used.contains(number)).unwrap_or(u32::MAX);
    let kept = files::damaged(dir, free);
    env.hard_link(&files::live(dir), &kept)
        .map_err(OpenError::io(&kept, "keep the damaged log under this name"))?;
    env.sync_dir(dir).map_err(OpenError::io(dir, "sync the directory"))?;
    Ok(kept)
}

fn same_bytes(env: &dyn Env, path: &Path, file: &dyn EnvFile) -> io::Result<bool> {
    const CHUNK: usize = 256 << 10;
    let other = env.open_read(path)?;
    if other.len()? != file.len()? {
        return Ok(false);
    }
    let (mut ours, mut theirs) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut offset = 0;
    loop {
        let read = file.read_full_at(&mut ours, offset)?;
        if other.read_full_at(&mut theirs, offset)? != read || ours[..read] != theirs[..read] {
            return Ok(false);
        }
        if read < CHUNK {
            return Ok(true);
        }
        offset += CHUNK as u64;
    }
}
