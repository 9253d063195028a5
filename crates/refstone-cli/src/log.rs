//! `refstone log`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use refstone::{OpenError, RefMove, history_newest_first};

use crate::exit::{CODES, Failure, note};
use crate::moves::{self, JsonLine};
use crate::output::Output;
use crate::repo;

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
/// What the live log holds is read first, then sealed history, as far back as is shown.
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
    /// Only the moves of this transaction and later ones
    #[arg(long, value_name = "SEQ", default_value_t = 0, hide_default_value = true)]
    from: u64,
    /// Only the moves of this transaction and earlier ones
    #[arg(long, value_name = "SEQ", default_value_t = u64::MAX, hide_default_value = true)]
    to: u64,
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
        let moves = history_newest_first(&dir, reference.as_ref())?;
        let (shown, damage) = self.show(moves)?;
        // Whoever said how many need not be told that there are more.
        if shown == Shown::Some && self.max_count.is_none() {
            note("older moves are not shown; --all shows them");
        }
        // What is sound has been shown, and what is not decides how the command ends.
        damage.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Shows what was asked for, and gives the last damage on the way.
    fn show(
        &self,
        moves: impl Iterator<Item = Result<RefMove, OpenError>>,
    ) -> Result<(Shown, Option<OpenError>), Failure> {
        let mut left = if self.all { usize::MAX } else { self.max_count.unwrap_or(DEFAULT_COUNT) };
        let (mut shown, mut damage) = (Shown::All, None);
        let mut output = Output::new();
        for moved in moves {
            match moved {
                Err(error) => damage = Some(error),
                Ok(moved) if moved.seq.get() > self.to => {}
                Ok(moved) if moved.seq.get() < self.from => break,
                Ok(_) if left == 0 => {
                    shown = Shown::Some;
                    break;
                }
                Ok(moved) => {
                    left -= 1;
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

/// Whether there are older moves that were not shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
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
