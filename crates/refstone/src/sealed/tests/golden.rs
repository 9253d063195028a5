//! Files of every released format are read forever, and files for the outside readers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use refstone_log::{
    Log, LogReader, Mode, NoObserver, ObjectFormat, OsEnv, RefLogOptions, Seq, Timestamp,
};

use super::support::{FORMS, Pushes, row, write};
use crate::RefName;
use crate::row::RefMove;
use crate::sealed::rows::StoredRow;
use crate::sealed::{Form, HistoryFile, HistoryWriter, Identity};
use crate::stop::Stop;

/// Set to rewrite the golden files; a released one must never change.
const BLESS: &str = "REFSTONE_BLESS";

/// The directory that the corpus is written to.
const CORPUS: &str = "REFSTONE_HISTORY_CORPUS";

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(name)
}

/// Writes all rows of the log in a directory; returns its last transaction.
fn seal(dir: &Path, path: &Path, form: Form) -> HistoryFile {
    let mut reader = LogReader::open(&OsEnv, dir).unwrap();
    let objects = reader.object_format();
    let mut writer = HistoryWriter::create(&OsEnv, path, objects, form).unwrap();
    let mut identity = Identity {
        log_id: [7; 16],
        object_format: objects,
        first: Seq::new(1),
        last: Seq::ZERO,
        last_crc: 7,
        last_at: Timestamp::from_micros(0),
        gaps: vec![],
    };
    while let Some(frame) = reader.next().unwrap() {
        for row in frame.ref_rows() {
            writer.push(frame.seq(), frame.at(), &row.as_row()).unwrap();
        }
        (identity.last, identity.last_at) = (frame.seq(), frame.at());
    }
    writer.finish(&identity).unwrap();
    HistoryFile::open(&OsEnv, path).unwrap()
}

// Breaks: another name or order of the columns, another checksum, another key of the metadata.
// What the files hold is that of the golden logs, so this tells text and object ids apart, too.
#[test]
fn format_1_is_read() {
    for objects in ["sha1", "sha256"] {
        let dir = tempfile::tempdir().unwrap();
        let log = golden(&format!("format-1-{objects}.arrow"));
        std::fs::copy(log, dir.path().join("refs.arrow")).unwrap();
        for form in FORMS {
            let path = golden(&format!("history-1-{objects}-{}.parquet", form.name()));
            let expected = seal(dir.path(), &dir.path().join("sealed"), form);
            if std::env::var_os(BLESS).is_some() {
                std::fs::copy(expected.path(), &path).unwrap();
            }
            let file = HistoryFile::open(&OsEnv, &path).unwrap();
            assert_eq!(file.identity(), expected.identity());
            assert_eq!((file.rows(), file.form()), (9, form));
            assert_eq!(told(&file), told(&expected));
        }
    }
}

fn told(file: &HistoryFile) -> Vec<String> {
    let rows: Vec<_> = file.scan(0..file.rows()).map(Result::unwrap).collect();
    let rows = rows.iter().flat_map(|rows| rows.iter().collect::<Vec<StoredRow<'_>>>());
    rows.map(|row| format!("{row:?}")).collect()
}

/// More moves than a row group has, of every kind, some of them in one transaction.
fn corpus() -> Vec<RefMove> {
    let mut moves: Vec<_> = Pushes::new(23, 500).take(70_000).collect();
    let mut values = std::collections::HashMap::new();
    let first = moves[0].clone();
    for index in 0..moves.len() {
        let before = moves.get(index.wrapping_sub(1)).unwrap_or(&first).clone();
        let moved = &mut moves[index];
        let joins = index % 5 == 4;
        moved.seq = Seq::new(before.seq.get() + u64::from(!joins && index > 0));
        moved.at = if joins { before.at } else { moved.at };
        match index % 7 {
            1 => (moved.actor, moved.message) = (b"b\\ob \xff".into(), Some("zażółć\n".into())),
            2 => moved.name = RefName::new(&b"refs/heads/\xfe"[..]).unwrap(),
            3 if index % 3 == 0 => moved.new_oid = None,
            4 => (moved.new_oid, moved.symref) = (None, Some(RefName::head())),
            5 => moved.message = Some(format!("push {index}").into()),
            6 => moved.message = Some("".into()),
            _ => {}
        }
        moved.old_oid = values.insert(moved.name.clone(), moved.new_oid).flatten();
    }
    moves
}

#[test]
#[ignore = "no test but a tool: test_history.py runs it to have files that it then reads"]
fn write_corpus() {
    let dir = PathBuf::from(std::env::var_os(CORPUS).expect("a directory"));
    let moves = corpus();
    let options =
        RefLogOptions { object_format: ObjectFormat::Sha1, head: b"refs/heads/main".into() };
    let log_dir = dir.join("log");
    Log::create(&OsEnv, &log_dir, &options).unwrap();
    let observer = Arc::new(NoObserver);
    let (log, _) =
        Log::open_in(Mode::Buffered, Arc::new(OsEnv), &log_dir, observer, &mut |_| ()).unwrap();
    for transaction in moves.chunk_by(|a, b| a.seq == b.seq) {
        let rows: Vec<_> = transaction.iter().map(row).collect();
        log.append(rows.as_slice()).unwrap().wait().unwrap();
    }
    log.close().unwrap();
    for form in FORMS {
        let path = dir.join(format!("{}.parquet", form.name()));
        let file = seal(&log_dir, &path, form);
        assert_eq!(file.rows() as usize, moves.len());
    }
    // The same moves were sealed as were made; only the log's clock is another one.
    let file = HistoryFile::open(&OsEnv, &dir.join("derived.parquet")).unwrap();
    let sealed = file.moves(0..file.rows()).map(Result::unwrap);
    assert!(sealed.zip(&moves).all(|(sealed, made)| RefMove { at: made.at, ..sealed } == *made));
}

#[test]
fn a_corpus_is_a_history() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &corpus()[..3000], Form::Derived).verify(Stop::NEVER).unwrap();
}
