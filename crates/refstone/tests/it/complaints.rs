//! Faults that people have met in other stores of refs, each as a test that this one has not got it.
//!
//! Others stand where their subject is tested: two writers that both win in `races`, a prepared
//! transaction that stops an unrelated one in `prepared`, the same ref twice in `batches`, names
//! that differ in case or are no text in `semantics_as_git`, a second writer and a history that ends
//! with its ref in `reading`. What is about the disk is tested in `tests/tests/log` and
//! `tests/tests/crash`, what is about the wire in `refstone-server`.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use refstone::{
    CompactOptions, Edit, ErrorKind, NAME_LEN_MAX, NameProblem, ObjectId, Reason, RefName,
    RefStore, read_view,
};

use crate::common::{Ends, Scratch, head, listing, name, oid, tx};

fn reason(store: &RefStore, edits: impl IntoIterator<Item = Edit>) -> Reason {
    store.commit(&tx(edits)).unwrap_err().refusal().expect("it is refused").reason.clone()
}

/// The store in a copy of the directory, as after the death of the process.
fn copy(of: &Path) -> (tempfile::TempDir, RefStore) {
    let copy = tempfile::tempdir().unwrap();
    let dir = copy.path().join("refstone");
    fs::create_dir(&dir).unwrap();
    for file in fs::read_dir(of).unwrap() {
        let file = file.unwrap();
        if file.path().is_file() {
            fs::copy(file.path(), dir.join(file.file_name())).unwrap();
        }
    }
    let store = RefStore::open(&dir).unwrap();
    (copy, store)
}

// An unclean restart left a ref of zero bytes, after which nothing could be fetched or pushed.
// Breaks: a replay that takes a torn transaction, or a part of one.
#[test]
fn an_unclean_restart_leaves_no_empty_ref() {
    let scratch = Scratch::new();
    scratch
        .store
        .commit(&tx([Edit::create(head("a"), oid(1)), Edit::create(head("b"), oid(1))]))
        .unwrap();
    let before = scratch.refs();
    let slot = usize::try_from(scratch.store.log().live_bytes()).unwrap();
    scratch.faults.syncs.store(1, Ordering::SeqCst);
    let torn = [Edit::set(head("b"), oid(2)), Edit::create(head("c"), oid(2))];
    scratch.store.commit(&tx(torn)).unwrap_err();
    scratch.store.close().unwrap_err();
    let after = listing(&copy(&scratch.dir()).1.view());
    assert_ne!(before, after, "what was written counts, if all of it is there");
    let live = scratch.dir().join("refs.arrow");
    let bytes = fs::read(&live).unwrap();
    let end = bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    for cut in (slot + 8..end).step_by(13) {
        let mut bytes = bytes.clone();
        bytes[cut..].fill(0);
        fs::write(&live, bytes).unwrap();
        let (_dir, store) = copy(&scratch.dir());
        let refs = listing(&store.view());
        assert!(refs == before || refs == after, "cut at byte {cut}: {refs:?}");
        store.commit(&tx([Edit::set(head("b"), oid(3))])).unwrap();
    }
}

// A crash emptied branches that had just been renamed.
#[test]
fn a_crash_right_after_a_rename_was_acknowledged_keeps_it() {
    let scratch = Scratch::new();
    scratch.store.commit(&tx([Edit::create(head("old"), oid(1))])).unwrap();
    let rename = [Edit::delete_if(head("old"), oid(1)), Edit::create(head("new"), oid(1))];
    scratch.store.commit(&tx(rename)).unwrap();
    let (_dir, store) = copy(&scratch.dir());
    assert_eq!(listing(&store.view()), scratch.refs());
    assert_eq!(store.view().get(&head("new")).unwrap(), Some(oid(1).into()));
}

// A full disk left refs half-written.
// Breaks: a sequence or a staged move that outlives the refusal.
#[test]
fn a_full_disk_changes_nothing_and_a_later_try_passes() {
    let mut scratch = Scratch::new();
    scratch.store.commit(&tx([Edit::create(head("a"), oid(1))])).unwrap();
    let before = scratch.refs();
    let many = tx((0..20_000).map(|i| Edit::create(head(&format!("n/{i}")), oid(2))));
    scratch.faults.full.store(1, Ordering::SeqCst);
    let error = scratch.store.commit(&many).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert_eq!(scratch.refs(), before);
    assert_eq!(reason_of_missing(&scratch.store), head("n/0"));
    let committed = scratch.store.commit(&many).unwrap();
    assert_eq!(committed.seq().get(), 2);
    let after = scratch.refs();
    scratch.reopen();
    assert_eq!((scratch.refs(), after.len()), (after.clone(), 20_002));
}

