//! The hand-laid frames against arrow-rs: the same rows, encoded by us and built by Arrow's own
//! builders, read by Arrow's own reader, are the same batches.

use std::fs::File;
use std::io::BufReader;
use std::sync::Arc;

use arrow_array::builder::FixedSizeBinaryBuilder;
use arrow_array::{ArrayRef, RecordBatch, StringArray, TimestampMicrosecondArray, UInt64Array};
use arrow_ipc::reader::StreamReader;
use proptest::prelude::*;
use refstone_log::{ErrorKind, LogReader, ObjectFormat, OsEnv, RefRow};
use refstone_tests::logs::{Row, ScratchLog, push};

/// The longest name the property tests use; the format's limit is the frame's.
const NAME_MAX: usize = 70_000;

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[a-z]{0,12}".prop_map(String::into_bytes),
        ".{0,12}".prop_map(String::into_bytes),
        r"[\\x0-9a-f]{0,12}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..24),
    ]
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 1..40),
        4 => "refs/heads/[a-z]{1,20}".prop_map(String::into_bytes),
        1 => Just(b"r".to_vec()),
        1 => Just(vec![b'n'; NAME_MAX]),
    ]
    .prop_map(|name| name.into_iter().map(|b| if b == b'\\' { b'/' } else { b }).collect())
}

fn oid(format: ObjectFormat) -> impl Strategy<Value = Option<Vec<u8>>> {
    prop::option::of(prop::collection::vec(any::<u8>(), format.len()))
}

fn row(format: ObjectFormat) -> impl Strategy<Value = Row> {
    let symref = prop::option::of(name());
    let message = prop::option::of(text());
    (text(), name(), oid(format), oid(format), symref, message).prop_map(
        |(actor, refname, old_oid, new_oid, symref, message)| Row {
            actor,
            refname,
            old_oid,
            new_oid,
            symref,
            message,
        },
    )
}

fn format() -> impl Strategy<Value = ObjectFormat> {
    prop_oneof![Just(ObjectFormat::Sha1), Just(ObjectFormat::Sha256)]
}

fn transactions() -> impl Strategy<Value = (ObjectFormat, Vec<Vec<Row>>)> {
    format().prop_flat_map(|format| {
        let rows = prop::collection::vec(row(format), 1..=64);
        (Just(format), prop::collection::vec(rows, 1..4))
    })
}

