//! What leaves the live log, and what is read of it then.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use refstone::{
    At, CompactError, CompactOptions, Compacting, CreateOptions, Edit, Env, HistoryForm, Merge,
    ObjectId, OpenOptions, OsEnv, RefName, RefStore, Seq, Timestamp, history, history_after,
    history_newest_first, read_view, read_view_at, read_view_with,
};
use refstone_log::EnvLayer;

use crate::common::{
    Scratch, commit_until_due, compact, env_with, fill, head, listing, moves, names, oid, tx,
};

#[test]
fn nothing_changes_for_whoever_reads() {
    let mut scratch = Scratch::new();
    fill(&scratch, 0, 40);
    let (refs, before) = (scratch.refs(), moves(&scratch.dir()));
    let held = scratch.store.view();
    let done = compact(&scratch.store);
    assert_eq!(done.sealed, before.last().unwrap().seq.get());
    let all_the_same = |scratch: &Scratch| {
        assert_eq!(scratch.refs(), refs);
        assert_eq!(listing(&read_view(&scratch.dir()).unwrap()), refs);
        assert_eq!(moves(&scratch.dir()), before);
        let back = history_newest_first(&scratch.dir(), None).unwrap().map(Result::unwrap);
        assert!(back.eq(before.iter().rev().cloned()));
    };
    all_the_same(&scratch);
    assert_eq!(listing(&held), refs, "a view that was taken before");
    scratch.reopen();
    all_the_same(&scratch);
    assert_eq!(compact(&scratch.store).sealed, 0);
    scratch.store.rebuild(&mut |_| ()).unwrap();
    all_the_same(&scratch);
}

// Breaks: dropping what the tables have but a later transaction deleted; keeping the moves of the
// live log after they left it.
#[test]
fn what_moves_after_a_compaction_wins_over_the_tables() {
    let mut scratch = Scratch::new();
    fill(&scratch, 0, 20);
    compact(&scratch.store);
    scratch.store.commit(&tx([Edit::delete(head("hot"))])).unwrap();
    scratch.store.commit(&tx([Edit::create(head("hot/er"), oid(9))])).unwrap();
    let refs = scratch.refs();
    assert!(!refs.iter().any(|line| line.starts_with("refs/heads/hot=")));
    for _ in 0..3 {
        assert_eq!(scratch.refs(), refs);
        scratch.reopen();
        assert_eq!(scratch.refs(), refs);
        compact(&scratch.store);
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
        let (refs, before) = (scratch.refs(), moves(&scratch.dir()));
        let files = |scratch: &Scratch| {
            let names = std::fs::read_dir(scratch.dir().join("history")).unwrap();
            names.count()
        };
        assert!(files(&scratch) <= 4, "{}", files(&scratch));
        let options = CompactOptions { form, merge: Merge::All };
        scratch.store.compact(options, &mut |_| ()).unwrap();
        assert_eq!(files(&scratch), 1);
        assert_eq!((scratch.refs(), moves(&scratch.dir())), (refs.clone(), before.clone()));
        scratch.reopen();
        assert_eq!((scratch.refs(), moves(&scratch.dir())), (refs, before));
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
            compact(&scratch.store);
        }
    }
    let moves = moves(&scratch.dir());
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

/// The operating system with a clock that stands still.
#[derive(Debug, Default)]
struct Still(AtomicI64);

impl EnvLayer for Still {
    fn below(&self) -> &dyn Env {
        &OsEnv
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::Relaxed))
    }
}

// Breaks: `<` for `<=` where the newest time of a history file is compared with the one asked for.
#[test]
fn a_time_that_several_files_have_means_the_last_transaction_of_it() {
    let clock = Arc::new(Still(AtomicI64::new(1_000_000)));
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("refstone");
    RefStore::create(&dir, &CreateOptions::default()).unwrap();
    let options = OpenOptions::default().env(clock.clone()).compacting(Compacting::ByHand);
    let store = RefStore::open_with(&dir, options).unwrap();
    let set = |number| store.commit(&tx([Edit::set(head("a"), oid(number))])).unwrap().seq();
    for number in 1..30 {
        set(number);
    }
    compact(&store);
    let last_then = set(30);
    compact(&store);
    clock.0.store(2_000_000, Ordering::Relaxed);
    set(31);
    compact(&store);
    assert!(names(&dir.join("history")).len() > 1, "two files have the time");
    let view = read_view_at(&dir, At::Time(Timestamp::from_micros(1_000_000))).unwrap();
    assert_eq!(view.seq(), last_then);
}

#[test]
fn the_moves_of_one_ref_are_found_in_history_and_live_log() {
    let scratch = Scratch::new();
    for round in 0..6 {
        fill(&scratch, round * 10, round * 10 + 10);
        if round < 5 {
            compact(&scratch.store);
        }
    }
    let all = moves(&scratch.dir());
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
        compact(&scratch.store);
        let newest = follower.seq();
        let again = history_after(&scratch.dir(), newest, None).unwrap();
        let rest: Vec<_> = again.map(|moved| moved.unwrap().seq).collect();
        let expected = moves(&scratch.dir()).into_iter().map(|m| m.seq).filter(|seq| *seq > newest);
        assert!(rest.iter().copied().eq(expected));
    }
    seen.extend(follower.by_ref().map(|moved| moved.unwrap().seq));
    let all: Vec<_> = moves(&scratch.dir()).into_iter().map(|moved| moved.seq).collect();
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
            compact(&scratch.store);
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
    compact(&scratch.store);
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
    assert_eq!(moves(&scratch.dir()).len(), 9001);
}

