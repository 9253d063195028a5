//! What leaves the live log, and what is read of it then.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use refstone::{
    At, CompactError, CompactOptions, Edit, ErrorKind, HistoryForm, Merge, ObjectId, Progress,
    RefName, RefStore, Seq, history, history_after, history_newest_first, read_view, read_view_at,
    read_view_with,
};

use crate::common::{Scratch, env_with, head, listing, oid, tx};

fn compact(scratch: &Scratch) -> refstone::Compacted {
    scratch.store.compact(CompactOptions::default(), &mut |_| ()).unwrap()
}

fn moves(scratch: &Scratch) -> Vec<refstone::RefMove> {
    history(&scratch.dir(), None).unwrap().map(Result::unwrap).collect()
}

/// Some transactions that create, move, delete and create again.
fn fill(scratch: &Scratch, from: u8, to: u8) {
    for number in from..to {
        let target = oid(number.max(1));
        scratch.store.commit(&tx([Edit::set(head("hot"), target)])).unwrap();
        let name = head(&format!("topic-{}", number % 7));
        let edit = match number % 3 {
            0 => Edit::delete(name),
            _ => Edit::set(name, target),
        };
        scratch.store.commit(&tx([edit])).unwrap();
    }
}

#[test]
fn nothing_changes_for_whoever_reads() {
    let mut scratch = Scratch::new();
    fill(&scratch, 0, 40);
    let (refs, before) = (scratch.refs(), moves(&scratch));
    let held = scratch.store.view();
    let done = compact(&scratch);
    assert_eq!(done.sealed, before.last().unwrap().seq.get());
    let all_the_same = |scratch: &Scratch| {
        assert_eq!(scratch.refs(), refs);
        assert_eq!(listing(&read_view(&scratch.dir()).unwrap()), refs);
        assert_eq!(moves(scratch), before);
        let back = history_newest_first(&scratch.dir(), None).unwrap().map(Result::unwrap);
        assert!(back.eq(before.iter().rev().cloned()));
    };
    all_the_same(&scratch);
    assert_eq!(listing(&held), refs, "a view that was taken before");
    scratch.reopen();
    all_the_same(&scratch);
    assert_eq!(compact(&scratch).sealed, 0);
    scratch.store.rebuild().unwrap();
    all_the_same(&scratch);
}

// Breaks: dropping what the tables have but a later transaction deleted; keeping the moves of the
// live log after they left it.
#[test]
fn what_moves_after_a_compaction_wins_over_the_tables() {
    let mut scratch = Scratch::new();
    fill(&scratch, 0, 20);
    compact(&scratch);
    scratch.store.commit(&tx([Edit::delete(head("hot"))])).unwrap();
    scratch.store.commit(&tx([Edit::create(head("hot/er"), oid(9))])).unwrap();
    let refs = scratch.refs();
    assert!(!refs.iter().any(|line| line.starts_with("refs/heads/hot=")));
    for _ in 0..3 {
        assert_eq!(scratch.refs(), refs);
        scratch.reopen();
        assert_eq!(scratch.refs(), refs);
        compact(&scratch);
    }
    let refused = scratch.store.commit(&tx([Edit::create(head("hot"), oid(1))])).unwrap_err();
    assert!(refused.refusal().is_some(), "a directory of it is a ref in the tables");
}

#[test]
fn many_compactions_and_merges_keep_every_row() {
    for form in [HistoryForm::Full, HistoryForm::Derived] {
        let mut scratch = Scratch::new();
        for round in 0..9 {
            fill(&scratch, round * 20, round * 20 + 20);
            let options = CompactOptions { form, merge: Merge::Due };
            scratch.store.compact(options, &mut |_| ()).unwrap();
        }
        let (refs, before) = (scratch.refs(), moves(&scratch));
        let files = |scratch: &Scratch| {
            let names = std::fs::read_dir(scratch.dir().join("history")).unwrap();
            names.count()
        };
        assert!(files(&scratch) <= 4, "{}", files(&scratch));
        let options = CompactOptions { form, merge: Merge::All };
        scratch.store.compact(options, &mut |_| ()).unwrap();
        assert_eq!(files(&scratch), 1);
        assert_eq!((scratch.refs(), moves(&scratch)), (refs.clone(), before.clone()));
        scratch.reopen();
        assert_eq!((scratch.refs(), moves(&scratch)), (refs, before));
    }
}

