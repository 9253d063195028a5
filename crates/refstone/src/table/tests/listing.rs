//! Listings of a stack of tables with newer moves above it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use refstone_log::{ObjectFormat, Seq};

use super::super::Table;
use super::super::layout::BLOCK_ROWS;
use super::super::lines::{Line, Said};
use super::faults::Faulty;
use super::model::{moves, stacks};
use super::{Move, Scratch, many, set, state, write};
use crate::edit::Target;
use crate::error::ReadError;
use crate::name::RefName;
use crate::recent::Recent;
use crate::snapshot::{Merged, Snapshot};
use crate::stack::Stack;

fn snapshot(tables: Vec<Arc<Table>>, above: &[Move]) -> Snapshot {
    let mut recent = Recent::default();
    above.iter().for_each(|moved| recent.put(moved.name.clone(), moved.target.clone()));
    Snapshot { seq: Seq::new(1), recent, tables: Arc::new(Stack::new(tables)) }
}

fn stacked(scratch: &mut Scratch, format: ObjectFormat, stack: &[Vec<Move>]) -> Vec<Arc<Table>> {
    let mut next = 1;
    let mut table = |moves: &Vec<Move>| {
        let table = scratch.table(format, next, moves);
        next += moves.len() as u64;
        table
    };
    stack.iter().map(&mut table).collect()
}

fn listed(refs: Merged<'_>) -> Vec<(RefName, Target)> {
    refs.map(Result::unwrap).collect()
}

/// What is there after these moves.
fn expected(moves: &[Move], start: &[u8], until: Option<&[u8]>) -> Vec<(RefName, Target)> {
    let state = state(1, moves);
    let inside = |name: &&[u8]| until.is_none_or(|until| *name < until);
    let rows = state.range(start.to_vec()..).filter(|(name, _)| inside(&&name[..]));
    rows.filter_map(|(name, (entry, _))| Some((RefName::from_proven(name), entry.target.clone()?)))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    // Breaks: a run that ends one row late; older tables not taken past a name that a newer one has;
    // a limit that leaves out the newest moves, the tables above, or those below; a lookup that
    // takes a deletion for "ask below".
    #[test]
    fn a_stack_is_a_map(
        (format, stack) in stacks(),
        above in prop::collection::vec(moves(ObjectFormat::Sha1), 0..20),
        bounds in [moves(ObjectFormat::Sha1), moves(ObjectFormat::Sha1)],
    ) {
        let above = if format == ObjectFormat::Sha1 { above } else { Vec::new() };
        let snapshot = snapshot(stacked(&mut Scratch::new(), format, &stack), &above);
        let all = [stack.concat(), above].concat();
        prop_assert_eq!(listed(snapshot.range(b"", None)), expected(&all, b"", None));
        let [start, until] = bounds.each_ref().map(|bound| bound.name.as_bytes());
        let some = listed(snapshot.range(start, Some(until.to_vec())));
        prop_assert_eq!(some, expected(&all, start, Some(until)));
        let known = state(1, &all);
        for moved in &all {
            let name = moved.name.as_bytes();
            prop_assert_eq!(snapshot.get(name).unwrap(), known[name].0.target.clone());
        }
    }
}

// Breaks: a search in doubling steps that stops a row before or behind its limit.
#[test]
fn runs_of_any_length_end_where_another_source_goes_on() {
    let at = |n: usize| set(&format!("refs/heads/{n:04}"), 1);
    let long: Vec<_> = (0..2_500).map(at).collect();
    for gap in [1, 2, 3, 7, 64, 1000, 1023, 1024, 1025] {
        let again = |n: usize| set(&format!("refs/heads/{n:04}"), 2);
        let between: Vec<_> = (0..2_500).step_by(gap).map(again).collect();
        let stack = [long.clone(), between];
        let tables = stacked(&mut Scratch::new(), ObjectFormat::Sha1, &stack);
        let found = listed(snapshot(tables, &[]).range(b"", None));
        assert_eq!(found, expected(&stack.concat(), b"", None), "a gap of {gap}");
    }
}

// Breaks: a block read before the rows of the one before it have been given out; going on behind an
// error.
#[test]
fn what_stands_before_damage_is_listed() {
    let (env, mut scratch) = (Faulty::default(), Scratch::new());
    let path = scratch.path();
    let moves = many(5_000);
    write(&env, &path, ObjectFormat::Sha1, 1, &moves).unwrap();
    let snapshot = snapshot(vec![Arc::new(Table::open(&env, &path).unwrap())], &[]);
    let mut refs = snapshot.range(b"", None);
    let first = refs.next().unwrap().unwrap();
    env.reads.store(true, Ordering::Relaxed);
    let found: Vec<Result<_, ReadError>> = refs.take(moves.len()).collect();
    let (error, before) = found.split_last().unwrap();
    assert!(error.is_err());
    let before = before.iter().map(|item| item.clone().unwrap());
    let there = expected(&moves, b"", None);
    assert!([first].into_iter().chain(before).eq(there[..BLOCK_ROWS].iter().cloned()));
}

fn line_has(line: &Line, name: &RefName) -> bool {
    matches!(line.ask(name.as_bytes()), Said::Holds(_))
}

// Breaks: a line with room for one byte more than it has; one that compares only as many bytes as
// it has itself.
#[test]
fn names_are_found_whether_they_fit_a_line_or_not() {
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        let lens = 20..80;
        let named = |len: usize| {
            let mut moved = set(&format!("refs/{}", "x".repeat(len - 5)), 1);
            moved.target = Some(Target::Object(super::oid(format, u8::try_from(len).unwrap())));
            moved
        };
        let moves: Vec<_> = lens.map(named).collect();
        let table = Scratch::new().table(format, 1, &moves);
        for moved in &moves {
            let found = table.target(moved.name.as_bytes()).unwrap();
            assert_eq!(found, Some(moved.target.clone()), "{}", moved.name);
        }
        // Names so alike that only the line itself tells them apart.
        for line in table.lines[0].get().unwrap() {
            let others = moves.iter().filter(|moved| !line_has(line, &moved.name));
            assert!(others.count() >= moves.len() - 1);
        }
    }
}

// Breaks: keeping the block as well as its lines, which takes the memory twice.
#[test]
fn lookups_keep_lines_and_no_blocks() {
    let moves = many(3_000);
    let table = Scratch::new().table(ObjectFormat::Sha1, 1, &moves);
    for moved in &moves {
        assert_eq!(table.target(moved.name.as_bytes()).unwrap(), Some(moved.target.clone()));
    }
    assert!(table.lines.iter().all(|lines| lines.get().is_some()));
    assert!(table.blocks.iter().all(|block| block.get().is_none()));
}
