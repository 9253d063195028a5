//! A prepared transaction cannot be refused any more, and stands in nobody else's way.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use refstone::{Edit, ErrorKind, Expected, Prepared, Reason, RefName, RefStore, Seq, Transaction};

use crate::common::{Ends, Scratch, head, name, oid, tx};

/// `main` and `b` are there, `HEAD` points to `main`, `s` to `b`, and `d` to nothing.
fn scratch() -> Scratch {
    let scratch = Scratch::new();
    let refs = [
        Edit::create(head("main"), oid(1)),
        Edit::create(head("b"), oid(1)),
        Edit::create(head("s"), head("b")),
        Edit::create(head("d"), head("gone")),
    ];
    scratch.store.commit(&tx(refs)).unwrap();
    scratch
}

fn prepare(store: &RefStore, edit: Edit) -> Prepared {
    store.prepare(Transaction::new("alice").with(edit)).unwrap()
}

/// The held ref that an edit was refused for; `None` if it passed.
fn locked(store: &RefStore, edit: Edit) -> Option<RefName> {
    let error = store.commit(&tx([edit])).err()?;
    match &error.refusal().expect("it is refused").reason {
        Reason::Locked { held, by } => {
            assert_eq!(by, "alice");
            Some(held.clone())
        }
        other => panic!("{other:?}"),
    }
}

fn object(byte: u8) -> Expected {
    Expected::Value(oid(byte).into())
}

/// What is prepared, another edit, and the held ref that it meets.
fn meetings() -> Vec<(Edit, Edit, Option<RefName>)> {
    let set = |short| Edit::set(head(short), oid(2));
    let named = |edit: Edit| (edit.clone(), edit, Some(head("b")));
    vec![
        named(set("b")),
        named(Edit::delete(head("b"))),
        named(Edit::verify(head("b"), Expected::Exists)),
        (Edit::verify(head("b"), Expected::Exists), set("b"), Some(head("b"))),
        (set("b"), set("main"), None),
        // Over symbolic refs, from both sides.
        (Edit::set(name("HEAD"), oid(2)), set("main"), Some(head("main"))),
        (set("main"), Edit::set(name("HEAD"), oid(2)), Some(head("main"))),
        (set("s"), Edit::set(head("s"), head("main")).no_deref(), Some(head("s"))),
        (set("s"), Edit::delete(head("b")), Some(head("b"))),
        (set("d"), Edit::create(head("gone"), oid(2)), Some(head("gone"))),
        (Edit::delete(head("s")).no_deref(), set("b"), None),
        // Switching HEAD leaves its branches alone, and the branches leave HEAD alone.
        (Edit::set(name("HEAD"), head("b")).no_deref(), set("main"), None),
        (set("main"), Edit::set(name("HEAD"), head("b")).no_deref(), None),
        // An unfollowed symbolic ref is compared over its chain.
        (Edit::verify(head("s"), object(1)).no_deref(), set("b"), Some(head("b"))),
        (
            Edit::verify(head("d"), Expected::Absent).no_deref(),
            Edit::create(head("gone"), oid(2)),
            Some(head("gone")),
        ),
        // Names in the way, in both directions, and beside.
        (set("n/x"), set("n"), Some(head("n/x"))),
        (set("n/x"), set("n/x/y/z"), Some(head("n/x"))),
        (Edit::verify(head("n"), Expected::Absent), set("n/x/y"), Some(head("n"))),
        (set("n/x"), set("n/y"), None),
        (set("n/x"), set("n-x"), None),
        (set("n"), set("n.x"), None),
    ]
}

// Breaks: holding the named refs alone; not those read to compare; no look at directories, or in
// one direction alone; holding what `HEAD` points to when `HEAD` itself moves.
#[test]
fn it_holds_what_it_rests_on_and_nothing_else() {
    for (prepared, other, held) in meetings() {
        let scratch = scratch();
        let case = format!("{prepared:?} and then {other:?}");
        let hold = prepare(&scratch.store, prepared);
        assert_eq!(locked(&scratch.store, other.clone()), held, "{case}");
        let each = scratch.store.commit_each(&tx([other.clone()])).unwrap();
        assert_eq!(each[0].is_ok(), held.is_none(), "{case}");
        let staged = scratch.store.check(&tx([other]));
        assert_eq!(staged.is_ok(), held.is_none(), "{case}");
        hold.commit().unwrap();
    }
}

