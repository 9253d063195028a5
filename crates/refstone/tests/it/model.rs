//! Random transactions against a model that is as plain as can be.
//!
//! A failure prints the smallest transactions that show it, and the seed under
//! `proptest-regressions/`, which is run first from then on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proptest::prelude::*;
use refstone::{
    At, Change, CompactOptions, Deref, Edit, Expected, HistoryForm, Merge, ObjectId, Reason,
    RefName, SYMREF_READS_MAX, Target, history, read_ref_at, read_view_at,
};

use crate::common::{Scratch, name, oid, tx};

type Refs = BTreeMap<RefName, Target>;

/// Few names, so that they meet: in each other's way, beside each other, and over symbolic refs.
const NAMES: [&str; 8] = [
    "HEAD",
    "ORIG_HEAD",
    "refs/heads/main",
    "refs/heads/a",
    "refs/heads/a-b",
    "refs/heads/a/b",
    "refs/heads/a/b/c",
    "refs/tags/s",
];

#[derive(Clone, Debug)]
enum Step {
    Together(Vec<Edit>),
    OneByOne(Vec<Edit>),
    /// A transaction in two phases, with others in between.
    Prepared(Vec<Edit>, Vec<Vec<Edit>>),
    Compact(CompactOptions),
    Rebuild,
    Reopen,
}

fn names() -> impl Strategy<Value = RefName> {
    prop::sample::select(&NAMES[..]).prop_map(name)
}

fn targets() -> impl Strategy<Value = Target> {
    prop_oneof![
        3 => (1u8..4).prop_map(|byte| oid(byte).into()),
        1 => names().prop_map(Target::from),
    ]
}

fn expectations() -> impl Strategy<Value = Expected> {
    prop_oneof![
        2 => Just(Expected::Any),
        2 => Just(Expected::Absent),
        1 => Just(Expected::Exists),
        2 => targets().prop_map(Expected::Value),
    ]
}

fn changes() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => targets().prop_map(Change::Set),
        2 => Just(Change::Delete),
        1 => Just(Change::Verify),
    ]
}

fn edits() -> impl Strategy<Value = Edit> {
    let deref = prop_oneof![2 => Just(Deref::Follow), 1 => Just(Deref::NoFollow)];
    let parts = (names(), expectations(), changes(), deref);
    parts.prop_map(|(name, expected, change, deref)| Edit { name, expected, change, deref })
}

fn steps() -> impl Strategy<Value = Step> {
    let edits = || prop::collection::vec(edits(), 1..4);
    prop_oneof![
        10 => edits().prop_map(Step::Together),
        6 => edits().prop_map(Step::OneByOne),
        4 => (edits(), prop::collection::vec(edits(), 1..4))
            .prop_map(|(edits, others)| Step::Prepared(edits, others)),
        4 => compactions().prop_map(Step::Compact),
        1 => Just(Step::Rebuild),
        1 => Just(Step::Reopen),
    ]
}

fn compactions() -> impl Strategy<Value = CompactOptions> {
    let form = prop_oneof![Just(HistoryForm::Full), Just(HistoryForm::Derived)];
    let merge = prop_oneof![3 => Just(Merge::Due), 1 => Just(Merge::All)];
    (form, merge).prop_map(|(form, merge)| CompactOptions { form, merge })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    // Breaks: nearly any line of `transaction/`, `staged`, `replay` or `row`; many of `compact`, `table/`,
    // `snapshot` and `archive`.
    #[test]
    fn the_store_is_a_map_of_refs(steps in prop::collection::vec(steps(), 1..40)) {
        let mut scratch = Scratch::new();
        let mut refs = Refs::from([(RefName::head(), name("refs/heads/main").into())]);
        for step in steps {
            run(&mut scratch, &mut refs, &step)?;
            let view = scratch.store.view();
            let listed: Refs = view.iter_prefix(b"").map(Result::unwrap).collect();
            prop_assert_eq!(&listed, &refs, "after {:?}", step);
            for byte in 1..4 {
                let holding = refs.iter().filter(|(_, to)| **to == oid(byte).into());
                let holding: Vec<_> = holding.map(|(name, _)| name.clone()).collect();
                prop_assert_eq!(view.refs_at(&oid(byte)).unwrap(), holding, "after {:?}", step);
            }
        }
        check_past(&scratch.dir(), &refs)?;
    }
}

