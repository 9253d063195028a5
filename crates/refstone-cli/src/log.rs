//! `refstone log`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use refstone::{OpenError, RefMove, history_newest_first};

use crate::exit::{self, CODES, Failure, note};
use crate::moves::{self, JsonLine};
use crate::output::Output;
use crate::repo;
use crate::span::{self, Span};
use crate::text;

/// Show who moved which reference, when, from where and to where
///
/// One line for each move, newest first, with tabs between: sequence, time (UTC), actor, reference,
/// old object id, new object id, and the message if there is one. `-` stands for no object, and
/// `ref: <target>` for a symbolic value. The moves of one transaction share a sequence. The history
/// of a reference outlives it.
///
/// What could drive a terminal is escaped as `\xNN`, and so are bytes that are not UTF-8; a
/// backslash in an actor or a message is doubled.
///
/// With --json, the fields are named as the columns of the log and hold what those hold: `seq`,
/// `at`, `actor`, `refname`, `old_oid`, `new_oid`, `symref`, `message`. Of text that is not UTF-8 a
/// further field `<name>_hex` has all bytes.
///
/// What the live log holds is read first, then sealed history, as far back as is shown. If something on
/// the way is damaged, all that is sound is shown, then what is not is named, and the exit code is 1.
///
/// The lock is not taken, so this works beside a running server. If a crash left transactions
/// behind the published end of the log and nobody holds the lock, they are recovered first.
#[derive(Debug, Args)]
#[command(after_long_help = CODES)]
pub(crate) struct Log {
    /// The repository
    repo: PathBuf,
    /// Only the moves of this reference, by its full name
    #[arg(value_name = "REF")]
    reference: Option<OsString>,
    /// Show the newest N moves, 200 if it is not given; `-N` is the same
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "all")]
    max_count: Option<usize>,
    /// Show all moves
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    span: Span,
    /// Print one JSON object for each move
    #[arg(long)]
    json: bool,
}

/// How many moves are shown if nobody says.
const DEFAULT_COUNT: usize = 200;

impl Log {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let dir = repo::log_directory(&self.repo)?;
        let reference = self.reference.as_ref().map(repo::full_name).transpose()?;
        repo::settle(&dir)?;
        self.span.check(&dir)?;
        let moves = history_newest_first(&dir, reference.as_ref())?;
        let (shown, damage) = self.show(moves)?;
        if shown == Shown::None && damage.is_empty() && !self.json {
            note(&(self.nothing() + &span::there(&dir)));
        }
        // Whoever said how many need not be told that there are more.
        if shown == Shown::Some && self.max_count.is_none() {
            note("older moves are not shown; --all shows them");
        }
        // What is sound has been shown, and what is not decides how the command ends.
        let Some((last, others)) = damage.split_last() else { return Ok(()) };
        others.iter().for_each(|error| exit::tell("error", &error.to_string()));
        Err(last.into())
    }

    fn nothing(&self) -> String {
        let of = self
            .reference
            .as_ref()
            .map(|name| format!(" of {}", text::printable_name(name.as_encoded_bytes())));
        format!("there is no move{} {}", of.unwrap_or_default(), self.span)
    }

    /// Shows what was asked for, and gives the damage on the way.
    fn show(
        &self,
        moves: impl Iterator<Item = Result<RefMove, OpenError>>,
    ) -> Result<(Shown, Vec<OpenError>), Failure> {
        let mut left = if self.all { usize::MAX } else { self.max_count.unwrap_or(DEFAULT_COUNT) };
        let (mut shown, mut damage) = (Shown::None, Vec::new());
        let mut output = Output::new();
        for moved in moves {
            match moved {
                // It stands for older moves, and none of them is asked for.
                Err(_) if left == 0 => {
                    shown = Shown::Some;
                    break;
                }
                Err(error) => damage.push(error),
                Ok(moved) if self.span.is_before(moved.seq.get()) => {}
                Ok(moved) if self.span.is_behind(moved.seq.get()) => break,
                Ok(_) if left == 0 => {
                    shown = Shown::Some;
                    break;
                }
                Ok(moved) => {
                    (left, shown) = (left - 1, Shown::All);
                    self.say(&mut output, &moved)?;
                }
            }
        }
        output.finish()?;
        Ok((shown, damage))
    }

    fn say(&self, output: &mut Output, moved: &RefMove) -> Result<(), Failure> {
        match self.json {
            true => output.json(&JsonLine::of(moved)),
            false => output.line(&[moves::line(moved).as_bytes()]),
        }
    }
}

/// How many of the moves that match were shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    None,
    All,
    Some,
}

/// Git's shorthand: `-5` after `log` is `-n5`.
pub(crate) fn expand_count(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.collect();
    if arguments.get(1).is_some_and(|command| command == "log") {
        let options = arguments.iter_mut().skip(2).take_while(|argument| *argument != "--");
        for argument in options {
            let digits = argument.to_str().and_then(|text| text.strip_prefix('-'));
            if let Some(count) = digits.and_then(|digits| digits.parse::<usize>().ok()) {
                *argument = format!("-n{count}").into();
            }
        }
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_may_be_written_as_git_has_it() {
        let expand = |words: &[&str]| {
            let words = words.iter().map(OsString::from);
            expand_count(words).join(" ".as_ref()).into_string().unwrap()
        };
        assert_eq!(expand(&["refstone", "log", "-5", "r.git"]), "refstone log -n5 r.git");
        assert_eq!(expand(&["refstone", "log", "--", "-5"]), "refstone log -- -5");
        assert_eq!(expand(&["refstone", "refs", "-5"]), "refstone refs -5");
        assert_eq!(expand(&["refstone", "log", "-x5", "--5"]), "refstone log -x5 --5");
    }
}
