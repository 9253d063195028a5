//! Nobody sees what is not durable, and the order write, sync, publish is what makes it so.

use std::fs::File;
use std::io::BufReader;

use arrow_ipc::reader::StreamReader;
use refstone_log::{LogReader, OsEnv};
use refstone_tests::env::{Fault, Op};
use refstone_tests::logs::{Row, ScratchLog, push};

fn stream_rows(scratch: &ScratchLog) -> usize {
    let file = BufReader::new(File::open(scratch.live()).unwrap());
    StreamReader::try_new(file, None).unwrap().map(|batch| batch.unwrap().num_rows()).sum()
}

// Breaks: publish before the sync; a write that stores the length word with the frame.
#[test]
fn a_group_that_was_written_but_not_synced_is_seen_by_nobody() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    push(&log, &Row::numbered(1));
    scratch.env.fail(Op::Sync, 0, Fault::Error(std::io::ErrorKind::Other));
    log.append(&[Row::numbered(2).as_row()]).unwrap().wait().unwrap_err();
    assert_eq!(log.written_seq().get(), 2, "the group reached the kernel");
    assert_eq!(log.durable_seq().get(), 1);
    assert_eq!(scratch.published(), [1]);
    assert_eq!(stream_rows(&scratch), 1);
}

// Breaks: skipping the sync; publishing first. The trace is the order itself.
#[test]
fn a_commit_is_one_write_one_sync_and_then_one_publishing_write() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    push(&log, &Row::numbered(1));
    scratch.env.start_trace();
    push(&log, &Row::numbered(2));
    assert_eq!(scratch.env.trace(), [Op::Write, Op::Sync, Op::Write]);
}

#[test]
fn a_reader_at_the_end_goes_on_when_more_is_published() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    let mut reader = LogReader::open(&OsEnv, &scratch.dir()).unwrap();
    assert!(reader.next().unwrap().is_none());
    for n in 1..=3 {
        push(&log, &Row::numbered(n));
        assert_eq!(reader.next().unwrap().unwrap().seq().get(), n);
        assert!(reader.next().unwrap().is_none());
    }
    assert!(!reader.has_unpublished_tail().unwrap());
}

// Break: an end-of-stream marker that is written after the length word, or not at all.
#[test]
fn the_file_ends_with_an_explicit_end_of_stream_and_zeros_after_every_commit() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    for n in 0..100 {
        push(&log, &Row::numbered(n));
        let end = usize::try_from(log.live_bytes()).unwrap();
        let bytes = scratch.bytes();
        assert_eq!(bytes[end..end + 8], [255, 255, 255, 255, 0, 0, 0, 0]);
        assert!(bytes[end + 8..].iter().all(|&byte| byte == 0));
        assert!(bytes.len() >= end + 8);
    }
}
