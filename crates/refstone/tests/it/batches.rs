//! A batch: each edit has a verdict of its own, and all that pass are one transaction.

use refstone::{Edit, Expected, Reason, Seq, TransactionError};

use crate::common::{Scratch, head, name, oid, tx};

fn words(scratch: &Scratch, edits: impl IntoIterator<Item = Edit>) -> Vec<&'static str> {
    let verdicts = scratch.store.commit_each(&tx(edits)).unwrap();
    let word = |verdict: &Result<refstone::Committed, refstone::Refusal>| match verdict {
        Ok(committed) if committed.moved() => "moved",
        Ok(_) => "stays",
        Err(refusal) => refusal.reason.short(),
    };
    verdicts.iter().map(word).collect()
}

#[test]
fn what_passes_is_one_transaction_beside_what_is_refused() {
    let scratch = Scratch::new();
    let edits = [
        Edit::create(head("a"), oid(1)),
        Edit::update(head("b"), oid(2), oid(1)),
        Edit::verify(head("c"), Expected::Absent),
        Edit::create(head("d"), oid(1)),
    ];
    let expected = ["moved", "reference does not exist", "stays", "moved"];
    assert_eq!(words(&scratch, edits), expected);
    assert_eq!(scratch.store.view().seq(), Seq::new(1));
    assert_eq!(scratch.refs().len(), 3);
}

#[test]
fn a_batch_that_moves_nothing_spends_no_sequence() {
    let scratch = Scratch::new();
    let edits = [Edit::delete(head("a")), Edit::update(head("b"), oid(1), oid(2))];
    assert_eq!(words(&scratch, edits), ["stays", "reference does not exist"]);
    assert_eq!(scratch.store.view().seq(), Seq::ZERO);
}

// Breaks: refusing only the later edit of a pair (what git did until 2.50: the push reported
// "rejected", and yet the ref had moved).
#[test]
fn all_edits_of_one_ref_are_refused() {
    let scratch = Scratch::new();
    let edits = [
        Edit::create(head("a"), oid(1)),
        Edit::create(head("b"), oid(1)),
        Edit::create(head("a"), oid(2)),
        Edit::verify(head("a"), Expected::Absent),
    ];
    let twice = "multiple updates for ref not allowed";
    assert_eq!(words(&scratch, edits), [twice, "moved", twice, twice]);
    assert_eq!(scratch.store.view().get(&head("a")), Ok(None));
}

// Breaks: comparing the names of the edits only.
#[test]
fn the_same_over_a_symbolic_ref() {
    let scratch = Scratch::new();
    let link = Edit::create(head("s"), head("a"));
    scratch.store.commit(&tx([link])).unwrap();
    let edits = [
        Edit::create(name("HEAD"), oid(1)),
        Edit::create(head("main"), oid(1)),
        Edit::create(head("s"), oid(1)),
        Edit::create(head("b"), oid(1)),
        Edit::create(head("a"), oid(1)),
    ];
    let twice = "multiple updates for ref not allowed";
    assert_eq!(words(&scratch, edits), [twice, twice, twice, "moved", twice]);
}

// Breaks: judging in order, or with the state before the batch.
#[test]
fn a_deletion_makes_room_whatever_the_order() {
    let scratch = Scratch::new();
    scratch.store.commit(&tx([Edit::create(head("a"), oid(1))])).unwrap();
    let down = [Edit::create(head("a/b"), oid(1)), Edit::delete(head("a"))];
    assert_eq!(words(&scratch, down), ["moved", "moved"]);
    let up = [Edit::delete(head("a/b")), Edit::create(head("a"), oid(1))];
    assert_eq!(words(&scratch, up), ["moved", "moved"]);
}

// Breaks: judging each edit by the state before the batch alone.
#[test]
fn the_first_of_two_names_in_each_others_way_passes() {
    let scratch = Scratch::new();
    let edits = [
        Edit::create(head("a"), oid(1)),
        Edit::create(head("a/b"), oid(1)),
        Edit::create(head("c/d"), oid(1)),
        Edit::create(head("c"), oid(1)),
    ];
    let expected = ["moved", "refname conflict", "moved", "refname conflict"];
    assert_eq!(words(&scratch, edits), expected);
}

#[test]
fn a_refused_deletion_makes_no_room() {
    let scratch = Scratch::new();
    scratch.store.commit(&tx([Edit::create(head("a"), oid(1))])).unwrap();
    let edits = [Edit::delete_if(head("a"), oid(2)), Edit::create(head("a/b"), oid(1))];
    let expected = ["incorrect old value provided", "refname conflict"];
    assert_eq!(words(&scratch, edits), expected);
}

#[test]
fn values_of_another_format_are_refused() {
    let scratch = Scratch::new();
    let foreign = refstone::ObjectId::from_bytes(&[1; 32]).unwrap();
    for edit in [
        Edit::create(head("a"), foreign),
        Edit::update(head("a"), oid(1), foreign),
        Edit::delete_if(head("a"), foreign),
    ] {
        let refused = scratch.store.commit(&tx([edit])).unwrap_err();
        let TransactionError::Refused(refusal) = refused else {
            panic!("{refused}");
        };
        assert!(matches!(refusal.reason, Reason::WrongObjectFormat { .. }), "{refusal}");
    }
    let zero = refstone::ObjectId::zero(refstone::ObjectFormat::Sha1);
    let refused = scratch.store.commit(&tx([Edit::set(head("a"), zero)])).unwrap_err();
    assert_eq!(refused.refusal().unwrap().reason, Reason::ZeroValue);
}

#[test]
fn a_check_says_the_same_and_writes_nothing() {
    let scratch = Scratch::new();
    let create = tx([Edit::create(head("a"), oid(1))]);
    scratch.store.check(&create).unwrap();
    scratch.store.check(&create).unwrap();
    assert_eq!(scratch.store.view().seq(), Seq::ZERO);
    scratch.store.commit(&create).unwrap();
    let refused = scratch.store.check(&create).unwrap_err();
    assert!(matches!(refused.refusal().unwrap().reason, Reason::AlreadyExists { .. }));
}
