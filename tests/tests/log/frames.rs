//! The hand-laid frames against arrow-rs: the same rows, encoded by us and built by Arrow's own
//! builders, read by Arrow's own reader, are the same batches.

use std::fs::File;
use std::io::BufReader;
use std::sync::Arc;

use arrow_array::builder::FixedSizeBinaryBuilder;
use arrow_array::{ArrayRef, RecordBatch, StringArray, TimestampMicrosecondArray, UInt64Array};
use arrow_ipc::reader::StreamReader;
use proptest::prelude::*;
use refstone_log::{ErrorKind, LogReader, OsEnv, RefRow};
use refstone_tests::generate::{readable, transactions};
use refstone_tests::logs::{Row, ScratchLog, push};

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