/// The refs after each transaction, from the moves alone.
fn states(moves: &[refstone::RefMove]) -> BTreeMap<Seq, BTreeMap<RefName, refstone::Target>> {
    let mut refs = BTreeMap::from([(RefName::head(), head("main").into())]);
    let mut states = BTreeMap::from([(Seq::ZERO, refs.clone())]);
    for moved in moves {
        match moved.target() {
            Some(target) => refs.insert(moved.name.clone(), target),
            None => refs.remove(&moved.name),
        };
        states.insert(moved.seq, refs.clone());
    }
    states
}

#[test]
fn the_refs_of_any_moment_are_read_back() {
    let scratch = Scratch::new();
    for round in 0..6 {
        fill(&scratch, round * 10, round * 10 + 10);
        if round < 5 {
            compact(&scratch);
        }
    }
    let moves = moves(&scratch);
    for (seq, expected) in states(&moves) {
        let view = read_view_at(&scratch.dir(), At::Seq(seq)).unwrap();
        let found: BTreeMap<_, _> = view.iter_prefix(b"").map(Result::unwrap).collect();
        assert_eq!((found, view.seq()), (expected, seq));
    }
    for moved in moves.iter().step_by(7) {
        let newest = moves.iter().rfind(|other| other.at <= moved.at).unwrap();
        let view = read_view_at(&scratch.dir(), At::Time(moved.at)).unwrap();
        assert_eq!(view.seq(), newest.seq);
    }
    let early = read_view_at(&scratch.dir(), At::Time(refstone::Timestamp::from_micros(0)));
    assert_eq!(early.unwrap().seq(), Seq::ZERO);
}

#[test]
fn the_moves_of_one_ref_are_found_in_history_and_live_log() {
    let scratch = Scratch::new();
    for round in 0..6 {
        fill(&scratch, round * 10, round * 10 + 10);
        if round < 5 {
            compact(&scratch);
        }
    }
    let all = moves(&scratch);
    for name in [head("hot"), head("topic-3"), head("never"), RefName::head()] {
        let expected: Vec<_> = all.iter().filter(|moved| moved.name == name).cloned().collect();
        let found = history(&scratch.dir(), Some(&name)).unwrap().map(Result::unwrap);
        assert!(found.eq(expected.iter().cloned()), "{name}");
        let back = history_newest_first(&scratch.dir(), Some(&name)).unwrap().map(Result::unwrap);
        assert!(back.eq(expected.iter().rev().cloned()), "{name}");
    }
    std::fs::remove_dir_all(scratch.dir().join("tables")).unwrap();
    let name = head("hot");
    let expected: Vec<_> = all.iter().filter(|moved| moved.name == name).cloned().collect();
    let found = history(&scratch.dir(), Some(&name)).unwrap().map(Result::unwrap);
    assert!(found.eq(expected.iter().cloned()), "without tables");
}

// Breaks: reading on in the old file after a swap; starting the new one from its beginning.
#[test]
fn a_follower_gets_each_transaction_once_across_compactions() {
    let scratch = Scratch::new();
    let mut follower = history(&scratch.dir(), None).unwrap();
    let mut seen = Vec::new();
    for round in 0..6 {
        fill(&scratch, round * 10, round * 10 + 10);
        if round % 2 == 0 {
            seen.extend(follower.by_ref().map(|moved| moved.unwrap().seq));
        }
        compact(&scratch);
        let newest = follower.seq();
        let again = history_after(&scratch.dir(), newest, None).unwrap();
        let rest: Vec<_> = again.map(|moved| moved.unwrap().seq).collect();
        let expected = moves(&scratch).into_iter().map(|m| m.seq).filter(|seq| *seq > newest);
        assert!(rest.iter().copied().eq(expected));
    }
    seen.extend(follower.by_ref().map(|moved| moved.unwrap().seq));
    let all: Vec<_> = moves(&scratch).into_iter().map(|moved| moved.seq).collect();
    assert_eq!(seen, all);
}

