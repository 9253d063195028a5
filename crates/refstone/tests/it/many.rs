//! Many transactions under one barrier, and transactions awaited.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use refstone::Edit;

use crate::common::{Scratch, head, oid, tx};

// Breaks: a sync for each transaction of a batch; an outcome told before its transaction is
// durable.
#[test]
fn many_transactions_share_one_sync_and_each_has_its_own_outcome() {
    let scratch = Scratch::new();
    let store = &scratch.store;
    let create = |n: usize| tx([Edit::create(head(&format!("topic-{n}")), oid(1))]);
    // Every tenth is a second creation of the ref before it.
    let batch: Vec<_> = (0..1000).map(|n| create(if n % 10 == 9 { n - 1 } else { n })).collect();
    let before = store.log().gate().syncs();
    let outcomes = store.commit_batch(&batch);
    assert_eq!(store.log().gate().syncs(), before + 1);
    let mut seq = 0;
    for (n, outcome) in outcomes.into_iter().enumerate() {
        match outcome {
            Ok(committed) => {
                seq += 1;
                assert_eq!(committed.seq().get(), seq);
                assert!(n % 10 != 9);
            }
            Err(error) => assert!(error.refusal().is_some() && n % 10 == 9, "{n}: {error}"),
        }
    }
    assert_eq!(store.log().durable_seq().get(), 900);
    assert_eq!(store.view().iter_prefix(b"refs/heads/").count(), 900);
}

// Break: a future that answers a refusal at once.
#[test]
fn an_awaited_refusal_waits_for_what_it_rests_on() {
    let scratch = Scratch::new();
    let store = &scratch.store;
    let create = tx([Edit::create(head("main"), oid(1))]);
    let hold = store.log().gate().hold();
    let first = store.stage(&create).unwrap();
    let mut second = store.stage(&create).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut second).poll(&mut context).is_pending());
    drop(hold);
    assert!(first.wait().unwrap().moved());
    let Poll::Ready(answer) = Pin::new(&mut second).poll(&mut context) else {
        panic!("what it rests on is durable");
    };
    assert!(answer.unwrap_err().refusal().is_some());
}

// Breaks: a future of a batch that is ready at once.
#[test]
fn an_awaited_batch_waits_and_answers_for_each_edit() {
    let scratch = Scratch::new();
    let store = &scratch.store;
    store.commit(&tx([Edit::create(head("a"), oid(1))])).unwrap();
    let hold = store.log().gate().hold();
    let edits = ["a", "b"].map(|name| Edit::create(head(name), oid(2)));
    let mut batch = store.stage_each(&tx(edits)).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut batch).poll(&mut context).is_pending());
    drop(hold);
    let answers = pollster::block_on(batch).unwrap();
    assert!(answers[0].as_ref().unwrap_err().name == head("a"));
    assert!(answers[1].as_ref().unwrap().moved() && answers.len() == 2);
}