/// Nothing of the refused transaction is staged either.
fn reason_of_missing(store: &RefStore) -> RefName {
    match reason(store, [Edit::update(head("n/0"), oid(3), oid(2))]) {
        Reason::Missing { missing } => missing,
        other => panic!("{other:?}"),
    }
}

fn compact(store: &RefStore) {
    store.compact(CompactOptions::default(), &mut |_| ()).unwrap();
}

// Packing refs brought a deleted one back.
// Breaks: a deletion that does not hide what the tables have.
#[test]
fn a_deleted_ref_does_not_come_back() {
    let mut scratch = Scratch::new();
    for round in 1..6 {
        scratch.store.commit(&tx([Edit::create(head("a"), oid(round))])).unwrap();
        compact(&scratch.store);
        scratch.store.commit(&tx([Edit::delete(head("a"))])).unwrap();
        assert_eq!(scratch.store.view().get(&head("a")).unwrap(), None);
        compact(&scratch.store);
        assert_eq!(scratch.store.view().get(&head("a")).unwrap(), None, "round {round}");
        scratch.reopen();
        assert_eq!(scratch.store.view().get(&head("a")).unwrap(), None, "round {round}");
    }
}

// Packing let go of another's lock, and refs went back; two packers at once lost what a writer added.
// Breaks: a compaction that drops what moved since it began.
#[test]
fn no_ref_goes_back_while_two_compact_and_others_move_and_delete() {
    let mut scratch = Scratch::new();
    let (store, done) = (&scratch.store, &AtomicBool::new(false));
    store.commit(&tx([Edit::create(head("n"), oid(1))])).unwrap();
    let until_done = |work: &mut dyn FnMut()| {
        while !done.load(Ordering::Relaxed) {
            work();
        }
    };
    thread::scope(|scope| {
        scope.spawn(move || until_done(&mut || compact(store)));
        scope.spawn(move || until_done(&mut || compact(store)));
        scope.spawn(move || {
            let mut last = oid(1);
            until_done(&mut || {
                let now = held(store, "n").unwrap();
                assert!(now >= last, "{now} after {last}");
                last = now;
            });
        });
        let _ends = Ends(done);
        for byte in 1..=120 {
            let flicker = Edit::set(head("f"), oid(byte));
            store
                .commit(&tx([Edit::update(head("n"), oid(byte + 1), oid(byte)), flicker]))
                .unwrap();
            store.commit(&tx([Edit::delete_if(head("f"), oid(byte))])).unwrap();
        }
    });
    let refs = scratch.refs();
    assert_eq!((held(store, "n"), held(store, "f")), (Some(oid(121)), None));
    scratch.reopen();
    assert_eq!(scratch.refs(), refs);
    assert_eq!(refstone::history(&scratch.dir(), Some(&head("n"))).unwrap().count(), 121);
}

fn held(store: &RefStore, short: &str) -> Option<ObjectId> {
    store.view().get(&head(short)).unwrap().and_then(|held| held.object())
}

// An update that compared with a cached listing overwrote a newer value silently.
#[test]
fn an_update_that_was_planned_on_an_old_view_is_refused() {
    let scratch = Scratch::new();
    scratch.store.commit(&tx([Edit::create(head("a"), oid(1))])).unwrap();
    let old = scratch.store.view();
    scratch.store.commit(&tx([Edit::set(head("a"), oid(2))])).unwrap();
    let seen = old.get(&head("a")).unwrap().and_then(|held| held.object()).unwrap();
    let conflict = Reason::Conflict { expected: oid(1).into(), actual: Some(oid(2).into()) };
    assert_eq!(reason(&scratch.store, [Edit::update(head("a"), oid(3), seen)]), conflict);
    assert_eq!(old.get(&head("a")).unwrap(), Some(oid(1).into()));
}

