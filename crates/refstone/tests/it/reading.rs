//! Reading without the lock, and replaying what was written.

use std::sync::Arc;

use bstr::BString;
use refstone::{
    Edit, Log, OpenError, OsEnv, RefName, RefStore, Seq, Transaction, history, read_view,
};
use refstone_log::{NoObserver, RefRow};

use crate::common::{Scratch, head, listing, oid, tx};

#[test]
fn history_outlives_the_ref_and_tells_who_and_why() {
    let scratch = Scratch::new();
    let edits = [
        Edit::create(head("a"), oid(1)),
        Edit::update(head("a"), oid(2), oid(1)),
        Edit::delete(head("a")),
    ];
    for (edit, actor) in edits.into_iter().zip(["alice", "bob", "carol"]) {
        let tx = Transaction::new(actor).with_message("why\n").with(edit);
        scratch.store.commit(&tx).unwrap();
    }
    let moves: Vec<_> = history(&scratch.dir(), None).unwrap().map(Result::unwrap).collect();
    let told: Vec<_> = moves.iter().map(|m| (m.actor.to_string(), m.old_oid, m.new_oid)).collect();
    let expected = [
        ("alice".to_owned(), None, Some(oid(1))),
        ("bob".to_owned(), Some(oid(1)), Some(oid(2))),
        ("carol".to_owned(), Some(oid(2)), None),
    ];
    assert_eq!(told, expected);
    assert!(moves.iter().all(|m| m.message == Some("why\n".into()) && m.name == head("a")));
    assert!(moves.is_sorted_by_key(|m| (m.seq, m.at)));
}

#[test]
fn history_of_one_ref_leaves_out_the_others() {
    let scratch = Scratch::new();
    let both = [Edit::create(head("a"), oid(1)), Edit::create(head("b"), oid(2))];
    scratch.store.commit(&tx(both)).unwrap();
    scratch.store.commit(&tx([Edit::create(head("c"), oid(3))])).unwrap();
    scratch.store.commit(&tx([Edit::set(head("b"), oid(4))])).unwrap();
    let moves = history(&scratch.dir(), Some(&head("b"))).unwrap();
    let seqs: Vec<_> = moves.map(|m| m.unwrap().seq.get()).collect();
    assert_eq!(seqs, [1, 3]);
}

#[test]
fn history_goes_on_after_its_end() {
    let scratch = Scratch::new();
    let mut moves = history(&scratch.dir(), None).unwrap();
    assert!(moves.next().is_none());
    scratch.store.commit(&tx([Edit::create(head("a"), oid(1))])).unwrap();
    assert_eq!(moves.next().unwrap().unwrap().name, head("a"));
    assert!(moves.next().is_none());
}

// Breaks: recording a symbolic ref's target as its old object, or dropping the new target.
#[test]
fn symbolic_moves_are_recorded_as_such() {
    let scratch = Scratch::new();
    let at = |edit: Edit| scratch.store.commit(&tx([edit.no_deref()])).unwrap();
    at(Edit::set(RefName::head(), head("x")));
    at(Edit::set(RefName::head(), oid(1)));
    at(Edit::set(RefName::head(), head("y")));
    let moves: Vec<_> = history(&scratch.dir(), None).unwrap().map(Result::unwrap).collect();
    let told: Vec<_> = moves.iter().map(|m| (m.old_oid, m.new_oid, m.symref.clone())).collect();
    let expected = [
        (None, None, Some(head("x"))),
        (None, Some(oid(1)), None),
        (Some(oid(1)), None, Some(head("y"))),
    ];
    assert_eq!(told, expected);
}

#[test]
fn bytes_that_are_no_text_come_back() {
    let mut scratch = Scratch::new();
    let odd = RefName::new(&b"refs/heads/\xff"[..]).unwrap();
    let actor = BString::from(&b"J\xf6rg \\ <j@example.org>"[..]);
    let tx = Transaction::new(actor.clone()).with_message(&b"\xfe\\x00"[..]);
    scratch.store.commit(&tx.with(Edit::create(odd.clone(), oid(1)))).unwrap();
    scratch.reopen();
    assert_eq!(scratch.store.view().get(&odd), Ok(Some(oid(1).into())));
    let moved = history(&scratch.dir(), None).unwrap().next().unwrap().unwrap();
    assert_eq!((moved.actor, moved.message), (actor, Some((&b"\xfe\\x00"[..]).into())));
}

