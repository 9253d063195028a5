//! The refs move: one frame for a push, or a refusal that leaves no trace.

use std::borrow::Cow;
use std::fmt;

use refstone::{
    Edit, ErrorKind, ReadError, Reason, RefStore, Refusal, Transaction, TransactionError,
};

use crate::heal;
use crate::quarantine::Kept;
use crate::refs::NoPush;
use crate::text;

use super::rules::Judge;
use super::ruling::Ruling;
use super::{Push, Speaker};

/// What a push means for the repository as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Each command got its verdict.
    Decided,
    /// The log is poisoned: the repository must be opened anew.
    Poisoned,
}

/// The log failed, and with it everything that was asked of it.
#[derive(Debug)]
struct Failure {
    kind: ErrorKind,
    text: String,
}

/// Moves the refs of all open rulings. `kept` protects their objects until the frame is durable.
pub(super) async fn apply(push: &Push, judge: &mut Judge<'_>, kept: Option<Kept>) -> Outcome {
    let applied = match push.request.capabilities.atomic {
        true => atomically(push, judge).await,
        false => each(push, judge).await,
    };
    let Err(failure) = applied else {
        return Outcome::Decided;
    };
    let (repository, problem) = (push.repository.name(), text::one_line(&failure.text));
    tracing::error!(%repository, %problem, "a push could not be committed");
    judge.speaker.error(format_args!("{}", failure.told()));
    judge.refuse_open(failure.reason());
    if let Some(kept) = kept.filter(|_| failure.leaves_doubt()) {
        kept.leave();
    }
    failure.outcome()
}

async fn atomically(push: &Push, judge: &mut Judge<'_>) -> Result<(), Failure> {
    let transaction = transaction(push, judge.rulings.iter().filter_map(Ruling::edit));
    let committed = blocking(push, move |store| store.commit(&transaction)).await?;
    match committed {
        Ok(committed) => {
            let open = judge.rulings.iter_mut().filter(|ruling| ruling.is_open());
            open.for_each(|ruling| ruling.committed(&committed));
            Ok(())
        }
        Err(TransactionError::Refused(refusal)) => {
            refuse(judge, &refusal);
            judge.all_or_nothing();
            Ok(())
        }
        Err(error) => Err(Failure::new(error.kind(), &error)),
    }
}

/// The refusal of a transaction names the first ref at fault; the others fail with it.
fn refuse(judge: &mut Judge<'_>, refusal: &Refusal) {
    tell(judge.speaker, &mut judge.unreadable, refusal);
    let named = |ruling: &&mut Ruling<'_>| ruling.name.as_ref() == Some(&refusal.name);
    for ruling in judge.rulings.iter_mut().filter(named) {
        ruling.refuse(refusal.reason.short());
    }
}

fn tell(speaker: &Speaker, unreadable: &mut Option<ReadError>, refusal: &Refusal) {
    match &refusal.reason {
        Reason::Unreadable { problem } => {
            speaker.error(format_args!("{}", heal::told(problem)));
            unreadable.get_or_insert_with(|| problem.clone());
        }
        _ => speaker.error(format_args!("{refusal}")),
    }
}

/// One frame for all that pass.
async fn each(push: &Push, judge: &mut Judge<'_>) -> Result<(), Failure> {
    let mut open: Vec<_> = judge.rulings.iter_mut().filter(|ruling| ruling.is_open()).collect();
    let transaction = transaction(push, open.iter().filter_map(|ruling| ruling.edit()));
    let answers = blocking(push, move |store| store.commit_each(&transaction)).await?;
    let answers = answers.map_err(|error| Failure::new(error.kind(), &error))?;
    for (ruling, answer) in open.iter_mut().zip(answers) {
        match answer {
            Ok(committed) => ruling.committed(&committed),
            Err(refusal) => {
                tell(judge.speaker, &mut judge.unreadable, &refusal);
                ruling.refuse(refusal.reason.short());
            }
        }
    }
    Ok(())
}

fn transaction(push: &Push, edits: impl Iterator<Item = Edit>) -> Transaction {
    let transaction = Transaction::new(push.actor.clone()).with_message("push");
    edits.fold(transaction, Transaction::with)
}

/// Commits wait for the disk on a thread of their own, so that many pushes share one sync.
async fn blocking<T: Send + 'static>(
    push: &Push,
    work: impl FnOnce(&RefStore) -> T + Send + 'static,
) -> Result<T, Failure> {
    let Some(store) = push.repository.store().cloned() else {
        return Err(Failure::new(ErrorKind::ReadOnly, &NoPush::ReadOnly));
    };
    let done = tokio::task::spawn_blocking(move || work(&store)).await;
    done.map_err(|panic| Failure::new(ErrorKind::Unknown, &panic))
}

impl Failure {
    fn new(kind: ErrorKind, error: &dyn fmt::Display) -> Self {
        Self { kind, text: error.to_string() }
    }

    /// What the client is told. The full text of some names the server's directories.
    fn told(&self) -> Cow<'_, str> {
        match self.kind {
            ErrorKind::LowSpace => NoPush::LowSpace.to_string().into(),
            ErrorKind::Corrupt | ErrorKind::Io | ErrorKind::NotFound | ErrorKind::Permission => {
                "the reference log cannot be written; the server's log has the reason".into()
            }
            _ => self.text.as_str().into(),
        }
    }

    fn reason(&self) -> &'static str {
        match self.kind {
            ErrorKind::Unknown => "outcome unknown: fetch before you push again",
            ErrorKind::LowSpace => "the server is short of disk space",
            _ => "failed to update ref",
        }
    }

    /// Whether the refs may have moved all the same.
    fn leaves_doubt(&self) -> bool {
        self.kind == ErrorKind::Unknown
    }

    fn outcome(&self) -> Outcome {
        match self.kind {
            ErrorKind::Unknown | ErrorKind::Poisoned => Outcome::Poisoned,
            _ => Outcome::Decided,
        }
    }
}
