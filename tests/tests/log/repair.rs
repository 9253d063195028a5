//! A damaged log is repaired: what is sound is saved, what is lost is recorded, nothing is
//! overwritten.

use std::fs;
use std::io::ErrorKind as Io;
use std::path::PathBuf;

use refstone_log::{
    ErrorKind, Frame, Leaving, Log, NoObserver, OsEnv, RepairError, RepairOptions, Repaired,
    Sealer, Seq, repair, verify,
};
use refstone_tests::env::{Fault, Op};
use refstone_tests::logs::{Row, ScratchLog, push};

const FRAME: usize = 672;

/// What a published frame starts with.
const PREFIX: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0x10, 2, 0, 0];

fn frame_starts(bytes: &[u8]) -> Vec<usize> {
    (0..bytes.len() / 8).map(|at| at * 8).filter(|at| bytes[*at..].starts_with(&PREFIX)).collect()
}

/// A cleanly closed log of `n` transactions, and where its frames start; the last is the end.
fn closed(n: u64) -> (ScratchLog, Vec<usize>) {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    let mut starts = vec![offset(&log)];
    for n in 1..=n {
        let refname = format!("refs/heads/topic-{n:04}").into_bytes();
        push(&log, &Row { refname, ..Row::numbered(n) });
        starts.push(offset(&log));
    }
    log.close().unwrap();
    (scratch, starts)
}

fn offset(log: &Log) -> usize {
    usize::try_from(log.live_bytes()).unwrap()
}

fn run(scratch: &ScratchLog) -> Result<Repaired, RepairError> {
    repair(&scratch.env, &scratch.dir(), &RepairOptions::default())
}

fn ranges(ranges: &[(Seq, Seq)]) -> Vec<(u64, u64)> {
    ranges.iter().map(|(first, last)| (first.get(), last.get())).collect()
}

fn gaps(scratch: &ScratchLog) -> Vec<(u64, u64)> {
    let report = verify(&OsEnv, &scratch.dir()).unwrap();
    assert!(report.damage.is_none(), "{:?}", report.damage);
    ranges(&report.gaps)
}

fn damaged(scratch: &ScratchLog, number: u32) -> PathBuf {
    scratch.dir().join(format!("refs.arrow.damaged-{number}"))
}

/// The rows that an opening replays, by sequence.
fn replayed(scratch: &ScratchLog) -> Vec<(u64, Vec<u8>)> {
    let mut rows = Vec::new();
    let mut replay = |frame: &Frame<'_>| {
        rows.push((frame.seq().get(), frame.ref_row(0).refname.to_vec()));
    };
    let env = std::sync::Arc::new(OsEnv);
    let (log, _) = Log::open(env, &scratch.dir(), std::sync::Arc::new(NoObserver), &mut replay)
        .expect("a repaired log opens");
    log.close().unwrap();
    rows
}

// Breaks: stopping at the first damage; a gap that is not recorded; giving a lost sequence out
// again; overwriting the original.
#[test]
fn every_undamaged_transaction_is_saved_and_the_lost_ones_are_recorded() {
    let (scratch, starts) = closed(12);
    let mut bytes = scratch.bytes();
    for n in [3, 4, 8] {
        bytes[starts[n - 1] + 600] ^= 1;
    }
    scratch.set_bytes(&bytes);
    let repaired = run(&scratch).unwrap();
    assert_eq!((repaired.transactions, repaired.last_seq.get()), (9, 12));
    assert_eq!(ranges(&repaired.lost), [(3, 4), (8, 8)]);
    assert_eq!((repaired.given_up, repaired.torn), (None, None));
    let of = |n: usize, end: usize| starts[n - 1] as u64..starts[end] as u64;
    assert_eq!(repaired.damaged, [of(3, 4), of(8, 8)]);
    assert_eq!(repaired.original, Some(damaged(&scratch, 1)));
    assert!(fs::read(damaged(&scratch, 1)).unwrap() == bytes, "the original");
    assert_eq!(gaps(&scratch), [(3, 4), (8, 8)]);
    let rows = replayed(&scratch);
    let sound = (1..=12).filter(|n| ![3, 4, 8].contains(n));
    let expected: Vec<_> =
        sound.map(|n| (n, format!("refs/heads/topic-{n:04}").into_bytes())).collect();
    assert_eq!(rows, expected);
    assert_eq!(push(&scratch.log(), &Row::numbered(13)), 13);
}

