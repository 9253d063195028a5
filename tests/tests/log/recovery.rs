//! A torn end is repaired, and what it held is kept; whole frames behind it count.

use std::fs;

use refstone_log::{ErrorKind, Recovery};
use refstone_tests::env::{Fault, Op};
use refstone_tests::logs::{Row, ScratchLog, push};

const PREFIX: usize = 8;

/// A log of three durable transactions and one group of two more that was written but never
/// synced: what a power cut may tear.
struct Cut {
    scratch: ScratchLog,
    bytes: Vec<u8>,
    /// The tail slot behind the three, and the ends of the two.
    slot: usize,
    ends: [usize; 2],
}

impl Cut {
    fn new() -> Cut {
        let scratch = ScratchLog::new();
        let log = scratch.log();
        for n in 1..=3 {
            push(&log, &Row::numbered(n));
        }
        let slot = usize::try_from(log.live_bytes()).unwrap();
        scratch.env.fail(Op::Sync, 0, Fault::Error(std::io::ErrorKind::Other));
        drop(log.append(&[Row::numbered(4).as_row()]).unwrap());
        log.append(&[Row::numbered(5).as_row()]).unwrap().wait().unwrap_err();
        drop(log);
        // The power cut takes the mark of the failed sync too.
        fs::remove_file(scratch.dir().join("refs.arrow.doubted")).unwrap();
        let bytes = scratch.bytes();
        Cut { scratch, bytes, slot, ends: [slot + 672, slot + 1344] }
    }

    fn recover(&self, bytes: &[u8]) -> (Vec<u64>, Recovery) {
        self.scratch.set_bytes(bytes);
        let (log, recovery) = self.scratch.open().unwrap();
        log.close().unwrap();
        (self.scratch.published(), recovery)
    }
}

// Break: cutting a valid frame behind a zero word, though it may have been acknowledged.
#[test]
fn whole_frames_behind_an_unpublished_slot_count() {
    let cut = Cut::new();
    assert_eq!(cut.scratch.published(), [1, 2, 3]);
    let (published, recovery) = cut.recover(&cut.bytes);
    assert_eq!(published, [1, 2, 3, 4, 5]);
    assert_eq!((recovery.proved, recovery.torn), (2, None));
}

// Breaks: trusting a frame without its checksum; dropping a durable frame with the torn ones;
// cutting without keeping the bytes.
#[test]
fn the_unsynced_group_may_end_at_any_byte() {
    let cut = Cut::new();
    for end in cut.slot + PREFIX..cut.ends[1] {
        let mut bytes = cut.bytes.clone();
        bytes[end..].fill(0);
        let (published, recovery) = cut.recover(&bytes);
        let whole = cut.ends.iter().filter(|&&frame_end| last_content(&bytes) >= frame_end).count();
        let expected: Vec<u64> = (1..=3 + whole as u64).collect();
        assert_eq!(published, expected, "zeros from byte {end}");
        assert_kept(&cut, &bytes, &recovery);
        let (again, second) = cut.recover(&cut.scratch.bytes());
        assert_eq!((again, second.torn, second.proved), (published, None, 0));
    }
}

/// The end of the frames' content: a checksum may end in zero bytes.
fn last_content(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1
}

fn assert_kept(cut: &Cut, bytes: &[u8], recovery: &Recovery) {
    let Some(torn) = &recovery.torn else { return };
    let start = usize::try_from(torn.range.start).unwrap();
    let end = usize::try_from(torn.range.end).unwrap();
    assert_eq!(fs::read(&torn.kept).unwrap(), bytes[start..end]);
    assert!(torn.kept.starts_with(cut.scratch.dir()));
    fs::remove_file(&torn.kept).unwrap();
}

// Break: believing the first bytes of a frame (zeros in any sector must be noticed).
#[test]
fn any_sector_of_the_unsynced_group_may_be_missing() {
    let cut = Cut::new();
    let first = (cut.slot + PREFIX) / 512;
    for sector in first..=cut.ends[1] / 512 {
        let mut bytes = cut.bytes.clone();
        let start = (sector * 512).max(cut.slot + PREFIX);
        bytes[start..(sector + 1) * 512].fill(0);
        if bytes == cut.bytes {
            continue;
        }
        let (published, recovery) = cut.recover(&bytes);
        let whole = usize::from(start >= cut.ends[0] + PREFIX);
        assert_eq!(published.len(), 3 + whole, "sector {sector}");
        assert_kept(&cut, &bytes, &recovery);
    }
}

