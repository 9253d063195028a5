//! How a command ends: its exit code, and what it says on standard error.

use std::error::Error;
use std::io;
use std::process::ExitCode;

use refstone::ErrorKind;

use crate::errors::{code_of, hint_of};
use crate::text;

/// What the exit codes mean, for the end of `--help`.
pub(crate) const CODES: &str = "\
Exit codes:
  0  done
  1  refused: the references are not as expected; or damaged: the log is not as it was written
  2  the command line, or the input of a command, is not understood
  3  the environment is in the way: the lock is held, no space, no permission, I/O
  130  interrupted (SIGINT; 143: SIGTERM): nothing is half done, and it can be run again";

/// The sort of an end, as its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Refused = 1,
    Usage = 2,
    Environment = 3,
}

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nobody reads standard output any more, which is how `head` says that it has enough.
    OutputClosed,
    /// All has been said already.
    Told(Code),
    /// A signal, by its number, and what that left.
    Interrupted(i32, String),
    /// Something to say.
    Error(Problem),
}

/// One line of what went wrong, and one of what to do.
#[derive(Debug)]
pub(crate) struct Problem {
    code: Code,
    label: &'static str,
    text: String,
    hint: Option<String>,
}

impl Failure {
    pub(crate) fn refused(text: impl Into<String>) -> Failure {
        Failure::new(Code::Refused, text.into())
    }

    pub(crate) fn usage(text: impl Into<String>) -> Failure {
        Failure::new(Code::Usage, text.into())
    }

    pub(crate) fn environment(text: impl Into<String>) -> Failure {
        Failure::new(Code::Environment, text.into())
    }

    /// A command that a signal has stopped, and what holds now.
    pub(crate) fn interrupted(signal: i32, kept: &str) -> Failure {
        Failure::Interrupted(signal, format!("interrupted; {kept}"))
    }

    /// What an error of this sort means for the caller.
    pub(crate) fn of_kind(kind: ErrorKind, text: impl Into<String>) -> Failure {
        let failure = Failure::new(code_of(kind), text.into());
        match hint_of(kind) {
            Some(hint) => failure.with_hint(hint),
            None => failure,
        }
    }

    /// What an error of the operating system means for the caller.
    pub(crate) fn of_io(error: &io::Error, text: impl Into<String>) -> Failure {
        let kind = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                ErrorKind::Permission
            }
            _ => ErrorKind::Io,
        };
        Failure::of_kind(kind, text)
    }

    /// The same failure with a word on what to do.
    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Failure {
        match self {
            Failure::Error(problem) => {
                Failure::Error(Problem { hint: Some(hint.into()), ..problem })
            }
            other => other,
        }
    }

    /// The same failure as git says it, for programs that read what git says.
    pub(crate) fn fatal(self) -> Failure {
        match self {
            Failure::Error(problem) => Failure::Error(Problem { label: "fatal", ..problem }),
            other => other,
        }
    }

    /// A failure to write to standard output.
    pub(crate) fn output(error: &io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::OutputClosed,
            _ => Failure::environment(format!("cannot write to standard output: {error}")),
        }
    }

    /// Says what there is to say, and gives the exit code.
    pub(crate) fn report(self) -> ExitCode {
        match self {
            Failure::OutputClosed => ExitCode::SUCCESS,
            Failure::Told(code) => ExitCode::from(code as u8),
            Failure::Interrupted(signal, text) => {
                tell("error", &text);
                // The code a shell shows for a process that died of the signal.
                ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX))
            }
            Failure::Error(Problem { code, label, text, hint }) => {
                tell(label, &text);
                hint.iter().for_each(|hint| tell("hint", hint));
                ExitCode::from(code as u8)
            }
        }
    }

    fn new(code: Code, text: String) -> Failure {
        Failure::Error(Problem { code, label: "error", text, hint: None })
    }
}

/// Says one line on standard error. Names from a log may be in it, so nothing drives a terminal.
pub(crate) fn tell(label: &str, text: &str) {
    use std::io::Write;
    let line = format!("{label}: {}\n", text::printable_name(text.as_bytes()));
    // A standard error that is closed leaves nowhere to say so.
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Tells what is worth knowing and no failure.
pub(crate) fn note(text: &str) {
    tell("note", text);
}

/// An error and its causes in one line. Some errors say their cause themselves; it is not said
/// twice.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.ends_with(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}