// Break: taking the first frame's damage for the end of the search.
#[test]
fn a_flip_anywhere_loses_the_transaction_that_it_hits_and_no_other() {
    let (scratch, starts) = closed(4);
    let whole = scratch.bytes();
    for byte in starts[0]..starts[4] {
        let mut bytes = whole.clone();
        bytes[byte] ^= 0x10;
        scratch.set_bytes(&bytes);
        let hit = ((byte - starts[0]) / FRAME + 1) as u64;
        // Syncs are slow: most are only told.
        let options = RepairOptions { dry_run: byte % 101 != 0, ..RepairOptions::default() };
        let repaired = repair(&scratch.env, &scratch.dir(), &options);
        let repaired = repaired.unwrap_or_else(|error| panic!("byte {byte}: {error}"));
        assert_eq!(repaired.transactions, 3, "byte {byte}");
        // Where the head of the last one is damaged, it may have been the end.
        let told = repaired.lost.first().copied().or(repaired.given_up).unwrap();
        assert_eq!(told.0.get(), hit, "byte {byte}");
        assert_eq!(repaired.lost.is_empty(), byte >= starts[3] && byte < starts[3] + 8);
        if let Some(original) = repaired.original {
            let expected: Vec<u64> = (1..=4).filter(|n| *n != hit).collect();
            assert_eq!(scratch.published(), expected, "byte {byte}");
            fs::remove_file(original).unwrap();
        }
    }
}

// Breaks: giving out a sequence again that a damaged end may have had; giving some up where only
// the end-of-stream marker is damaged.
#[test]
fn what_may_have_stood_at_a_damaged_end_is_never_given_out_again() {
    let (scratch, starts) = closed(4);
    let whole = scratch.bytes();
    let hit = |damage: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.clone();
        damage(&mut bytes);
        scratch.set_bytes(&bytes);
        let repaired = run(&scratch).unwrap();
        let next = push(&scratch.log(), &Row::numbered(9));
        fs::remove_file(damaged(&scratch, 1)).unwrap();
        (repaired.transactions, next)
    };
    // The file has room for so many behind the third.
    let room = (whole.len() - starts[3]).div_ceil(552) as u64;
    assert_eq!(hit(&|bytes| bytes[starts[3] + 600] ^= 1), (3, 3 + room + 1));
    assert_eq!(hit(&|bytes| bytes[starts[3]..].fill(0)), (3, 3 + room + 1));
    // Nobody knows how long a file was that was cut off.
    assert_eq!(hit(&|bytes| bytes.truncate(starts[4] - 9)), (3, 3 + (1 << 20) + 1));
    assert_eq!(hit(&|bytes| bytes.truncate(starts[4])), (4, 4 + (1 << 20) + 1));
    for bit in 0..64 {
        let flipped = hit(&|bytes| bytes[starts[4] + bit / 8] ^= 1 << (bit % 8));
        assert_eq!(flipped, (4, 5), "bit {bit} of the marker");
    }
}

/// Takes everything that leaves.
struct Takes(Vec<u64>);

impl Sealer for Takes {
    fn seal(
        &mut self,
        leaving: &mut Leaving<'_>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        while let Some(frame) = leaving.next()? {
            self.0.push(frame.seq().get());
        }
        Ok(())
    }
}

// Break: looking for a frame with a sequence that is lost.
#[test]
fn a_repaired_log_is_rewritten_also_up_to_a_gap() {
    for (through, left) in [(5, vec![1, 2, 5]), (4, vec![1, 2]), (99, vec![1, 2, 5, 6, 7])] {
        let (scratch, starts) = closed(8);
        let mut bytes = scratch.bytes();
        for n in [3, 4, 8] {
            bytes[starts[n - 1] + 600] ^= 1;
        }
        scratch.set_bytes(&bytes);
        run(&scratch).unwrap();
        let log = scratch.log();
        let mut sealer = Takes(Vec::new());
        let rewritten = log.rewrite(Seq::new(through), &mut sealer).unwrap().unwrap();
        assert_eq!((&sealer.0, rewritten.sealed_seq.get()), (&left, *left.last().unwrap()));
        let next = push(&log, &Row::numbered(9));
        assert!(next > 8, "{next} may have been given out before");
        log.close().unwrap();
        let kept = (1..=7).filter(|n| ![3, 4].contains(n) && !left.contains(n));
        assert_eq!(scratch.published(), kept.chain([next]).collect::<Vec<_>>());
    }
}