// Break: replaying what is valid by itself but belongs elsewhere.
#[test]
fn an_old_frame_behind_the_end_is_not_replayed() {
    let cut = Cut::new();
    let mut bytes = cut.bytes.clone();
    let first = cut.slot - 3 * 672;
    let old = bytes[first + PREFIX..first + 672].to_vec();
    bytes[cut.slot + PREFIX..].fill(0);
    bytes[cut.slot + PREFIX..cut.slot + 672].copy_from_slice(&old);
    let (published, recovery) = cut.recover(&bytes);
    assert_eq!(published, [1, 2, 3]);
    assert!(recovery.torn.is_some());
}

// Break: taking any invalid frame behind a zero word for torn.
#[test]
fn a_frame_that_a_later_one_knew_to_be_durable_is_not_torn_off() {
    let cut = Cut::new();
    let log = {
        cut.scratch.set_bytes(&cut.bytes);
        cut.scratch.log()
    };
    push(&log, &Row::numbered(6));
    log.close().unwrap();
    let mut bytes = cut.scratch.bytes();
    // A misplaced sector of zeros hits frame 4, its length word included.
    bytes[cut.slot + 4..cut.slot + 300].fill(0);
    cut.scratch.set_bytes(&bytes);
    let error = cut.scratch.open().map(drop).expect_err("transaction 4 was durable");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("transaction 4"), "{error}");
    assert_eq!(cut.scratch.bytes(), bytes, "a refused log is not touched");
}

// Breaks: publishing before the sync of recovery; not writing the accepted frames again.
#[test]
fn recovery_writes_again_syncs_and_only_then_publishes() {
    let cut = Cut::new();
    cut.scratch.set_bytes(&cut.bytes);
    cut.scratch.env.start_trace();
    let (log, _) = cut.scratch.open().unwrap();
    let trace = cut.scratch.env.trace();
    let sync = trace.iter().position(|op| *op == Op::Sync).unwrap();
    assert!(trace[..sync].iter().all(|op| *op == Op::Write) && sync >= 2);
    assert_eq!(trace[sync + 1], Op::Write, "the length word");
    assert_eq!(trace[sync + 2], Op::Sync);
    assert!(trace[sync + 3..].iter().all(|op| *op == Op::SyncDir));
    drop(log);

    cut.scratch.set_bytes(&cut.bytes);
    cut.scratch.env.fail(Op::Sync, 0, Fault::Error(std::io::ErrorKind::Other));
    assert_eq!(cut.scratch.open().unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(cut.scratch.published(), [1, 2, 3], "published before its sync");
}

// Breaks: no mark, where recovery's own sync fails; publishing before the directory is synced; going
// on in the old file; a mark that stays.
#[test]
fn a_log_whose_sync_failed_is_copied_and_published_only_under_a_durable_name() {
    let cut = Cut::new();
    cut.scratch.set_bytes(&cut.bytes);
    cut.scratch.env.fail(Op::Sync, 0, Fault::Error(std::io::ErrorKind::Other));
    cut.scratch.open().unwrap_err();
    let doubted = fs::File::open(cut.scratch.live()).unwrap();
    cut.scratch.env.start_trace();
    let (log, recovery) = cut.scratch.open().unwrap();
    let trace = cut.scratch.env.trace();
    assert_eq!((recovery.transactions, recovery.proved), (5, 2));
    let at = |wanted| trace.iter().position(|op| *op == wanted).expect("a new file is made");
    let (create, sync, rename, sync_dir) =
        (at(Op::Create), at(Op::Sync), at(Op::Rename), at(Op::SyncDir));
    assert!(create < sync && sync < rename && rename < sync_dir, "{trace:?}");
    assert_eq!(trace[sync_dir + 1..sync_dir + 3], [Op::Write, Op::Sync], "publishing");
    push(&log, &Row::numbered(6));
    assert_eq!(cut.scratch.published(), [1, 2, 3, 4, 5, 6]);
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut &doubted, &mut bytes).unwrap();
    assert_eq!(bytes[cut.slot..cut.slot + 8], cut.bytes[cut.slot..cut.slot + 8], "the old file");
    assert!(!cut.scratch.dir().join("refs.arrow.doubted").exists());
}

