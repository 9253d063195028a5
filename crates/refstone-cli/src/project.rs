//! `refstone project`.

use std::path::PathBuf;

use clap::Args;
use refstone::exchange::project;
use refstone::read_view;
use serde::Serialize;

use crate::exit::{CODES, Failure};
use crate::meter::{Meter, MeterOptions};
use crate::output::Output;
use crate::repo;
use crate::text;

/// Write the references where git and its libraries look for them
///
/// Writes packed-refs, HEAD and symbolic references into the directory of the repository, so that
/// `git log`, a clone of the path or libgit2 find them there. They are as fresh as
/// the last run of this command: nothing keeps them up to date, so run it after pushes, or from a
/// timer. They are for reading: git refuses to move a reference here.
///
/// Each file is replaced by a rename when it is on stable storage. The lock is not taken, so this
/// works beside a running server, which does not look at these files.
#[derive(Debug, Args)]
#[command(after_long_help = CODES)]
pub(crate) struct Project {
    /// The repository
    repo: PathBuf,
    #[command(flatten)]
    meter: MeterOptions,
    /// Print one JSON object: path, seq, refs
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    path: String,
    seq: u64,
    refs: usize,
}

impl Project {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let dir = repo::log_directory(&self.repo)?;
        repo::settle(&dir)?;
        let objects = repo::objects(&dir);
        let Some(repository) = objects.as_deref().and_then(|objects| objects.parent()) else {
            let shown = text::path(&self.repo);
            let text = format!("{shown}: there are no objects beside its log");
            return Err(Failure::environment(text)
                .with_hint("a projection is for a repository, as `refstone init` makes it"));
        };
        let mut meter = Meter::watch(&self.meter)?;
        let view = read_view(&dir)?;
        let projected = project(repository, &view, &mut |progress| meter.tell(progress));
        let projected = projected.map_err(Failure::from);
        let projected = meter.finish(projected, "no file was changed, and it can be run again")?;
        let path = text::path(repository);
        let report = Report { path, seq: view.seq().get(), refs: projected };
        let mut output = Output::new();
        if self.json {
            output.json(&report)?;
        } else {
            let Report { path, seq, refs } = &report;
            let line = format!("projected {refs} references, as of transaction {seq}, into {path}");
            output.line(&[line.as_bytes()])?;
        }
        output.finish()
    }
}