// Breaks: a second repair that forgets the gaps of the first, or tells them again.
#[test]
fn repairs_add_up() {
    let (scratch, starts) = closed(9);
    let mut bytes = scratch.bytes();
    bytes[starts[3] + 600] ^= 1;
    scratch.set_bytes(&bytes);
    run(&scratch).unwrap();
    let mut again = scratch.bytes();
    let frames = frame_starts(&again);
    assert_eq!(frames.len(), 8);
    again[frames[2] + 600] ^= 1;
    again[frames[3] + 600] ^= 1;
    scratch.set_bytes(&again);
    let repaired = run(&scratch).unwrap();
    assert_eq!(ranges(&repaired.lost), [(3, 3), (5, 5)]);
    assert_eq!(repaired.original, Some(damaged(&scratch, 2)));
    assert_eq!(gaps(&scratch), [(3, 5)]);
    assert!(fs::read(damaged(&scratch, 1)).unwrap() == bytes);
    assert!(fs::read(damaged(&scratch, 2)).unwrap() == again);
    assert_eq!(replayed(&scratch).len(), 6);
}

// Break: repairing whatever is there.
#[test]
fn a_sound_log_and_one_with_a_torn_end_are_not_repaired() {
    let (scratch, starts) = closed(3);
    let mut torn = scratch.bytes();
    torn[starts[3] + 8..starts[3] + 500].fill(7);
    for bytes in [scratch.bytes(), torn] {
        scratch.set_bytes(&bytes);
        let error = run(&scratch).unwrap_err();
        assert!(matches!(error, RepairError::NotDamaged { .. }), "{error}");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(scratch.bytes() == bytes);
        assert_eq!(fs::read_dir(scratch.dir()).unwrap().count(), 2, "the log and its lock");
    }
}

// Break: no lock.
#[test]
fn a_log_that_somebody_writes_is_not_repaired() {
    let (scratch, starts) = closed(3);
    let log = scratch.log();
    let mut bytes = scratch.bytes();
    bytes[starts[1] + 600] ^= 1;
    scratch.set_bytes(&bytes);
    assert_eq!(run(&scratch).unwrap_err().kind(), ErrorKind::Locked);
    assert!(scratch.bytes() == bytes);
    drop(log);
}

#[test]
fn a_dry_run_tells_the_same_and_changes_nothing() {
    let (scratch, starts) = closed(5);
    let mut bytes = scratch.bytes();
    bytes[starts[1] + 600] ^= 1;
    scratch.set_bytes(&bytes);
    fs::remove_file(scratch.dir().join("LOCK")).unwrap();
    let options = RepairOptions { dry_run: true, ..RepairOptions::default() };
    let told = repair(&scratch.env, &scratch.dir(), &options).unwrap();
    assert_eq!((told.transactions, ranges(&told.lost), &told.original), (4, vec![(2, 2)], &None));
    assert!(scratch.bytes() == bytes);
    assert_eq!(fs::read_dir(scratch.dir()).unwrap().count(), 1, "the log alone");
    let done = run(&scratch).unwrap();
    assert_eq!((done.transactions, ranges(&done.lost)), (4, vec![(2, 2)]));
}

