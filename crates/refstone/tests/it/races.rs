//! Many threads, one winner.

use std::sync::Barrier;
use std::thread;

use refstone::{Edit, RefStore, Target};

use crate::common::{Scratch, head, oid, tx};

const THREADS: u8 = 8;

/// Runs `race` in all threads at once; says in how many it was true.
fn winners(race: impl Fn(u8) -> bool + Sync) -> usize {
    let start = Barrier::new(usize::from(THREADS));
    let run = |thread| {
        start.wait();
        race(thread)
    };
    thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..THREADS).map(|i| scope.spawn(move || run(i))).collect();
        let won = threads.into_iter().map(|thread| thread.join().unwrap());
        won.filter(|&won| won).count()
    })
}

fn passes(store: &RefStore, edit: Edit) -> bool {
    store.commit(&tx([edit])).is_ok()
}

// Breaks: comparing outside the writer mutex, or with the durable view alone.
#[test]
fn one_of_many_creators_wins() {
    let scratch = Scratch::new();
    for round in 0..20 {
        let name = head(&round.to_string());
        let create = |thread| passes(&scratch.store, Edit::create(name.clone(), oid(thread + 1)));
        assert_eq!(winners(create), 1, "round {round}");
    }
}

// Breaks: the same.
#[test]
fn one_of_many_updates_from_one_old_value_wins() {
    let scratch = Scratch::new();
    let name = head("a");
    scratch.store.commit(&tx([Edit::create(name.clone(), oid(255))])).unwrap();
    let mut old = oid(255);
    for round in 0..20u8 {
        let new = |thread| oid(round.wrapping_mul(THREADS) + thread + 1);
        let update = |thread| passes(&scratch.store, Edit::update(name.clone(), new(thread), old));
        assert_eq!(winners(update), 1, "round {round}");
        let view = scratch.store.view();
        old = view.get(&name).unwrap().as_ref().and_then(Target::object).unwrap();
        assert!((0..THREADS).any(|thread| new(thread) == old), "round {round}");
    }
}

// Breaks: leaving staged names out when looking for names in the way.
#[test]
fn names_in_each_others_way_never_both_win() {
    let scratch = Scratch::new();
    for round in 0..20 {
        let (short, long) = (head(&format!("{round}")), head(&format!("{round}/x")));
        let name = |thread| if thread % 2 == 0 { short.clone() } else { long.clone() };
        winners(|thread| passes(&scratch.store, Edit::set(name(thread), oid(1))));
        let view = scratch.store.view();
        let both = view.get(&short).unwrap().is_some() && view.get(&long).unwrap().is_some();
        assert!(!both, "round {round}");
        assert!(
            view.get(&short).unwrap().is_some() || view.get(&long).unwrap().is_some(),
            "round {round}"
        );
    }
}

// Breaks: a lost update: reading the value anywhere but under the writer mutex.
#[test]
fn increments_by_compare_and_set_are_never_lost() {
    let mut scratch = Scratch::new();
    let name = head("counter");
    scratch.store.commit(&tx([Edit::create(name.clone(), oid(1))])).unwrap();
    winners(|_| {
        (0..10).for_each(|_| increment(&scratch.store));
        true
    });
    let end = oid(1 + 10 * THREADS);
    assert_eq!(scratch.store.view().get(&name), Ok(Some(end.into())));
    scratch.reopen();
    assert_eq!(scratch.store.view().get(&name), Ok(Some(end.into())));
}

fn increment(store: &RefStore) {
    let name = head("counter");
    loop {
        let old = store.view().get(&name).unwrap().as_ref().and_then(Target::object).unwrap();
        let new = oid(old.as_bytes()[0] + 1);
        if passes(store, Edit::update(name.clone(), new, old)) {
            return;
        }
    }
}
