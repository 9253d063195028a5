//! Errors of the store and of the server, as failures of a command: what they mean for the caller, and
//! what helps.

use refstone::exchange::ExchangeError;
use refstone::{AppendError, CommitError, ErrorKind, OpenError, ReadError, TransactionError};
use refstone_server::InitError;

use crate::exit::{Code, Failure, chain};
use crate::holder;

/// What to do about damage of history or a table: the error itself says which, and what helps.
const DAMAGED: &str = "`refstone verify` tells all that is damaged, and what is sound";

/// What to do about a live log that is damaged or lost.
pub(crate) const DAMAGED_LIVE: &str = "\
    the live log is damaged: it can be read up to there, and not written. `refstone verify` tells what is \
    sound; without a backup that goes as far, `refstone repair --dry-run` tells what can be saved";

pub(crate) fn code_of(kind: ErrorKind) -> Code {
    match kind {
        ErrorKind::AlreadyExists | ErrorKind::Corrupt | ErrorKind::Invalid | ErrorKind::Refused => {
            Code::Refused
        }
        _ => Code::Environment,
    }
}

pub(crate) fn hint_of(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::Locked => Some(
            "a running `refstone serve` holds the lock: push through it to move references; \
             `refs`, `log`, `tail`, `stat` and `verify` read beside it",
        ),
        ErrorKind::Corrupt => Some(DAMAGED),
        ErrorKind::LowSpace => {
            Some("what was acknowledged before stands; this was not made, and may be tried again")
        }
        ErrorKind::ReadOnly => Some("`refs`, `log` and `verify` read it all the same"),
        ErrorKind::NoSpace => Some("what was acknowledged before stands; this was not made"),
        ErrorKind::Permission => {
            Some("run the command as the user who owns the repository, on a writable file system")
        }
        ErrorKind::Unknown => Some(
            "`refstone log` tells whether the transaction happened, once the log has been opened \
             again",
        ),
        _ => None,
    }
}

impl From<&refstone_log::OpenError> for Failure {
    fn from(error: &refstone_log::OpenError) -> Failure {
        let failure = Failure::of_kind(error.kind(), held(error.to_string(), error));
        match error {
            refstone_log::OpenError::Schema { problem, .. } if !problem.is_damage() => {
                failure.with_hint("another version of refstone wrote it, and reads it")
            }
            refstone_log::OpenError::OnlyLock { .. } => failure.with_hint(
                "nothing here tells what the log was. Without a backup move the repository away, keep it, \
                 and make another with `refstone init` or by a push: its objects can be copied",
            ),
            _ if error.kind() == ErrorKind::Corrupt => failure.with_hint(DAMAGED_LIVE),
            _ => failure,
        }
    }
}

/// The same text, with who holds the lock, if that is what it is about.
fn held(text: String, error: &refstone_log::OpenError) -> String {
    match error {
        refstone_log::OpenError::Locked { path } => text + &holder::shown(path),
        _ => text,
    }
}

impl From<refstone_log::OpenError> for Failure {
    fn from(error: refstone_log::OpenError) -> Failure {
        Failure::from(&error)
    }
}

impl From<&OpenError> for Failure {
    fn from(error: &OpenError) -> Failure {
        match error {
            OpenError::Log(error) => error.into(),
            OpenError::Row { .. } | OpenError::Head { .. } => {
                Failure::of_kind(error.kind(), error.to_string()).with_hint(DAMAGED_LIVE)
            }
            _ => Failure::of_kind(error.kind(), error.to_string()),
        }
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Failure {
        Failure::from(&error)
    }
}

/// Errors whose kind and text say all that there is to say.
macro_rules! failures_by_kind {
    ($($error:ty),+) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Failure {
                Failure::of_kind(error.kind(), error.to_string())
            }
        })+
    };
}

failures_by_kind!(AppendError, CommitError, ReadError, TransactionError);

impl From<ExchangeError> for Failure {
    fn from(error: ExchangeError) -> Failure {
        let text = chain(&error);
        match error {
            ExchangeError::Stream(_) | ExchangeError::Row { .. } | ExchangeError::Own { .. } => {
                Failure::usage(text)
            }
            ExchangeError::Store(error) => error.into(),
            _ => Failure::of_kind(error.kind(), text),
        }
    }
}

impl From<InitError> for Failure {
    fn from(error: InitError) -> Failure {
        let text = chain(&error);
        match &error {
            InitError::AlreadyExists { .. } => {
                Failure::refused(text).with_hint("`refstone refs` lists what it holds")
            }
            InitError::Occupied { path }
                if path.join(".git").exists() || path.join("objects").is_dir() =>
            {
                let hint = "`refstone import` makes a refstone repository of a git repository, under \
                            another name";
                Failure::refused(text).with_hint(hint)
            }
            InitError::Occupied { .. } => Failure::refused(text),
            InitError::NoName { .. } => Failure::usage(text),
            InitError::Log { source, .. } => Failure::of_kind(source.kind(), text),
            InitError::Io { source, .. } => Failure::of_io(source, text),
            _ => Failure::environment(text),
        }
    }
}
