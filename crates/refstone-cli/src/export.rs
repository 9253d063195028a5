//! `refstone export`.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use refstone::exchange::{GitRefs, GitRepository, RefFormat};
use refstone_server::Aside;
use serde::Serialize;

use crate::exit::{CODES, Failure};
use crate::export_history::{HistoryFormat, export_history};
use crate::meter::{Meter, MeterOptions, NOTHING_MADE};
use crate::output::Output;
use crate::repo;
use crate::span::Span;
use crate::text;

/// Write references to a git repository, or history to a file
///
/// TARGET becomes a bare git repository with the references, symbolic ones, HEAD and reflogs, in
/// files or in a reftable. What was imported comes out as it was; a move since then becomes a reflog
/// entry of `<actor> <>`. References that are gone have no reflog, as in git. TARGET borrows the
/// objects of REPO (`objects/info/alternates`); `git -C TARGET repack -ad`, and removing that file,
/// make it independent. It appears when it is complete and on stable storage.
///
/// With --history, all moves of a span of sequences go to the file TARGET, or to standard output,
/// oldest first, with the columns of the log: as Parquet (for that give a file), as CSV, or as JSON
/// lines like those of `log --json`. A null of CSV is nothing between two commas, an empty text "".
/// If there is a TARGET, a line says what it got; with --json, an object: path, format, moves.
///
/// The lock is not taken, so this works beside a running server.
#[derive(Debug, Args)]
#[command(after_long_help = CODES)]
pub(crate) struct Export {
    /// The repository
    repo: PathBuf,
    /// The git repository or file to make; it must not exist, a repository may be an empty directory
    #[arg(required_unless_present = "history")]
    target: Option<PathBuf>,
    /// How TARGET keeps its references
    #[arg(long, value_enum, default_value_t = Store::Files, conflicts_with = "history")]
    ref_format: Store,
    /// Export moves instead
    #[arg(long, requires = "format")]
    history: bool,
    /// How the moves are written
    #[arg(long, value_enum, requires = "history")]
    format: Option<HistoryFormat>,
    #[command(flatten)]
    span: Span,
    #[command(flatten)]
    meter: MeterOptions,
    /// Print one JSON object: path, ref_format, object_format, refs, entries; of --history, for which
    /// TARGET must be given: path, format, moves
    #[arg(long, requires = "target")]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Store {
    Files,
    Reftable,
}

/// What was exported.
#[derive(Serialize)]
#[serde(untagged)]
enum Told {
    Git(Report),
    History { path: String, format: &'static str, moves: u64 },
}

#[derive(Serialize)]
struct Report {
    path: String,
    ref_format: &'static str,
    object_format: &'static str,
    refs: usize,
    entries: usize,
}

impl Export {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let dir = repo::log_directory(&self.repo)?;
        repo::settle(&dir)?;
        let mut meter = Meter::watch(&self.meter)?;
        let exported = match (self.format, &self.target) {
            (Some(format), target) => {
                let moves = export_history(&dir, target.as_deref(), format, self.span, &mut meter);
                let told =
                    |moves| target.as_deref().map(|target| Told::history(target, format, moves));
                moves.map(told)
            }
            (None, _) if self.span.from.or(self.span.to).is_some() => {
                Err(Failure::usage("--from and --to are for --history"))
            }
            (None, Some(target)) => {
                self.export_git(&dir, target, &mut meter).map(|report| Some(Told::Git(report)))
            }
            (None, None) => Err(Failure::usage("there is no TARGET")),
        };
        meter.finish(exported, NOTHING_MADE)?.map_or(Ok(()), |told| self.say(&told))
    }

    fn export_git(&self, dir: &Path, target: &Path, meter: &mut Meter) -> Result<Report, Failure> {
        expect_absent(target, Vacant::Directory)?;
        let refs = GitRefs::of_store(dir, &mut |progress| meter.tell(progress))?;
        let format = match self.ref_format {
            Store::Files => RefFormat::Files,
            Store::Reftable => RefFormat::Reftable,
        };
        let aside = Aside::begin(target)?;
        let made = GitRepository::init(aside.path(), refs.object_format, format)?;
        if let Some(objects) = repo::objects(dir) {
            borrow_objects(&made.dir, &objects)?;
        }
        refs.write(&made, &mut |progress| meter.tell(progress))?;
        aside.publish()?;
        Ok(Report {
            path: text::path(target),
            ref_format: format.name(),
            object_format: refs.object_format.name(),
            refs: refs.refs.keys().filter(|name| !name.is_head()).count(),
            entries: refs.reflogs.values().map(Vec::len).sum(),
        })
    }

    fn say(&self, told: &Told) -> Result<(), Failure> {
        let mut output = Output::new();
        match self.json {
            true => output.json(told)?,
            false => output.line(&[told.line().as_bytes()])?,
        }
        output.finish()
    }
}

impl Told {
    fn history(target: &Path, format: HistoryFormat, moves: u64) -> Told {
        Told::History { path: text::path(target), format: format.name(), moves }
    }

    fn line(&self) -> String {
        match self {
            Told::Git(Report { path, ref_format, refs, entries, .. }) => {
                let refs = text::count(*refs, "reference");
                let entries = match entries {
                    1 => "1 reflog entry".to_owned(),
                    _ => format!("{entries} reflog entries"),
                };
                format!("exported {refs} and {entries} to {path} ({ref_format})")
            }
            Told::History { path, format, moves } => {
                format!("exported {} to {path} ({format})", text::count(*moves, "move"))
            }
        }
    }
}

/// What may stand where an export goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vacant {
    Nothing,
    /// An empty directory.
    Directory,
}

/// An export makes something new. What is there already may be an earlier export, or anything else.
pub(crate) fn expect_absent(target: &Path, vacant: Vacant) -> Result<(), Failure> {
    let is_vacant = |dir: &Path| fs::read_dir(dir).is_ok_and(|mut names| names.next().is_none());
    let found = match fs::symlink_metadata(target) {
        Err(_) => return Ok(()),
        Ok(_) if vacant == Vacant::Directory && is_vacant(target) => return Ok(()),
        Ok(_) if target.join("refstone").is_dir() => "a refstone repository",
        Ok(_) if target.join("objects").is_dir() => "a git repository",
        Ok(found) if found.is_dir() => "a directory",
        Ok(_) => "a file",
    };
    let text = format!("{}: expected nothing there yet, found {found}", text::path(target));
    Err(Failure::refused(text).with_hint(
        "an export makes something new and changes nothing that is there: choose another name, or \
         move that away",
    ))
}

fn borrow_objects(made: &Path, objects: &Path) -> Result<(), Failure> {
    let info = made.join("objects/info");
    let line = [objects.as_os_str().as_bytes(), b"\n"].concat();
    let written = fs::create_dir_all(&info).and_then(|()| fs::write(info.join("alternates"), line));
    written.map_err(|error| {
        Failure::of_io(&error, format!("{}: cannot write alternates: {error}", text::path(&info)))
    })
}
