//! `refstone verify`.

use std::path::PathBuf;

use clap::Args;
use refstone::{Checked, OpenError, StoreReport, verify};
use refstone_log::VerifyReport;
use serde::Serialize;

use crate::errors;
use crate::exit::{self, CODES, Code, Failure};
use crate::interrupt::Interrupt;
use crate::meter::{Meter, MeterOptions};
use crate::output::Output;
use crate::repo;
use crate::text::{self, count};

/// Check every byte of the log
///
/// Checks the live log, sealed history and the tables: every checksum, the chain of transactions,
/// their sequences and their structure, that each row is a move of a reference, that the files join,
/// and that the tables say what history says. Changes nothing and takes no lock: beside a running
/// server, commits in flight are counted as unpublished or unfinished, and are no damage.
///
/// If something is damaged, says what and where, checks what else there is, and ends with exit code 1. A
/// damaged table loses nothing: it is a cache, and `refstone rebuild` makes it anew. A missing one is no
/// damage: the next opening makes it.
///
/// Gaps that a repair recorded are told, and are no damage.
///
/// With --json, one object: `ok`; the counts of the live log; `gaps` (ranges of lost sequences);
/// `history` and `tables` (`files`, `rows`, `bytes`, of those that are sound); `sound_history` (ranges of
/// the transactions in them); `damage`, the first that was met, which is
/// null or has `text` and, where it is known, `offset` (bytes from the start of the live log) and
/// `seq`; `all_damage`, `damaged_tables` and `missing_tables` (texts).
#[derive(Debug, Args)]
#[command(after_long_help = CODES)]
pub(crate) struct Verify {
    /// The repository
    repo: PathBuf,
    #[command(flatten)]
    meter: MeterOptions,
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
    history: JsonChecked,
    sound_history: Vec<[u64; 2]>,
    tables: JsonChecked,
    damage: Option<JsonDamage>,
    all_damage: Vec<String>,
    damaged_tables: Vec<String>,
    missing_tables: Vec<String>,
}

#[derive(Serialize)]
struct JsonChecked {
    files: usize,
    rows: u64,
    bytes: u64,
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
        let kept = "what was checked so far is not told; nothing was changed";
        let mut meter = Meter::new(&self.meter, Interrupt::end_at_once(kept)?);
        let report = verify(&dir, &mut |progress| meter.tell_of_store(progress));
        let report = meter.finish(report.map_err(Failure::from), kept)?;
        let said = match self.json {
            true => say_json(&report),
            false => say(&report),
        };
        match (report.is_sound(), said) {
            // What is damaged stays damaged when nobody reads about it.
            (false, Ok(()) | Err(Failure::OutputClosed)) => Err(Failure::Told(Code::Refused)),
            (_, said) => said,
        }
    }
}

impl From<Checked> for JsonChecked {
    fn from(Checked { files, rows, bytes, .. }: Checked) -> JsonChecked {
        JsonChecked { files, rows, bytes }
    }
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

fn say_json(report: &StoreReport) -> Result<(), Failure> {
    let live = &report.live;
    let mut output = Output::new();
    output.json(&JsonReport {
        ok: report.is_sound(),
        transactions: live.transactions,
        rows: live.rows,
        first_seq: live.first_seq.get(),
        last_seq: live.last_seq.get(),
        bytes: live.bytes,
        unpublished: live.unpublished,
        unfinished_bytes: live.unfinished_bytes,
        gaps: text::ranges(&live.gaps),
        history: report.history.into(),
        sound_history: text::ranges(&report.sound_history),
        tables: report.tables.into(),
        damage: report.damage.first().map(JsonDamage::of),
        all_damage: report.damage.iter().map(ToString::to_string).collect(),
        damaged_tables: report.damaged_tables.iter().map(ToString::to_string).collect(),
        missing_tables: report.missing_tables.iter().map(ToString::to_string).collect(),
    })?;
    output.finish()
}

fn say(report: &StoreReport) -> Result<(), Failure> {
    let live = &report.live;
    let mut output = Output::new();
    let verdict = match (report.damage.is_empty(), report.sealed_seq.get()) {
        (true, _) => "sound",
        (false, 0) => "sound up to the damage",
        (false, _) => "sound apart from the damage",
    };
    if report.sealed_seq.get() > 0 {
        output.line(&[format!("{verdict}: {}", all(report)).as_bytes()])?;
        output.line(&[format!("live log: {}", counts(live)).as_bytes()])?;
        output.line(&[history(report).as_bytes()])?;
        output.line(&[format!("tables: {}", files(&report.tables, "row")).as_bytes()])?;
    } else {
        output.line(&[format!("{verdict}: {}", counts(live)).as_bytes()])?;
    }
    if live.unpublished > 0 || live.unfinished_bytes > 0 {
        output.line(&[unpublished(live).as_bytes()])?;
    }
    if !live.gaps.is_empty() {
        let gaps = text::show_ranges(&live.gaps);
        let line = format!("a repair has recorded these sequences as lost: {gaps}");
        output.line(&[line.as_bytes()])?;
    }
    output.finish()?;
    report.damage.iter().for_each(|damage| exit::tell("error", &damage.to_string()));
    // Of history each error says itself what helps.
    if report.damage.iter().any(|damage| !matches!(damage, OpenError::Read(_))) {
        exit::tell("hint", errors::DAMAGED_LIVE);
    }
    report.damaged_tables.iter().for_each(|damage| exit::tell("error", &damage.to_string()));
    if !report.damaged_tables.is_empty() {
        exit::tell(
            "hint",
            "a table is a cache, and nothing is lost by it: `refstone rebuild` makes it anew, while no \
             server runs",
        );
    }
    if !report.missing_tables.is_empty() {
        let missing = count(report.missing_tables.len(), "table");
        exit::note(&format!("missing: {missing}; the next opening makes them of history"));
    }
    Ok(())
}

fn all(report: &StoreReport) -> String {
    let moves = count(report.history.rows + report.live.rows, "move");
    let newest = report.live.last_seq.max(report.sealed_seq);
    format!("{moves}, the newest of transaction {newest}")
}

fn history(report: &StoreReport) -> String {
    let line = format!("history: {}", files(&report.history, "move"));
    match report.sound_history.as_slice() {
        [] => line,
        sound => format!("{line}, of the transactions {}", text::show_ranges(sound)),
    }
}

fn files(Checked { files, rows, bytes, .. }: &Checked, of: &str) -> String {
    format!("{}, {}, {bytes} bytes", count(*files, "file"), count(*rows, of))
}

fn counts(report: &VerifyReport) -> String {
    let VerifyReport { transactions, rows, first_seq, last_seq, bytes, .. } = report;
    match transactions {
        0 => format!("no transactions, {bytes} bytes"),
        _ => {
            let transactions = count(*transactions, "transaction");
            let rows = count(*rows, "move");
            format!("{transactions} ({first_seq} to {last_seq}), {rows}, {bytes} bytes")
        }
    }
}

fn unpublished(report: &VerifyReport) -> String {
    format!(
        "behind the published end: {} and {} bytes of an unfinished one; they are in flight, or \
         what a crash left for the next open to take up",
        count(report.unpublished, "whole transaction"),
        report.unfinished_bytes
    )
}
