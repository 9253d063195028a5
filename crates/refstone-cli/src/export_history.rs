//! Moves of a span, as Parquet, CSV or JSON lines.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::Path;

use clap::ValueEnum;
use refstone::exchange::{ExchangeError, ParquetMoves, Progress};
use refstone::{ObjectFormat, ObjectId, RefMove, history_after, read_object_format};
use tempfile::NamedTempFile;

use crate::exit::{Failure, note};
use crate::export::{Vacant, expect_absent};
use crate::meter::Meter;
use crate::moves::{JsonLine, time};
use crate::span::{self, Span};
use crate::text;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HistoryFormat {
    Parquet,
    Csv,
    Jsonl,
}

impl HistoryFormat {
    pub(crate) fn name(self) -> &'static str {
        match self {
            HistoryFormat::Parquet => "parquet",
            HistoryFormat::Csv => "csv",
            HistoryFormat::Jsonl => "jsonl",
        }
    }
}

/// Writes the moves to a file that gets its name when it is whole, or to standard output. Returns how many
/// there were.
pub(crate) fn export_history(
    dir: &Path,
    target: Option<&Path>,
    format: HistoryFormat,
    span: Span,
    meter: &mut Meter,
) -> Result<u64, Failure> {
    let Some(target) = target else {
        if format == HistoryFormat::Parquet && io::stdout().is_terminal() {
            return Err(Failure::usage("Parquet is not for a terminal").with_hint("name a TARGET"));
        }
        let out = BufWriter::with_capacity(64 << 10, io::stdout());
        return write_moves(dir, out, format, span, meter).map(|(_, moves)| moves);
    };
    let failed = |error: io::Error| {
        Failure::of_io(&error, format!("{}: cannot write it: {error}", text::path(target)))
    };
    expect_absent(target, Vacant::Nothing)?;
    let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let mut aside = tempfile::Builder::new();
    // The usual mode of a file, less the umask; a temporary file would stay private.
    aside.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let aside: NamedTempFile = aside.tempfile_in(parent).map_err(failed)?;
    let (written, moves) = write_moves(dir, BufWriter::new(aside), format, span, meter)?;
    let aside = written.into_inner().map_err(|error| failed(error.into_error()))?;
    aside.as_file().sync_all().map_err(failed)?;
    aside.persist_noclobber(target).map_err(|error| failed(error.error))?;
    std::fs::File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed)?;
    Ok(moves)
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
) -> Result<(W, u64), Failure> {
    let objects = read_object_format(dir)?;
    span.check(dir)?;
    let mut sink = Sink::start(out, format, objects).map_err(|error| cannot_write(&error))?;
    let mut exported = 0;
    let mut moves = history_after(dir, span.after(), None)?;
    // What is damaged behind the span is of no interest.
    while !span.ends_at(moves.seq().get())
        && let Some(moved) = moves.next().transpose()?
    {
        if span.is_before(moved.seq.get()) {
            break;
        }
        sink.push(&moved).map_err(|error| cannot_write(&error))?;
        exported += 1;
        if meter.tell(Progress { doing: "exporting", done: exported, total: None })
            == ControlFlow::Break(())
        {
            return Err(ExchangeError::Interrupted.into());
        }
    }
    if exported == 0 {
        note(&format!("there is no move {span}{}", span::there(dir)));
    }
    let out = sink.finish().map_err(|error| cannot_write(&error))?;
    Ok((out, exported))
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
}
