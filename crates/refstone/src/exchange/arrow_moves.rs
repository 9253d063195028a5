//! Moves that others wrote, from an Arrow IPC stream.

use std::any::Any;
use std::io::{self, BufRead, BufReader, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use arrow_ipc::reader::StreamReader;
use arrow_schema::{ArrowError, DataType, Schema};
use refstone_log::{ObjectFormat, RefRow};

use super::import::{Import, STATE, check_state};
use super::{ExchangeError, IMPORT_ACTOR, Imported, Steps, Tell};
use crate::edit::Target;
use crate::name::RefName;
use crate::oid::ObjectId;
use crate::store::CreateOptions;

/// Makes a store of a stream of moves, in an empty or absent directory; durable when it returns.
///
/// The stream has the columns `refname`, `old_oid`, `new_oid`, `old_symref`, `new_symref`, `actor`
/// and `at_unix_ms`, in any order, and maybe others; any alignment will do. Text is `Utf8` or
/// `LargeUtf8`; ids are binary of any kind, or hex digits as text; times are `Int64`. An id of
/// zeros is none. A move with neither a new id nor a new symbolic target is a deletion.
///
/// Each row is one transaction, in the order of the stream, with its time as `at` as far as that
/// order and the present allow. Where a ref is said to have pointed elsewhere than its last row
/// left it, a row by [`IMPORT_ACTOR`] says so first. `format` counts only if no id tells it.
///
/// A stream that was cut off between two batches looks like one whose writer left out the marker for its
/// end, which Arrow allows: [`Imported::is_whole`] is false then.
///
/// # Errors
///
/// If the stream is damaged or no such stream, if a row is no move, if the refs at the end could
/// not be in one store, or `tell` says to stop. The directory is to be removed then.
pub fn import_moves(
    stream: impl Read,
    dir: &Path,
    format: ObjectFormat,
    mut tell: Tell<'_>,
) -> Result<Imported, ExchangeError> {
    let mut stream = BufReader::new(stream);
    let start = stream.fill_buf().unwrap_or_default();
    for (magic, problem) in [
        (&b"ARROW1"[..], "it is an Arrow IPC file; write a stream (pyarrow: `ipc.new_stream`)"),
        (b"PAR1", "it is a Parquet file; write a stream of its rows (pyarrow: `ipc.new_stream`)"),
    ] {
        if start.starts_with(magic) {
            return Err(ExchangeError::Stream(problem.to_owned()));
        }
    }
    // arrow-rs checks what it reads, and panics on some of what is no stream.
    let stream = Remembering { stream, last: [0; END_OF_STREAM.len()] };
    let mut reader = guarded(|| StreamReader::try_new(stream, None))?;
    check_schema(&reader.schema())?;
    let mut steps = Steps::new("writing", None, &mut tell);
    let mut import: Option<Import> = None;
    let mut width = format;
    let mut row = 0;
    while let Some(batch) = guarded(|| reader.next().transpose())? {
        let moves = Moves::of(&batch)?;
        for index in 0..batch.num_rows() {
            steps.step()?;
            let told = moves.get(index).map_err(|problem| ExchangeError::Row { row, problem })?;
            let import = match &mut import {
                Some(import) => import,
                None => {
                    width = moves.object_format(&told).unwrap_or(format);
                    import.insert(Import::create(dir, width, CreateOptions::default().head)?)
                }
            };
            append(import, &told, width).map_err(|error| at_row(row, error))?;
            row += 1;
        }
    }
    let import = match import {
        Some(import) => import,
        None => Import::create(dir, format, CreateOptions::default().head)?,
    };
    check_state(import.refs.iter(), width)?;
    let imported = import.finish(&mut steps)?;
    Ok(Imported { is_whole: reader.get_ref().last == END_OF_STREAM, ..imported })
}

/// What ends a stream whose writer came to its end (Arrow columnar format, "IPC Streaming Format").
const END_OF_STREAM: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// Remembers the last bytes that were read.
struct Remembering<R> {
    stream: R,
    last: [u8; END_OF_STREAM.len()],
}

impl<R: Read> Read for Remembering<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buffer)?;
        let kept = read.min(self.last.len());
        self.last.rotate_left(kept);
        let from = self.last.len() - kept;
        self.last[from..].copy_from_slice(&buffer[read - kept..read]);
        Ok(read)
    }
}

