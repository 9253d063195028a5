//! What is new costs the same in a long log as in a short one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use refstone::{
    At, CreateOptions, Edit, ErrorKind, Mode, ObjectId, OpenOptions, RefMove, RefName, RefStore,
    Seq, history, history_newest_first, read_ref_with,
};

use crate::common::{Scratch, compact, env_with, head, oid, tx};

/// Moves `topic` so many times; nobody waits but for the last.
fn stage(store: &RefStore, topic: &str, count: u32) {
    let mut last = None;
    for number in 0..count {
        let id = oid(u8::try_from(number % 250).unwrap() + 1);
        last = Some(store.stage(&tx([Edit::set(head(topic), id)])).unwrap());
    }
    last.unwrap().wait().unwrap();
}

/// Bytes that some work reads.
fn cost(scratch: &Scratch, work: impl FnOnce(&RefStore)) -> u64 {
    let before = scratch.faults.read.load(Ordering::Relaxed);
    work(&scratch.store);
    scratch.faults.read.load(Ordering::Relaxed) - before
}

fn read_newest(store: &RefStore) {
    let newest = store.history_newest_first(None).unwrap().take(100);
    assert_eq!(newest.map(Result::unwrap).count(), 100);
}

fn follow_newest(store: &RefStore) {
    let after = Seq::new(store.view().seq().get() - 100);
    assert_eq!(store.history_after(after, None).unwrap().map(Result::unwrap).count(), 100);
}

// Breaks: not telling the reader how far the store is durable (all is one group, and no frame of it
// says so); opening history for what the live log has.
#[test]
fn the_newest_hundred_cost_the_same_in_a_long_store() {
    let short = Scratch::by_hand();
    stage(&short.store, "topic", 100);
    let long = Scratch::by_hand();
    for _ in 0..3 {
        stage(&long.store, "topic", 1000);
        compact(&long.store);
    }
    stage(&long.store, "topic", 16_000);
    let opened = Arc::new(AtomicU32::new(0));
    let count = opened.clone();
    long.faults.hook.set(move |what, path| {
        let sealed = ["history", "tables"]
            .iter()
            .any(|shelf| path.parent().is_some_and(|dir| dir.ends_with(shelf)));
        count.fetch_add(u32::from(what == "open" && sealed), Ordering::Relaxed);
    });
    for read in [read_newest, follow_newest] {
        let (short, long) = (cost(&short, read), cost(&long, read));
        println!("{short} bytes of 100 transactions, {long} of 19,000");
        assert!(long * 10 <= short * 12, "{long} bytes, and {short} in a short log");
    }
    assert_eq!(opened.load(Ordering::Relaxed), 0, "sealed files were opened");
}

// Breaks: looking through the live log for a ref that has not moved there.
#[test]
fn the_live_log_is_not_read_for_a_ref_that_did_not_move_in_it() {
    let scratch = Scratch::by_hand();
    stage(&scratch.store, "old", 10);
    compact(&scratch.store);
    stage(&scratch.store, "new", 1000);
    let moves_of = |store: &RefStore, topic: &str| {
        let moves = store.history_newest_first(Some(&head(topic))).unwrap();
        moves.map(Result::unwrap).filter(|moved| moved.name == head(topic)).count()
    };
    let old = cost(&scratch, |store| assert_eq!(moves_of(store, "old"), 10));
    let new = cost(&scratch, |store| assert_eq!(moves_of(store, "new"), 1000));
    assert!(old * 4 < new, "{old} and {new} bytes");
    stage(&scratch.store, "old", 1);
    assert_eq!(moves_of(&scratch.store, "old"), 11);
}

