//! `refstone objects`.

use std::collections::HashSet;
use std::path::PathBuf;

use clap::Args;
use refstone::history;
use serde::Serialize;

use crate::exit::{CODES, Failure};
use crate::output::Output;
use crate::repo;

/// List the objects that the history names
///
/// Prints the id of every object that some reference pointed to, each once, oldest first: what must
/// be kept so that any earlier state can be restored. The memory it takes grows with their number.
///
/// With --packed-refs, each has a name behind it, so that the output is a file of references as git
/// has them: in the place of the repository's `packed-refs` it keeps `git gc` from removing what the
/// history names. docs/operations.md has the steps.
///
/// If damage is met, what is sound is listed before it is told: then not all is listed.
#[derive(Debug, Args)]
#[command(after_long_help = CODES)]
pub(crate) struct Objects {
    /// The repository
    repo: PathBuf,
    /// Print lines of git's packed-refs: `<oid> refs/history/<oid>`
    #[arg(long)]
    packed_refs: bool,
    /// Print one JSON object for each: oid
    #[arg(long, conflicts_with = "packed_refs")]
    json: bool,
}

#[derive(Serialize)]
struct Line<'a> {
    oid: &'a str,
}

impl Objects {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let dir = repo::log_directory(&self.repo)?;
        repo::settle(&dir)?;
        let mut output = Output::new();
        let mut told = HashSet::new();
        for moved in history(&dir, None)? {
            let moved = match moved {
                Ok(moved) => moved,
                Err(error) => {
                    output.finish()?;
                    return Err(error.into());
                }
            };
            // The old one is the new one of an earlier move, unless that was lost.
            for id in [moved.old_oid, moved.new_oid].into_iter().flatten() {
                if told.insert(id) {
                    self.say(&mut output, &id.to_hex())?;
                }
            }
        }
        output.finish()
    }

    fn say(&self, output: &mut Output, id: &str) -> Result<(), Failure> {
        if self.json {
            return output.json(&Line { oid: id });
        }
        match self.packed_refs {
            true => output.line(&[id.as_bytes(), b" refs/history/", id.as_bytes()]),
            false => output.line(&[id.as_bytes()]),
        }
    }
}