// Breaks: noting what moves only after the log has been rewritten (moves between are lost).
#[test]
fn commits_and_readers_go_on_during_compactions() {
    let mut scratch = Scratch::new();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers = [0, 1].map(|writer| {
            let (store, done) = (scratch.store.clone(), &done);
            scope.spawn(move || {
                let name = head(&format!("w{writer}"));
                let mut count = 0_u32;
                while !done.load(Ordering::Relaxed) {
                    count += 1;
                    let mut id = [1; 20];
                    id[..4].copy_from_slice(&count.to_be_bytes());
                    let new = refstone::ObjectId::from_bytes(&id).unwrap();
                    store.commit(&tx([Edit::set(name.clone(), new)])).unwrap();
                    assert_eq!(store.view().get(&name), Ok(Some(new.into())));
                }
            })
        });
        let reader = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let view = read_view(&scratch.dir()).unwrap();
                let listed: Vec<_> = view.iter_prefix(b"refs/").map(Result::unwrap).collect();
                assert!(listed.len() <= 2);
                let seqs = history(&scratch.dir(), None).unwrap().map(|m| m.unwrap().seq.get());
                assert!(seqs.enumerate().all(|(index, seq)| seq == index as u64 + 1));
            }
        });
        for _ in 0..25 {
            compact(&scratch);
        }
        done.store(true, Ordering::Relaxed);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        reader.join().unwrap();
    });
    let refs = scratch.refs();
    scratch.reopen();
    assert_eq!(scratch.refs(), refs);
}

#[test]
fn a_lost_history_file_is_told_and_not_passed_over() {
    let scratch = Scratch::new();
    fill(&scratch, 0, 10);
    compact(&scratch);
    let dir = scratch.dir();
    scratch.store.close().unwrap();
    let file = std::fs::read_dir(dir.join("history")).unwrap().next().unwrap().unwrap().path();
    std::fs::rename(&file, dir.join("elsewhere")).unwrap();
    let error = RefStore::open(&dir).unwrap_err();
    assert_eq!(error.kind(), refstone::ErrorKind::Corrupt);
    assert!(error.to_string().contains("Restore"), "{error}");
    std::fs::rename(dir.join("elsewhere"), &file).unwrap();
    RefStore::open(&dir).unwrap();
}