// Breaks: telling again what is sealed meanwhile; losing what is older than the opened live file.
#[test]
fn a_compaction_does_not_disturb_who_reads_backwards() {
    let scratch = Scratch::by_hand();
    stage(&scratch.store, "topic", 300);
    compact(&scratch.store);
    stage(&scratch.store, "topic", 300);
    let all: Vec<RefMove> = history(&scratch.dir(), None).unwrap().map(Result::unwrap).collect();
    for of in [None, Some(head("topic"))] {
        for taken in [0, 1, 299, 300, 301] {
            let mut reading = history_newest_first(&scratch.dir(), of.as_ref()).unwrap();
            let mut seen: Vec<_> = reading.by_ref().take(taken).map(Result::unwrap).collect();
            stage(&scratch.store, "other", 3);
            compact(&scratch.store);
            seen.extend(reading.map(Result::unwrap).filter(|moved| moved.name == head("topic")));
            seen.reverse();
            seen.retain(|moved| moved.name == head("topic"));
            assert_eq!(seen, all, "{of:?}, {taken} before the compaction");
        }
    }
}

// Breaks: ending at damage; telling what is older before the damage, or twice.
#[test]
fn damage_is_told_where_it_is_met() {
    let mut scratch = Scratch::by_hand();
    for number in 1..=200 {
        scratch.store.commit(&tx([Edit::set(head("topic"), oid(number))])).unwrap();
    }
    scratch.close_for(|dir| {
        let live = dir.join("refs.arrow");
        let sound = std::fs::read(&live).unwrap();
        let mut bytes = sound.clone();
        const HEAD: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0x10, 2, 0, 0];
        let mut frames = (0..bytes.len()).step_by(8).filter(|at| bytes[*at..].starts_with(&HEAD));
        let place = frames.nth(79).unwrap() + 600;
        bytes[place] ^= 1;
        std::fs::write(&live, &bytes).unwrap();
        let told: Vec<_> = history_newest_first(dir, None).unwrap().collect();
        let seqs: Vec<u64> = told.iter().flatten().map(|moved| moved.seq.get()).collect();
        let errors: Vec<usize> = (0..told.len()).filter(|index| told[*index].is_err()).collect();
        let [met] = errors[..] else { panic!("{errors:?}") };
        assert_eq!(told[met].as_ref().unwrap_err().kind(), ErrorKind::Corrupt);
        assert!(seqs.is_sorted_by(|newer, older| newer > older));
        assert_eq!((seqs[0], *seqs.last().unwrap()), (200, 1));
        let (newer, older) = (seqs[met - 1], seqs[met]);
        assert_eq!(older, 79);
        assert!((81..140).contains(&newer), "{newer}");
        std::fs::write(&live, &sound).unwrap();
    });
}

/// Rows of other refs in a transaction.
const OTHERS: u32 = 100;

/// Moves of `topic`.
const MOVES: u32 = 100;

/// History of so many rows, in which `topic` moves now and then, and all transactions move many others.
/// It is compacted so many times.
fn sealed(rows: u32, compactions: u32) -> Scratch {
    let scratch = Scratch::by_hand();
    let transactions = rows / OTHERS;
    for number in 0..transactions {
        let id = |row: u32| {
            let mut bytes = [0; 20];
            bytes[..4].copy_from_slice(&number.wrapping_mul(0x9e37_79b9).to_le_bytes());
            bytes[4..8].copy_from_slice(&(row + 1).wrapping_mul(0x85eb_ca6b).to_le_bytes());
            ObjectId::from_bytes(&bytes).unwrap()
        };
        let mut moved =
            tx((0..OTHERS).map(|row| Edit::set(head(&format!("other-{row}")), id(row))));
        if number % (transactions / MOVES) == 0 {
            moved.push(Edit::set(head("topic"), id(OTHERS)));
        }
        drop(scratch.store.stage(&moved).unwrap());
        if (number + 1) % (transactions / compactions) == 0 {
            scratch.store.sync().unwrap();
            compact(&scratch.store);
        }
    }
    scratch
}

// Breaks: reading the live log for a point that was sealed; reading the rows of all refs up to the point,
// as a view of that time does.
#[test]
fn a_ref_as_it_was_costs_the_same_among_many_rows() {
    let topic = head("topic");
    let cost_of = |rows, compactions| {
        let scratch = sealed(rows, compactions);
        // And as much again that is not sealed.
        stage(&scratch.store, "other", rows / OTHERS);
        let (env, dir) = (scratch.env(), scratch.dir());
        let moves: Vec<_> = history(&dir, Some(&topic)).unwrap().map(Result::unwrap).collect();
        cost(&scratch, |_| {
            for moved in &moves {
                let then = read_ref_with(&env, &dir, &topic, At::Seq(moved.seq)).unwrap();
                assert_eq!(then, moved.target());
            }
        })
    };
    let (few, many) = (cost_of(10_000, 1), cost_of(200_000, 4));
    println!("{MOVES} looks: {few} bytes among 10,000 rows, {many} among 200,000");
    assert!(many <= 2 * few, "{many} bytes, and {few} among few");
}

