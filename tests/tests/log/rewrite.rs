//! A rewrite takes out what was sealed, and nothing else, whatever happens meanwhile.

use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use refstone_log::{
    Env, EnvFile, EnvLayer, ErrorKind, FileLayer, Leaving, Log, LogReader, NoObserver, OsEnv,
    Sealer, Seq,
};
use refstone_tests::env::{Fault, Op, TestEnv};
use refstone_tests::logs::{Row, ScratchLog, push};

/// Keeps what it is given in memory, which is durable enough for a test.
#[derive(Default)]
struct Kept(Vec<(u64, Vec<Row>)>);

impl Kept {
    fn seqs(&self) -> Vec<u64> {
        self.0.iter().map(|(seq, _)| *seq).collect()
    }
}

impl Sealer for Kept {
    fn seal(&mut self, leaving: &mut Leaving<'_>) -> Result<(), Box<dyn Error + Send + Sync>> {
        while let Some(frame) = leaving.next()? {
            let rows = frame.ref_rows().map(|row| Row::from(&row)).collect();
            self.0.push((frame.seq().get(), rows));
        }
        Ok(())
    }
}

struct Refuses;

impl Sealer for Refuses {
    fn seal(&mut self, leaving: &mut Leaving<'_>) -> Result<(), Box<dyn Error + Send + Sync>> {
        leaving.next()?;
        Err("the archive is full".into())
    }
}

/// Takes one transaction and says that it took all.
struct Lazy;

impl Sealer for Lazy {
    fn seal(&mut self, leaving: &mut Leaving<'_>) -> Result<(), Box<dyn Error + Send + Sync>> {
        leaving.next()?;
        Ok(())
    }
}

fn filled(count: u64) -> (ScratchLog, Log) {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    for n in 1..=count {
        push(&log, &Row::numbered(n));
    }
    (scratch, log)
}

// Breaks: an anchor of the wrong frame (reopening finds a broken chain); sequences that start
// anew; a rebind that is skipped (the last push goes to the old file).
#[test]
fn what_was_sealed_leaves_and_the_rest_goes_on() {
    let (scratch, log) = filled(10);
    let mut kept = Kept::default();
    let done = log.rewrite(Seq::new(7), &mut kept).unwrap().unwrap();
    assert_eq!((done.sealed_seq.get(), done.bytes_kept), (7, 3 * 672));
    assert_eq!(kept.seqs(), (1..=7).collect::<Vec<_>>());
    assert_eq!(kept.0[6].1, [Row::numbered(7)]);
    assert_eq!(scratch.published(), [8, 9, 10]);
    assert_eq!(push(&log, &Row::numbered(11)), 11);
    assert_eq!(scratch.published(), [8, 9, 10, 11]);
    log.close().unwrap();
    let (log, recovery) = scratch.open().unwrap();
    assert_eq!((recovery.transactions, recovery.proved, recovery.torn), (4, 0, None));
    assert_eq!(push(&log, &Row::numbered(12)), 12);
}

#[test]
fn all_may_leave_and_nothing_may_be_left_to_leave() {
    let (scratch, log) = filled(3);
    let mut kept = Kept::default();
    assert_eq!(log.rewrite(Seq::MAX, &mut kept).unwrap().unwrap().sealed_seq.get(), 3);
    assert!(scratch.published().is_empty());
    assert_eq!(log.rewrite(Seq::MAX, &mut kept).unwrap(), None);
    log.close().unwrap();
    let log = scratch.log();
    assert_eq!(push(&log, &Row::numbered(4)), 4);
}

// Break: not restoring the time of the last sealed transaction.
#[test]
fn time_does_not_go_back_behind_what_was_sealed() {
    let (scratch, log) = filled(3);
    log.rewrite(Seq::MAX, &mut Kept::default()).unwrap();
    log.close().unwrap();
    scratch.env.set_clock(5);
    push(&scratch.log(), &Row::numbered(4));
    let mut reader = LogReader::open(&OsEnv, &scratch.dir()).unwrap();
    assert!(reader.next().unwrap().unwrap().at().as_micros() > 1_000_000);
}