/// The moves, wherever they are kept, lead from the first refs to the last ones, and readers of the
/// past see what they led to.
fn check_past(dir: &Path, last: &Refs) -> Result<(), TestCaseError> {
    let moves: Vec<_> = history(dir, None).unwrap().map(Result::unwrap).collect();
    let mut refs = Refs::from([(RefName::head(), name("refs/heads/main").into())]);
    for of_one in moves.chunk_by(|a, b| a.seq == b.seq) {
        for moved in of_one {
            prop_assert_eq!(moved.old_oid, refs.get(&moved.name).and_then(Target::object));
            match moved.target() {
                Some(target) => drop(refs.insert(moved.name.clone(), target)),
                None => drop(refs.remove(&moved.name)),
            }
        }
        let view = read_view_at(dir, At::Seq(of_one[0].seq)).unwrap();
        let seen: Refs = view.iter_prefix(b"").map(Result::unwrap).collect();
        prop_assert_eq!(&seen, &refs, "as of {}", of_one[0].seq);
        for name in NAMES.map(name).into_iter().chain([RefName::head()]) {
            let then = read_ref_at(dir, &name, At::Seq(of_one[0].seq)).unwrap();
            prop_assert_eq!(then, refs.get(&name).cloned(), "{} as of {}", name, of_one[0].seq);
        }
    }
    prop_assert_eq!(&refs, last);
    for name in NAMES.map(name) {
        let of_ref = history(dir, Some(&name)).unwrap().map(Result::unwrap);
        prop_assert!(of_ref.eq(moves.iter().filter(|moved| moved.name == name).cloned()));
    }
    Ok(())
}

fn run(scratch: &mut Scratch, refs: &mut Refs, step: &Step) -> Result<(), TestCaseError> {
    match step {
        Step::Reopen => scratch.reopen(),
        Step::Compact(options) => drop(scratch.store.compact(*options, &mut |_| ()).unwrap()),
        Step::Rebuild => scratch.store.rebuild(&mut |_| ()).unwrap(),
        Step::Together(edits) => {
            let verdict = scratch.store.commit(&tx(edits.clone()));
            let expected = together(refs, edits);
            prop_assert_eq!(verdict.is_ok(), expected, "{:?} of {:?}", verdict, step);
        }
        Step::OneByOne(edits) => {
            let verdicts = scratch.store.commit_each(&tx(edits.clone())).unwrap();
            let verdicts: Vec<_> = verdicts.iter().map(Result::is_ok).collect();
            prop_assert_eq!(verdicts, one_by_one(refs, edits), "{:?}", step);
        }
        Step::Prepared(edits, others) => {
            let prepared = scratch.store.prepare(tx(edits.clone()));
            prop_assert_eq!(prepared.is_ok(), together(&mut refs.clone(), edits), "{:?}", step);
            let Ok(prepared) = prepared else { return Ok(()) };
            others.iter().try_for_each(|other| beside(scratch, refs, edits, other))?;
            prepared.commit().unwrap();
            prop_assert!(together(refs, edits), "it would be refused by now: {:?}", step);
        }
    }
    Ok(())
}

/// Another transaction while one is prepared: it goes as ever, or meets what is held.
fn beside(
    scratch: &Scratch,
    refs: &mut Refs,
    prepared: &[Edit],
    other: &[Edit],
) -> Result<(), TestCaseError> {
    let verdict = scratch.store.commit(&tx(other.to_vec()));
    let reason = verdict.as_ref().err().and_then(|error| Some(&error.refusal()?.reason));
    if let Some(Reason::Locked { .. }) = reason {
        let meets = |edit| prepared.iter().any(|held| meet(refs, held, edit));
        prop_assert!(other.iter().any(meets), "{:?} held off {:?}", prepared, other);
        return Ok(());
    }
    prop_assert_eq!(verdict.is_ok(), together(refs, other), "{:?} of {:?}", verdict, other);
    Ok(())
}

fn meet(refs: &Refs, held: &Edit, edit: &Edit) -> bool {
    let names = |edit: &Edit| {
        let mut names = followed(refs, edit);
        names.extend(chain(refs, &edit.name).unwrap_or_default());
        names
    };
    let (held, names) = (names(held), names(edit));
    held.iter().any(|held| names.iter().any(|name| name == held || in_each_others_way(name, held)))
}

/// The model of [`refstone::RefStore::commit`].
fn together(refs: &mut Refs, edits: &[Edit]) -> bool {
    let before = refs.clone();
    let touched: Vec<_> = edits.iter().map(|edit| touched(&before, edit)).collect();
    let collide = (0..edits.len()).any(|i| meets_another(&touched, i));
    let names: BTreeSet<_> = edits.iter().flat_map(|edit| followed(&before, edit)).collect();
    let judged = edits.iter().all(|edit| {
        let crowded = missing_end(&before, edit)
            .is_some_and(|end| names.iter().any(|other| in_each_others_way(&end, other)));
        passes(&before, edit) && !crowded
    });
    if collide || !judged {
        return false;
    }
    edits.iter().for_each(|edit| apply(refs, edit));
    true
}