/// Text as `docs/format.md` says it is written; made apart from the encoder on purpose.
fn readable(raw: &[u8], escape_backslash: bool) -> String {
    let mut text = String::new();
    for chunk in raw.utf8_chunks() {
        let valid = chunk.valid();
        text += &if escape_backslash { valid.replace('\\', r"\\") } else { valid.to_owned() };
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

fn oids<'a>(width: usize, values: impl Iterator<Item = Option<&'a Vec<u8>>>) -> ArrayRef {
    let mut builder = FixedSizeBinaryBuilder::new(i32::try_from(width).unwrap());
    for value in values {
        match value {
            Some(value) => builder.append_value(value).unwrap(),
            None => builder.append_null(),
        }
    }
    Arc::new(builder.finish())
}

/// The batch that Arrow's own builders make of a transaction.
fn oracle(reader: &LogReader, seq: u64, at: i64, rows: &[Row]) -> RecordBatch {
    let width = reader.object_format().len();
    let count = rows.len();
    let column = |cell: fn(&Row) -> Option<String>| -> ArrayRef {
        Arc::new(rows.iter().map(cell).collect::<StringArray>())
    };
    let at = TimestampMicrosecondArray::from(vec![at; count]).with_timezone("UTC");
    RecordBatch::try_new(
        reader.arrow_schema(),
        vec![
            Arc::new(UInt64Array::from(vec![seq; count])),
            Arc::new(at),
            column(|row| Some(readable(&row.actor, true))),
            column(|row| Some(readable(&row.refname, false))),
            oids(width, rows.iter().map(|row| row.old_oid.as_ref())),
            oids(width, rows.iter().map(|row| row.new_oid.as_ref())),
            column(|row| row.symref.as_ref().map(|raw| readable(raw, false))),
            column(|row| row.message.as_ref().map(|raw| readable(raw, true))),
        ],
    )
    .unwrap()
}

fn stream_batches(scratch: &ScratchLog) -> Vec<RecordBatch> {
    let file = BufReader::new(File::open(scratch.live()).unwrap());
    StreamReader::try_new(file, None).unwrap().map(Result::unwrap).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    // Breaks: an empty validity buffer for a null column (wrong rows); offsets without the first
    // zero; a zero block sized for one row.
    #[test]
    fn frames_read_as_the_batches_that_arrow_builds((format, transactions) in transactions()) {
        let scratch = ScratchLog::with_format(format);
        let log = scratch.log();
        for rows in &transactions {
            let rows: Vec<RefRow<'_>> = rows.iter().map(Row::as_row).collect();
            drop(log.append(rows.as_slice()).unwrap());
        }
        log.close().unwrap();

        let stream = stream_batches(&scratch);
        let mut reader = LogReader::open(&OsEnv, &scratch.dir()).unwrap();
        prop_assert_eq!(stream.len(), transactions.len());
        let schema = reader.arrow_schema();
        for (index, rows) in transactions.iter().enumerate() {
            let at = {
                let frame = reader.next().unwrap().expect("one frame per transaction");
                let back: Vec<Row> = frame.ref_rows().map(|row| Row::from(&row)).collect();
                prop_assert_eq!(&back, rows);
                let batch = frame.record_batch(schema.clone()).unwrap();
                prop_assert_eq!(batch.columns(), stream[index].columns());
                frame.at().as_micros()
            };
            let oracle = oracle(&reader, index as u64 + 1, at, rows);
            prop_assert_eq!(stream[index].columns(), oracle.columns());
        }
    }
}

// Break: aligning frames to 64 bytes.
#[test]
fn the_standard_push_takes_672_bytes() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    let before = log.live_bytes();
    push(&log, &Row::standard());
    assert_eq!(log.live_bytes() - before, 672);
}

#[test]
fn a_ref_name_with_a_backslash_is_refused_and_spends_no_sequence() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    let row = Row { refname: br"refs/heads/a\b".into(), ..Row::standard() };
    let error = log.append(&[row.as_row()]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("refname"), "{error}");
    assert_eq!(push(&log, &Row::standard()), 1);
}

#[test]
fn an_object_id_of_the_other_format_is_refused_and_spends_no_sequence() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    let row = Row { new_oid: Some(vec![1; 32]), ..Row::standard() };
    let error = log.append(&[row.as_row()]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("new_oid"), "{error}");
    assert_eq!(push(&log, &Row::standard()), 1);
}

#[test]
fn a_transaction_over_the_frame_limit_is_refused_and_spends_no_sequence() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    let row = Row { message: Some(vec![b'm'; 256 << 20]), ..Row::standard() };
    let error = log.append(&[row.as_row()]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("268435456"), "{error}");
    assert_eq!(push(&log, &Row::standard()), 1);
}

#[test]
fn a_transaction_without_rows_is_refused() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    let none: [RefRow<'_>; 0] = [];
    assert_eq!(log.append(&none).unwrap_err().kind(), ErrorKind::Invalid);
}

// Break: `at` taken from the clock alone.
#[test]
fn time_never_goes_back_also_across_a_restart() {
    let scratch = ScratchLog::new();
    scratch.env.set_clock(5_000_000);
    let log = scratch.log();
    push(&log, &Row::numbered(1));
    scratch.env.set_clock(3_000_000);
    push(&log, &Row::numbered(2));
    log.close().unwrap();
    scratch.env.set_clock(1_000_000);
    push(&scratch.log(), &Row::numbered(3));
    let mut reader = LogReader::open(&OsEnv, &scratch.dir()).unwrap();
    let mut times = Vec::new();
    while let Some(frame) = reader.next().unwrap() {
        times.push(frame.at().as_micros());
    }
    assert_eq!(times, [5_000_000; 3]);
}
