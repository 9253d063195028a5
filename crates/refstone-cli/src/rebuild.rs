//! `refstone rebuild`.

use std::path::PathBuf;

use clap::Args;
use refstone::survey;
use serde::Serialize;

use crate::compact;
use crate::exit::{CODES, Failure};
use crate::meter::{Meter, MeterOptions};
use crate::output::Output;
use crate::repo;
use crate::text::count;

/// Make the tables anew from history
///
/// A table is a cache: it says where the references of a history file ended, and which of its moves
/// are about which reference. This makes all of them anew, as a store does by itself with those that
/// do not open. It holds the lock, and cannot run beside a server of the same repository.
///
/// With --json, one object: `tables`, `rows`, `bytes`.
#[derive(Debug, Args)]
#[command(after_long_help = CODES)]
pub(crate) struct Rebuild {
    /// The repository
    repo: PathBuf,
    #[command(flatten)]
    meter: MeterOptions,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct JsonRebuilt {
    tables: usize,
    rows: u64,
    bytes: u64,
}

impl Rebuild {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let dir = repo::log_directory(&self.repo)?;
        let store = compact::open(
            &dir,
            "when it starts, it makes anew tables that are missing or do not open; stop it to make all \
             of them anew",
        )?;
        let interrupt = compact::close_when_interrupted(&store)?;
        let mut meter = Meter::new(&self.meter, interrupt);
        let rebuilt = store.rebuild(&mut |progress| meter.tell_of_store(progress));
        let closed = store.close();
        let kept = "each table is sound, the old one or the new; it can be run again";
        meter.finish(rebuilt.map_err(Failure::from), kept)?;
        closed?;
        let tables = survey(&dir)?.tables;
        let rebuilt = JsonRebuilt {
            tables: tables.len(),
            rows: tables.iter().map(|table| table.live_rows + table.gone_rows).sum(),
            bytes: tables.iter().map(|table| table.bytes).sum(),
        };
        let mut output = Output::new();
        match self.json {
            true => output.json(&rebuilt)?,
            false => output.line(&[line(&rebuilt).as_bytes()])?,
        }
        output.finish()
    }
}

fn line(rebuilt: &JsonRebuilt) -> String {
    match rebuilt {
        JsonRebuilt { tables: 0, .. } => "nothing to do: nothing has been sealed yet".to_owned(),
        JsonRebuilt { tables, rows, bytes } => {
            let (tables, rows) = (count(*tables, "table"), count(*rows, "row"));
            format!("made {tables}: {rows}, {bytes} bytes")
        }
    }
}
