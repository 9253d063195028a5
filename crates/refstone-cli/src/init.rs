//! `refstone init`.

use std::path::PathBuf;

use clap::Args;
use refstone::{ObjectFormat, RefName};
use refstone_server::{InitOptions, init_repository};
use serde::Serialize;

use crate::exit::{CODES, Failure, note};
use crate::output::Output;
use crate::text;

/// Create an empty repository
///
/// Makes a bare git repository for the objects, with a reference log in its directory `refstone/`.
/// It is on stable storage when the command ends, and appears under its name whole or not at all.
/// No commit sequence is spent: the initial target of HEAD is part of the log's first bytes.
///
/// It is made at REPO, whatever the name; a server finds only those whose names end in `.git`.
#[derive(Debug, Args)]
#[command(after_long_help = CODES)]
pub(crate) struct Init {
    /// Where the repository will be: absent, or an empty directory
    repo: PathBuf,
    /// The hash that names objects: sha1 or sha256
    #[arg(long, value_name = "HASH", default_value = "sha1")]
    object_format: ObjectFormat,
    /// The branch that HEAD points to; it need not exist
    #[arg(long, short = 'b', value_name = "NAME", default_value = "main")]
    initial_branch: String,
    /// Say nothing if all is well
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
    /// Print one JSON object: path, object_format, head
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Created {
    path: String,
    object_format: &'static str,
    head: String,
}

impl Init {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let options = InitOptions {
            object_format: self.object_format,
            initial_branch: branch(&self.initial_branch)?,
        };
        init_repository(&self.repo, &options)?;
        match self.quiet {
            true => Ok(()),
            false => self.say(&options),
        }
    }

    fn say(&self, options: &InitOptions) -> Result<(), Failure> {
        let absolute = self.repo.canonicalize();
        let path = absolute.unwrap_or_else(|_| self.repo.clone());
        if path.extension().is_none_or(|extension| extension != "git") {
            note(
                "`refstone serve` finds repositories whose names end in .git; this one's does not",
            );
        }
        let path = text::path(&path);
        let head = text::name(options.initial_branch.as_bytes());
        let object_format = options.object_format.name();
        let mut output = Output::new();
        if self.json {
            output.json(&Created { path, object_format, head })?;
        } else {
            let line = format!("created {path}: {object_format} objects, HEAD points to {head}");
            output.line(&[line.as_bytes()])?;
        }
        output.finish()
    }
}

/// The full name of a branch. A name that is full already is most likely a mistake: git would take
/// it for `refs/heads/refs/heads/main`.
fn branch(name: &str) -> Result<RefName, Failure> {
    if name.starts_with("refs/") {
        let text = format!("'{name}' is a full name, and --initial-branch takes that of a branch");
        return Err(Failure::usage(text).with_hint("leave out refs/heads/"));
    }
    RefName::new(format!("refs/heads/{name}")).map_err(|error| Failure::usage(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_is_named_as_git_init_names_it() {
        assert_eq!(branch("feature/x").unwrap().as_bytes(), b"refs/heads/feature/x");
        assert!(branch("refs/heads/main").is_err());
        assert!(branch("a..b").is_err());
    }
}
