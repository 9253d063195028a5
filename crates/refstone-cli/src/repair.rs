//! `refstone repair`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use refstone::{Resumed, Seq};
use refstone_log::{RepairOptions, Repaired};
use serde::Serialize;

use crate::exit::{CODES, Failure};
use crate::mend::{Made, made};
use crate::output::Output;
use crate::repo;
use crate::text::{self, count, ranges};

/// Make a sound log of a damaged one
///
/// Every transaction that is whole, wherever it stands, goes into a new live log. The sequences that
/// are lost are recorded in it as gaps, and are never given out again. The damaged file keeps its
/// bytes under the name `refs.arrow.damaged-<n>` beside it.
///
/// Restoring the log from a backup that goes as far loses nothing, and is better. What a lost
/// transaction moved shows where the transactions before it had left it, until it is moved again:
/// compare `refstone refs` with a clone or a backup.
///
/// Where the live log's schema is damaged, sealed history tells what it was, or a copy (--schema-from).
///
/// Where the live log is missing, has nothing that can be saved, or is an older copy that ends before
/// history does, and history is whole, the new log goes on behind history. What only the lost log had is
/// lost, and the sequences that it may have given out are recorded as a gap. An older copy is kept like a
/// damaged file.
///
/// A log in which nothing is damaged is refused, and so is one that somebody writes.
///
/// With --json, one object: `original`, which is null after --dry-run, `damage`, `transactions`,
/// `last_seq`, `lost` and `given_up` (ranges of sequences), `damaged_bytes` and `torn_bytes` (ranges
/// of bytes in the original, the end excluded).
#[derive(Debug, Args)]
#[command(after_long_help = CODES)]
pub(crate) struct Repair {
    /// The repository
    repo: PathBuf,
    /// Tell what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// A copy of this log's refs.arrow, whose schema takes the place of a damaged one; needed only where
    /// nothing has been sealed
    #[arg(long, value_name = "FILE")]
    schema_from: Option<PathBuf>,
    /// What HEAD pointed to when the repository was made, where neither the live log nor a table tells
    #[arg(long, value_name = "REF")]
    head: Option<OsString>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct JsonRepaired {
    original: Option<String>,
    damage: String,
    transactions: u64,
    last_seq: u64,
    lost: Vec<[u64; 2]>,
    given_up: Vec<[u64; 2]>,
    damaged_bytes: Vec<[u64; 2]>,
    torn_bytes: Vec<[u64; 2]>,
}

impl Repair {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let dir = repo::log_directory(&self.repo)?;
        let head = self.head.as_ref().map(repo::full_name).transpose()?;
        let (dry_run, schema_from) = (self.dry_run, self.schema_from);
        let options = RepairOptions { dry_run, schema_from, ..RepairOptions::default() };
        let mut output = Output::new();
        match (made(&dir, &options, head)?, self.json) {
            (Made::Repaired(repaired), true) => output.json(&JsonRepaired::of(&repaired))?,
            (Made::Repaired(repaired), false) => say(&mut output, &repaired)?,
            (Made::Resumed(resumed), true) => output.json(&JsonRepaired::of_resumed(&resumed))?,
            (Made::Resumed(resumed), false) => say_resumed(&mut output, &resumed, self.dry_run)?,
        }
        output.finish()
    }
}

impl JsonRepaired {
    fn of_resumed(resumed: &Resumed) -> JsonRepaired {
        JsonRepaired {
            original: resumed.original.as_deref().map(text::path),
            damage: resumed.damage.to_string(),
            transactions: 0,
            last_seq: resumed.sealed_seq.get(),
            lost: Vec::new(),
            given_up: ranges(&[resumed.given_up]),
            damaged_bytes: Vec::new(),
            torn_bytes: Vec::new(),
        }
    }

    fn of(repaired: &Repaired) -> JsonRepaired {
        let bytes = |range: &std::ops::Range<u64>| [range.start, range.end];
        JsonRepaired {
            original: repaired.original.as_deref().map(text::path),
            damage: repaired.damage.to_string(),
            transactions: repaired.transactions,
            last_seq: repaired.last_seq.get(),
            lost: ranges(&repaired.lost),
            given_up: ranges(repaired.given_up.as_slice()),
            damaged_bytes: repaired.damaged.iter().map(bytes).collect(),
            torn_bytes: repaired.torn.iter().map(bytes).collect(),
        }
    }
}

fn say(output: &mut Output, repaired: &Repaired) -> Result<(), Failure> {
    let would = if repaired.original.is_none() { "would be " } else { "" };
    let Repaired { transactions, last_seq, .. } = repaired;
    let line = match transactions {
        0 => format!("repaired: no transaction {would}saved"),
        _ => {
            let transactions = count(*transactions, "transaction");
            format!("repaired: {transactions} {would}saved, the newest is {last_seq}")
        }
    };
    output.line(&[line.as_bytes()])?;
    output.line(&[lost(&repaired.lost).as_bytes()])?;
    if let Some(given_up) = repaired.given_up {
        output.line(&[behind(given_up).as_bytes()])?;
    }
    if let Some(torn) = &repaired.torn {
        let line = format!(
            "left out: bytes {} to {}, a write that a crash cut short before it was acknowledged",
            torn.start, torn.end
        );
        output.line(&[line.as_bytes()])?;
    }
    let line = match &repaired.original {
        Some(original) => kept(original),
        None => DRY.to_owned(),
    };
    output.line(&[line.as_bytes()])
}

fn say_resumed(output: &mut Output, resumed: &Resumed, dry_run: bool) -> Result<(), Failure> {
    let Resumed { damage, sealed_seq, given_up, original, .. } = resumed;
    output.line(&[text::printable_name(damage.to_string().as_bytes()).as_bytes()])?;
    let goes_on = if dry_run { "would go on" } else { "goes on" };
    let line =
        format!("repaired: a new live log {goes_on} behind transaction {sealed_seq} of history");
    output.line(&[line.as_bytes()])?;
    output.line(&[behind(*given_up).as_bytes()])?;
    match original {
        Some(original) => output.line(&[kept(original).as_bytes()])?,
        None if dry_run => output.line(&[DRY.as_bytes()])?,
        None => {}
    }
    Ok(())
}

const DRY: &str = "nothing was changed: this was a dry run";

fn kept(original: &Path) -> String {
    format!("the damaged log is kept in {}", text::path(original))
}

fn lost(lost: &[(Seq, Seq)]) -> String {
    match lost {
        [] => "lost: nothing that is known of".to_owned(),
        lost => format!("lost: transactions {}", text::show_ranges(lost)),
    }
}

fn behind(given_up: (Seq, Seq)) -> String {
    format!(
        "perhaps lost: what stood behind; sequences {} are not given out again",
        text::show_ranges(&[given_up])
    )
}