// Breaks: losing the group buffer in the swap; keeping the offsets of the old file.
#[test]
fn what_is_staged_before_the_swap_is_committed_after_it() {
    let (scratch, log) = filled(5);
    let before: Vec<_> =
        (6..=8).map(|n| log.append(&[Row::numbered(n).as_row()]).unwrap()).collect();
    log.rewrite(Seq::new(5), &mut Kept::default()).unwrap();
    let after = log.append(&[Row::numbered(9).as_row()]).unwrap();
    assert_eq!(log.durable_seq().get(), 5);
    for (commit, seq) in before.into_iter().zip(6..) {
        assert_eq!(commit.wait().unwrap().seq().get(), seq);
    }
    assert_eq!(after.wait().unwrap().seq().get(), 9);
    assert_eq!(scratch.published(), [6, 7, 8, 9]);
    log.close().unwrap();
    assert_eq!(scratch.open().unwrap().1.transactions, 4);
}

#[test]
fn a_reader_that_holds_the_old_file_finishes_undisturbed() {
    let (scratch, log) = filled(6);
    let mut reader = LogReader::open(&OsEnv, &scratch.dir()).unwrap();
    reader.next().unwrap();
    log.rewrite(Seq::MAX, &mut Kept::default()).unwrap();
    push(&log, &Row::numbered(7));
    let mut seqs = Vec::new();
    while let Some(frame) = reader.next().unwrap() {
        seqs.push(frame.seq().get());
    }
    assert_eq!(seqs, [2, 3, 4, 5, 6]);
}

// Breaks: swapping although the sealer failed, or although it did not take everything.
#[test]
fn nothing_leaves_unless_the_sealer_took_all_of_it() {
    let (scratch, log) = filled(4);
    let error = log.rewrite(Seq::MAX, &mut Refuses).unwrap_err();
    assert!(error.to_string().contains("the archive is full"), "{error}");
    assert_eq!(scratch.published(), [1, 2, 3, 4], "nothing was sealed");
    let error = log.rewrite(Seq::MAX, &mut Lazy).unwrap_err();
    assert!(error.to_string().contains("1 of 4"), "{error}");
    assert_eq!(scratch.published(), [1, 2, 3, 4]);
    assert_eq!(push(&log, &Row::numbered(5)), 5);
}

// Breaks: dropping the sync of the directory, or doing it before the rename; giving the old file's space
// back before it (a power cut would bring back the name of an empty file).
#[test]
fn the_directory_is_synced_after_the_rename_and_before_the_next_acknowledgement() {
    let (scratch, log) = filled(4);
    scratch.env.start_trace();
    log.rewrite(Seq::new(2), &mut Kept::default()).unwrap();
    push(&log, &Row::numbered(5));
    let trace: Vec<Op> = scratch.env.trace().into_iter().filter(|op| *op != Op::Write).collect();
    use Op::{Create, GiveBack, Rename, Sync, SyncDir};
    assert_eq!(trace, [Create, Sync, Sync, Sync, Rename, SyncDir, GiveBack, Sync]);
}

/// A log of 3.4 MB.
fn large() -> (ScratchLog, Log) {
    let (scratch, log) = filled(1);
    let rows: Vec<_> = (0..5_000).map(Row::numbered).collect();
    for rows in rows.chunks(100) {
        let commits = rows.iter().map(|row| log.append(&[row.as_row()]).unwrap());
        for commit in commits.collect::<Vec<_>>() {
            commit.wait().unwrap();
        }
    }
    (scratch, log)
}

// Breaks: giving its space back although somebody reads it (the reader meets the end of the file); asking
// while the log itself still has it.
#[test]
fn a_large_old_file_is_given_back_unless_somebody_reads_it() {
    let (scratch, log) = large();
    let mut reader = LogReader::open(&OsEnv, &scratch.dir()).unwrap();
    let old = std::fs::File::open(scratch.live()).unwrap();
    let len = old.metadata().unwrap().len();
    scratch.env.start_trace();
    log.rewrite(Seq::new(4_990), &mut Kept::default()).unwrap();
    assert!(scratch.env.trace().contains(&Op::GiveBack));
    let mut read = 0;
    while reader.next().unwrap().is_some() {
        read += 1;
    }
    assert_eq!((read, old.metadata().unwrap().len()), (5_001, len));
    assert_eq!(push(&log, &Row::standard()), 5_002);
}

// Break: giving the old file's space back although a power cut may bring back its name.
#[test]
fn a_swap_that_may_not_be_durable_gives_nothing_back() {
    let (scratch, log) = filled(4);
    scratch.env.start_trace();
    scratch.env.fail(Op::SyncDir, 0, Fault::Error(std::io::ErrorKind::Other));
    log.rewrite(Seq::MAX, &mut Kept::default()).unwrap_err();
    assert!(!scratch.env.trace().contains(&Op::GiveBack));
}

