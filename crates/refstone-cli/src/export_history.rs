//! Moves of a span, as Parquet, CSV or JSON lines.

use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::Path;

use clap::ValueEnum;
use refstone::exchange::{ExchangeError, ParquetMoves, Progress};
use refstone::{ObjectFormat, ObjectId, OsEnv, RefMove, Seq, history_after};
use refstone_log::LogReader;
use tempfile::NamedTempFile;

use crate::exit::Failure;
use crate::meter::Meter;
use crate::moves::{JsonLine, time};
use crate::text;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HistoryFormat {
    Parquet,
    Csv,
    Jsonl,
}

/// Sequences, both ends included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) from: Option<u64>,
    pub(crate) to: Option<u64>,
}

impl Span {
    /// The newest sequence that is of no interest, so that what is sealed need not be read.
    fn after(self) -> Seq {
        Seq::new(self.from.unwrap_or(0).saturating_sub(1))
    }

    fn holds(&self, seq: u64) -> bool {
        self.from.is_none_or(|from| from <= seq) && !self.is_before(seq)
    }

    fn is_before(&self, seq: u64) -> bool {
        self.to.is_some_and(|to| to < seq)
    }
}

/// Writes the moves to a file that gets its name when it is whole, or to standard output.
pub(crate) fn export_history(
    dir: &Path,
    target: Option<&Path>,
    format: HistoryFormat,
    span: Span,
    meter: &mut Meter,
) -> Result<(), Failure> {
    let Some(target) = target else {
        let out = BufWriter::with_capacity(64 << 10, io::stdout());
        return write_moves(dir, out, format, span, meter).map(drop);
    };
    let failed = |error: io::Error| {
        Failure::of_io(&error, format!("{}: cannot write it: {error}", text::path(target)))
    };
    if target.exists() {
        return Err(Failure::refused(format!("{} exists already", text::path(target))));
    }
    let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let mut aside = tempfile::Builder::new();
    // The usual mode of a file, less the umask; a temporary file would stay private.
    aside.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let aside: NamedTempFile = aside.tempfile_in(parent).map_err(failed)?;
    let written = write_moves(dir, BufWriter::new(aside), format, span, meter)?;
    let aside = written.into_inner().map_err(|error| failed(error.into_error()))?;
    aside.as_file().sync_all().map_err(failed)?;
    aside.persist_noclobber(target).map_err(|error| failed(error.error))?;
    std::fs::File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed)
}

/// What rows are written to.
enum Sink<W: Write + Send> {
    Parquet(Box<ParquetMoves<W>>),
    Csv(W),
    Jsonl(W),
}

fn write_moves<W: Write + Send>(
    dir: &Path,
    out: W,
    format: HistoryFormat,
    span: Span,
    meter: &mut Meter,
) -> Result<W, Failure> {
    let objects = LogReader::open(&OsEnv, dir)?.object_format();
    let mut sink = Sink::start(out, format, objects).map_err(|error| cannot_write(&error))?;
    for (done, moved) in (0..).zip(history_after(dir, span.after(), None)?) {
        let moved = moved?;
        if span.is_before(moved.seq.get()) {
            break;
        }
        if span.holds(moved.seq.get()) {
            sink.push(&moved).map_err(|error| cannot_write(&error))?;
        }
        if meter.tell(Progress { doing: "exporting", done, total: None }) == ControlFlow::Break(())
        {
            return Err(ExchangeError::Interrupted.into());
        }
    }
    sink.finish().map_err(|error| cannot_write(&error))
}

fn cannot_write(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::OutputClosed,
        _ => Failure::of_io(error, format!("cannot write the moves: {error}")),
    }
}

impl<W: Write + Send> Sink<W> {
    fn start(mut out: W, format: HistoryFormat, objects: ObjectFormat) -> io::Result<Sink<W>> {
        Ok(match format {
            HistoryFormat::Parquet => Sink::Parquet(Box::new(ParquetMoves::new(out, objects)?)),
            HistoryFormat::Csv => {
                out.write_all(b"seq,at,actor,refname,old_oid,new_oid,symref,message\n")?;
                Sink::Csv(out)
            }
            HistoryFormat::Jsonl => Sink::Jsonl(out),
        })
    }

    fn push(&mut self, moved: &RefMove) -> io::Result<()> {
        match self {
            Sink::Parquet(parquet) => Ok(parquet.push(moved)?),
            Sink::Csv(out) => out.write_all(csv(moved).as_bytes()),
            Sink::Jsonl(out) => {
                serde_json::to_writer(&mut *out, &JsonLine::of(moved))?;
                out.write_all(b"\n")
            }
        }
    }

    fn finish(self) -> io::Result<W> {
        let mut out = match self {
            Sink::Parquet(parquet) => parquet.finish()?,
            Sink::Csv(out) | Sink::Jsonl(out) => out,
        };
        out.flush()?;
        Ok(out)
    }
}

/// A line of RFC 4180, with the text of the log's columns.
fn csv(moved: &RefMove) -> String {
    let id = |id: Option<ObjectId>| id.map(|id| id.to_hex()).unwrap_or_default();
    let symref = moved.symref.as_ref().map(|symref| text::name(symref.as_bytes()));
    let message = moved.message.as_ref().map(|message| text::free(message));
    let fields = [
        moved.seq.to_string(),
        time(moved.at),
        field(&text::free(&moved.actor)),
        field(&text::name(moved.name.as_bytes())),
        id(moved.old_oid),
        id(moved.new_oid),
        symref.as_deref().map(field).unwrap_or_default(),
        message.as_deref().map(field).unwrap_or_default(),
    ];
    fields.join(",") + "\n"
}

/// An empty text is quoted, which tells it from nothing.
fn field(text: &str) -> String {
    if text.is_empty() || text.contains(['"', ',', '\n', '\r']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        assert_eq!(field("plain text"), "plain text");
        assert_eq!(field("a,b"), "\"a,b\"");
        assert_eq!(field("say \"x\"\n"), "\"say \"\"x\"\"\n\"");
        assert_eq!(field(""), "\"\"");
    }

    #[test]
    fn a_span_includes_both_ends() {
        let span = Span { from: Some(2), to: Some(3) };
        assert_eq!([1, 2, 3, 4].map(|seq| span.holds(seq)), [false, true, true, false]);
        assert!(Span { from: None, to: None }.holds(u64::MAX));
    }
}
