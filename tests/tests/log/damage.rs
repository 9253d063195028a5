//! Damage to what was durable is refused, named, and nothing is changed.

use refstone_log::{ErrorKind, ObjectFormat, OsEnv, verify};
use refstone_tests::logs::{Row, ScratchLog, push};

/// A cleanly closed log of three transactions, and where its frames start.
fn closed() -> (ScratchLog, [usize; 4]) {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    let starts = [0, 1, 2, 3].map(|n| {
        if n > 0 {
            push(&log, &Row::numbered(n));
        }
        usize::try_from(log.live_bytes()).unwrap()
    });
    log.close().unwrap();
    (scratch, starts)
}

/// Both the writer and `verify` name the damage, and the file stays as it is.
fn assert_refused(scratch: &ScratchLog, bytes: &[u8], at: &str) {
    scratch.set_bytes(bytes);
    let error = scratch.open().expect_err(at);
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{at}: {error}");
    assert!(error.to_string().contains("byte "), "{at}: {error}");
    assert_eq!(scratch.bytes(), bytes, "{at}: changed");
    let names = std::fs::read_dir(scratch.dir()).unwrap().count();
    assert_eq!(names, 2, "{at}: only the log and its lock");
    let report = verify(&OsEnv, &scratch.dir()).unwrap();
    assert!(report.damage.is_some(), "{at}: verify saw nothing");
}

// Break: cutting instead of refusing; taking the end of the file for the end of the log.
#[test]
fn a_file_cut_at_any_byte_of_its_last_two_frames_is_refused() {
    let (scratch, starts) = closed();
    let bytes = scratch.bytes();
    let end_marker = starts[3] + 8;
    for end in starts[1]..end_marker {
        assert_refused(&scratch, &bytes[..end], &format!("cut at {end}"));
    }
    scratch.set_bytes(&bytes[..end_marker]);
    assert_eq!(scratch.open().unwrap().1.transactions, 3, "only zeros were cut");
}

// Break: skipping the checksum; taking a flipped newest frame for a torn one.
#[test]
fn every_flipped_bit_of_an_acknowledged_frame_is_refused() {
    let (scratch, starts) = closed();
    let bytes = scratch.bytes();
    for bit in starts[1] * 8..(starts[3] + 4) * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_refused(&scratch, &flipped, &format!("bit {bit}"));
    }
}

#[test]
fn a_flipped_bit_in_the_schema_is_refused() {
    let (scratch, starts) = closed();
    let bytes = scratch.bytes();
    for byte in 0..starts[0] {
        let mut flipped = bytes.clone();
        flipped[byte] ^= 0x10;
        assert_refused(&scratch, &flipped, &format!("byte {byte}"));
    }
}

// Break: checking frames one by one, neither their sequence nor their chain. (The chain alone is
// held by the crash scene of a lost group's frame.)
#[test]
fn two_frames_that_changed_places_are_refused() {
    let (scratch, starts) = closed();
    let mut bytes = scratch.bytes();
    let (first, second) = bytes[starts[0]..starts[2]].split_at_mut(672);
    first.swap_with_slice(second);
    assert_refused(&scratch, &bytes, "swapped");
}

// Break: a checksum that is not seeded by the log id.
#[test]
fn a_frame_of_another_log_is_refused() {
    let (scratch, starts) = closed();
    let (other, _) = closed();
    let (mut bytes, foreign) = (scratch.bytes(), other.bytes());
    bytes[starts[0]..starts[1]].copy_from_slice(&foreign[starts[0]..starts[1]]);
    assert_refused(&scratch, &bytes, "foreign frame");
}

#[test]
fn a_log_of_another_hash_is_named_as_such() {
    let scratch = ScratchLog::with_format(ObjectFormat::Sha256);
    let log = scratch.log();
    log.expect_object_format(ObjectFormat::Sha256).unwrap();
    let text = log.expect_object_format(ObjectFormat::Sha1).unwrap_err().to_string();
    for part in ["refs.arrow", "sha256", "sha1"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn verify_counts_what_it_checked() {
    let (scratch, starts) = closed();
    let report = verify(&OsEnv, &scratch.dir()).unwrap();
    assert!(report.damage.is_none());
    assert_eq!((report.transactions, report.rows), (3, 3));
    assert_eq!((report.first_seq.get(), report.last_seq.get()), (1, 3));
    assert_eq!(report.bytes, starts[3] as u64);
    assert_eq!((report.unpublished, report.unfinished_bytes), (0, 0));
}