// Break: any ignored error. Before the rename the old log serves on; after it the log stops, and
// nothing is lost.
#[test]
fn a_rewrite_that_fails_at_any_step_loses_nothing() {
    let steps = [(Op::Create, 1), (Op::Write, 4), (Op::Sync, 3), (Op::Rename, 1), (Op::SyncDir, 1)];
    for (op, nth) in steps.into_iter().flat_map(|(op, count)| (0..count).map(move |n| (op, n))) {
        let (scratch, log) = filled(6);
        scratch.env.fail(op, nth, Fault::Error(std::io::ErrorKind::Other));
        let error = log.rewrite(Seq::new(3), &mut Kept::default()).expect_err("planned");
        assert_eq!(error.kind(), ErrorKind::Io, "{op:?} {nth}: {error}");
        assert!(!scratch.dir().join("refs.arrow.tmp").exists(), "{op:?} {nth}");
        scratch.env.heal();
        if op == Op::SyncDir {
            assert!(log.append(&[Row::numbered(7).as_row()]).is_err(), "the log must stop");
            drop(log);
            assert_eq!(push(&scratch.log(), &Row::numbered(7)), 7);
            assert_eq!(scratch.published(), [4, 5, 6, 7]);
            continue;
        }
        assert_eq!(push(&log, &Row::numbered(7)), 7, "{op:?} {nth}: the old log serves on");
        assert_eq!(scratch.published(), (1..=7).collect::<Vec<_>>(), "{op:?} {nth}");
        log.rewrite(Seq::new(3), &mut Kept::default()).unwrap();
        assert_eq!(scratch.published(), [4, 5, 6, 7], "{op:?} {nth}: a second try");
    }
}

// Breaks: compacting without the gate (a group in flight is lost); a lost wake-up hangs.
#[test]
fn writers_lose_nothing_while_the_log_is_rewritten_again_and_again() {
    let scratch = ScratchLog::new();
    let log = scratch.log();
    let mut kept = Kept::default();
    let mut rewrites = 0;
    thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|t| {
                let log = &log;
                scope.spawn(move || {
                    for n in 0..150 {
                        push(log, &Row::numbered(t * 150 + n));
                    }
                })
            })
            .collect();
        while writers.iter().any(|writer| !writer.is_finished()) {
            rewrites += usize::from(log.rewrite(Seq::MAX, &mut kept).unwrap().is_some());
        }
    });
    assert!(rewrites >= 3, "only {rewrites} rewrites ran beside the writers");
    let all: Vec<u64> = kept.seqs().into_iter().chain(scratch.published()).collect();
    assert_eq!(all, (1..=600).collect::<Vec<_>>());
    drop(log);
    assert!(scratch.open().is_ok());
}

/// A sealer whose disk fails in this way.
struct Fails(std::io::ErrorKind);

impl Sealer for Fails {
    fn seal(&mut self, _: &mut Leaving<'_>) -> Result<(), Box<dyn Error + Send + Sync>> {
        Err(Box::new(std::io::Error::from(self.0)))
    }
}

/// Commits so much while it seals that the live log has megabytes more when it is done, and stages
/// as much again, for which there are zeros ahead.
struct Slow(Log);

impl Sealer for Slow {
    fn seal(&mut self, leaving: &mut Leaving<'_>) -> Result<(), Box<dyn Error + Send + Sync>> {
        Kept::default().seal(leaving)?;
        for n in 0..10_000 {
            drop(self.0.append(&[Row::numbered(n).as_row()])?);
        }
        self.0.barrier()?;
        let rows: Vec<Row> = (0..20_000).map(Row::numbered).collect();
        drop(self.0.append(&rows.iter().map(Row::as_row).collect::<Vec<_>>()[..])?);
        Ok(())
    }
}

/// How many bytes were written before each sync of the new file.
fn synced_pieces(scratch: &ScratchLog) -> Vec<usize> {
    let trace = scratch.env.traced_bytes();
    let created = trace.iter().rposition(|(op, _)| *op == Op::Create).unwrap();
    let renamed = trace.iter().rposition(|(op, _)| *op == Op::Rename).unwrap();
    let pieces = trace[created..renamed].split_inclusive(|(op, _)| *op == Op::Sync);
    pieces.map(|piece| piece.iter().map(|(_, bytes)| bytes).sum()).collect()
}

