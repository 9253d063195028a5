//! `refstone import`.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::panic;
use std::path::{Path, PathBuf};

use clap::Args;
use refstone::exchange::{
    GitRefs, GitRepository, Imported, import_moves, import_refs, link_objects,
};
use refstone::{CreateOptions, ObjectFormat, OsEnv, RefName, Target};
use refstone_log::LogReader;
use refstone_server::{Aside, InitOptions};
use serde::Serialize;

use crate::exit::{CODES, Failure, note};
use crate::meter::{Meter, MeterOptions, NOTHING_MADE};
use crate::output::Output;
use crate::text::{self, count};

/// Make a repository of a git repository's references, or of a stream of moves
///
/// SOURCE is a git repository, whose references lie in files or in a reftable; it is not changed,
/// and nobody should move references in it meanwhile. References, symbolic ones, HEAD and reflogs
/// come along exactly, a reflog entry as one transaction whose actor is git's raw identity with its
/// time and zone. Its objects are linked, or copied where they cannot be linked.
///
/// Or SOURCE is a file with an Arrow IPC stream, or - for standard input, with the columns refname,
/// old_oid, new_oid, old_symref, new_symref, actor and at_unix_ms. Objects have to come by other
/// ways then.
///
/// REPO appears under its name when it is complete and on stable storage. Interrupted or killed,
/// the import leaves no repository; it can be run again, and then also takes away what a killed one
/// left.
#[derive(Debug, Args)]
#[command(after_long_help = CODES)]
pub(crate) struct Import {
    /// A git repository, a file with an Arrow IPC stream, or - for standard input
    source: PathBuf,
    /// Where the repository will be: absent, or an empty directory
    repo: PathBuf,
    /// Leave the objects where they are
    #[arg(long)]
    no_objects: bool,
    /// The hash that names objects, for a stream that does not tell it: sha1 or sha256
    #[arg(long, value_name = "HASH", default_value = "sha1")]
    object_format: ObjectFormat,
    #[command(flatten)]
    meter: MeterOptions,
    /// Print one JSON object: path, object_format, refs, moves, last_seq, left_out
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    path: String,
    object_format: &'static str,
    refs: u64,
    moves: u64,
    last_seq: u64,
    left_out: Vec<String>,
}

impl Import {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut meter = Meter::watch(&self.meter)?;
        let imported = match self.source.is_dir() {
            true => self.import_git(&mut meter),
            false => self.import_stream(&mut meter),
        };
        self.say(meter.finish(imported, NOTHING_MADE)?)
    }

    fn import_git(&self, meter: &mut Meter) -> Result<Report, Failure> {
        let source = GitRepository::find(&self.source)?;
        let aside = Aside::begin(&self.repo)?;
        let refs = GitRefs::read(&source, &mut |progress| meter.tell(progress))?;
        let head = refs.refs.get(&RefName::head()).and_then(Target::symbolic).cloned();
        aside.init_objects(&options(refs.object_format, head))?;
        if !self.no_objects {
            link_objects(&source, aside.path(), &mut |progress| meter.tell(progress))?;
        }
        let log = aside.path().join("refstone");
        let imported = import_refs(&refs, &log, &mut |progress| meter.tell(progress))?;
        aside.publish()?;
        Ok(self.report(refs.object_format, imported, refs.left_out))
    }

    fn import_stream(&self, meter: &mut Meter) -> Result<Report, Failure> {
        let stream = open(&self.source)?;
        let aside = Aside::begin(&self.repo)?;
        let log = aside.path().join("refstone");
        let imported = quietly(|| {
            import_moves(stream, &log, self.object_format, &mut |progress| meter.tell(progress))
        })?;
        let object_format = LogReader::open(&OsEnv, &log)?.object_format();
        aside.init_objects(&options(object_format, None))?;
        aside.publish()?;
        let left_out = (!imported.is_whole).then(|| UNENDED.to_owned());
        Ok(self.report(object_format, imported, Vec::from_iter(left_out)))
    }

    fn report(
        &self,
        object_format: ObjectFormat,
        imported: Imported,
        left_out: Vec<String>,
    ) -> Report {
        let Imported { refs, moves, last_seq, .. } = imported;
        let (path, object_format) = (text::path(&self.repo), object_format.name());
        Report { path, object_format, refs, moves, last_seq: last_seq.get(), left_out }
    }

    fn say(&self, report: Report) -> Result<(), Failure> {
        let mut output = Output::new();
        if self.json {
            output.json(&report)?;
            return output.finish();
        }
        let Report { path, refs, moves, left_out, .. } = report;
        left_out.iter().for_each(|what| note(&format!("left out: {what}")));
        let (refs, moves) = (count(refs, "reference"), count(moves, "past move"));
        let line = format!("imported {refs} and {moves} into {path}");
        output.line(&[line.as_bytes()])?;
        output.finish()
    }
}

const UNENDED: &str = "what may have stood behind the last batch: the stream has no end-of-stream marker, so \
                       if it was cut off, moves are missing; compare their number with the source";

fn options(object_format: ObjectFormat, head: Option<RefName>) -> InitOptions {
    let initial_branch = head.unwrap_or_else(|| CreateOptions::default().head);
    InitOptions { object_format, initial_branch }
}

fn open(source: &Path) -> Result<Box<dyn Read>, Failure> {
    if source.as_os_str() == "-" {
        return Ok(Box::new(io::stdin().lock()));
    }
    let file = File::open(source);
    let file = file.map_err(|error| {
        let text = format!("{}: cannot open it: {error}", text::path(source));
        Failure::of_io(&error, text)
    })?;
    Ok(Box::new(BufReader::with_capacity(1 << 20, file)))
}

/// Runs what turns panics into errors, without their being told twice.
fn quietly<T>(run: impl FnOnce() -> T) -> T {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| ()));
    let result = run();
    panic::set_hook(hook);
    result
}
