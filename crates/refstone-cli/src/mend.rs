//! What a new live log is made of, in the place of one that is damaged or lost.

use std::path::Path;

use refstone::{
    ErrorKind, OsEnv, RefName, ResumeError, ResumeOptions, Resumed, resume, sealed_identity,
};
use refstone_log::{OpenError, RepairError, RepairOptions, Repaired, repair};

use crate::exit::Failure;

/// What a new live log was made of.
pub(crate) enum Made {
    /// A damaged one.
    Repaired(Repaired),
    /// The history of one that is lost.
    Resumed(Resumed),
}

/// Saves what can be saved of the live log; where nothing can, goes on behind history.
pub(crate) fn made(
    dir: &Path,
    options: &RepairOptions,
    head: Option<RefName>,
) -> Result<Made, Failure> {
    let error = match repair(&OsEnv, dir, options) {
        Ok(repaired) => return Ok(Made::Repaired(repaired)),
        Err(error) => error,
    };
    match error {
        RepairError::NotDamaged { .. } | RepairError::Log(OpenError::MissingLive { .. }) => {
            go_on(dir, options, head, &error)
        }
        RepairError::Schema { .. } | RepairError::Foreign { .. } => {
            with_history(dir, options, head, &error)
        }
        // An older copy knows less of what was sealed than history does.
        RepairError::Sealed { .. } if options.schema_from.is_some() => {
            with_history(dir, options, head, &error)
        }
        RepairError::Log(OpenError::Schema { ref path, .. })
            if options.schema_from.as_ref() == Some(path) =>
        {
            Err(Failure::usage(error.to_string()).with_hint(
                "--schema-from takes a copy of this repository's refs.arrow; where history/ has files, \
                 those tell as much without it",
            ))
        }
        _ => Err(explain(&error)),
    }
}

/// Without its schema, transactions of a log are told from garbage by what history tells of it.
fn with_history(
    dir: &Path,
    options: &RepairOptions,
    head: Option<RefName>,
    error: &RepairError,
) -> Result<Made, Failure> {
    let sealed = match sealed_identity(dir, head.clone()) {
        Ok(Some(sealed)) => sealed,
        Ok(None) => return Err(explain(error)),
        Err(problem) => return Err(explain_resume(&problem, error)),
    };
    let options =
        RepairOptions { dry_run: options.dry_run, schema_from: None, sealed: Some(sealed) };
    match repair(&OsEnv, dir, &options) {
        Ok(repaired) => Ok(Made::Repaired(repaired)),
        Err(nothing @ RepairError::NothingSaved { .. }) => go_on(dir, &options, head, &nothing),
        Err(error) => Err(explain(&error)),
    }
}

fn go_on(
    dir: &Path,
    options: &RepairOptions,
    head: Option<RefName>,
    error: &RepairError,
) -> Result<Made, Failure> {
    let unreadable = matches!(error, RepairError::NothingSaved { .. });
    let resumed = resume(dir, &ResumeOptions { dry_run: options.dry_run, head, unreadable });
    resumed.map(Made::Resumed).map_err(|problem| explain_resume(&problem, error))
}

fn explain_resume(problem: &ResumeError, error: &RepairError) -> Failure {
    match problem {
        ResumeError::NotLost { .. } => explain(error),
        ResumeError::Open(problem) if problem.kind() == ErrorKind::Corrupt => {
            Failure::refused(problem.to_string()).with_hint(
                "nothing was changed; a file of history is restored from a backup, since a new live log \
                 can only go on behind a history that is whole",
            )
        }
        ResumeError::Open(problem) => problem.into(),
        ResumeError::NoHead { .. } => Failure::usage(problem.to_string()),
        problem => Failure::refused(problem.to_string()),
    }
}

fn explain(error: &RepairError) -> Failure {
    let failure = Failure::of_kind(error.kind(), error.to_string());
    match error {
        RepairError::NotDamaged { .. } => failure.with_hint(
            "`refstone verify` tells what it checked; what a crash left is taken up when the log \
             is opened",
        ),
        RepairError::Schema { .. } => failure.with_hint(
            "nothing was changed. Any older refs.arrow of this repository will do, from a backup or a \
             replica; without one nothing in this file can be saved, and the repository is restored from \
             a backup",
        ),
        RepairError::Foreign { .. } => failure.with_hint(
            "nothing was changed. Name a copy of this repository's refs.arrow; if that is one, nothing \
             in the damaged file can be saved: put the copy in its place, if `refstone verify` finds it \
             sound, and what came after it is lost",
        ),
        RepairError::TooManyGaps { .. } => {
            failure.with_hint("the file was not changed; docs/durability.md says what else there is")
        }
        RepairError::Log(error) => error.into(),
        _ => failure,
    }
}