// Breaks: copying in the leader's turn what was committed since the rewrite began (seconds of commits,
// for which all others wait); writing the zeros ahead there; syncing what is copied, or the zeros, in
// one piece (the sync of a commit, on the same disk, waits for all of it).
#[test]
fn what_was_committed_while_it_sealed_is_copied_before_everybody_waits() {
    let (scratch, log) = filled(3);
    scratch.env.start_trace();
    let rewritten = log.rewrite(Seq::new(3), &mut Slow(log.clone())).unwrap().unwrap();
    assert!(rewritten.bytes_kept > 6_000_000);
    let pieces = synced_pieces(&scratch);
    assert!(pieces.last().unwrap() < &1_000, "in the leader's turn: {pieces:?} bytes");
    assert!(pieces.iter().max().unwrap() < &1_100_000, "{pieces:?} bytes");
    // What a slow disk makes of it: more syncs, not many more.
    assert!(pieces.len() < 16, "{pieces:?} bytes");
    assert_eq!(push(&log, &Row::standard()), 10_005);
    log.close().unwrap();
    assert_eq!(scratch.published().len(), 10_002);
}

// Breaks: calling every failure to seal one of the disk.
#[test]
fn a_failure_to_seal_is_of_the_sort_of_its_cause() {
    let (_scratch, log) = filled(3);
    let kind = |fails| log.rewrite(Seq::MAX, &mut Fails(fails)).unwrap_err().kind();
    assert_eq!(kind(std::io::ErrorKind::StorageFull), ErrorKind::NoSpace);
    assert_eq!(kind(std::io::ErrorKind::PermissionDenied), ErrorKind::Permission);
    assert_eq!(kind(std::io::ErrorKind::Other), ErrorKind::Io);
    assert_eq!(log.rewrite(Seq::MAX, &mut Refuses).unwrap_err().kind(), ErrorKind::Io);
}

/// A disk on which no file grows while it is full.
#[derive(Clone, Debug)]
struct Disk {
    env: TestEnv,
    full: Arc<AtomicBool>,
}

#[derive(Debug)]
struct OnDisk {
    file: Box<dyn EnvFile>,
    disk: Disk,
}

impl EnvLayer for Disk {
    fn below(&self) -> &dyn Env {
        &self.env
    }

    fn wrap(&self, _: &Path, file: Box<dyn EnvFile>) -> Box<dyn EnvFile> {
        Box::new(OnDisk { file, disk: self.clone() })
    }
}

impl FileLayer for OnDisk {
    fn below(&self) -> &dyn EnvFile {
        &*self.file
    }

    fn above(&self, file: Box<dyn EnvFile>) -> Box<dyn EnvFile> {
        Box::new(OnDisk { file, disk: self.disk.clone() })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        if !self.disk.full.load(Ordering::SeqCst) {
            return self.file.write_at(bytes, offset);
        }
        let room = usize::try_from(self.file.len()?.saturating_sub(offset)).unwrap();
        match room.min(bytes.len()) {
            0 => Err(io::ErrorKind::StorageFull.into()),
            fits => self.file.write_at(&bytes[..fits], offset),
        }
    }
}

// Breaks: clearing what a failed write left also where it left nothing, behind the end of the file, which
// stops the log; taking the room that there was in the old file for room in the new one.
#[test]
fn what_stages_during_a_swap_and_finds_no_space_is_not_committed_and_the_log_goes_on() {
    let (scratch, log) = filled(3);
    log.close().unwrap();
    let disk = Disk { env: scratch.env.clone(), full: Arc::default() };
    let env = Arc::new(disk.clone());
    let (log, _) =
        Log::open(env, &scratch.dir(), Arc::new(NoObserver), &mut |_| ()).expect("the log opens");
    let large = |bytes| Row { message: Some(vec![b'm'; bytes]), ..Row::standard() };
    let (sender, staged) = mpsc::channel();
    let (staging, row, full) = (log.clone(), large(1 << 20), disk.full.clone());
    scratch.env.call(Op::Rename, 0, move || {
        sender.send(staging.append(&[row.as_row()]).unwrap()).unwrap();
        full.store(true, Ordering::SeqCst);
    });
    log.rewrite(Seq::new(2), &mut Kept::default()).unwrap();
    let error = staged.recv().unwrap().wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotCommitted, "{error}");
    assert_eq!(push(&log, &Row::numbered(4)), 4);
    let error = log.append(&[large(1 << 19).as_row()]).map(drop).expect_err("there is no room");
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    disk.full.store(false, Ordering::SeqCst);
    assert_eq!(push(&log, &large(1 << 19)), 5);
    log.close().unwrap();
    assert_eq!(scratch.published(), [3, 4, 5]);
}
