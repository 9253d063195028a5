//! Nobody sees undurable state, be it as a value or as the reason of a verdict.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use refstone::{
    Committed, Edit, ErrorKind, Expected, Pending, Reason, Seq, Transaction, TransactionError,
    read_view,
};

use crate::common::{Scratch, head, listing, oid, tx};

/// Long enough for an answer that does not wait, many times over.
const PATIENCE: Duration = Duration::from_millis(150);

type Answer = Result<Committed, TransactionError>;

fn answer_of(pending: Pending) -> Receiver<Answer> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(pending.wait()));
    receiver
}

fn is_waiting(answer: &Receiver<Answer>) -> bool {
    matches!(answer.recv_timeout(PATIENCE), Err(RecvTimeoutError::Timeout))
}

fn stage(scratch: &Scratch, edit: Edit) -> Receiver<Answer> {
    answer_of(scratch.store.stage(&tx([edit])).unwrap())
}

fn create_a() -> Edit {
    Edit::create(head("a"), oid(1))
}

/// Verdicts that move nothing and rest on `a` being there, or on `a/b` not being possible.
fn verdicts_on_a() -> Vec<(&'static str, Edit)> {
    vec![
        ("a refusal that it exists", Edit::create(head("a"), oid(2))),
        ("a refusal of an old value", Edit::update(head("a"), oid(2), oid(3))),
        ("a refusal of a name below", Edit::create(head("a/b"), oid(1))),
        ("a verification", Edit::verify(head("a"), Expected::Value(oid(1).into()))),
        ("a failed verification", Edit::verify(head("a"), Expected::Absent)),
        ("a value that is there already", Edit::set(head("a"), oid(1))),
    ]
}

// Breaks: answering a verdict at once (`covering(Seq::ZERO)`); not noting what a directory check
// reads.
#[test]
fn a_verdict_waits_for_what_it_rests_on() {
    for (what, edit) in verdicts_on_a() {
        let scratch = Scratch::new();
        let hold = scratch.store.log().gate().hold();
        let created = scratch.store.stage(&tx([create_a()])).unwrap();
        let answer = stage(&scratch, edit);
        assert!(is_waiting(&answer), "{what} was told before it was durable");
        drop(hold);
        let verdict = answer.recv().unwrap();
        assert!(verdict.is_err() || !verdict.unwrap().moved(), "{what}");
        assert_eq!(created.wait().unwrap().seq(), Seq::new(1));
    }
}

// Breaks: not noting a staged deletion that makes room.
#[test]
fn a_verdict_on_a_deletion_waits_too() {
    let scratch = Scratch::new();
    let (inside, beside) = (head("a/b"), head("a"));
    scratch.store.commit(&tx([Edit::create(inside.clone(), oid(1))])).unwrap();
    let hold = scratch.store.log().gate().hold();
    let _deleted = scratch.store.stage(&tx([Edit::delete(inside.clone())])).unwrap();
    let gone = stage(&scratch, Edit::verify(inside, Expected::Absent));
    let free = stage(&scratch, Edit::verify(beside, Expected::Absent));
    assert!(is_waiting(&gone) && is_waiting(&free));
    drop(hold);
    assert_eq!(gone.recv().unwrap().unwrap().seq(), Seq::new(2));
    assert!(free.recv().unwrap().is_ok());
}

// Breaks: answering a check at once.
#[test]
fn a_check_waits_as_well() {
    let scratch = Scratch::new();
    let hold = scratch.store.log().gate().hold();
    let _created = scratch.store.stage(&tx([create_a()])).unwrap();
    let (store, (sender, answer)) = (scratch.store.clone(), mpsc::channel());
    thread::spawn(move || sender.send(store.check(&tx([create_a()]))));
    assert!(answer.recv_timeout(PATIENCE).is_err(), "the check was answered before it was durable");
    drop(hold);
    assert!(answer.recv().unwrap().is_err());
}

// Breaks: waiting for all that is staged.
#[test]
fn a_verdict_on_durable_state_does_not_wait() {
    let scratch = Scratch::new();
    scratch.store.commit(&tx([create_a()])).unwrap();
    let hold = scratch.store.log().gate().hold();
    let _other = scratch.store.stage(&tx([Edit::create(head("z"), oid(1))])).unwrap();
    for (what, edit) in verdicts_on_a() {
        let answer = stage(&scratch, edit).recv_timeout(Duration::from_secs(10));
        assert!(answer.is_ok(), "{what} waited for a ref it did not look at");
    }
    drop(hold);
}