// Breaks: a hold that outlives its transaction, on any of its ways to end.
#[test]
fn it_lets_go_when_it_ends() {
    let scratch = scratch();
    let again = || Edit::set(head("n/x"), oid(2));
    let is_free = || locked(&scratch.store, Edit::delete(head("n/x"))).is_none();
    prepare(&scratch.store, again()).abort();
    assert!(is_free());
    drop(prepare(&scratch.store, again()));
    assert!(is_free());
    prepare(&scratch.store, again()).commit().unwrap();
    assert!(is_free());
    let pending = prepare(&scratch.store, again()).stage().unwrap();
    assert!(is_free(), "whoever comes next finds what is staged");
    assert!(pending.wait().unwrap().moved());
    let failing = prepare(&scratch.store, again());
    scratch.faults.writes.store(1, Ordering::SeqCst);
    assert_eq!(failing.commit().unwrap_err().kind(), ErrorKind::NotCommitted);
    assert!(is_free());
    assert_eq!(scratch.store.view().get(&head("n/x")).unwrap(), None);
}

#[test]
fn nothing_happens_before_the_commit_and_all_of_it_then() {
    let scratch = scratch();
    let before = scratch.refs();
    let edits = [Edit::set(head("b"), oid(2)), Edit::create(head("n"), oid(3))];
    let prepared = scratch.store.prepare(tx(edits.clone())).unwrap();
    assert_eq!(prepared.transaction().edits(), edits);
    assert_eq!(scratch.refs(), before);
    let committed = prepared.commit().unwrap();
    assert_eq!((committed.seq(), committed.moved()), (Seq::new(2), true));
    let view = scratch.store.view();
    assert_eq!(view.get(&head("b")).unwrap(), Some(oid(2).into()));
    assert_eq!(view.get(&head("n")).unwrap(), Some(oid(3).into()));
}

#[test]
fn a_compaction_comes_in_between_unnoticed() {
    let mut scratch = scratch();
    let prepared = prepare(&scratch.store, Edit::update(head("s"), oid(2), oid(1)));
    scratch.store.compact(refstone::CompactOptions::default(), &mut |_| ()).unwrap();
    assert_eq!(locked(&scratch.store, Edit::delete(head("b"))), Some(head("b")));
    prepared.commit().unwrap();
    scratch.reopen();
    assert_eq!(scratch.store.view().get(&head("b")).unwrap(), Some(oid(2).into()));
}

#[test]
fn one_that_moves_nothing_spends_no_sequence() {
    let scratch = scratch();
    let prepared = prepare(&scratch.store, Edit::verify(head("b"), object(1)));
    scratch.store.commit(&tx([Edit::set(head("main"), oid(2))])).unwrap();
    let committed = prepared.commit().unwrap();
    assert_eq!((committed.seq(), committed.moved()), (Seq::new(1), false));
    assert_eq!(scratch.store.log().durable_seq(), Seq::new(2));
}

// Breaks: holding what a refused one asked for.
#[test]
fn a_refused_one_holds_nothing() {
    let scratch = scratch();
    let refused = tx([Edit::set(head("n"), oid(1)), Edit::create(head("b"), oid(2))]);
    let error = scratch.store.prepare(refused).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert_eq!(locked(&scratch.store, Edit::set(head("n"), oid(1))), None);
}

#[test]
fn a_second_one_is_refused_for_the_first() {
    let scratch = scratch();
    let first = prepare(&scratch.store, Edit::set(head("b"), oid(2)));
    let second = scratch.store.prepare(tx([Edit::set(head("b"), oid(3))])).unwrap_err();
    assert!(matches!(second.refusal().unwrap().reason, Reason::Locked { .. }));
    assert_eq!(
        second.to_string(),
        "cannot lock ref 'refs/heads/b': a prepared transaction of 'alice' holds 'refs/heads/b'"
    );
    first.abort();
    scratch.store.prepare(tx([Edit::set(head("b"), oid(3))])).unwrap().commit().unwrap();
}

// Breaks: answering as soon as it is judged.
#[test]
fn its_verdict_waits_for_what_it_rests_on() {
    let scratch = scratch();
    let gate = scratch.store.log().gate().hold();
    let staged = scratch.store.stage(&tx([Edit::create(head("n"), oid(1))])).unwrap();
    for edit in [Edit::update(head("n"), oid(2), oid(1)), Edit::create(head("n"), oid(2))] {
        let (store, (sender, answer)) = (scratch.store.clone(), mpsc::channel());
        thread::spawn(move || sender.send(store.prepare(tx([edit])).is_ok()));
        let early = answer.recv_timeout(Duration::from_millis(150));
        assert_eq!(early, Err(RecvTimeoutError::Timeout), "it was told before it was durable");
    }
    drop(gate);
    staged.wait().unwrap();
}