// Break: taking what a crash had cut short for a lost transaction, or for a saved one.
#[test]
fn a_torn_end_behind_damage_is_left_out() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    for n in 1..=4 {
        push(&log, &Row::numbered(n));
    }
    let end = offset(&log);
    scratch.env.fail(Op::Sync, 0, Fault::Error(Io::Other));
    drop(log.append(&[Row::numbered(5).as_row()]).unwrap());
    log.append(&[Row::numbered(6).as_row()]).unwrap().wait().unwrap_err();
    drop(log);
    let mut bytes = scratch.bytes();
    bytes[end - 3 * FRAME + 600] ^= 1;
    bytes[end + 600] ^= 1;
    scratch.set_bytes(&bytes);
    let repaired = run(&scratch).unwrap();
    assert_eq!((repaired.transactions, ranges(&repaired.lost)), (3, vec![(2, 2)]));
    assert_eq!(repaired.torn.map(|torn| torn.start), Some(end as u64));
    assert_eq!(repaired.given_up, None, "it was never acknowledged");
    assert_eq!(scratch.published(), [1, 3, 4]);
    assert_eq!(push(&scratch.log(), &Row::numbered(5)), 5);
}

// Break: leaving a length word zero that was so in the original: readers would stop there.
#[test]
fn whole_transactions_behind_an_unpublished_slot_are_saved_and_published() {
    let (scratch, starts) = closed(4);
    let mut bytes = scratch.bytes();
    bytes[starts[1] + 600] ^= 1;
    bytes[starts[3] + 4..starts[3] + 8].fill(0);
    scratch.set_bytes(&bytes);
    let repaired = run(&scratch).unwrap();
    assert_eq!((repaired.transactions, repaired.torn), (3, None));
    assert_eq!(scratch.published(), [1, 3, 4]);
}

// Breaks: cutting a frame off that a later one knew to be durable; believing a frame whose chain is
// broken where nothing is missing.
#[test]
fn frames_count_by_what_stands_behind_them_and_by_their_chain() {
    let (scratch, starts) = closed(5);
    let mut bytes = scratch.bytes();
    // Frame 3 is lost with its length word, and frame 4 and 5 stand behind it.
    bytes[starts[2] + 4..starts[2] + 300].fill(0);
    scratch.set_bytes(&bytes);
    assert_eq!(ranges(&run(&scratch).unwrap().lost), [(3, 3)]);
    assert_eq!(scratch.published(), [1, 2, 4, 5]);

    // The second transaction of another life of the same log does not follow the first of this.
    let copy = ScratchLog::new();
    let twin = ScratchLog::new();
    fs::copy(copy.live(), twin.live()).unwrap();
    for (scratch, n) in [(&copy, 1), (&twin, 7)] {
        let log = scratch.log();
        for n in n..n + 3 {
            push(&log, &Row::numbered(n));
        }
        log.close().unwrap();
    }
    let (mut bytes, other) = (copy.bytes(), twin.bytes());
    let start = starts[0];
    bytes[start + FRAME..start + 2 * FRAME]
        .copy_from_slice(&other[start + FRAME..start + 2 * FRAME]);
    copy.set_bytes(&bytes);
    assert_eq!(ranges(&run(&copy).unwrap().lost), [(2, 2)]);
    assert_eq!(copy.published(), [1, 3]);
}

// Break: giving up on a schema of which a bit is wrong; needing one that is not of this log.
#[test]
fn a_damaged_schema_is_mended_or_taken_from_a_copy() {
    let (scratch, starts) = closed(4);
    let whole = scratch.bytes();
    let copy = scratch.dir().parent().unwrap().join("backup.arrow");
    fs::write(&copy, &whole[..starts[2] + 100]).unwrap();
    let mut bytes = whole.clone();
    bytes[starts[0] / 2] ^= 4;
    scratch.set_bytes(&bytes);
    let repaired = run(&scratch).unwrap();
    assert_eq!((repaired.transactions, &repaired.lost), (4, &vec![]));
    assert_eq!(scratch.bytes()[..starts[4]], whole[..starts[4]], "it is as it was");

    bytes[100..300].fill(0);
    scratch.set_bytes(&bytes);
    let error = run(&scratch).unwrap_err();
    assert!(matches!(error, RepairError::Schema { .. }), "{error}");
    assert!(error.to_string().contains("--schema-from"), "{error}");
    assert!(scratch.bytes() == bytes);

    let (other, _) = closed(1);
    let from = |path: PathBuf| {
        let options = RepairOptions { schema_from: Some(path), ..RepairOptions::default() };
        repair(&scratch.env, &scratch.dir(), &options)
    };
    let error = from(other.live()).unwrap_err();
    assert!(matches!(error, RepairError::Foreign { .. }), "{error}");
    assert!(scratch.bytes() == bytes);
    assert_eq!(from(copy).unwrap().transactions, 4);
    assert_eq!(scratch.bytes()[..starts[4]], whole[..starts[4]], "it is as it was");
}