#[test]
fn a_verdict_of_a_batch_waits_as_well() {
    let scratch = Scratch::new();
    let hold = scratch.store.log().gate().hold();
    let _created = scratch.store.stage(&tx([create_a()])).unwrap();
    let pending = scratch.store.stage_each(&tx([create_a(), Edit::delete(head("b"))])).unwrap();
    let (sender, answer) = mpsc::channel();
    thread::spawn(move || sender.send(pending.wait()));
    assert!(answer.recv_timeout(PATIENCE).is_err(), "the batch was answered before it was durable");
    drop(hold);
    let verdicts = answer.recv().unwrap().unwrap();
    assert!(verdicts[0].is_err() && verdicts[1].as_ref().is_ok_and(|c| !c.moved()));
}

// Breaks: changing the view when a transaction is staged.
#[test]
fn views_and_outside_readers_see_only_what_is_durable() {
    let scratch = Scratch::new();
    let before = scratch.refs();
    let hold = scratch.store.log().gate().hold();
    let mut edits = Transaction::new("tester");
    edits.extend([create_a(), Edit::create(head("main"), oid(1))]);
    let pending = scratch.store.stage(&edits).unwrap();
    let old = scratch.store.view();
    assert_eq!((scratch.refs(), old.seq()), (before.clone(), Seq::ZERO));
    assert_eq!(listing(&read_view(&scratch.dir()).unwrap()), before);
    drop(hold);
    pending.wait().unwrap();
    assert_eq!(scratch.store.view().seq(), Seq::new(1));
    assert_eq!(scratch.refs().len(), 3);
    assert_eq!(listing(&read_view(&scratch.dir()).unwrap()), scratch.refs());
    assert_eq!(listing(&old), before, "a view never changes");
}

// Breaks: swapping the view only after the waiters were woken.
#[test]
fn an_acknowledged_transaction_is_in_the_view_at_once() {
    let scratch = Scratch::new();
    for byte in 1..100 {
        let seq = scratch.store.commit(&tx([Edit::set(head("a"), oid(byte))])).unwrap().seq();
        assert!(scratch.store.view().seq() >= seq);
        assert_eq!(scratch.store.view().get(&head("a")), Ok(Some(oid(byte).into())));
    }
}

/// An answer that is on its way. A verdict on what never becomes durable would wait for ever.
fn soon(scratch: &Scratch, edit: Edit) -> Answer {
    stage(scratch, edit).recv_timeout(Duration::from_secs(10)).expect("no answer came")
}

/// Stages with the gate held, then lets the group fail.
fn failed_group(scratch: &Scratch, edits: &[Edit]) -> Vec<TransactionError> {
    let hold = scratch.store.log().gate().hold();
    let stage = |edit: &Edit| scratch.store.stage(&tx([edit.clone()])).unwrap();
    let pending: Vec<_> = edits.iter().map(stage).collect();
    scratch.faults.writes.store(1, Ordering::SeqCst);
    drop(hold);
    pending.into_iter().map(|pending| pending.wait().unwrap_err()).collect()
}

// Breaks: an observer that ignores `rolled_back` (`a` seems to exist); verdicts that are told
// though what they rested on did not happen.
#[test]
fn a_failed_write_takes_back_values_and_verdicts() {
    let mut scratch = Scratch::new();
    let before = scratch.refs();
    let edits = [create_a(), Edit::set(head("a"), oid(2)), Edit::create(head("a"), oid(3))];
    for error in failed_group(&scratch, &edits) {
        assert_eq!(error.kind(), ErrorKind::NotCommitted, "{error}");
    }
    assert_eq!(scratch.refs(), before);
    let again = soon(&scratch, create_a()).unwrap();
    assert_eq!(again.seq(), Seq::new(1), "no sequence was spent");
    let after = scratch.refs();
    scratch.reopen();
    assert_eq!(scratch.refs(), after);
}

// Breaks: ignoring `rolled_back` (`a` seems to be deleted); withdrawing from the view.
#[test]
fn a_failed_write_leaves_what_was_durable_before() {
    let scratch = Scratch::new();
    scratch.store.commit(&tx([create_a()])).unwrap();
    let edits = [Edit::delete(head("a")), Edit::create(head("a/b"), oid(2))];
    failed_group(&scratch, &edits);
    let Err(TransactionError::Refused(refusal)) = soon(&scratch, create_a()) else {
        panic!("`a` is there");
    };
    assert!(matches!(refusal.reason, Reason::AlreadyExists { .. }));
    scratch.store.commit(&tx([Edit::update(head("a"), oid(2), oid(1))])).unwrap();
}

#[test]
fn after_a_failed_sync_the_outcome_is_unknown_until_reopened() {
    let mut scratch = Scratch::new();
    scratch.faults.syncs.store(1, Ordering::SeqCst);
    let error = scratch.store.commit(&tx([create_a()])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
    assert_eq!(scratch.store.view().get(&head("a")), Ok(None));
    let error = scratch.store.commit(&tx([create_a()])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
    assert!(scratch.store.close().is_err());
    scratch.reopen();
    scratch.store.commit(&tx([Edit::set(head("a"), oid(2))])).unwrap();
}