/// The model of [`refstone::RefStore::commit_each`].
fn one_by_one(refs: &mut Refs, edits: &[Edit]) -> Vec<bool> {
    let touched: Vec<_> = edits.iter().map(|edit| touched(refs, edit)).collect();
    // An edit is about the ref it gets to before the batch.
    let gets_there: Vec<_> = edits.iter().map(|edit| end(refs, edit).is_some()).collect();
    let mut passed = vec![false; edits.len()];
    for deletions in [true, false] {
        for (i, edit) in edits.iter().enumerate() {
            let now = (edit.change == Change::Delete) == deletions;
            if now && gets_there[i] && !meets_another(&touched, i) && passes(refs, edit) {
                passed[i] = true;
                apply(refs, edit);
            }
        }
    }
    passed
}

/// The name of an edit and those it is followed to.
fn followed(refs: &Refs, edit: &Edit) -> Vec<RefName> {
    let mut names = vec![edit.name.clone()];
    if edit.deref == Deref::Follow {
        names.extend(chain(refs, &edit.name).unwrap_or_default());
    }
    names
}

/// The same, and the branch behind `HEAD`, for which git logs what moves `HEAD`.
fn touched(refs: &Refs, edit: &Edit) -> Vec<RefName> {
    let mut names = followed(refs, edit);
    if edit.deref == Deref::NoFollow && edit.name.is_head() {
        names.extend(refs.get(&edit.name).and_then(Target::symbolic).cloned());
    }
    names
}

fn meets_another(touched: &[Vec<RefName>], i: usize) -> bool {
    let others = touched.iter().enumerate().filter(|&(j, _)| j != i);
    others.flat_map(|(_, names)| names).any(|name| touched[i].contains(name))
}

/// The names behind a symbolic ref; `None` if they are too many to read.
fn chain(refs: &Refs, start: &RefName) -> Option<Vec<RefName>> {
    let mut names = Vec::new();
    let mut at = start;
    for _ in 0..SYMREF_READS_MAX {
        match refs.get(at) {
            Some(Target::Symbolic(next)) => names.push(next.clone()),
            _ => return Some(names),
        }
        at = names.last().unwrap();
    }
    None
}

fn end(refs: &Refs, edit: &Edit) -> Option<RefName> {
    match edit.deref {
        Deref::NoFollow => Some(edit.name.clone()),
        Deref::Follow => {
            let names = chain(refs, &edit.name)?;
            Some(names.last().unwrap_or(&edit.name).clone())
        }
    }
}

fn missing_end(refs: &Refs, edit: &Edit) -> Option<RefName> {
    end(refs, edit).filter(|end| !refs.contains_key(end))
}

fn passes(refs: &Refs, edit: &Edit) -> bool {
    let Some(end) = end(refs, edit) else {
        return false;
    };
    let free = refs.contains_key(&end) || !refs.keys().any(|other| in_each_others_way(&end, other));
    free && is_expected(refs, &edit.expected, &end) && is_allowed(&edit.change, &end)
}

fn in_each_others_way(a: &RefName, b: &RefName) -> bool {
    let below = |a: &RefName, b: &RefName| {
        a.as_bytes().strip_prefix(b.as_bytes()).is_some_and(|rest| rest.starts_with(b"/"))
    };
    below(a, b) || below(b, a)
}

fn is_allowed(change: &Change, end: &RefName) -> bool {
    match change {
        _ if !end.is_head() => true,
        Change::Delete => false,
        Change::Set(Target::Symbolic(to)) => to.is_below_refs(),
        _ => true,
    }
}

fn is_expected(refs: &Refs, expected: &Expected, end: &RefName) -> bool {
    let held = refs.get(end);
    let object = || Some(resolve(refs, end)?.1);
    match expected {
        Expected::Any => true,
        Expected::Exists => held.is_some(),
        Expected::Absent => object() == Some(None),
        Expected::Value(Target::Object(id)) => object() == Some(Some(*id)),
        Expected::Value(symbolic) => held == Some(symbolic) && object().is_some(),
    }
}

fn resolve(refs: &Refs, start: &RefName) -> Option<(RefName, Option<ObjectId>)> {
    let last = chain(refs, start)?.pop().unwrap_or_else(|| start.clone());
    let object = refs.get(&last).and_then(Target::object);
    Some((last, object))
}

fn apply(refs: &mut Refs, edit: &Edit) {
    let end = end(refs, edit).unwrap();
    match &edit.change {
        Change::Set(target) => drop(refs.insert(end, target.clone())),
        Change::Delete => drop(refs.remove(&end)),
        Change::Verify => {}
    }
}
