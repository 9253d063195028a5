//! Compactions that fail: nothing is lost, it is told, and the next one goes on.

use std::sync::atomic::Ordering;

use refstone::{
    CompactError, CompactOptions, Edit, ErrorKind, Merge, Progress, RefStore, history_after,
};

use crate::common::{
    Scratch, commit_until_due, compact, fill, head, moves, names, oid, tx, wait_until,
};

// Breaks: sweeping before it is known whether the log has stopped (what was sealed last is taken for
// what a crash left, and removed).
#[test]
fn what_was_sealed_stays_when_the_swap_stops_the_log() {
    let mut scratch = Scratch::new();
    fill(&scratch, 0, 20);
    let (refs, before) = (scratch.refs(), moves(&scratch.dir()));
    scratch.faults.swaps.store(1, Ordering::SeqCst);
    let again = || scratch.store.compact(CompactOptions::default(), &mut |_| ()).unwrap_err();
    assert_eq!(again().kind(), ErrorKind::Io);
    assert_eq!(again().kind(), ErrorKind::Poisoned);
    let _stopped = scratch.store.close();
    scratch.reopen_closed();
    assert_eq!((scratch.refs(), moves(&scratch.dir())), (refs, before));
}

// Breaks: opening the new table only after the swap (the view then lacks it, and the next compaction
// takes its history for what a crash left).
#[test]
fn nothing_that_can_fail_comes_between_the_swap_and_the_view() {
    let mut scratch = Scratch::new();
    fill(&scratch, 0, 20);
    let (refs, before) = (scratch.refs(), moves(&scratch.dir()));
    scratch.faults.tables.store(1, Ordering::SeqCst);
    let _first = scratch.store.compact(CompactOptions::default(), &mut |_| ());
    scratch.faults.tables.store(0, Ordering::SeqCst);
    compact(&scratch.store);
    assert_eq!((scratch.refs(), moves(&scratch.dir())), (refs.clone(), before.clone()));
    scratch.reopen();
    assert_eq!((scratch.refs(), moves(&scratch.dir())), (refs, before));
}

/// Has every operation of some work fail once, in one store after the other, and tries it again then.
fn fails_anywhere_and_loses_nothing(work: impl Fn(&RefStore) -> Result<(), ErrorKind>) {
    for nth in 1.. {
        let mut scratch = Scratch::quick();
        fill(&scratch, 0, 4);
        compact(&scratch.store);
        fill(&scratch, 4, 8);
        let expected = (scratch.refs(), moves(&scratch.dir()));
        scratch.faults.nth.store(nth, Ordering::SeqCst);
        let _whatever = work(&scratch.store);
        if scratch.faults.nth.swap(0, Ordering::SeqCst) > 0 {
            assert!(nth > 25, "only {nth} operations");
            break;
        }
        if let Err(kind) = work(&scratch.store) {
            assert_eq!(kind, ErrorKind::Poisoned, "operation {nth}");
        }
        assert_eq!((scratch.refs(), moves(&scratch.dir())), expected, "operation {nth}");
        let _stopped = scratch.store.close();
        scratch.reopen_closed();
        assert_eq!((scratch.refs(), moves(&scratch.dir())), expected, "operation {nth}, reopened");
        work(&scratch.store).unwrap();
        assert_eq!((scratch.refs(), moves(&scratch.dir())), expected, "operation {nth}, once more");
    }
}

// Breaks: as in the two tests above.
#[test]
fn a_compaction_may_fail_at_any_operation_and_be_tried_again() {
    let options = CompactOptions { merge: Merge::All, ..CompactOptions::default() };
    fails_anywhere_and_loses_nothing(|store| {
        let done = store.compact(options, &mut |_| ());
        done.map(drop).map_err(|error| error.kind())
    });
}

// Breaks: going on without a table that could not be made.
#[test]
fn a_rebuild_may_fail_at_any_operation_and_be_tried_again() {
    fails_anywhere_and_loses_nothing(|store| {
        store.rebuild(&mut |_| ()).map_err(|error| error.kind())
    });
}

// Breaks: a thread that panics and stays busy (no compaction ever again, and nobody is told).
#[test]
fn a_compaction_that_panics_is_told_and_the_next_one_runs() {
    let scratch = Scratch::new();
    let mut panics = true;
    scratch.faults.hook.set(move |what, path| {
        let seals = what == "create" && path.to_string_lossy().ends_with(".parquet.tmp");
        if seals && std::mem::take(&mut panics) {
            panic!("injected");
        }
    });
    commit_until_due(&scratch);
    let totals = || scratch.store.maintenance().totals();
    wait_until(|| totals().failure.is_some());
    assert!(totals().failure.unwrap().contains("panicked"));
    commit_until_due(&scratch);
    wait_until(|| totals().compactions > 0);
    assert_eq!(totals().failure, None);
    assert_eq!(moves(&scratch.dir()).len(), 2 * 9001);
}

