//! Every way to fail has a kind and the values that a caller needs, without reading its text.

use std::sync::atomic::Ordering;

use refstone::{
    Edit, ErrorKind, Expected, ObjectFormat, ObjectId, Reason, RefStore, TransactionError,
};

use crate::common::{Scratch, head, name, oid, tx};

/// `a` is at 1, `d/x` is there, `s` points to `a`, `gone` to nothing, and `o` to itself.
fn scratch() -> Scratch {
    let scratch = Scratch::new();
    let refs = [
        Edit::create(head("a"), oid(1)),
        Edit::create(head("d/x"), oid(1)),
        Edit::create(head("s"), head("a")),
        Edit::create(head("gone"), head("nowhere")),
        Edit::create(head("o"), head("o")),
    ];
    scratch.store.commit(&tx(refs)).unwrap();
    scratch
}

fn sha256() -> ObjectId {
    ObjectId::from_bytes(&[7; 32]).unwrap()
}

/// Edits that are refused, and for what.
fn refusals() -> Vec<(Vec<Edit>, Reason)> {
    let a = || head("a");
    let symref = |target| Expected::Value(head(target).into());
    vec![
        (
            vec![Edit::update(a(), oid(2), oid(3))],
            Reason::Conflict { expected: oid(3).into(), actual: Some(oid(1).into()) },
        ),
        (
            vec![Edit::verify(head("s"), symref("b")).no_deref()],
            Reason::Conflict { expected: head("b").into(), actual: Some(head("a").into()) },
        ),
        (
            vec![Edit::verify(head("gone"), Expected::Value(oid(3).into())).no_deref()],
            Reason::Conflict { expected: oid(3).into(), actual: None },
        ),
        (vec![Edit::create(a(), oid(2))], Reason::AlreadyExists { actual: oid(1).into() }),
        (vec![Edit::update(head("n"), oid(2), oid(1))], Reason::Missing { missing: head("n") }),
        (vec![Edit::verify(head("n"), Expected::Exists)], Reason::Missing { missing: head("n") }),
        (
            vec![Edit::create(head("a/b"), oid(2))],
            Reason::DirectoryFile { wanted: head("a/b"), in_the_way: a() },
        ),
        (
            vec![Edit::create(head("d"), oid(2))],
            Reason::DirectoryFile { wanted: head("d"), in_the_way: head("d/x") },
        ),
        (
            vec![Edit::create(head("n"), oid(2)), Edit::create(head("n/x"), oid(2))],
            Reason::SameTime { wanted: head("n"), other: head("n/x") },
        ),
        (
            vec![Edit::set(a(), oid(2)), Edit::delete(a())],
            Reason::Duplicate { shared: a(), via: None },
        ),
        (
            vec![Edit::set(a(), oid(2)), Edit::set(head("s"), oid(2))],
            Reason::Duplicate { shared: a(), via: Some(head("s")) },
        ),
        (vec![Edit::set(head("o"), oid(2))], Reason::SymrefDepth),
        (
            vec![Edit::set(a(), sha256())],
            Reason::WrongObjectFormat { expected: ObjectFormat::Sha1, actual: sha256() },
        ),
        (vec![Edit::set(a(), ObjectId::zero(ObjectFormat::Sha1))], Reason::ZeroValue),
        (
            vec![Edit::set(name("FETCH_HEAD"), oid(1))],
            Reason::PseudoRef { pseudo: name("FETCH_HEAD") },
        ),
        (vec![Edit::delete(name("HEAD")).no_deref()], Reason::HeadDeletion),
        (
            vec![Edit::set(name("HEAD"), name("FOO")).no_deref()],
            Reason::HeadOutsideRefs { target: name("FOO") },
        ),
        (
            vec![Edit::set(head("held"), oid(1))],
            Reason::Locked { held: head("held"), by: "tester".into() },
        ),
    ]
}

// Breaks: any of the values: what is expected for what is there, the named ref for the missing one.
#[test]
fn a_refusal_tells_its_reason_as_values() {
    let scratch = scratch();
    let held = scratch.store.prepare(tx([Edit::create(head("held"), oid(1))])).unwrap();
    for (edits, reason) in refusals() {
        let error = scratch.store.commit(&tx(edits)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        assert_eq!(error.refusal().unwrap().reason, reason, "{error}");
        let short = error.refusal().unwrap().reason.short();
        assert!(!short.is_empty() && !short.contains("refs/heads"), "{short}");
    }
    held.abort();
}

fn kind(store: &RefStore, edit: Edit) -> ErrorKind {
    let error: TransactionError = store.commit(&tx([edit])).unwrap_err();
    assert!(error.refusal().is_none(), "{error}");
    error.kind()
}

#[test]
fn what_is_no_refusal_says_whether_it_happened() {
    let mut scratch = scratch();
    let edit = || Edit::set(head("a"), oid(2));
    scratch.faults.writes.store(1, Ordering::SeqCst);
    assert_eq!(kind(&scratch.store, edit()), ErrorKind::NotCommitted);
    scratch.faults.syncs.store(1, Ordering::SeqCst);
    assert_eq!(kind(&scratch.store, edit()), ErrorKind::Unknown);
    assert_eq!(kind(&scratch.store, edit()), ErrorKind::Poisoned);
    scratch.store.close().unwrap_err();
    scratch.reopen_closed();
    scratch.store.close().unwrap();
    assert_eq!(kind(&scratch.store, edit()), ErrorKind::Closed);
}

#[test]
fn opening_tells_what_is_in_the_way() {
    let scratch = scratch();
    let open = |dir: &std::path::Path| RefStore::open(dir).unwrap_err().kind();
    assert_eq!(open(&scratch.dir()), ErrorKind::Locked);
    assert_eq!(open(&scratch.dir().join("none")), ErrorKind::NotFound);
    scratch.store.close().unwrap();
    let live = scratch.dir().join("refs.arrow");
    let mut bytes = std::fs::read(&live).unwrap();
    let end = usize::try_from(scratch.store.log().live_bytes()).unwrap();
    bytes[end - 100] ^= 1;
    std::fs::write(&live, bytes).unwrap();
    assert_eq!(open(&scratch.dir()), ErrorKind::Corrupt);
    let again = RefStore::create(&scratch.dir(), &refstone::CreateOptions::default());
    assert_eq!(again.unwrap_err().kind(), ErrorKind::AlreadyExists);
    let head = refstone::CreateOptions { head: name("FOO"), ..Default::default() };
    let outside = RefStore::create(&scratch.dir().join("new"), &head);
    assert_eq!(outside.unwrap_err().kind(), ErrorKind::Invalid);
}