fn guarded<T>(read: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, ExchangeError> {
    let read = catch_unwind(AssertUnwindSafe(read));
    let read =
        read.map_err(|panic| ExchangeError::Stream(format!("damaged: {}", said(&*panic))))?;
    read.map_err(|error| ExchangeError::Stream(error.to_string()))
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it cannot be read").to_owned()
}

fn at_row(row: u64, error: ExchangeError) -> ExchangeError {
    match error {
        ExchangeError::Value { name, problem } => {
            ExchangeError::Row { row, problem: format!("'{name}': {problem}") }
        }
        other => other,
    }
}

/// What a column may be.
#[derive(Clone, Copy)]
enum Sort {
    Text,
    Id,
    Milliseconds,
}

const COLUMNS: [(&str, Sort); 7] = [
    ("refname", Sort::Text),
    ("old_oid", Sort::Id),
    ("new_oid", Sort::Id),
    ("old_symref", Sort::Text),
    ("new_symref", Sort::Text),
    ("actor", Sort::Text),
    ("at_unix_ms", Sort::Milliseconds),
];

fn check_schema(schema: &Schema) -> Result<(), ExchangeError> {
    if schema.metadata.contains_key("refstone.log_id") {
        let problem = "it is the live log of a refstone store, and not what others wrote. To have \
                       another such store, copy its whole directory (docs/durability.md, \"Backing \
                       up\"); `refstone export --history` tells its moves";
        return Err(ExchangeError::Stream(problem.to_owned()));
    }
    for (name, sort) in COLUMNS {
        let field = schema.field_with_name(name);
        let field =
            field.map_err(|_| ExchangeError::Stream(format!("it has no column `{name}`")))?;
        let found = field.data_type();
        let (fits, wanted) = match sort {
            Sort::Text => (is_text(found), "Utf8 or LargeUtf8"),
            Sort::Id => (is_id(found), "FixedSizeBinary(20 or 32), Binary or hex digits as Utf8"),
            Sort::Milliseconds => (*found == DataType::Int64, "Int64"),
        };
        if !fits {
            let text = format!("column `{name}` is {found}, expected {wanted}");
            return Err(ExchangeError::Stream(text));
        }
    }
    Ok(())
}

fn is_text(found: &DataType) -> bool {
    matches!(found, DataType::Utf8 | DataType::LargeUtf8)
}

fn is_id(found: &DataType) -> bool {
    let fixed = matches!(found, DataType::FixedSizeBinary(20 | 32));
    fixed || is_text(found) || matches!(found, DataType::Binary | DataType::LargeBinary)
}

/// One row.
struct Told<'a> {
    name: RefName,
    old: Option<ObjectId>,
    new: Option<Target>,
    old_symref: Option<RefName>,
    actor: &'a [u8],
    at_us: i64,
}

/// The columns of a batch.
struct Moves<'a> {
    columns: [&'a dyn Array; COLUMNS.len()],
}

impl<'a> Moves<'a> {
    fn of(batch: &'a RecordBatch) -> Result<Moves<'a>, ExchangeError> {
        let column = |(name, _)| batch.column_by_name(name).map(|column| &**column);
        let columns: Option<Vec<_>> = COLUMNS.map(column).into_iter().collect();
        let columns = columns.and_then(|columns| columns.try_into().ok());
        let columns = columns.ok_or_else(|| ExchangeError::Stream("a column is gone".into()))?;
        Ok(Moves { columns })
    }

    fn get(&self, row: usize) -> Result<Told<'a>, String> {
        let [refname, old_oid, new_oid, old_symref, new_symref, actor, at] = self.columns;
        let name = |column| bytes(column, row).map(named).transpose();
        let new = match (id(new_oid, row)?, name(new_symref)?) {
            (Some(_), Some(_)) => return Err("both a new_oid and a new_symref".to_owned()),
            (id, symref) => id.map(Target::Object).or(symref.map(Target::Symbolic)),
        };
        let at_ms = at.is_valid(row).then(|| at.as_primitive::<Int64Type>().value(row));
        Ok(Told {
            name: name(refname)?.ok_or("there is no refname")?,
            old: id(old_oid, row)?,
            new,
            old_symref: name(old_symref)?,
            actor: bytes(actor, row).ok_or("there is no actor")?,
            at_us: at_ms.ok_or("there is no at_unix_ms")?.saturating_mul(1000),
        })
    }