// A reader found a ref empty, or a push half done, while it was being written.
// Breaks: a view that shows a transaction move by move.
#[test]
fn a_reader_never_finds_a_ref_empty_or_a_transaction_half_done() {
    let scratch = Scratch::new();
    let both = |byte| tx([Edit::set(head("a"), oid(byte)), Edit::set(head("b"), oid(byte))]);
    scratch.store.commit(&both(1)).unwrap();
    let done = AtomicBool::new(false);
    let watch = |view: &dyn Fn() -> refstone::View| {
        while !done.load(Ordering::Relaxed) {
            let view = view();
            let [a, b] = ["a", "b"].map(|short| view.get(&head(short)).unwrap());
            assert!(a.is_some() && a == b, "{a:?} {b:?}");
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| watch(&|| scratch.store.view()));
        scope.spawn(|| watch(&|| read_view(&scratch.dir()).unwrap()));
        let _ends = Ends(&done);
        for round in 1..=200 {
            scratch.store.commit(&both(round)).unwrap();
        }
    });
}

// Two updates of one ref in one push were reported as rejected, and yet one of them was made.
#[test]
fn a_ref_that_is_updated_twice_at_once_stays_where_it_was() {
    let scratch = Scratch::new();
    scratch.store.commit(&tx([Edit::create(head("a"), oid(1))])).unwrap();
    let twice = [Edit::set(head("a"), oid(2)), Edit::set(head("a"), oid(3))];
    let verdicts = scratch.store.commit_each(&tx(twice.clone())).unwrap();
    assert!(verdicts.iter().all(Result::is_err));
    assert!(matches!(reason(&scratch.store, twice), Reason::Duplicate { .. }));
    assert_eq!(scratch.store.view().get(&head("a")).unwrap(), Some(oid(1).into()));
}

// Of an atomic push the tag landed, and the branch was rejected.
#[test]
fn of_a_refused_transaction_nothing_lands() {
    let scratch = Scratch::new();
    scratch.store.commit(&tx([Edit::create(head("main"), oid(1))])).unwrap();
    let (tag, before) = (name("refs/tags/v1"), scratch.refs());
    let branch = Edit::update(head("main"), oid(2), oid(9));
    let tag = Edit::create(tag, oid(2));
    for edits in [[tag.clone(), branch.clone()], [branch, tag]] {
        assert!(matches!(reason(&scratch.store, edits), Reason::Conflict { .. }));
        assert_eq!(scratch.refs(), before);
    }
}

// `refactor` blocked `refactor/195`, and nobody said so.
#[test]
fn a_name_in_the_way_is_told_by_its_name() {
    let scratch = Scratch::new();
    scratch.store.commit(&tx([Edit::create(head("refactor"), oid(1))])).unwrap();
    let wanted = head("refactor/195");
    let in_the_way = Reason::DirectoryFile { wanted: wanted.clone(), in_the_way: head("refactor") };
    assert_eq!(reason(&scratch.store, [Edit::create(wanted.clone(), oid(1))]), in_the_way);
    let swap = [Edit::delete(head("refactor")), Edit::create(wanted, oid(1))];
    assert_eq!(reason(&scratch.store, swap.clone()), in_the_way, "as in git");
    let verdicts = scratch.store.commit_each(&tx(swap)).unwrap();
    assert!(verdicts.iter().all(Result::is_ok), "a batch deletes first");
}

// After `a/b` was deleted, its empty directory still blocked `a`.
#[test]
fn a_deleted_ref_is_in_nobodys_way() {
    let mut scratch = Scratch::new();
    for reopened in [false, true] {
        for (first, second) in [("a/b", "a"), ("a", "a/b")] {
            scratch.store.commit(&tx([Edit::create(head(first), oid(1))])).unwrap();
            scratch.store.commit(&tx([Edit::delete(head(first))])).unwrap();
            if reopened {
                scratch.reopen();
            }
            scratch.store.commit(&tx([Edit::create(head(second), oid(1))])).unwrap();
            scratch.store.commit(&tx([Edit::delete(head(second))])).unwrap();
        }
    }
}

