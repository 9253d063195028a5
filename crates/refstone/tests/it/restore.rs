//! Bringing refs back.

use refstone::{At, CompactOptions, Edit, Reason, RefName, RestoreError, Seq, Target, restoring};

use crate::common::{Scratch, head, oid, tx};

fn commit(scratch: &Scratch, edit: Edit) -> refstone::Timestamp {
    scratch.store.commit(&tx([edit])).unwrap();
    let newest = refstone::history_newest_first(&scratch.dir(), None).unwrap().next();
    newest.unwrap().unwrap().at
}

fn compact(scratch: &Scratch) {
    scratch.store.compact(CompactOptions::default(), &mut |_| ()).unwrap();
}

fn restore(scratch: &Scratch, name: &RefName, to: Option<At>) -> Option<Target> {
    let edit = restoring(&scratch.dir(), name, to).unwrap();
    assert!(scratch.store.commit(&tx([edit])).unwrap().moved());
    scratch.store.view().get(name).unwrap()
}

// Breaks: taking the value after the last move for the one before it; looking at the live log only.
#[test]
fn a_ref_comes_back_as_it_was_before_its_last_move_or_at_any_point() {
    for sealed in [false, true] {
        let scratch = Scratch::new();
        let name = head("topic");
        commit(&scratch, Edit::create(name.clone(), oid(1)));
        let then = commit(&scratch, Edit::set(name.clone(), oid(2)));
        commit(&scratch, Edit::set(head("other"), oid(9)));
        commit(&scratch, Edit::delete(name.clone()));
        if sealed {
            compact(&scratch);
        }
        assert_eq!(restore(&scratch, &name, None), Some(oid(2).into()));
        assert_eq!(restore(&scratch, &name, Some(At::Seq(Seq::new(1)))), Some(oid(1).into()));
        if sealed {
            compact(&scratch);
        }
        assert_eq!(restore(&scratch, &name, Some(At::Time(then))), Some(oid(2).into()));
        assert_eq!(restore(&scratch, &name, None), Some(oid(1).into()), "rewound");
        let moves = refstone::history(&scratch.dir(), Some(&name)).unwrap();
        assert_eq!(moves.map(Result::unwrap).count(), 7, "each is a transaction of its own");
    }
}

// Breaks: expecting whatever is there when it commits. What came between would be lost silently.
#[test]
fn a_ref_that_moves_meanwhile_is_left_alone() {
    let scratch = Scratch::new();
    let name = head("topic");
    commit(&scratch, Edit::create(name.clone(), oid(1)));
    commit(&scratch, Edit::set(name.clone(), oid(2)));
    let to_its_start = Some(At::Seq(Seq::new(1)));
    let edits = [None, to_its_start].map(|to| restoring(&scratch.dir(), &name, to).unwrap());
    commit(&scratch, Edit::set(name.clone(), oid(3)));
    for edit in edits {
        let refused = scratch.store.commit(&tx([edit])).unwrap_err();
        assert!(matches!(refused.refusal().unwrap().reason, Reason::Conflict { .. }), "{refused}");
    }

    commit(&scratch, Edit::delete(name.clone()));
    let edit = restoring(&scratch.dir(), &name, None).unwrap();
    commit(&scratch, Edit::create(name.clone(), oid(4)));
    let refused = scratch.store.commit(&tx([edit])).unwrap_err();
    assert!(matches!(refused.refusal().unwrap().reason, Reason::AlreadyExists { .. }), "{refused}");
    assert_eq!(scratch.store.view().get(&name), Ok(Some(oid(4).into())));
}

// Breaks: following a symbolic ref, which would move the branch that HEAD is on.
#[test]
fn a_symbolic_ref_is_restored_itself() {
    let scratch = Scratch::new();
    commit(&scratch, Edit::create(head("main"), oid(1)));
    commit(&scratch, Edit::set(RefName::head(), head("other")).no_deref());
    assert_eq!(restore(&scratch, &RefName::head(), None), Some(head("main").into()));
    commit(&scratch, Edit::set(RefName::head(), oid(5)).no_deref());
    assert_eq!(restore(&scratch, &RefName::head(), None), Some(head("main").into()));
    assert_eq!(scratch.store.view().get(&head("main")), Ok(Some(oid(1).into())));
}

#[test]
fn where_there_was_nothing_there_is_nothing_to_restore() {
    let scratch = Scratch::new();
    let name = head("topic");
    commit(&scratch, Edit::create(head("other"), oid(1)));
    let never = restoring(&scratch.dir(), &name, None).unwrap_err();
    assert!(matches!(never, RestoreError::NeverMoved { .. }), "{never}");
    commit(&scratch, Edit::create(name.clone(), oid(1)));
    for to in [None, Some(At::Seq(Seq::new(1)))] {
        let absent = restoring(&scratch.dir(), &name, to).unwrap_err();
        assert_eq!(absent.to_string(), "'refs/heads/topic' did not exist after transaction 1");
    }
}
