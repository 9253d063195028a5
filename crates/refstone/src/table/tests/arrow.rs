//! A stock reader of Arrow streams finds the rows, and stops before the indexes.

use std::fs::{self, File};
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{TimestampMicrosecondType, UInt64Type};
use arrow_array::{Array, RecordBatch};
use arrow_ipc::reader::StreamReader;
use refstone_log::text::{Backslash, escape_into};
use refstone_log::{ObjectFormat, OsEnv};

use super::super::Entry;
use super::{Move, Scratch, State, many, state, varied, write};
use crate::edit::Target;
use crate::stop::Stop;

#[derive(Debug, PartialEq)]
struct Row {
    refname: String,
    new_oid: Option<Vec<u8>>,
    symref: Option<String>,
    seq: u64,
    at: i64,
}

fn readable(name: &[u8]) -> String {
    let mut text = Vec::new();
    escape_into(name, Backslash::Forbidden, &mut text);
    String::from_utf8(text).unwrap()
}

fn row(name: &[u8], entry: &Entry) -> Row {
    let (new_oid, symref) = match &entry.target {
        Some(Target::Object(oid)) => (Some(oid.as_bytes().to_vec()), None),
        Some(Target::Symbolic(name)) => (None, Some(readable(name.as_bytes()))),
        None => (None, None),
    };
    let (seq, at) = (entry.seq.get(), entry.at.as_micros());
    Row { refname: readable(name), new_oid, symref, seq, at }
}

fn rows_of(batch: &RecordBatch) -> impl Iterator<Item = Row> {
    let column = |name: &str| batch.column_by_name(name).unwrap().clone();
    let (names, oids, symrefs) = (column("refname"), column("new_oid"), column("symref"));
    let (seqs, ats) = (column("seq"), column("at"));
    let ends = column("moves_end");
    assert!(ends.as_primitive::<UInt64Type>().values().is_sorted());
    (0..batch.num_rows()).map(move |at| {
        let (oids, symrefs) = (oids.as_fixed_size_binary(), symrefs.as_string::<i32>());
        Row {
            refname: names.as_string::<i32>().value(at).to_owned(),
            new_oid: oids.is_valid(at).then(|| oids.value(at).to_vec()),
            symref: symrefs.is_valid(at).then(|| symrefs.value(at).to_owned()),
            seq: seqs.as_primitive::<UInt64Type>().value(at),
            at: ats.as_primitive::<TimestampMicrosecondType>().value(at),
        }
    })
}

fn read(path: &Path) -> Vec<Row> {
    let reader = StreamReader::try_new(File::open(path).unwrap(), None).unwrap();
    assert_eq!(reader.schema().metadata()["refstone.kind"], "table");
    reader.flat_map(|batch| rows_of(&batch.unwrap()).collect::<Vec<_>>()).collect()
}

/// Live rows first, then those that are gone.
fn expected(state: &State) -> Vec<Row> {
    let rows = |gone| {
        let rows = state.iter().filter(move |(_, (entry, _))| entry.target.is_none() == gone);
        rows.map(|(name, (entry, _))| row(name, entry))
    };
    rows(false).chain(rows(true)).collect()
}

fn assert_read(moves: &[Move]) {
    let path = Scratch::new();
    let file = path.dir.path().join("t");
    write(&OsEnv, &file, ObjectFormat::Sha1, 1, moves).unwrap();
    assert_eq!(read(&file), expected(&state(1, moves)));
}

#[test]
fn a_stock_reader_finds_the_rows() {
    assert_read(&varied());
    assert_read(&many(3_000));
}

/// Set to rewrite the golden file; a released one must never change.
const BLESS: &str = "REFSTONE_BLESS";

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/table-1.arrow");

// Breaks: any change of a byte of the format.
#[test]
fn the_golden_table_is_written_and_read() {
    let mut scratch = Scratch::new();
    let path = scratch.path();
    write(&OsEnv, &path, ObjectFormat::Sha1, 1, &varied()).unwrap();
    if std::env::var_os(BLESS).is_some() {
        fs::copy(&path, GOLDEN).unwrap();
    }
    assert_eq!(read(Path::new(GOLDEN)), expected(&state(1, &varied())));
    super::super::Table::open(&OsEnv, Path::new(GOLDEN)).unwrap().verify(Stop::NEVER).unwrap();
    assert_eq!(fs::read(&path).unwrap(), fs::read(GOLDEN).unwrap(), "the bytes have changed");
}