// Breaks: the rename before the second name of the original is durable; a name before the content
// is; half a repair that is an obstacle to the next.
#[test]
fn a_repair_that_fails_at_any_step_leaves_the_log_and_can_be_run_again() {
    let (scratch, starts) = closed(4);
    let whole = scratch.bytes();
    for (op, steps) in [
        (Op::Create, 1),
        (Op::Write, 5),
        (Op::Sync, 1),
        (Op::Link, 1),
        (Op::SyncDir, 1),
        (Op::Rename, 1),
    ] {
        for nth in 0..steps {
            let mut bytes = whole.clone();
            bytes[starts[1] + 600] ^= 1;
            scratch.set_bytes(&bytes);
            scratch.env.fail(op, nth, Fault::Error(Io::Other));
            let error = run(&scratch).expect_err("a step failed");
            assert_eq!(error.kind(), ErrorKind::Io, "{op:?} {nth}: {error}");
            assert!(scratch.bytes() == bytes, "{op:?} {nth}");
            assert!(!scratch.dir().join("refs.arrow.tmp").exists(), "{op:?} {nth}");
            scratch.env.heal();
            let repaired = run(&scratch).unwrap();
            assert_eq!(repaired.transactions, 3, "{op:?} {nth}");
            let kept = repaired.original.unwrap();
            assert_eq!(kept, damaged(&scratch, 1), "{op:?} {nth}: it is kept once");
            assert!(fs::read(&kept).unwrap() == bytes);
            fs::remove_file(kept).unwrap();
        }
    }
}

// Break: an order in which a crash loses the original, or leaves half a log.
#[test]
fn a_repair_syncs_the_new_log_then_keeps_the_old_one_then_swaps() {
    let (scratch, starts) = closed(4);
    let mut bytes = scratch.bytes();
    bytes[starts[1] + 600] ^= 1;
    scratch.set_bytes(&bytes);
    scratch.env.start_trace();
    run(&scratch).unwrap();
    let trace: Vec<Op> = scratch.env.trace().into_iter().filter(|op| *op != Op::Write).collect();
    let order = [Op::Create, Op::Sync, Op::Link, Op::SyncDir, Op::Rename, Op::SyncDir];
    assert_eq!(trace[..6], order);
}

// Break: a repair of a newer version's log, which would take out what this one cannot read.
#[test]
fn a_log_of_a_newer_version_is_not_repaired() {
    let golden = include_bytes!("../../golden/format-1-sha1.arrow");
    let scratch = ScratchLog::new();
    let mut bytes = golden.to_vec();
    let frames = frame_starts(&bytes);
    assert!(frames.len() > 2, "the test's own precondition");
    // A flag, and the checksum that makes it part of the frame.
    let (start, end) = (frames[1], frames[2]);
    bytes[end - 9] = 1;
    let id = log_id(&bytes);
    let head = crc32c::crc32c_append(crc32c::crc32c(&id), &PREFIX);
    let crc = crc32c::crc32c_append(head, &bytes[start + 8..end - 4]);
    bytes[end - 4..end].copy_from_slice(&crc.to_le_bytes());
    bytes[frames[0] + 600] ^= 1;
    scratch.set_bytes(&bytes);
    let error = run(&scratch).unwrap_err();
    assert!(error.to_string().contains("flags 0x01"), "{error}");
    assert!(scratch.bytes() == bytes);
}

/// The log id in the schema of a file: 32 hex digits behind the key's own bytes or before them.
fn log_id(bytes: &[u8]) -> [u8; 16] {
    let is_hex = |w: &[u8]| w.iter().all(u8::is_ascii_hexdigit);
    let at = bytes.windows(32).position(is_hex).expect("a log id");
    let text = std::str::from_utf8(&bytes[at..at + 32]).unwrap();
    u128::from_str_radix(text, 16).unwrap().to_be_bytes()
}
