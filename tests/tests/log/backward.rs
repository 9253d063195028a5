//! A log is read from its end as from its start, and what is new costs the same in a long one.

use refstone_log::{BackwardReader, ErrorKind, Log, LogReader, RefRow, RepairOptions, Seq, repair};
use refstone_tests::env::{Fault, Op};
use refstone_tests::logs::{Row, ScratchLog, push};

fn reader(scratch: &ScratchLog) -> LogReader {
    LogReader::open(&scratch.env, &scratch.dir()).unwrap()
}

/// The sequences of at least `most` transactions, newest first.
fn newest(scratch: &ScratchLog, most: usize, durable: Seq) -> Vec<u64> {
    let mut reader = BackwardReader::new(reader(scratch), durable);
    let mut seqs = Vec::new();
    while seqs.len() < most && reader.back().unwrap() {
        let older = seqs.len();
        while let Some(frame) = reader.next().unwrap() {
            seqs.insert(older, frame.seq().get());
        }
    }
    seqs
}

fn rest(reader: &mut LogReader) -> Vec<u64> {
    let mut seqs = Vec::new();
    while let Some(frame) = reader.next().unwrap() {
        seqs.push(frame.seq().get());
    }
    seqs
}

/// Both ways of reading come to what is read from the start.
fn assert_same(scratch: &ScratchLog, durable: Seq) {
    let all = scratch.published();
    let back: Vec<_> = all.iter().rev().copied().collect();
    assert_eq!(newest(scratch, usize::MAX, durable), back);
    let last = all.last().copied().unwrap_or_default();
    for after in (0..last + 3).step_by(7).chain([last - 1, last]) {
        let mut reader = reader(scratch);
        reader.approach(Seq::new(after), durable).unwrap();
        let found = rest(&mut reader);
        assert!(all.ends_with(&found));
        let wanted = all.iter().filter(|seq| **seq > after).count();
        assert!(found.len() >= wanted, "after {after}: {} of {wanted}", found.len());
    }
}

/// Stages transactions of one small row, and waits for the last.
fn stage(log: &Log, count: u64) {
    let mut last = None;
    for number in 0..count {
        last = Some(log.append(&[Row::numbered(number).as_row()]).unwrap());
    }
    last.unwrap().wait().unwrap();
}

/// Transactions of one to some hundred rows, some with long messages, some with many null columns;
/// most of them alone in their group.
fn mixed(log: &Log) {
    for number in 0..300_u64 {
        let message = vec![b'm'; usize::try_from(number * number % 60_000).unwrap()];
        let message = (number % 11 == 0).then_some(message);
        let row = Row { message, ..Row::numbered(number) };
        let rows = usize::try_from(number * 37 % 250).unwrap() + 1;
        let rows = if number % 9 == 0 { rows } else { 1 };
        let rows: Vec<RefRow<'_>> = std::iter::repeat_n(row.as_row(), rows).collect();
        let commit = log.append(rows.as_slice()).unwrap();
        if number % 5 != 0 {
            commit.wait().unwrap();
        }
    }
    stage(log, 1);
}

// Breaks: a block that ends before the frame that the one before began with; a head looked for at
// every fourth byte of the wrong part; a frame cut off by the end of the part.
#[test]
fn transactions_of_any_size_are_read_from_the_end() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    assert!(newest(&scratch, 1, Seq::ZERO).is_empty());
    mixed(&log);
    assert_same(&scratch, Seq::ZERO);
    assert_same(&scratch, log.durable_seq());
}

#[test]
fn one_group_of_many_is_read_from_the_end() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    stage(&log, 700);
    assert_same(&scratch, Seq::ZERO);
    assert_same(&scratch, log.durable_seq());
}

// Breaks: taking a frame for published because it is sound.
#[test]
fn a_group_that_was_not_synced_is_not_read_from_the_end() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    for number in 1..=40 {
        push(&log, &Row::numbered(number));
    }
    scratch.env.fail(Op::Sync, 0, Fault::Error(std::io::ErrorKind::Other));
    let staged: Vec<_> =
        (0..400).map(|n| log.append(&[Row::numbered(n).as_row()]).unwrap()).collect();
    staged.into_iter().next_back().unwrap().wait().unwrap_err();
    assert_eq!(log.written_seq().get(), 440, "the group reached the kernel");
    assert_eq!(newest(&scratch, 1, Seq::ZERO).first(), Some(&40));
    assert_same(&scratch, Seq::ZERO);
    assert_same(&scratch, log.durable_seq());
}