// Break: opening all there is a second time for a name that never moved, as for `HEAD`, which has a value
// then.
#[test]
fn a_ref_that_never_moved_is_looked_for_once() {
    let scratch = sealed(10_000, 1);
    let listings = Arc::<AtomicU32>::default();
    let counted = listings.clone();
    let env = env_with(move |what, _| {
        counted.fetch_add(u32::from(what == "list"), Ordering::Relaxed);
    });
    let listings_for = |name: RefName, there: bool| {
        let before = listings.load(Ordering::Relaxed);
        let then = read_ref_with(&env, &scratch.dir(), &name, At::Seq(Seq::MAX)).unwrap();
        assert_eq!(then.is_some(), there);
        listings.load(Ordering::Relaxed) - before
    };
    let once = listings_for(head("topic"), true);
    assert!(once > 0);
    assert_eq!(listings_for(head("never"), false), once);
    assert!(listings_for(RefName::head(), true) > once);
}

/// Bytes and reads that the moves of `topic` cost, from either end.
fn cost_of_topic(scratch: &Scratch) -> [(u64, u64); 2] {
    let topic = head("topic");
    let (dir, store) = (scratch.dir(), &scratch.store);
    let cost = |count: &dyn Fn() -> usize| {
        let reads = scratch.faults.reads.load(Ordering::Relaxed);
        let bytes = cost(scratch, |_| assert_eq!(count(), MOVES as usize));
        (bytes, scratch.faults.reads.load(Ordering::Relaxed) - reads)
    };
    assert_eq!(history(&dir, Some(&topic)).unwrap().count(), MOVES as usize);
    [
        cost(&|| store.history_newest_first(Some(&topic)).unwrap().map(Result::unwrap).count()),
        cost(&|| store.history_after(Seq::ZERO, Some(&topic)).unwrap().map(Result::unwrap).count()),
    ]
}

// Breaks: looking for a ref's moves in history, past its tables; a window that reads on behind the ref's
// moves.
#[test]
fn a_refs_history_costs_the_same_among_many_rows() {
    let few = sealed(10_000, 1);
    let many = sealed(200_000, 4);
    let files =
        |scratch: &Scratch| std::fs::read_dir(scratch.dir().join("tables")).unwrap().count();
    assert_eq!((files(&few), files(&many)), (1, 1), "four were merged");
    for (few, many) in cost_of_topic(&few).into_iter().zip(cost_of_topic(&many)) {
        println!(
            "{MOVES} moves: {few:?} bytes and reads among 10,000 rows, {many:?} among 200,000"
        );
        assert!(many.0 <= 2 * few.0, "{} bytes, and {} among few", many.0, few.0);
        assert!(many.1 <= 2 * few.1, "{} reads, and {} among few", many.1, few.1);
    }
}

// Break: taking what a buffered store has acknowledged for durable (seven moves are missing, and what a
// power cut would take is told).
#[test]
fn a_buffered_store_tells_what_is_durable_and_leaves_nothing_out() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("refstone");
    RefStore::create(&dir, &CreateOptions::default()).unwrap();
    let store = RefStore::open_with(&dir, OpenOptions::default().mode(Mode::Buffered)).unwrap();
    stage(&store, "a", 100);
    store.sync().unwrap();
    for number in 1..=100 {
        store.commit(&tx([Edit::set(head("a"), oid(number))])).unwrap();
    }
    assert_eq!(store.view().seq().get(), 200);
    let newest = store.history_newest_first(Some(&head("a"))).unwrap();
    let seqs: Vec<_> = newest.map(|moved| moved.unwrap().seq.get()).collect();
    assert_eq!(seqs, (1..=100).rev().collect::<Vec<_>>());
}
