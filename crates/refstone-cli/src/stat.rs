//! `refstone stat`.

use std::path::PathBuf;

use clap::Args;
use refstone::{HistoryPart, Survey, TablePart, survey};
use serde::Serialize;

use crate::exit::{self, CODES, Failure};
use crate::output::Output;
use crate::repo;
use crate::text::count;

/// Tell what a log consists of
///
/// The newest durable and the newest sealed transaction, the live log, each history file, each
/// table, and what all of it takes. The lock is not taken, so this works beside a running server.
///
/// What it cannot tell is what the process that has the store open counts in its memory: syncs and
/// their time, the size of groups, how often and how long threads waited for each other to stage
/// (lock waits), compactions and why the last one failed. `refstone serve` logs these, on SIGUSR1 and
/// when it stops, as `syncs`, `sync_ms`, `group_size_mean`, `lock_waits`, `lock_wait_ms`,
/// `compactions`; a program that embeds the store asks `RefStore::stats`.
///
/// With --json, one object: `object_format`, `durable_seq`, `sealed_seq`, `live` (`transactions`,
/// `rows`, `bytes`, `file_bytes`), `history` (`first_seq`, `last_seq`, `rows`, `bytes`, `form`),
/// `tables` (`first_seq`, `last_seq`, `live_rows`, `gone_rows`, `bytes`), `damaged_tables` (texts),
/// `rows`, `directory_bytes`, `bytes_per_row`.
#[derive(Debug, Args)]
#[command(after_long_help = CODES)]
pub(crate) struct Stat {
    /// The repository
    repo: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What no file tells.
const ELSEWHERE: &str = "elsewhere  syncs, lock waits and compactions are counted by the process that \
                         writes; `refstone serve` logs them on SIGUSR1";

#[derive(Serialize)]
struct JsonSurvey {
    object_format: &'static str,
    durable_seq: u64,
    sealed_seq: u64,
    live: JsonLive,
    history: Vec<JsonHistory>,
    tables: Vec<JsonTable>,
    damaged_tables: Vec<String>,
    rows: u64,
    directory_bytes: u64,
    bytes_per_row: Option<f64>,
}

#[derive(Serialize)]
struct JsonLive {
    transactions: u64,
    rows: u64,
    bytes: u64,
    file_bytes: u64,
}

#[derive(Serialize)]
struct JsonHistory {
    first_seq: u64,
    last_seq: u64,
    rows: u64,
    bytes: u64,
    form: &'static str,
}

#[derive(Serialize)]
struct JsonTable {
    first_seq: u64,
    last_seq: u64,
    live_rows: u64,
    gone_rows: u64,
    bytes: u64,
}

impl Stat {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let survey = survey(&repo::log_directory(&self.repo)?)?;
        let mut output = Output::new();
        match self.json {
            true => output.json(&JsonSurvey::of(&survey))?,
            false => {
                let lines = lines(&survey);
                lines.iter().try_for_each(|line| output.line(&[line.as_bytes()]))?;
            }
        }
        output.finish()?;
        if !self.json {
            for error in &survey.unreadable_tables {
                exit::note(&error.to_string());
            }
        }
        Ok(())
    }
}

fn rows(survey: &Survey) -> u64 {
    survey.live.rows + survey.history.iter().map(|part| part.rows).sum::<u64>()
}

fn per_row(bytes: u64, rows: u64) -> Option<f64> {
    (rows > 0).then(|| (bytes as f64 / rows as f64 * 10.0).round() / 10.0)
}

impl JsonSurvey {
    fn of(survey: &Survey) -> JsonSurvey {
        let live = &survey.live;
        let rows = rows(survey);
        JsonSurvey {
            object_format: survey.object_format.name(),
            durable_seq: survey.durable_seq.get(),
            sealed_seq: survey.sealed_seq.get(),
            live: JsonLive {
                transactions: live.transactions,
                rows: live.rows,
                bytes: live.bytes,
                file_bytes: live.file_bytes,
            },
            history: survey.history.iter().map(JsonHistory::of).collect(),
            tables: survey.tables.iter().map(JsonTable::of).collect(),
            damaged_tables: survey.unreadable_tables.iter().map(ToString::to_string).collect(),
            rows,
            directory_bytes: survey.directory_bytes,
            bytes_per_row: per_row(survey.directory_bytes, rows),
        }
    }
}

impl JsonHistory {
    fn of(part: &HistoryPart) -> JsonHistory {
        JsonHistory {
            first_seq: part.first.get(),
            last_seq: part.last.get(),
            rows: part.rows,
            bytes: part.bytes,
            form: part.form.name(),
        }
    }
}

impl JsonTable {
    fn of(part: &TablePart) -> JsonTable {
        JsonTable {
            first_seq: part.first.get(),
            last_seq: part.last.get(),
            live_rows: part.live_rows,
            gone_rows: part.gone_rows,
            bytes: part.bytes,
        }
    }
}

fn lines(survey: &Survey) -> Vec<String> {
    let live = &survey.live;
    let mut lines = vec![
        format!("durable    up to transaction {}", survey.durable_seq),
        format!("sealed     up to transaction {}", survey.sealed_seq),
        format!(
            "live       {}, {}, {} of {} bytes",
            count(live.transactions, "transaction"),
            count(live.rows, "move"),
            live.bytes,
            live.file_bytes
        ),
    ];
    lines.extend(survey.history.iter().map(history_line));
    lines.extend(survey.tables.iter().map(table_line));
    let rows = rows(survey);
    let each = per_row(survey.directory_bytes, rows)
        .map_or_else(String::new, |each| format!(", {each} for each of {}", count(rows, "move")));
    lines.push(format!("directory  {} bytes{each}", survey.directory_bytes));
    lines.push(ELSEWHERE.to_owned());
    lines
}

fn history_line(part: &HistoryPart) -> String {
    let HistoryPart { first, last, rows, bytes, form, .. } = part;
    let each = per_row(*bytes, *rows).unwrap_or_default();
    let (moves, form) = (count(*rows, "move"), form.name());
    format!("history    {first} to {last}: {moves}, {bytes} bytes, {each} for each, {form}")
}

fn table_line(part: &TablePart) -> String {
    let TablePart { first, last, live_rows, gone_rows, bytes, .. } = part;
    let rows = count(*live_rows, "row");
    format!("table      {first} to {last}: {rows}, {gone_rows} gone, {bytes} bytes")
}
