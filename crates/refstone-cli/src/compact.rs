//! `refstone compact`.

use std::path::{Path, PathBuf};

use clap::Args;
use refstone::{
    CompactError, CompactOptions, Compacted, Compacting, ErrorKind, HistoryForm, Merge,
    OpenOptions, RefStore,
};
use serde::Serialize;

use crate::exit::{CODES, Failure};
use crate::interrupt::{self, Interrupt};
use crate::meter::{Meter, MeterOptions};
use crate::output::Output;
use crate::repo;
use crate::text;

/// Take transactions out of the live log
///
/// All that the live log holds becomes sealed history, a Parquet file, and a table beside it that
/// says where every reference is. Nothing is lost by it, and nothing looks different afterwards: the
/// other commands read both. Small files are merged as they add up.
///
/// A store does this by itself before its live log becomes long, so this command is for a log that
/// is to be small now, or for another form of history. It holds the lock, and cannot run beside a
/// server of the same repository. It may be interrupted, and run again: what was sealed stays sealed.
///
/// With --json, one object: `sealed` (transactions), `sealed_seq`, `merged` (files), `reformed` (files
/// written anew in another form), `rows_written`, `bytes_written`.
#[derive(Debug, Args)]
#[command(after_long_help = CODES)]
pub(crate) struct Compact {
    /// The repository
    repo: PathBuf,
    /// Merge all history into one file of the form that --form says; if it is one already and has another
    /// form, write it anew
    #[arg(long)]
    all: bool,
    /// How history keeps old object ids: full, or derived where an earlier move has them, which
    /// takes less space. What was written before stays as it is, unless it is merged: see --all
    #[arg(long, value_name = "FORM", default_value = "full")]
    form: HistoryForm,
    #[command(flatten)]
    meter: MeterOptions,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct JsonCompacted {
    sealed: u64,
    sealed_seq: u64,
    merged: usize,
    reformed: usize,
    rows_written: u64,
    bytes_written: u64,
}

impl Compact {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let dir = repo::log_directory(&self.repo)?;
        let store = open(&dir, "it compacts by itself; stop it to do so now")?;
        let interrupt = close_when_interrupted(&store)?;
        let merge = if self.all { Merge::All } else { Merge::Due };
        let options = CompactOptions { form: self.form, merge };
        let mut meter = Meter::new(&self.meter, interrupt.clone());
        let compacted = store.compact(options, &mut |progress| meter.tell_of_store(progress));
        let closed = store.close();
        // It may have stopped between two merges, with all before it done.
        let compacted = match interrupt.is_asked() {
            true => Err(CompactError::Stopped),
            false => compacted,
        };
        let compacted = compacted.map_err(|error| explain(&error));
        let compacted =
            meter.finish(compacted, "no transaction is lost, and it can be run again")?;
        closed?;
        self.say(&compacted)
    }

    fn say(&self, compacted: &Compacted) -> Result<(), Failure> {
        let mut output = Output::new();
        match self.json {
            true => output.json(&JsonCompacted {
                sealed: compacted.sealed,
                sealed_seq: compacted.sealed_seq.get(),
                merged: compacted.merged,
                reformed: compacted.reformed,
                rows_written: compacted.rows_written,
                bytes_written: compacted.bytes_written,
            })?,
            false => output.line(&[self.line(compacted).as_bytes()])?,
        }
        output.finish()
    }

    fn line(&self, compacted: &Compacted) -> String {
        let Compacted { sealed_seq, rows_written, bytes_written, .. } = compacted;
        let done = done(compacted);
        if done.is_empty() && sealed_seq.get() == 0 {
            return "nothing to do: the log has no transaction yet".to_owned();
        }
        if done.is_empty() {
            let one = match self.all {
                true => format!(", in one file of the form {}", self.form.name()),
                false => String::new(),
            };
            return format!("nothing to do: all up to transaction {sealed_seq} is sealed{one}");
        }
        let moves = text::count(*rows_written, "move");
        format!("{}: {moves} and {bytes_written} bytes written", done.join(", and "))
    }
}

fn done(Compacted { sealed, sealed_seq, merged, reformed, .. }: &Compacted) -> Vec<String> {
    let transactions = || text::count(*sealed, "transaction");
    let sealed = (*sealed > 0).then(|| format!("sealed {}, up to {sealed_seq}", transactions()));
    let merged = (*merged > 0).then(|| format!("merged {}", text::count(*merged, "file")));
    let reformed =
        (*reformed > 0).then(|| "wrote the file of history anew in another form".to_owned());
    [sealed, merged, reformed].into_iter().flatten().collect()
}

/// A signal closes the store, which stops what writes its files at the next place where nothing is
/// half done.
pub(crate) fn close_when_interrupted(store: &RefStore) -> Result<Interrupt, Failure> {
    let store = store.clone();
    Interrupt::watch_then(move |_| {
        interrupt::note_stopping();
        // Whoever compacts closes it again, and hears what there is to hear.
        let _ = store.close();
    })
}

/// Opens the store for a command that holds it for itself, and leaves compacting to the command.
///
/// `beside` says what of it a server does that is in the way.
pub(crate) fn open(dir: &Path, beside: &str) -> Result<RefStore, Failure> {
    let options = OpenOptions::default().compacting(Compacting::ByHand);
    let store = RefStore::open_with(dir, options).map_err(|error| {
        let kind = error.kind();
        let failure = Failure::from(error);
        match kind {
            ErrorKind::Locked => {
                failure.with_hint(format!("a running `refstone serve` holds the lock: {beside}"))
            }
            _ => failure,
        }
    })?;
    repo::tell_recovery(store.recovery());
    Ok(store)
}

fn explain(error: &CompactError) -> Failure {
    let failure = Failure::of_kind(error.kind(), error.to_string());
    match error.kind() {
        // That has a hint of its own: what to do.
        ErrorKind::Corrupt => failure,
        ErrorKind::NoSpace => failure.with_hint(
            "no transaction is lost by it; what was sealed stays sealed; free some space, and run it \
             again",
        ),
        _ => failure.with_hint("no transaction is lost by it; what was sealed stays sealed"),
    }
}