#[test]
fn a_store_compacts_itself() {
    let scratch = Scratch::new();
    let edit = |number: u32| {
        let mut id = [1; 20];
        id[..4].copy_from_slice(&number.to_be_bytes());
        tx([Edit::set(head("a"), refstone::ObjectId::from_bytes(&id).unwrap())])
    };
    let batch: Vec<_> = (0..9000).map(edit).collect();
    for outcome in scratch.store.commit_batch(&batch) {
        outcome.unwrap();
    }
    scratch.store.commit(&edit(9000)).unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while scratch.store.maintenance().totals().compactions == 0 {
        assert!(std::time::Instant::now() < deadline, "{:?}", scratch.store.maintenance().totals());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(scratch.store.maintenance().sealed_seq() >= Seq::new(8192));
    assert_eq!(moves(&scratch).len(), 9001);
}

// Breaks: believing the name of a file.
#[test]
fn files_under_the_name_of_another_range_are_refused_or_made_anew() {
    let scratch = Scratch::new();
    fill(&scratch, 0, 10);
    compact(&scratch);
    let (refs, dir) = (scratch.refs(), scratch.dir());
    let sealed = scratch.store.maintenance().sealed_seq();
    let older = Scratch::new();
    fill(&older, 0, 10);
    compact(&older);
    scratch.store.close().unwrap();
    for (shelf, extension, made_anew) in [("tables", "arrow", true), ("history", "parquet", false)]
    {
        let name = format!("1-{sealed}.{extension}");
        std::fs::copy(older.dir().join(shelf).join(&name), dir.join(shelf).join(&name)).unwrap();
        let store = RefStore::open(&dir).unwrap();
        assert_eq!(listing(&store.view()), refs, "{shelf}");
        store.close().unwrap();
        // A table of another log is made anew from history; history is not made of anything.
        let told: Result<Vec<_>, _> = history(&dir, None).and_then(Iterator::collect);
        assert_eq!(told.is_ok(), made_anew, "{shelf}");
        assert!(told.is_ok() || told.unwrap_err().kind() == refstone::ErrorKind::Corrupt);
    }
}

// Breaks: sealing what only the cache has (a compaction must sync it first); a sync per transaction.
#[test]
fn a_buffered_store_syncs_once_and_compacts_what_is_durable() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("refstone");
    RefStore::create(&dir, &refstone::CreateOptions::default()).unwrap();
    let options = refstone::OpenOptions::default()
        .mode(refstone::Mode::Buffered)
        .compacting(refstone::Compacting::ByHand);
    let store = RefStore::open_with(&dir, options).unwrap();
    let before = store.log().gate().syncs();
    for number in 1..=50 {
        store.commit(&tx([Edit::set(head("a"), oid(number))])).unwrap();
        assert_eq!(store.view().get(&head("a")), Ok(Some(oid(number).into())));
    }
    assert_eq!(store.log().gate().syncs(), before, "acknowledged without a sync");
    assert_eq!(read_view(&dir).unwrap().seq(), Seq::ZERO, "others see what is durable");
    assert_eq!(store.sync().unwrap(), Seq::new(50));
    assert_eq!(store.log().gate().syncs(), before + 1);
    assert_eq!(read_view(&dir).unwrap().seq(), Seq::new(50));
    store.commit(&tx([Edit::set(head("b"), oid(1))])).unwrap();
    let done = store.compact(CompactOptions::default(), &mut |_| ()).unwrap();
    assert_eq!(done.sealed, 51);
    assert_eq!(read_view(&dir).unwrap().get(&head("b")), Ok(Some(oid(1).into())));
}

// Breaks: sweeping before it is known whether the log has stopped (what was sealed last is taken for
// what a crash left, and removed).
#[test]
fn what_was_sealed_stays_when_the_swap_stops_the_log() {
    let mut scratch = Scratch::new();
    fill(&scratch, 0, 20);
    let (refs, before) = (scratch.refs(), moves(&scratch));
    scratch.faults.swaps.store(1, Ordering::SeqCst);
    let again = || scratch.store.compact(CompactOptions::default(), &mut |_| ()).unwrap_err();
    assert_eq!(again().kind(), ErrorKind::Io);
    assert_eq!(again().kind(), ErrorKind::Poisoned);
    let _stopped = scratch.store.close();
    scratch.reopen_closed();
    assert_eq!((scratch.refs(), moves(&scratch)), (refs, before));
}

// Breaks: opening the new table only after the swap (the view then lacks it, and the next compaction
// takes its history for what a crash left).
#[test]
fn nothing_that_can_fail_comes_between_the_swap_and_the_view() {
    let mut scratch = Scratch::new();
    fill(&scratch, 0, 20);
    let (refs, before) = (scratch.refs(), moves(&scratch));
    scratch.faults.tables.store(1, Ordering::SeqCst);
    let _first = scratch.store.compact(CompactOptions::default(), &mut |_| ());
    scratch.faults.tables.store(0, Ordering::SeqCst);
    compact(&scratch);
    assert_eq!((scratch.refs(), moves(&scratch)), (refs.clone(), before.clone()));
    scratch.reopen();
    assert_eq!((scratch.refs(), moves(&scratch)), (refs, before));
}

