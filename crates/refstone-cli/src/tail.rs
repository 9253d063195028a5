//! `refstone tail`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use refstone::{History, OpenError, RefMove, Seq, history_after};
use serde::Serialize;

use crate::exit::{CODES, Failure, note};
use crate::interrupt::Interrupt;
use crate::moves::{self, JsonMove};
use crate::output::Output;
use crate::repo;
use crate::{at, span, text};

/// How often the log is looked at for more.
const POLL: Duration = Duration::from_millis(50);

/// Print every transaction, oldest first, and follow the log
///
/// Each transaction is printed once and in order, as soon as it is durable and published, whatever
/// is sealed or merged meanwhile. Whoever remembers the sequence of the last one it has dealt with
/// goes on behind it with --after.
///
/// The lines are those of `refstone log`, one for each move. With --json, one object for each
/// transaction, whole: `seq`, `at`, and `moves`, each with `actor`, `refname`, `old_oid`, `new_oid`,
/// `symref` and `message`.
///
/// With --follow it goes on, also while servers stop and start, until SIGINT, SIGTERM, or until
/// nobody reads it; these end it with exit code 0. It waits then for a transaction that is not there
/// yet, which is refused without --follow.
///
/// The lock is not taken. If a crash left transactions behind the published end of the log and
/// nobody holds the lock, they are recovered first.
#[derive(Debug, Args)]
#[command(after_long_help = CODES)]
pub(crate) struct Tail {
    /// The repository
    repo: PathBuf,
    /// Only the moves of this reference, by its full name
    #[arg(value_name = "REF")]
    reference: Option<OsString>,
    /// Start behind this transaction; without --follow it must be there
    #[arg(
        long,
        value_name = "SEQ",
        value_parser = at::parse_seq,
        default_value_t = 0,
        hide_default_value = true
    )]
    after: u64,
    /// Wait for more
    #[arg(long, short)]
    follow: bool,
    /// Print one JSON object for each transaction
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct JsonTransaction {
    seq: u64,
    at: String,
    moves: Vec<JsonMove>,
}

impl Tail {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let dir = repo::log_directory(&self.repo)?;
        let reference = self.reference.as_ref().map(repo::full_name).transpose()?;
        let interrupt = Interrupt::watch()?;
        repo::settle(&dir)?;
        self.check_ahead(&dir)?;
        let moves = history_after(&dir, Seq::new(self.after), reference.as_ref())?;
        let mut output = Output::new();
        let mut transactions = Transactions { moves, begun: Vec::new(), failed: None };
        let mut told = 0;
        loop {
            let ended = self.tell(&mut output, &mut transactions, &interrupt, &mut told);
            // What is sound is printed before damage is told.
            output.flush()?;
            ended?;
            if !self.follow {
                interrupt.check("what was printed are whole transactions")?;
                break;
            }
            if interrupt.is_asked() {
                break;
            }
            output.wait(POLL)?;
        }
        if told == 0 && !self.follow && !self.json {
            note(&(self.nothing() + &span::there(&dir)));
        }
        output.finish()
    }

    fn nothing(&self) -> String {
        let of = self.reference.as_ref().map_or_else(String::new, |name| {
            format!(" of {}", text::printable_name(name.as_encoded_bytes()))
        });
        match self.after {
            0 => format!("there is no move{of} in this log"),
            after => format!("there is no move{of} behind transaction {after}"),
        }
    }

    /// A log that was restored from a backup may be behind its followers.
    fn check_ahead(&self, dir: &Path) -> Result<(), Failure> {
        // Of a damaged log it is not known, and whoever reads it tells of the damage.
        let after = Seq::new(self.after);
        let Some(newest) = span::newest(dir).filter(|newest| *newest < after) else {
            return Ok(());
        };
        if !self.follow {
            return span::expect_there(after, newest);
        }
        note(&format!(
            "{}: waiting; if this was restored from a backup, transactions up to {after} are passed over",
            span::ahead(self.after, newest)
        ));
        Ok(())
    }

    /// Prints what there is by now.
    fn tell(
        &self,
        output: &mut Output,
        transactions: &mut Transactions,
        interrupt: &Interrupt,
        told: &mut u64,
    ) -> Result<(), Failure> {
        while !interrupt.is_asked() {
            let Some(transaction) = transactions.next()? else { return Ok(()) };
            self.say(output, &transaction)?;
            *told += 1;
        }
        Ok(())
    }

    fn say(&self, output: &mut Output, transaction: &[RefMove]) -> Result<(), Failure> {
        let Some(first) = transaction.first() else { return Ok(()) };
        if self.json {
            return output.json(&JsonTransaction {
                seq: first.seq.get(),
                at: moves::time(first.at),
                moves: transaction.iter().map(JsonMove::of).collect(),
            });
        }
        transaction.iter().try_for_each(|moved| output.line(&[moves::line(moved).as_bytes()]))
    }
}

/// Moves, by transaction.
struct Transactions {
    moves: History,
    /// The moves read of a transaction whose end was not seen yet.
    begun: Vec<RefMove>,
    failed: Option<OpenError>,
}

impl Transactions {
    /// The next transaction that is there whole; `None` if there is none now.
    fn next(&mut self) -> Result<Option<Vec<RefMove>>, OpenError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        loop {
            match self.moves.next() {
                Some(Ok(moved)) if self.begun.last().is_some_and(|last| last.seq != moved.seq) => {
                    return Ok(Some(std::mem::replace(&mut self.begun, vec![moved])));
                }
                Some(Ok(moved)) => self.begun.push(moved),
                Some(Err(error)) if self.is_whole() => {
                    self.failed = Some(error);
                    return Ok(Some(std::mem::take(&mut self.begun)));
                }
                Some(Err(error)) => return Err(error),
                // A log ends between transactions.
                None if self.begun.is_empty() => return Ok(None),
                None => return Ok(Some(std::mem::take(&mut self.begun))),
            }
        }
    }

    /// Whether the transaction that was begun is known to have no more moves.
    fn is_whole(&self) -> bool {
        self.begun.last().is_some_and(|last| last.seq <= self.moves.seq())
    }
}
