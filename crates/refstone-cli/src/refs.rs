//! `refstone refs`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use refstone::{
    At, ObjectId, ObjectIdError, ReadError, RefName, Scan, Target, View, read_view, read_view_at,
};
use serde::Serialize;

use crate::at;
use crate::exit::{CODES, Failure, tell};
use crate::output::Output;
use crate::repo;
use crate::span;
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
    /// As they were after this transaction, which must be there (0: before the first), or at this time
    /// (RFC 3339, or @ and seconds since 1970)
    #[arg(long, value_name = at::NAME, value_parser = at::parse)]
    at: Option<At>,
    /// Only references that hold this object themselves
    #[arg(long, value_name = "OID", value_parser = object_id)]
    points_at: Option<ObjectId>,
    /// Leave out references whose full names start with this; may be given again
    #[arg(long, value_name = "PREFIX")]
    exclude: Vec<OsString>,
    /// Only references behind this name: with the last one of a page, the next page
    #[arg(long, value_name = "NAME")]
    after: Option<OsString>,
    /// At most so many
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
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
        let view = self.view(&dir)?;
        let mut left = self.limit.unwrap_or(usize::MAX);
        let mut output = Output::new();
        let mut listed = self.listed(&view)?;
        while left > 0
            && let Some((name, target)) = listed.next().transpose()?
        {
            if self.shows(&name, &target) {
                self.say(&mut output, &name, &target)?;
                left -= 1;
            }
        }
        output.finish()?;
        self.hint(left);
        Ok(())
    }

    fn view(&self, dir: &Path) -> Result<View, Failure> {
        let Some(at) = self.at else { return Ok(read_view(dir)?) };
        let view = read_view_at(dir, at)?;
        if let At::Seq(asked) = at {
            span::expect_there(asked, view.seq())?;
        }
        Ok(view)
    }

    fn listed<'v>(&self, view: &'v View) -> Result<Listed<'v>, Failure> {
        let scan = self.scan();
        let Some(id) = self.points_at else { return Ok(Box::new(view.scan(&scan))) };
        let names = view.refs_at(&id)?;
        let found = names.into_iter().filter(move |name| scan.has(name));
        Ok(Box::new(found.map(move |name| Ok((name, Target::Object(id))))))
    }

    fn scan(&self) -> Scan {
        let mut scan = Scan::prefix(self.prefix());
        if let Some(after) = &self.after {
            scan = scan.after(after.as_bytes());
        }
        self.exclude.iter().fold(scan, |scan, prefix| scan.without(prefix.as_bytes()))
    }

    fn prefix(&self) -> &[u8] {
        self.prefix.as_ref().map_or(&b""[..], |prefix| prefix.as_bytes())
    }

    /// Whoever gives a short name sees nothing, and should learn why.
    fn hint(&self, left: usize) {
        let shown = self.limit.unwrap_or(usize::MAX) - left;
        let prefix = self.prefix();
        let narrowed = self.after.is_some() || self.points_at.is_some() || self.limit == Some(0);
        if shown == 0 && !narrowed && !prefix.is_empty() && !prefix.starts_with(b"refs/") {
            let prefix = text::printable_name(prefix);
            tell("hint", &format!("no full name starts with '{prefix}'; try refs/heads/{prefix}"));
        }
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

/// References, or the first error.
type Listed<'v> = Box<dyn Iterator<Item = Result<(RefName, Target), ReadError>> + 'v>;

fn object_id(hex: &str) -> Result<ObjectId, ObjectIdError> {
    hex.parse()
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