// Breaks: believing the name of a file.
#[test]
fn files_under_the_name_of_another_range_are_refused_or_made_anew() {
    let scratch = Scratch::new();
    fill(&scratch, 0, 10);
    compact(&scratch.store);
    let (refs, dir) = (scratch.refs(), scratch.dir());
    let sealed = scratch.store.maintenance().sealed_seq();
    let older = Scratch::new();
    fill(&older, 0, 10);
    compact(&older.store);
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

// Breaks: opening such a log (it gives sequences out that history has already, and a compaction takes
// the history for leftovers).
#[test]
fn a_live_log_that_is_older_than_history_is_refused_and_nothing_is_removed() {
    for compacted_before in [false, true] {
        let mut scratch = Scratch::new();
        fill(&scratch, 0, 10);
        if compacted_before {
            compact(&scratch.store);
            fill(&scratch, 10, 15);
        }
        let dir = scratch.dir();
        let live = dir.join("refs.arrow");
        let old = std::fs::read(&live).unwrap();
        fill(&scratch, 15, 25);
        compact(&scratch.store);
        let (refs, before) = (scratch.refs(), moves(&scratch.dir()));
        scratch.store.close().unwrap();
        let new = std::fs::read(&live).unwrap();
        let files = || ["history", "tables"].map(|shelf| names(&dir.join(shelf)));
        let all = files();

        std::fs::write(&live, old).unwrap();
        let error = RefStore::open(&dir).unwrap_err();
        assert_eq!(error.kind(), refstone::ErrorKind::Corrupt);
        assert!(error.to_string().contains("older copy"), "{error}");
        let report = refstone::verify(&dir, &mut |_| ()).unwrap();
        assert!(report.damage[0].to_string().contains("older copy"), "{report:?}");
        assert_eq!(files(), all);

        std::fs::write(&live, new).unwrap();
        scratch.reopen_closed();
        assert_eq!((scratch.refs(), moves(&scratch.dir())), (refs, before));
        assert!(refstone::verify(&dir, &mut |_| ()).unwrap().is_sound());
    }
}

// Breaks: taking for lost what was merged into a file that goes further than the reader's live log.
#[test]
fn a_reader_that_is_overtaken_by_a_merge_begins_anew() {
    let scratch = Scratch::new();
    fill(&scratch, 0, 10);
    compact(&scratch.store);
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

// Breaks: giving back the space of a large table that an older view still reads.
#[test]
fn a_view_reads_large_tables_that_were_merged_meanwhile() {
    let scratch = Scratch::new();
    let many =
        |first: u16| (first..first + 20_000).map(|n| Edit::set(head(&format!("{n:05}")), oid(1)));
    for first in [0, 20_000] {
        scratch.store.commit(&tx(many(first))).unwrap();
        compact(&scratch.store);
    }
    let held = scratch.store.view();
    let all = CompactOptions { merge: Merge::All, ..CompactOptions::default() };
    assert!(scratch.store.compact(all, &mut |_| ()).unwrap().merged > 0);
    let tables = names(&scratch.dir().join("tables"));
    assert_eq!(tables.len(), 1);
    assert_eq!(listing(&held).len(), 40_001, "with HEAD");
}

// Breaks: giving up at a table that is damaged behind what an opening reads.
#[test]
fn the_log_of_a_ref_is_read_past_a_damaged_table() {
    let scratch = Scratch::new();
    fill(&scratch, 0, 20);
    compact(&scratch.store);
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

// Breaks: giving up where the moves of a table are damaged; searching history from its end again; not
// comparing a checksum of moves.
#[test]
fn the_log_of_a_ref_is_read_on_where_its_moves_are_damaged() {
    let scratch = Scratch::by_hand();
    let moved = |number: u32| {
        let mut id = [1; 20];
        id[..4].copy_from_slice(&number.to_be_bytes());
        tx(["a", "b"].map(|name| Edit::set(head(name), ObjectId::from_bytes(&id).unwrap())))
    };
    let batch: Vec<_> = (0..15_000).map(moved).collect();
    scratch.store.commit_batch(&batch).into_iter().for_each(|outcome| {
        outcome.unwrap();
    });
    compact(&scratch.store);
    let name = head("b");
    let log = || history(&scratch.dir(), Some(&name)).unwrap().collect::<Result<Vec<_>, _>>();
    let before = log().unwrap();
    assert_eq!(before.len(), 15_000);
    let tables = scratch.dir().join("tables");
    let table = tables.join(&names(&tables)[0]);
    let sound = std::fs::read(&table).unwrap();
    // The moves of `b` are its second half.
    for percent in [52, 60, 75, 90, 98] {
        let mut damaged = sound.clone();
        damaged[sound.len() * percent / 100] ^= 1;
        std::fs::write(&table, damaged).unwrap();
        assert!(log().unwrap() == before, "oldest first, {percent} %");
        let newest = history_newest_first(&scratch.dir(), Some(&name)).unwrap();
        let mut newest = newest.collect::<Result<Vec<_>, _>>().unwrap();
        newest.reverse();
        assert!(newest == before, "newest first, {percent} %");
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
    assert_eq!(seen, moves(&scratch.dir()));
    assert_eq!(seen.last().unwrap().name, head("later"));
    assert!(follower.next().is_none());
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
        assert_eq!(moves(&scratch.dir()).len(), (round + 1) * 9001);
    }
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
    compact(&scratch.store);
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
    assert_eq!(moves(&scratch.dir()).len(), 8000);
    assert_eq!(compact(&scratch.store).sealed, 8000);
}