// Breaks: merging whatever there is space for (the transactions that come meanwhile are refused).
#[test]
fn without_space_transactions_are_sealed_and_files_are_not_merged() {
    let scratch = Scratch::new();
    scratch.faults.free.store((64 << 20) + 1000, Ordering::Relaxed);
    for round in 0..6 {
        fill(&scratch, round * 5, round * 5 + 5);
        let done = compact(&scratch.store);
        assert!(done.sealed > 0 && done.merged == 0, "{done:?}");
    }
    let all = CompactOptions { merge: Merge::All, ..CompactOptions::default() };
    let error = scratch.store.compact(all, &mut |_| ()).unwrap_err();
    assert!(error.to_string().contains("are free on this file system"), "{error}");
    assert_eq!(names(&scratch.dir().join("history")).len(), 6);
    scratch.faults.free.store(1 << 30, Ordering::Relaxed);
    assert_eq!(compact(&scratch.store).merged, 6);
}

/// The history files of a store, oldest first.
fn history_files(scratch: &Scratch) -> Vec<std::path::PathBuf> {
    let dir = scratch.dir().join("history");
    let mut files: Vec<_> = names(&dir).into_iter().map(|name| dir.join(name)).collect();
    let first = |path: &std::path::PathBuf| {
        let name = path.file_stem().unwrap().to_string_lossy();
        name.split('-').next().and_then(|first| first.parse::<u64>().ok())
    };
    files.sort_by_key(first);
    files
}

/// Turns a bit of the first rows of a file.
fn damage(path: &std::path::Path) -> Vec<u8> {
    let sound = std::fs::read(path).unwrap();
    let mut damaged = sound.clone();
    damaged[40] ^= 1;
    std::fs::write(path, &damaged).unwrap();
    sound
}

// Breaks: calling a compaction failed that has sealed and could not merge; not merging past the damage
// (files become more and more); removing or replacing the damaged file; forgetting that it is there.
#[test]
fn transactions_are_sealed_and_newer_files_merged_past_a_damaged_one() {
    let mut scratch = Scratch::new();
    for round in 0..3 {
        fill(&scratch, round * 5, round * 5 + 5);
        compact(&scratch.store);
    }
    let before = moves(&scratch.dir());
    let path = &history_files(&scratch)[1];
    let sound = damage(path);
    let damaged = std::fs::read(path).unwrap();
    let mut merged = 0;
    for round in 3..12 {
        fill(&scratch, round * 5, round * 5 + 5);
        let refs = scratch.refs();
        let done = scratch.store.compact(CompactOptions::default(), &mut |_| ());
        let Err(CompactError::Merge { done, source }) = done else { panic!("{done:?}") };
        assert_eq!(source.kind(), ErrorKind::Corrupt);
        assert!(source.to_string().contains(path.to_str().unwrap()), "{source}");
        merged += done.merged;
        let stats = scratch.store.stats();
        assert_eq!(stats.sealed_seq, stats.durable_seq);
        assert_eq!(stats.compactions.compactions, u64::from(round) + 1);
        assert_eq!(stats.compactions.done.sealed, stats.durable_seq.get());
        assert_eq!(stats.compactions.failure, None);
        assert_eq!(stats.compactions.merge_failure, Some(source.to_string()));
        assert_eq!((scratch.refs(), std::fs::read(path).unwrap()), (refs, damaged.clone()));
    }
    assert!(merged >= 4 && history_files(&scratch).len() <= 6, "{:?}", history_files(&scratch));
    scratch.reopen();
    let behind = before.last().unwrap().seq;
    assert!(history_after(&scratch.dir(), behind, None).unwrap().all(|moved| moved.is_ok()));

    std::fs::write(path, sound).unwrap();
    let all = CompactOptions { merge: Merge::All, ..CompactOptions::default() };
    scratch.store.compact(all, &mut |_| ()).unwrap();
    assert_eq!(scratch.store.stats().compactions.merge_failure, None);
    assert_eq!(history_files(&scratch).len(), 1);
    let after = moves(&scratch.dir());
    assert_eq!(after[..before.len()], before);
    assert_eq!(after.last().unwrap().seq, scratch.store.stats().durable_seq);
}

