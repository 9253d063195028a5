//! `refstone verify`.

use std::path::{Path, PathBuf};

use clap::Args;
use refstone::{OpenError, OsEnv, history};
use refstone_log::{VerifyReport, verify};
use serde::Serialize;

use crate::exit::{self, CODES, Code, Failure};
use crate::output::Output;
use crate::repo;
use crate::text;

/// Check every byte of the log
///
/// Checks the schema, every checksum, the chain of transactions, their sequences and their
/// structure, and that each row is a move of a reference. Changes nothing and takes no lock: beside
/// a running server, commits in flight are counted as unpublished or unfinished, and are no damage.
///
/// If something is damaged, says what and where, and ends with exit code 1.
///
/// Gaps that a repair recorded are told, and are no damage.
///
/// With --json, one object: `ok`, the counts, `gaps` (ranges of lost sequences), and `damage`, which is null or has `text` and, where
/// it is known, `offset` (bytes from the start of the file) and `seq`.
#[derive(Debug, Args)]
#[command(after_long_help = CODES)]
pub(crate) struct Verify {
    /// The repository
    repo: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct JsonReport {
    ok: bool,
    transactions: u64,
    rows: u64,
    first_seq: u64,
    last_seq: u64,
    bytes: u64,
    unpublished: u64,
    unfinished_bytes: u64,
    gaps: Vec<[u64; 2]>,
    damage: Option<JsonDamage>,
}

#[derive(Serialize)]
struct JsonDamage {
    text: String,
    offset: Option<u64>,
    seq: Option<u64>,
}

impl Verify {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let dir = repo::log_directory(&self.repo)?;
        let report = verify(&OsEnv, &dir)?;
        let damage = find_damage(&dir, &report)?;
        let said = match self.json {
            true => say_json(&report, damage.as_ref()),
            false => say(&report, damage.as_ref()),
        };
        match (damage, said) {
            // What is damaged stays damaged when nobody reads about it.
            (Some(_), Ok(()) | Err(Failure::OutputClosed)) => Err(Failure::Told(Code::Refused)),
            (_, said) => said,
        }
    }
}

/// The damage that the check met, as bytes or else as moves.
fn find_damage(dir: &Path, report: &VerifyReport) -> Result<Option<JsonDamage>, Failure> {
    if let Some(error) = &report.damage {
        return Ok(Some(JsonDamage::of_log(error)));
    }
    // A frame proves that its bytes are as they were written, not that they make sense.
    let wrong = history(dir, None)?.find_map(Result::err);
    Ok(wrong.map(|error| JsonDamage::of(&error)))
}

impl JsonDamage {
    fn of(error: &OpenError) -> JsonDamage {
        match error {
            OpenError::Log(error) => JsonDamage::of_log(error),
            OpenError::Row { seq, .. } => {
                JsonDamage { text: error.to_string(), offset: None, seq: Some(seq.get()) }
            }
            other => JsonDamage { text: other.to_string(), offset: None, seq: None },
        }
    }

    fn of_log(error: &refstone_log::OpenError) -> JsonDamage {
        let (offset, seq) = match error {
            refstone_log::OpenError::Corrupt { damage, .. } => {
                (Some(damage.offset), Some(damage.seq.get()))
            }
            _ => (None, None),
        };
        JsonDamage { text: error.to_string(), offset, seq }
    }
}

fn say_json(report: &VerifyReport, damage: Option<&JsonDamage>) -> Result<(), Failure> {
    let mut output = Output::new();
    output.json(&JsonReport {
        ok: damage.is_none(),
        transactions: report.transactions,
        rows: report.rows,
        first_seq: report.first_seq.get(),
        last_seq: report.last_seq.get(),
        bytes: report.bytes,
        unpublished: report.unpublished,
        unfinished_bytes: report.unfinished_bytes,
        gaps: text::ranges(&report.gaps),
        damage: damage.map(|damage| JsonDamage { text: damage.text.clone(), ..*damage }),
    })?;
    output.finish()
}

fn say(report: &VerifyReport, damage: Option<&JsonDamage>) -> Result<(), Failure> {
    let mut output = Output::new();
    let verdict = if damage.is_none() { "sound" } else { "sound up to the damage" };
    output.line(&[format!("{verdict}: {}", counts(report)).as_bytes()])?;
    if report.unpublished > 0 || report.unfinished_bytes > 0 {
        output.line(&[unpublished(report).as_bytes()])?;
    }
    if !report.gaps.is_empty() {
        let gaps = text::show_ranges(&report.gaps);
        let line = format!("a repair has recorded these sequences as lost: {gaps}");
        output.line(&[line.as_bytes()])?;
    }
    output.finish()?;
    if let Some(damage) = damage {
        exit::tell("error", &damage.text);
    }
    Ok(())
}

fn counts(report: &VerifyReport) -> String {
    let VerifyReport { transactions, rows, first_seq, last_seq, bytes, .. } = report;
    match transactions {
        0 => format!("no transactions, {bytes} bytes"),
        _ => format!(
            "{transactions} transactions ({first_seq} to {last_seq}), {rows} moves, {bytes} bytes"
        ),
    }
}

fn unpublished(report: &VerifyReport) -> String {
    format!(
        "behind the published end: {} whole transactions and {} bytes of an unfinished one; they \
         are in flight, or what a crash left for the next open to take up",
        report.unpublished, report.unfinished_bytes
    )
}
