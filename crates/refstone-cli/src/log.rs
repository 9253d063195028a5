//! `refstone log`.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use clap::Args;
use refstone::{ObjectId, RefMove, RefName, Timestamp, history};
use serde::Serialize;

use crate::exit::{CODES, Failure, note};
use crate::output::Output;
use crate::repo;
use crate::text::{self, Hex};

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
    /// Show the newest N moves, 200 if it is not given; memory grows with N, not with the log
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "all")]
    max_count: Option<usize>,
    /// Show all moves
    #[arg(long)]
    all: bool,
    /// Print one JSON object for each move
    #[arg(long)]
    json: bool,
}

/// How many moves are shown if nobody says.
const DEFAULT_COUNT: usize = 200;

impl Log {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let dir = repo::log_directory(&self.repo)?;
        let reference = self.reference.as_ref().map(full_name).transpose()?;
        repo::settle(&dir)?;
        let limit = self.max_count.unwrap_or(DEFAULT_COUNT);
        let mut newest = Newest::new(if self.all { usize::MAX } else { limit });
        let mut damage = None;
        for moved in history(&dir, reference.as_ref())? {
            match moved {
                Ok(moved) => newest.push(moved),
                Err(error) => damage = Some(error),
            }
        }
        self.say(&newest)?;
        // What is sound has been shown, and what is not decides how the command ends.
        damage.map_or(Ok(()), |error| Err(error.into()))
    }

    fn say(&self, newest: &Newest<RefMove>) -> Result<(), Failure> {
        let mut output = Output::new();
        for moved in newest.kept.iter().rev() {
            match self.json {
                true => output.json(&JsonLine::of(moved))?,
                false => output.line(&[line(moved).as_bytes()])?,
            }
        }
        output.finish()?;
        // Whoever said how many need not be told that there are more.
        if newest.left_out > 0 && self.max_count.is_none() {
            note(&format!("{} older moves are not shown; --all shows them", newest.left_out));
        }
        Ok(())
    }
}

fn full_name(name: &OsString) -> Result<RefName, Failure> {
    RefName::new(name.clone().into_vec()).map_err(|error| {
        let hint = "a full name is needed, such as refs/heads/main or HEAD";
        Failure::usage(error.to_string()).with_hint(hint)
    })
}

/// The last few of many.
#[derive(Debug)]
struct Newest<T> {
    kept: VecDeque<T>,
    limit: usize,
    left_out: u64,
}

impl<T> Newest<T> {
    fn new(limit: usize) -> Newest<T> {
        Newest { kept: VecDeque::new(), limit, left_out: 0 }
    }

    fn push(&mut self, item: T) {
        self.kept.push_back(item);
        if self.kept.len() > self.limit {
            self.kept.pop_front();
            self.left_out += 1;
        }
    }
}

/// A move for people.
fn line(moved: &RefMove) -> String {
    let mut fields = vec![
        moved.seq.to_string(),
        time(moved.at),
        text::printable(&moved.actor),
        text::printable_name(moved.name.as_bytes()),
        object(moved.old_oid),
        match &moved.symref {
            Some(target) => format!("ref: {}", text::printable_name(target.as_bytes())),
            None => object(moved.new_oid),
        },
    ];
    fields.extend(moved.message.as_ref().map(|message| text::printable(message)));
    fields.join("\t")
}

fn object(id: Option<ObjectId>) -> String {
    id.map_or_else(|| "-".to_owned(), |id| id.to_hex())
}

/// RFC 3339, UTC, always with six digits: equal widths sort as text.
///
/// The log holds any 64-bit number; what lies outside the years of the calendar is shown as one.
pub(crate) fn time(at: Timestamp) -> String {
    match jiff::Timestamp::from_microsecond(at.as_micros()) {
        Ok(time) => format!("{time:.6}"),
        Err(_) => format!("{}us", at.as_micros()),
    }
}

#[derive(Serialize)]
pub(crate) struct JsonLine {
    seq: u64,
    at: String,
    actor: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    actor_hex: Option<Hex>,
    refname: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    refname_hex: Option<Hex>,
    old_oid: Option<String>,
    new_oid: Option<String>,
    symref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    symref_hex: Option<Hex>,
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_hex: Option<Hex>,
}

impl JsonLine {
    pub(crate) fn of(moved: &RefMove) -> JsonLine {
        let symref = moved.symref.as_ref().map(RefName::as_bytes);
        let message = moved.message.as_ref().map(|message| message.as_slice());
        JsonLine {
            seq: moved.seq.get(),
            at: time(moved.at),
            actor: text::free(&moved.actor),
            actor_hex: Hex::unless_utf8(&moved.actor),
            refname: text::name(moved.name.as_bytes()),
            refname_hex: Hex::unless_utf8(moved.name.as_bytes()),
            old_oid: moved.old_oid.map(|id| id.to_hex()),
            new_oid: moved.new_oid.map(|id| id.to_hex()),
            symref: symref.map(text::name),
            symref_hex: symref.and_then(Hex::unless_utf8),
            message: message.map(text::free),
            message_hex: message.and_then(Hex::unless_utf8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_six_digits_of_a_second_and_are_utc() {
        assert_eq!(time(Timestamp::from_micros(0)), "1970-01-01T00:00:00.000000Z");
        let at = Timestamp::from_micros(1_700_000_000_123_456);
        assert_eq!(time(at), "2023-11-14T22:13:20.123456Z");
        assert_eq!(time(Timestamp::from_micros(i64::MAX)), format!("{}us", i64::MAX));
    }

    // Breaks: a ring that keeps the oldest, or one more than its limit.
    #[test]
    fn the_newest_few_are_kept_and_the_others_counted() {
        for (limit, kept, left_out) in
            [(0, vec![], 5), (2, vec![3, 4], 3), (9, vec![0, 1, 2, 3, 4], 0)]
        {
            let mut newest = Newest::new(limit);
            (0..5).for_each(|item| newest.push(item));
            assert_eq!((Vec::from(newest.kept), newest.left_out), (kept, left_out));
        }
    }
}