// Breaks: leaving half a copy behind, on a disk that may be full, while the log is read on; removing it once
// it has the live name.
#[test]
fn a_copy_of_a_log_whose_sync_failed_leaves_nothing_behind_if_it_fails_at_any_step() {
    let cut = Cut::new();
    for op in [Op::Create, Op::Write, Op::Sync, Op::Rename, Op::SyncDir] {
        for nth in 0.. {
            cut.scratch.set_bytes(&cut.bytes);
            fs::write(cut.scratch.dir().join("refs.arrow.doubted"), "").unwrap();
            cut.scratch.env.fail(op, nth, Fault::Error(std::io::ErrorKind::StorageFull));
            let opened = cut.scratch.open();
            cut.scratch.env.heal();
            assert!(!cut.scratch.dir().join("refs.arrow.tmp").exists(), "{op:?} {nth}");
            if opened.is_ok() {
                assert!(nth > 0, "{op:?} did not happen");
                break;
            }
            assert_eq!(cut.scratch.published()[..3], [1, 2, 3], "{op:?} {nth}");
            assert_eq!(cut.scratch.open().unwrap().1.transactions, 5, "{op:?} {nth}");
        }
    }
}

// Break: clearing the torn bytes before they are saved.
#[test]
fn recovery_that_fails_at_any_step_can_be_repeated() {
    let cut = Cut::new();
    let mut torn = cut.bytes.clone();
    torn[cut.ends[1] - 40] ^= 1;
    for (op, steps) in [(Op::Create, 1), (Op::Write, 5), (Op::Sync, 2), (Op::SyncDir, 1)] {
        for nth in 0..steps {
            cut.scratch.set_bytes(&torn);
            cut.scratch.env.fail(op, nth, Fault::Error(std::io::ErrorKind::Other));
            let first = cut.scratch.open();
            assert!(first.is_err(), "{op:?} {nth} did not happen");
            cut.scratch.env.heal();
            let (log, recovery) = cut.scratch.open().unwrap();
            drop(log);
            assert_eq!(recovery.transactions, 4, "{op:?} {nth}");
            assert_eq!(cut.scratch.published(), [1, 2, 3, 4], "{op:?} {nth}");
        }
    }
}

// Breaks: no sync when nothing is torn; believing the zeros behind the end, which may be in the
// cache alone; not syncing the names, whose rename may have been the last act of a crashed process.
#[test]
fn recovery_clears_syncs_and_names_also_a_clean_log() {
    let scratch = ScratchLog::new();
    push(&scratch.log(), &Row::numbered(1));
    scratch.env.start_trace();
    let _log = scratch.log();
    let trace = scratch.env.trace();
    let expected = [Op::Write, Op::Write, Op::Write, Op::Sync];
    assert_eq!(trace[..4], expected, "marker, zeros, the last group with its word, sync");
    let directories = scratch.dir().ancestors().count();
    assert_eq!(trace[4..], vec![Op::SyncDir; directories]);
}

// Break: keeping, and reporting, torn bytes where there are none.
#[test]
fn a_lost_end_of_stream_marker_is_written_again_without_a_cut() {
    let cut = Cut::new();
    let mut bytes = cut.bytes.clone();
    bytes[cut.ends[1]..].fill(0);
    let (published, recovery) = cut.recover(&bytes);
    assert_eq!((published.len(), recovery.torn), (5, None));
    assert_eq!(fs::read_dir(cut.scratch.dir()).unwrap().count(), 2, "the log and its lock");
}

// Break: a number that overflows.
#[test]
fn torn_bytes_find_a_name_beside_any_other() {
    let cut = Cut::new();
    fs::write(cut.scratch.dir().join("refs.arrow.cut-4294967295"), "").unwrap();
    fs::write(cut.scratch.dir().join("refs.arrow.cut-1"), "").unwrap();
    let mut bytes = cut.bytes.clone();
    bytes[cut.ends[1] - 40] ^= 1;
    let (_, recovery) = cut.recover(&bytes);
    assert!(recovery.torn.unwrap().kept.ends_with("refs.arrow.cut-2"));
}