// Breaks: a hold that stays though the state it was judged on never became durable.
#[test]
fn one_that_rests_on_a_failed_write_fails_with_it_and_holds_nothing() {
    let scratch = scratch();
    let gate = scratch.store.log().gate().hold();
    let staged = scratch.store.stage(&tx([Edit::create(head("n"), oid(1))])).unwrap();
    let (store, (sender, answer)) = (scratch.store.clone(), mpsc::channel());
    let update = Edit::update(head("n"), oid(2), oid(1));
    thread::spawn(move || sender.send(store.prepare(tx([update])).map(drop)));
    assert!(answer.recv_timeout(Duration::from_millis(150)).is_err());
    scratch.faults.writes.store(1, Ordering::SeqCst);
    drop(gate);
    assert!(staged.wait().is_err());
    assert_eq!(answer.recv().unwrap().unwrap_err().kind(), ErrorKind::NotCommitted);
    assert_eq!(locked(&scratch.store, Edit::set(head("n"), oid(3))), None);
}

#[test]
fn a_closed_store_commits_nothing_that_was_prepared() {
    let mut scratch = scratch();
    let prepared = prepare(&scratch.store, Edit::set(head("b"), oid(2)));
    scratch.reopen();
    assert_eq!(prepared.commit().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(locked(&scratch.store, Edit::set(head("b"), oid(3))), None, "nothing is on disk");
}

/// Edits that would each spoil a prepared update of `s` and creation of `n/x`.
fn spoilers() -> Vec<Edit> {
    vec![
        Edit::set(head("b"), oid(9)),
        Edit::delete(head("b")),
        Edit::set(head("s"), head("main")).no_deref(),
        Edit::create(head("n"), oid(9)),
        Edit::create(head("n/x"), oid(9)),
        Edit::create(head("n/x/y"), oid(9)),
    ]
}

fn spoil(store: &RefStore, done: &AtomicBool) {
    let restore = [
        Edit::delete(head("n")),
        Edit::delete(head("n/x/y")),
        Edit::delete(head("n/x")),
        Edit::set(head("s"), head("b")).no_deref(),
    ];
    while !done.load(Ordering::Relaxed) {
        for edit in spoilers().into_iter().chain(restore.clone()) {
            // Most of these are refused; what counts is what the prepared one finds.
            let _ = store.commit(&tx([edit.clone()]));
            let _ = store.commit_each(&tx([edit])).unwrap();
        }
    }
}

// Breaks: releasing before the moves are staged, or outside the writer mutex.
#[test]
fn threads_that_try_to_spoil_it_never_do() {
    let scratch = scratch();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        (0..3).for_each(|_| drop(scope.spawn(|| spoil(&scratch.store, &done))));
        let _ends = Ends(&done);
        let mut passed = 0;
        while passed < 40 {
            let edits = [Edit::set(head("s"), oid(5)), Edit::create(head("n/x"), oid(6))];
            let Ok(prepared) = scratch.store.prepare(tx(edits)) else { continue };
            thread::yield_now();
            prepared.commit().unwrap();
            passed += 1;
        }
    });
    assert_history_is_sound(&scratch);
}

/// Each move starts from what the ref had, and no ref is ever in another's way.
fn assert_history_is_sound(scratch: &Scratch) {
    let moves = refstone::history(&scratch.dir(), None).unwrap().map(Result::unwrap);
    let moves: Vec<_> = moves.collect();
    let mut refs = BTreeMap::new();
    for transaction in moves.chunk_by(|a, b| a.seq == b.seq) {
        for moved in transaction {
            let had = refs.remove(&moved.name).flatten();
            assert_eq!(had, moved.old_oid, "{moved:?}");
            if moved.new_oid.is_some() || moved.symref.is_some() {
                refs.insert(moved.name.clone(), moved.new_oid);
            }
        }
        for name in refs.keys() {
            let below = [name.as_bytes(), b"/"].concat();
            let in_the_way = refs.keys().find(|other| other.as_bytes().starts_with(&below));
            assert_eq!(in_the_way, None, "of {name}");
        }
    }
}

// Breaks: comparing at the prepare, and letting another move come before the commit.
#[test]
fn increments_in_two_phases_are_never_lost() {
    let scratch = scratch();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..15).for_each(|_| increment(&scratch.store)));
        }
    });
    assert_eq!(scratch.store.view().get(&head("b")).unwrap(), Some(oid(61).into()));
}

fn increment(store: &RefStore) {
    loop {
        let old = store.view().get(&head("b")).unwrap().and_then(|held| held.object()).unwrap();
        let new = oid(old.as_bytes()[0] + 1);
        let prepared = store.prepare(tx([Edit::update(head("b"), new, old)]));
        if let Ok(prepared) = prepared {
            prepared.commit().unwrap();
            return;
        }
    }
}