#[test]
fn a_reader_beside_the_writer_sees_the_same_refs() {
    let mut scratch = Scratch::new();
    assert_eq!(listing(&read_view(&scratch.dir()).unwrap()), scratch.refs());
    let edits = [
        Edit::create(head("a"), oid(1)),
        Edit::create(head("s"), head("a")),
        Edit::create(RefName::head(), oid(2)),
    ];
    scratch.store.commit(&tx(edits)).unwrap();
    scratch.store.commit(&tx([Edit::delete(head("a"))])).unwrap();
    let view = read_view(&scratch.dir()).unwrap();
    assert_eq!((listing(&view), view.seq()), (scratch.refs(), Seq::new(2)));
    let before = scratch.refs();
    scratch.reopen();
    assert_eq!((scratch.refs(), scratch.store.view().seq()), (before, Seq::new(2)));
}

#[test]
fn a_second_writer_is_refused() {
    let scratch = Scratch::new();
    let error = RefStore::open(&scratch.dir()).unwrap_err();
    assert_eq!(error.kind(), refstone::ErrorKind::Locked);
}

/// Appends a row that a store would not write.
fn append(scratch: &Scratch, row: &RefRow<'_>) {
    scratch.store.close().unwrap();
    let (log, _) =
        Log::open(Arc::new(OsEnv), &scratch.dir(), Arc::new(NoObserver), &mut |_| ()).unwrap();
    let _ack = log.append(&[*row]).unwrap().wait().unwrap();
    log.close().unwrap();
}

const DELETION_OF_HEAD: RefRow<'_> = RefRow {
    actor: b"somebody",
    refname: b"HEAD",
    old_oid: None,
    new_oid: None,
    symref: None,
    message: None,
};

// Breaks: setting HEAD after the replay whenever it is missing, though a row removed it.
#[test]
fn a_head_that_a_log_removed_stays_away_until_it_is_set() {
    let scratch = Scratch::new();
    append(&scratch, &DELETION_OF_HEAD);
    for _ in 0..2 {
        let store = RefStore::open(&scratch.dir()).unwrap();
        assert_eq!(store.view().get(&RefName::head()), Ok(None));
        store.close().unwrap();
    }
    let store = RefStore::open(&scratch.dir()).unwrap();
    store.commit(&tx([Edit::create(RefName::head(), head("main"))])).unwrap();
    assert_eq!(store.view().get(&RefName::head()), Ok(Some(head("main").into())));
}

#[test]
fn a_row_that_is_no_move_is_refused_with_its_place() {
    let scratch = Scratch::new();
    scratch.store.commit(&tx([Edit::create(head("a"), oid(1))])).unwrap();
    let row = RefRow { refname: b"refs/heads/a..b", ..DELETION_OF_HEAD };
    append(&scratch, &row);
    let errors = [
        RefStore::open(&scratch.dir()).unwrap_err(),
        read_view(&scratch.dir()).unwrap_err(),
        history(&scratch.dir(), None).unwrap().nth(1).unwrap().unwrap_err(),
    ];
    for error in errors {
        let OpenError::Row { seq, row: 0, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(seq, Seq::new(2));
    }
}

struct Drops;

impl refstone_log::Sealer for Drops {
    fn seal(
        &mut self,
        leaving: &mut refstone_log::Leaving<'_>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        while leaving.next()?.is_some() {}
        Ok(())
    }
}

// Break: ignoring the anchor of the log. The refs would silently be those of a shorter history.
#[test]
fn a_store_whose_transactions_left_the_live_log_is_not_opened_without_them() {
    let scratch = Scratch::new();
    scratch.store.commit(&tx([Edit::create(head("a"), oid(1))])).unwrap();
    scratch.store.log().rewrite(Seq::new(1), &mut Drops).unwrap().unwrap();
    scratch.store.close().unwrap();
    for error in [
        RefStore::open(&scratch.dir()).map(|_| ()).unwrap_err(),
        refstone::read_view(&scratch.dir()).map(|_| ()).unwrap_err(),
    ] {
        assert_eq!(error.kind(), refstone::ErrorKind::Corrupt);
        assert!(error.to_string().contains("1 to 1"), "{error}");
    }
}