// Breaks: trying the damaged file again with every compaction that the store does by itself.
#[test]
fn a_store_that_compacts_itself_passes_a_damaged_file_over_once_it_has_found_it() {
    let scratch = Scratch::new();
    for round in 0..3 {
        fill(&scratch, round * 5, round * 5 + 5);
        compact(&scratch.store);
    }
    let damaged = history_files(&scratch).pop().unwrap();
    damage(&damaged);
    let merges = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    scratch.faults.hook.set({
        let merges = merges.clone();
        move |what, path| {
            let name = path.to_string_lossy();
            if what == "create" && name.contains("/history/1-") {
                merges.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let totals = || scratch.store.maintenance().totals();
    for compactions in 4..=6 {
        commit_until_due(&scratch);
        wait_until(|| totals().compactions == compactions);
        assert_eq!(totals().failure, None);
        assert!(totals().merge_failure.unwrap().contains(damaged.to_str().unwrap()));
    }
    assert_eq!(merges.load(Ordering::Relaxed), 1);
}

// Breaks: counting transactions alone until the next try.
#[test]
fn after_a_failure_the_next_try_is_due_by_bytes_as_well() {
    let scratch = Scratch::new();
    scratch.faults.hook.set({
        let (faults, mut tries) = (scratch.faults.clone(), 0);
        move |what, path| {
            if what == "create" && path.to_string_lossy().ends_with(".parquet.tmp") && tries < 2 {
                tries += 1;
                faults.full.store(1, Ordering::SeqCst);
            }
        }
    });
    let totals = || scratch.store.maintenance().totals();
    // Long names make many bytes of few rows.
    let long = vec!["n".repeat(200); 19].join("/");
    let nothing = tx([Edit::set(head("a"), oid(1))]);
    scratch.store.commit(&nothing).unwrap();
    let mut failure = None;
    for number in 0..3_u8 {
        let edit = |name: u32| Edit::set(head(&format!("{long}/{number}-{name}")), oid(1));
        scratch.store.commit(&tx((0..2400).map(edit))).unwrap();
        assert!(scratch.store.log().live_bytes() > (u64::from(number) + 1) * (8 << 20));
        // It has the store look whether a compaction is due, and writes nothing itself.
        scratch.store.commit(&nothing).unwrap();
        // It names the file that was not made, and so another one each time.
        wait_until(|| totals().failure != failure);
        failure = totals().failure;
    }
    assert_eq!(totals().failure, None);
    wait_until(|| scratch.store.log().live_bytes() < 8 << 20);
}

// Breaks: a full disk that is told as a failure of the disk, wherever it becomes full.
#[test]
fn a_full_disk_is_told_as_one_by_whatever_meets_it() {
    let mut places = 0;
    for nth in 0.. {
        let mut scratch = Scratch::quick();
        fill(&scratch, 0, 4);
        compact(&scratch.store);
        fill(&scratch, 4, 8);
        let expected = (scratch.refs(), moves(&scratch.dir()));
        scratch.faults.full_after(nth);
        let all = CompactOptions { merge: Merge::All, ..CompactOptions::default() };
        let done = scratch.store.compact(all, &mut |_| ());
        scratch.faults.full_after(u32::MAX);
        match done {
            Ok(_) => break,
            Err(error) => assert_eq!(error.kind(), ErrorKind::NoSpace, "write {nth}: {error}"),
        }
        places += 1;
        assert_eq!((scratch.refs(), moves(&scratch.dir())), expected);
        scratch.store.compact(all, &mut |_| ()).unwrap();
        scratch.reopen();
        assert_eq!((scratch.refs(), moves(&scratch.dir())), expected);
    }
    assert!(places > 10, "only {places} writes");
}

// Breaks: taking the lock of compactions again in the thread that has it (it waits for ever, or, where
// that is allowed, compacts within a compaction).
#[test]
fn a_progress_that_calls_back_is_refused_and_the_store_goes_on() {
    let scratch = Scratch::new();
    for round in 0..3 {
        fill(&scratch, round * 5, round * 5 + 5);
        compact(&scratch.store);
    }
    for value in 1..=40 {
        for number in 0..50 {
            let edit = Edit::set(head(&format!("many-{number}")), oid(value));
            drop(scratch.store.stage(&tx([edit])).unwrap());
        }
    }
    scratch.store.sync().unwrap();
    let (mut sealing, mut merging) = (0, 0);
    let done = scratch.store.compact(CompactOptions::default(), &mut |progress| {
        match progress {
            Progress::Sealing { .. } => sealing += 1,
            _ => merging += 1,
        }
        let store = &scratch.store;
        let kinds = [
            store.compact(CompactOptions::default(), &mut |_| ()).unwrap_err().kind(),
            store.rebuild(&mut |_| ()).unwrap_err().kind(),
            store.close().unwrap_err().kind(),
        ];
        assert_eq!(kinds, [ErrorKind::Reentered; 3]);
        // What waits for nobody is done.
        store.commit(&tx([Edit::set(head("meanwhile"), oid(sealing + 10))])).unwrap();
    });
    let done = done.unwrap();
    assert_eq!(done.merged, 4);
    assert!(sealing > 0 && merging > 0);
    scratch.store.rebuild(&mut |_| ()).unwrap();
    scratch.store.close().unwrap();
}