    /// The format of the ids, which the type of a column tells, or the ids of the first row.
    fn object_format(&self, first: &Told<'_>) -> Option<ObjectFormat> {
        let by_type =
            [self.columns[1], self.columns[2]].into_iter().find_map(|column| {
                match column.data_type() {
                    DataType::FixedSizeBinary(20) => Some(ObjectFormat::Sha1),
                    DataType::FixedSizeBinary(32) => Some(ObjectFormat::Sha256),
                    _ => None,
                }
            });
        let new = first.new.as_ref().and_then(Target::object);
        by_type.or(new.or(first.old).map(|id| id.format()))
    }
}

fn named(raw: &[u8]) -> Result<RefName, String> {
    RefName::new(raw).map_err(|error| error.to_string())
}

fn bytes(column: &dyn Array, row: usize) -> Option<&[u8]> {
    if column.is_null(row) {
        return None;
    }
    Some(match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().value(row).as_bytes(),
        DataType::LargeUtf8 => column.as_string::<i64>().value(row).as_bytes(),
        DataType::Binary => column.as_binary::<i32>().value(row),
        DataType::LargeBinary => column.as_binary::<i64>().value(row),
        _ => column.as_fixed_size_binary().value(row),
    })
}

fn id(column: &dyn Array, row: usize) -> Result<Option<ObjectId>, String> {
    let Some(raw) = bytes(column, row) else { return Ok(None) };
    let id = match is_text(column.data_type()) {
        true => ObjectId::from_hex(raw),
        false => ObjectId::from_bytes(raw),
    };
    Ok(Some(id.map_err(|error| error.to_string())?).filter(|id| !id.is_zero()))
}

fn append(import: &mut Import, told: &Told<'_>, format: ObjectFormat) -> Result<(), ExchangeError> {
    let ids = told.old.into_iter().chain(told.new.as_ref().and_then(Target::object));
    if let Some(id) = ids.into_iter().find(|id| id.format() != format) {
        let problem = format!("{id} is no id of {format}, as those before it are");
        return Err(ExchangeError::Value { name: told.name.clone(), problem });
    }
    if let Some(before) = &told.old_symref {
        point_first(import, told, before)?;
    }
    let old_oid = told.old.as_ref().map(ObjectId::as_bytes);
    let row = row(told.actor, &told.name, old_oid, told.new.as_ref(), None);
    import.append(&told.name, told.new.clone(), told.at_us, row)
}

/// The log's rows say where a ref points *now*; where it did before is in an earlier one.
fn point_first(
    import: &mut Import,
    told: &Told<'_>,
    before: &RefName,
) -> Result<(), ExchangeError> {
    let before = Target::Symbolic(before.clone());
    let held = import.refs.get(&told.name);
    if held == Some(&before) {
        return Ok(());
    }
    let old = held.and_then(Target::object);
    let old = old.as_ref().map(ObjectId::as_bytes);
    let row = row(IMPORT_ACTOR.as_bytes(), &told.name, old, Some(&before), Some(STATE));
    import.append(&told.name, Some(before.clone()), told.at_us, row)
}

fn row<'a>(
    actor: &'a [u8],
    name: &'a RefName,
    old_oid: Option<&'a [u8]>,
    new: Option<&'a Target>,
    message: Option<&'a [u8]>,
) -> RefRow<'a> {
    let new_oid = match new {
        Some(Target::Object(id)) => Some(id.as_bytes()),
        _ => None,
    };
    let symref = new.and_then(Target::symbolic).map(RefName::as_bytes);
    RefRow { actor, refname: name.as_bytes(), old_oid, new_oid, symref, message }
}
