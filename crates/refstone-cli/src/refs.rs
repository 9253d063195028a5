//! `refstone refs`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::Args;
use refstone::{RefName, Target, read_view};
use serde::Serialize;

use crate::exit::{CODES, Failure};
use crate::output::Output;
use crate::repo;
use crate::text::{self, Hex};

/// List references
///
/// Prints `<oid> <refname>` for each reference, sorted by the bytes of the names, which are written
/// as they are. What is shown is durable; the lock is not taken, so this works beside a running
/// server. If a crash left transactions behind the published end of the log and nobody holds the
/// lock, they are recovered first.
///
/// With --json: `name`, and `oid` or `symref`, the other being null. A byte of a name that is not
/// UTF-8 is written `\xNN` as in the log's columns, and `name_hex` then has all of it in hex.
#[derive(Debug, Args)]
#[command(after_long_help = CODES)]
pub(crate) struct Refs {
    /// The repository
    repo: PathBuf,
    /// Only references whose full names start with this, such as refs/heads/
    prefix: Option<OsString>,
    /// Also HEAD and symbolic references, as `ref: <target> <refname>`
    #[arg(long)]
    symbolic: bool,
    /// Print one JSON object for each reference
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Line {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_hex: Option<Hex>,
    oid: Option<String>,
    symref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    symref_hex: Option<Hex>,
}

impl Refs {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let dir = repo::log_directory(&self.repo)?;
        repo::settle(&dir)?;
        let view = read_view(&dir)?;
        let prefix = self.prefix.as_ref().map_or(&b""[..], |prefix| prefix.as_bytes());
        let mut output = Output::new();
        for item in view.iter_prefix(prefix) {
            let (name, target) = item?;
            if self.shows(&name, &target) {
                self.say(&mut output, &name, &target)?;
            }
        }
        output.finish()
    }

    fn shows(&self, name: &RefName, target: &Target) -> bool {
        self.symbolic || (!name.is_head() && target.object().is_some())
    }

    fn say(&self, output: &mut Output, name: &RefName, target: &Target) -> Result<(), Failure> {
        match target {
            target if self.json => output.json(&Line::of(name, target)),
            Target::Object(id) => output.line(&[id.to_hex().as_bytes(), b" ", name.as_bytes()]),
            Target::Symbolic(to) => output.line(&[b"ref: ", to.as_bytes(), b" ", name.as_bytes()]),
        }
    }
}

impl Line {
    fn of(name: &RefName, target: &Target) -> Line {
        let symref = target.symbolic().map(RefName::as_bytes);
        Line {
            name: text::name(name.as_bytes()),
            name_hex: Hex::unless_utf8(name.as_bytes()),
            oid: target.object().map(|id| id.to_hex()),
            symref: symref.map(text::name),
            symref_hex: symref.and_then(Hex::unless_utf8),
        }
    }
}