/// A closed log of 200 transactions, and where each starts.
fn two_hundred() -> (ScratchLog, Vec<usize>) {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    let mut starts = Vec::new();
    for number in 1..=200 {
        starts.push(usize::try_from(log.live_bytes()).unwrap());
        push(&log, &Row::numbered(number));
    }
    log.close().unwrap();
    (scratch, starts)
}

// Breaks: expecting the sequence before a frame to be there; taking a lost frame's checksum for known.
#[test]
fn gaps_are_read_over_from_the_end() {
    let (scratch, starts) = two_hundred();
    let mut bytes = scratch.bytes();
    for lost in (10..200).step_by(12).chain([51, 52]) {
        bytes[starts[lost] + 600] ^= 1;
    }
    scratch.set_bytes(&bytes);
    repair(&scratch.env, &scratch.dir(), &RepairOptions::default()).unwrap();
    assert_eq!(scratch.published().len(), 200 - 18);
    assert_same(&scratch, Seq::ZERO);
}

// Breaks: taking the first sound frame behind damage for the first there is.
#[test]
fn damage_is_met_from_the_end_as_well() {
    let (scratch, starts) = two_hundred();
    let sound = scratch.bytes();
    for damaged in [0, 1, 57, 150, 198] {
        let mut bytes = sound.clone();
        bytes[starts[damaged] + 600] ^= 1;
        scratch.set_bytes(&bytes);
        let mut reader = BackwardReader::new(reader(&scratch), Seq::ZERO);
        let mut newest = u64::MAX;
        let error = loop {
            assert!(reader.back().unwrap(), "frame {damaged}: nothing was noticed");
            let mut oldest = None;
            let met = loop {
                match reader.next() {
                    Ok(Some(frame)) => _ = oldest.get_or_insert(frame.seq().get()),
                    Ok(None) => break None,
                    Err(error) => break Some(error),
                }
            };
            match met {
                Some(error) => break error,
                None => newest = oldest.unwrap(),
            }
        };
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(newest > damaged as u64 + 1);
    }
}

/// A log that goes on in its own way from here on; closed.
fn gone_on(scratch: &ScratchLog, first: u64) -> Vec<u8> {
    let log = scratch.log();
    (first..first + 100).for_each(|number| _ = push(&log, &Row::numbered(number)));
    log.close().unwrap();
    scratch.bytes()
}

// Breaks: joining blocks without comparing the chain.
#[test]
fn the_end_of_another_log_does_not_join() {
    let scratch = ScratchLog::new();
    let start = gone_on(&scratch, 1000);
    let bytes = gone_on(&scratch, 2000);
    scratch.set_bytes(&start);
    let other = gone_on(&scratch, 3000);
    assert_eq!(bytes.len(), other.len());
    const HEAD: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0x10, 2, 0, 0];
    let frames = (0..bytes.len()).step_by(8).filter(|at| bytes[*at..].starts_with(&HEAD));
    for joint in frames.skip(101) {
        scratch.set_bytes(&[&bytes[..joint], &other[joint..]].concat());
        let mut reader = BackwardReader::new(reader(&scratch), Seq::ZERO);
        let mut met = None;
        while met.is_none() && reader.back().unwrap() {
            while met.is_none() {
                match reader.next() {
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(error) => met = Some(error.kind()),
                }
            }
        }
        assert_eq!(met, Some(ErrorKind::Corrupt), "joined at byte {joint}");
    }
}

/// Bytes that are read for the newest hundred transactions and for what follows the one before them.
fn costs(long: bool) -> [u64; 2] {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    if long {
        stage(&log, 15_800);
        (0..200).for_each(|number| _ = push(&log, &Row::numbered(number)));
    } else {
        (0..100).for_each(|number| _ = push(&log, &Row::numbered(number)));
    }
    let before = scratch.env.bytes_read();
    assert!(newest(&scratch, 100, Seq::ZERO).len() < 150);
    let back = scratch.env.bytes_read();
    let mut reader = reader(&scratch);
    let after = Seq::new(log.durable_seq().get() - 100);
    reader.approach(after, Seq::ZERO).unwrap();
    assert!(rest(&mut reader).len() < 150);
    [back - before, scratch.env.bytes_read() - back]
}

// Breaks: starting at the start (11 MB against 80 KB); searching the end in steps.
#[test]
fn the_newest_hundred_cost_the_same_in_a_long_log() {
    let (short, long) = (costs(false), costs(true));
    println!(
        "newest 100, and after the one before them: {short:?} bytes of 100, {long:?} of 16,000"
    );
    for (short, long) in short.into_iter().zip(long) {
        assert!(long * 10 <= short * 12, "{long} bytes, and {short} in a short log");
    }
}