// Two branches that differ in case alone were one file, and the fetch of both failed.
#[test]
fn names_that_differ_in_case_are_two_refs() {
    let mut scratch = Scratch::new();
    let pair = [Edit::create(head("Topic"), oid(1)), Edit::create(head("topic"), oid(2))];
    scratch.store.commit(&tx(pair)).unwrap();
    scratch.reopen();
    assert_eq!(scratch.store.view().get(&head("Topic")).unwrap(), Some(oid(1).into()));
    assert_eq!(scratch.store.view().get(&head("topic")).unwrap(), Some(oid(2).into()));
}

// A name that is no UTF-8 made readers panic.
#[test]
fn any_legal_bytes_are_a_name_for_every_reader() {
    let mut scratch = Scratch::new();
    let names = (0x80..=0xff_u8).map(|byte| RefName::new([b"refs/heads/", &[byte][..]].concat()));
    let names: Vec<_> = names.map(Result::unwrap).collect();
    let creations = names.iter().map(|name| Edit::create(name.clone(), oid(1)));
    scratch.store.commit(&tx(creations)).unwrap();
    scratch.reopen();
    let view = scratch.store.view();
    let listed: Vec<_> = view.iter_prefix(b"refs/heads/").map(|entry| entry.unwrap().0).collect();
    assert_eq!(listed, names, "in the order of unsigned bytes");
    let told = refstone::history(&scratch.dir(), None).unwrap().map(|moved| moved.unwrap().name);
    assert_eq!(told.collect::<Vec<_>>(), names);
}

// Long names were refused at lengths that nobody could know.
#[test]
fn the_longest_name_is_a_documented_one() {
    let mut scratch = Scratch::new();
    let of_length = |len: usize| format!("refs/heads/{}", "n".repeat(len - "refs/heads/".len()));
    let longest = name(&of_length(NAME_LEN_MAX));
    scratch.store.commit(&tx([Edit::create(longest.clone(), oid(1))])).unwrap();
    scratch.reopen();
    assert_eq!(scratch.store.view().get(&longest).unwrap(), Some(oid(1).into()));
    let error = RefName::new(of_length(NAME_LEN_MAX + 1)).unwrap_err();
    assert_eq!(*error.problem(), NameProblem::TooLong { found: NAME_LEN_MAX + 1 });
}

// A circle of symbolic refs made every reader hang.
#[test]
fn a_circle_of_symbolic_refs_ends_every_question() {
    let scratch = Scratch::new();
    let circle = [Edit::create(head("a"), head("b")), Edit::create(head("b"), head("a"))];
    scratch.store.commit(&tx(circle)).unwrap();
    let itself = Edit::create(head("c"), head("c"));
    scratch.store.commit(&tx([itself])).unwrap();
    for short in ["a", "b", "c"] {
        assert!(scratch.store.view().resolve(&head(short)).is_err());
        let follow = Edit::set(head(short), oid(1));
        assert_eq!(reason(&scratch.store, [follow]), Reason::SymrefDepth);
    }
    // It is broken up where it is closed.
    let cut = ["b", "c"].map(|short| Edit::set(head(short), oid(1)).no_deref());
    scratch.store.commit(&tx(cut)).unwrap();
    assert_eq!(scratch.store.view().resolve(&head("a")).unwrap().oid, Some(oid(1)));
}

// The log of a branch died with the branch, and with its old name.
#[test]
fn what_a_branch_was_is_told_after_it_is_renamed() {
    let scratch = Scratch::new();
    scratch.store.commit(&tx([Edit::create(head("old"), oid(1))])).unwrap();
    scratch.store.commit(&tx([Edit::set(head("old"), oid(2))])).unwrap();
    let rename = [Edit::delete_if(head("old"), oid(2)), Edit::create(head("new"), oid(2))];
    let renamed = scratch.store.commit(&tx(rename)).unwrap().seq();
    let of = |short| {
        let moves = refstone::history(&scratch.dir(), Some(&head(short))).unwrap();
        moves.map(|moved| moved.map(|m| (m.seq, m.old_oid, m.new_oid)).unwrap()).collect::<Vec<_>>()
    };
    let old = of("old");
    assert_eq!(old.iter().map(|row| row.2).collect::<Vec<_>>(), [Some(oid(1)), Some(oid(2)), None]);
    // One transaction ends the old name and starts the new one, so the history goes on.
    assert_eq!(old[2], (renamed, Some(oid(2)), None));
    assert_eq!(of("new"), [(renamed, None, Some(oid(2)))]);
}