/// Has every operation of some work fail once, in one store after the other, and tries it again then.
fn fails_anywhere_and_loses_nothing(work: impl Fn(&RefStore) -> Result<(), ErrorKind>) {
    for nth in 1.. {
        let mut scratch = Scratch::quick();
        fill(&scratch, 0, 4);
        compact(&scratch);
        fill(&scratch, 4, 8);
        let expected = (scratch.refs(), moves(&scratch));
        scratch.faults.nth.store(nth, Ordering::SeqCst);
        let _whatever = work(&scratch.store);
        if scratch.faults.nth.swap(0, Ordering::SeqCst) > 0 {
            assert!(nth > 25, "only {nth} operations");
            break;
        }
        if let Err(kind) = work(&scratch.store) {
            assert_eq!(kind, ErrorKind::Poisoned, "operation {nth}");
        }
        assert_eq!((scratch.refs(), moves(&scratch)), expected, "operation {nth}");
        let _stopped = scratch.store.close();
        scratch.reopen_closed();
        assert_eq!((scratch.refs(), moves(&scratch)), expected, "operation {nth}, reopened");
        work(&scratch.store).unwrap();
        assert_eq!((scratch.refs(), moves(&scratch)), expected, "operation {nth}, once more");
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
    fails_anywhere_and_loses_nothing(|store| store.rebuild().map_err(|error| error.kind()));
}

// Breaks: opening such a log (it gives sequences out that history has already, and a compaction takes
// the history for leftovers).
#[test]
fn a_live_log_that_is_older_than_history_is_refused_and_nothing_is_removed() {
    for compacted_before in [false, true] {
        let mut scratch = Scratch::new();
        fill(&scratch, 0, 10);
        if compacted_before {
            compact(&scratch);
            fill(&scratch, 10, 15);
        }
        let dir = scratch.dir();
        let live = dir.join("refs.arrow");
        let old = std::fs::read(&live).unwrap();
        fill(&scratch, 15, 25);
        compact(&scratch);
        let (refs, before) = (scratch.refs(), moves(&scratch));
        scratch.store.close().unwrap();
        let new = std::fs::read(&live).unwrap();
        let files = || ["history", "tables"].map(|shelf| names(&dir.join(shelf)));
        let all = files();

        std::fs::write(&live, old).unwrap();
        let error = RefStore::open(&dir).unwrap_err();
        assert_eq!(error.kind(), refstone::ErrorKind::Corrupt);
        assert!(error.to_string().contains("older copy"), "{error}");
        let report = refstone::verify(&dir).unwrap();
        assert!(report.damage[0].to_string().contains("older copy"), "{report:?}");
        assert_eq!(files(), all);

        std::fs::write(&live, new).unwrap();
        scratch.reopen_closed();
        assert_eq!((scratch.refs(), moves(&scratch)), (refs, before));
        assert!(refstone::verify(&dir).unwrap().is_sound());
    }
}

fn names(dir: &std::path::Path) -> Vec<std::ffi::OsString> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

// Breaks: taking for lost what was merged into a file that goes further than the reader's live log.
#[test]
fn a_reader_that_is_overtaken_by_a_merge_begins_anew() {
    let scratch = Scratch::new();
    fill(&scratch, 0, 10);
    compact(&scratch);
    fill(&scratch, 10, 20);
    let store = scratch.store.clone();
    let mut overtaking = Some(move || {
        let all = CompactOptions { merge: Merge::All, ..CompactOptions::default() };
        assert_eq!(store.compact(all, &mut |_| ()).unwrap().merged, 2);
    });
    let env = env_with(move |what, _| {
        if what == "list" {
            overtaking.take().into_iter().for_each(|overtake| overtake());
        }
    });
    let view = read_view_with(&env, &scratch.dir(), At::Seq(Seq::new(u64::MAX))).unwrap();
    assert_eq!(listing(&view), scratch.refs());
    assert_eq!(names(&scratch.dir().join("history")).len(), 1);
}

// Breaks: giving up at a table that is damaged behind what an opening reads.
#[test]
fn the_log_of_a_ref_is_read_past_a_damaged_table() {
    let scratch = Scratch::new();
    fill(&scratch, 0, 20);
    compact(&scratch);
    let name = head("topic-3");
    let log = || history(&scratch.dir(), Some(&name)).unwrap().collect::<Result<Vec<_>, _>>();
    let before = log().unwrap();
    assert!(!before.is_empty());
    let tables = scratch.dir().join("tables");
    let table = tables.join(&names(&tables)[0]);
    let sound = std::fs::read(&table).unwrap();
    for at in (0..sound.len()).step_by(61) {
        let mut damaged = sound.clone();
        damaged[at] ^= 1;
        std::fs::write(&table, damaged).unwrap();
        assert_eq!(log().unwrap(), before, "byte {at}");
    }
}

// Breaks: comparing where two files start, and taking for the same what has the same start.
#[test]
fn a_follower_goes_on_in_the_copy_that_an_opening_makes_after_a_failed_sync() {
    let mut scratch = Scratch::new();
    fill(&scratch, 0, 3);
    let mut follower = history(&scratch.dir(), None).unwrap();
    let mut seen: Vec<_> = follower.by_ref().map(Result::unwrap).collect();
    scratch.faults.syncs.store(1, Ordering::Relaxed);
    scratch.store.commit(&tx([Edit::set(head("unknown"), oid(7))])).unwrap_err();
    assert!(follower.next().is_none());
    let _ = scratch.store.close();
    scratch.reopen_closed();
    scratch.store.commit(&tx([Edit::set(head("later"), oid(8))])).unwrap();
    seen.extend(follower.by_ref().map(Result::unwrap));
    assert_eq!(seen, moves(&scratch));
    assert_eq!(seen.last().unwrap().name, head("later"));
    assert!(follower.next().is_none());
}

/// Enough for a store to compact itself.
fn commit_until_due(scratch: &Scratch) {
    let edit = |number: u32| {
        let mut id = [1; 20];
        id[..4].copy_from_slice(&number.to_be_bytes());
        tx([Edit::set(head("a"), refstone::ObjectId::from_bytes(&id).unwrap())])
    };
    let batch: Vec<_> = (0..9000).map(edit).collect();
    scratch.store.commit_batch(&batch).into_iter().for_each(|outcome| {
        outcome.unwrap();
    });
    scratch.store.commit(&edit(9000)).unwrap();
}

fn wait_until(what: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !what() {
        assert!(std::time::Instant::now() < deadline);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
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
    assert_eq!(moves(&scratch).len(), 2 * 9001);
}

// Breaks: waiting for the compaction and not for the thread, which has the log open.
#[test]
fn a_dropped_store_is_closed_also_while_it_compacts() {
    let mut scratch = Scratch::new();
    for round in 0..3 {
        scratch.faults.hook.set(|what, _| {
            if what == "sync" && std::thread::current().name() == Some("refstone-compact") {
                std::thread::sleep(std::time::Duration::from_millis(30));
            }
        });
        commit_until_due(&scratch);
        scratch.drop_for(|dir| drop(RefStore::open(dir).unwrap()));
        assert_eq!(moves(&scratch).len(), (round + 1) * 9001);
    }
}

// Breaks: merging whatever there is space for (the transactions that come meanwhile are refused).
#[test]
fn without_space_transactions_are_sealed_and_files_are_not_merged() {
    let scratch = Scratch::new();
    scratch.faults.free.store((64 << 20) + 1000, Ordering::Relaxed);
    for round in 0..6 {
        fill(&scratch, round * 5, round * 5 + 5);
        let done = compact(&scratch);
        assert!(done.sealed > 0 && done.merged == 0, "{done:?}");
    }
    let all = CompactOptions { merge: Merge::All, ..CompactOptions::default() };
    let error = scratch.store.compact(all, &mut |_| ()).unwrap_err();
    assert!(error.to_string().contains("are free on this file system"), "{error}");
    assert_eq!(names(&scratch.dir().join("history")).len(), 6);
    scratch.faults.free.store(1 << 30, Ordering::Relaxed);
    assert_eq!(compact(&scratch).merged, 6);
}

// Breaks: calling a transaction dealt with as soon as its rows were read, or only when its whole file
// was; a transaction that is split where one reading of rows ends.
#[test]
fn a_follower_of_history_knows_what_it_has_dealt_with() {
    let scratch = Scratch::new();
    let many = |number: u32| {
        let mut edits = Vec::new();
        for name in 0..700_u32 {
            let mut id = [1; 20];
            id[..4].copy_from_slice(&(number * 1000 + name).to_be_bytes());
            let id = refstone::ObjectId::from_bytes(&id).unwrap();
            edits.push(Edit::set(head(&format!("n{name}")), id));
        }
        tx(edits)
    };
    for number in 1..=8 {
        scratch.store.commit(&many(number)).unwrap();
    }
    compact(&scratch);
    let mut follower = history(&scratch.dir(), None).unwrap();
    let mut given = 0_u64;
    while let Some(moved) = follower.next() {
        assert_eq!(moved.unwrap().seq.get(), given / 700 + 1);
        given += 1;
        assert_eq!(follower.seq().get(), given / 700, "after {given} moves");
    }
    assert_eq!(given, 8 * 700);
}

// Breaks: going on to the end; leaving what was begun; counting it as a failure.
#[test]
fn a_compaction_ends_early_when_its_store_is_closed() {
    let mut scratch = Scratch::new();
    let id = |n: u16| {
        let [high, low] = n.to_be_bytes();
        ObjectId::from_bytes(&[[high, low].as_slice(), &[1; 18]].concat()).unwrap()
    };
    let many: Vec<_> = (0..8000).map(|n| tx([Edit::set(head("hot"), id(n))])).collect();
    assert!(scratch.store.commit_batch(&many).iter().all(Result::is_ok));
    let mut closing = None;
    let mut told = 0;
    let ended = scratch.store.compact(CompactOptions::default(), &mut |_| {
        told += 1;
        let store = scratch.store.clone();
        closing.get_or_insert_with(|| std::thread::spawn(move || store.close()));
        // It closes soon; what is sealed meanwhile is told some times more.
        std::thread::sleep(std::time::Duration::from_millis(100));
    });
    assert!(matches!(ended, Err(CompactError::Stopped)), "{ended:?}");
    assert!(told < 7, "it went on to the end");
    closing.unwrap().join().unwrap().unwrap();
    assert_eq!(scratch.store.stats().compactions.failure, None);
    assert!(names(&scratch.dir().join("history")).is_empty());
    scratch.reopen_closed();
    assert_eq!(moves(&scratch).len(), 8000);
    assert_eq!(compact(&scratch).sealed, 8000);
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
        compact(&scratch);
    }
    let before = moves(&scratch);
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
    let after = moves(&scratch);
    assert_eq!(after[..before.len()], before);
    assert_eq!(after.last().unwrap().seq, scratch.store.stats().durable_seq);
}

// Breaks: trying the damaged file again with every compaction that the store does by itself.
#[test]
fn a_store_that_compacts_itself_passes_a_damaged_file_over_once_it_has_found_it() {
    let scratch = Scratch::new();
    for round in 0..3 {
        fill(&scratch, round * 5, round * 5 + 5);
        compact(&scratch);
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
        compact(&scratch);
        fill(&scratch, 4, 8);
        let expected = (scratch.refs(), moves(&scratch));
        scratch.faults.full_after(nth);
        let all = CompactOptions { merge: Merge::All, ..CompactOptions::default() };
        let done = scratch.store.compact(all, &mut |_| ());
        scratch.faults.full_after(u32::MAX);
        match done {
            Ok(_) => break,
            Err(error) => assert_eq!(error.kind(), ErrorKind::NoSpace, "write {nth}: {error}"),
        }
        places += 1;
        assert_eq!((scratch.refs(), moves(&scratch)), expected);
        scratch.store.compact(all, &mut |_| ()).unwrap();
        scratch.reopen();
        assert_eq!((scratch.refs(), moves(&scratch)), expected);
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
        compact(&scratch);
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
            store.rebuild().unwrap_err().kind(),
            store.close().unwrap_err().kind(),
        ];
        assert_eq!(kinds, [ErrorKind::Reentered; 3]);
        // What waits for nobody is done.
        store.commit(&tx([Edit::set(head("meanwhile"), oid(sealing + 10))])).unwrap();
    });
    let done = done.unwrap();
    assert_eq!((done.merged, merging), (4, 1));
    assert!(sealing > 0);
    scratch.store.rebuild().unwrap();
    scratch.store.close().unwrap();
}
