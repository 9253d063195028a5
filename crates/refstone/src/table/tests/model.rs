use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use refstone_log::ObjectFormat;

use super::super::{Cursor, Entry, Order, Step, Table, TableError};
use super::{Move, Scratch, State, many, oid, set, state, trail, varied};
use crate::edit::Target;
use crate::name::RefName;
use crate::row::RefMove;
use crate::stop::Stop;

type Row = (Vec<u8>, Entry, Vec<RefMove>);

fn walk(mut cursor: Cursor) -> Vec<Row> {
    let mut rows = Vec::new();
    while let Some(name) = cursor.name().map(<[u8]>::to_vec) {
        let entry = cursor.row().unwrap().entry();
        let (mut moves, of) = (Vec::new(), RefName::from_proven(&name));
        let each = |step: &Step<'_>| {
            moves.push(step.ref_move(&of).unwrap());
            Ok::<_, TableError>(())
        };
        cursor.each_step(each).unwrap();
        moves.reverse();
        rows.push((name, entry, moves));
        cursor.advance().unwrap();
    }
    rows
}

/// The rows of a state, from a name on.
fn listed(state: &State, start: &[u8], keep: impl Fn(&Entry) -> bool) -> Vec<Row> {
    let rows = state.range(start.to_vec()..).filter(|(_, (entry, _))| keep(entry));
    rows.map(|(name, (entry, moves))| (name.clone(), entry.clone(), moves.clone())).collect()
}

/// Asks a table everything, and compares with the state it should have.
fn assert_is(table: &Arc<Table>, state: &State, names: &BTreeSet<RefName>) {
    let lowest = table.identity().is_lowest();
    let is_gone = |entry: &Entry| lowest && entry.target.is_none();
    table.verify(Stop::NEVER).unwrap();
    for name in names {
        let known = state.get(name.as_bytes());
        let target = known.map(|known| known.0.target.clone());
        assert_eq!(table.target(name.as_bytes()).unwrap(), target, "{name}");
        let moves = known.map_or(Vec::new(), |known| known.1.clone());
        for order in [Order::OldestFirst, Order::NewestFirst] {
            assert_eq!(trail(table, name.as_bytes(), order).unwrap(), moves, "{name}");
        }
        for start in [name.as_bytes().to_vec(), [name.as_bytes(), b"\0"].concat()] {
            let live = listed(state, &start, |entry| !is_gone(entry));
            assert_eq!(walk(table.live_from(&start).unwrap()), live);
            assert_eq!(walk(table.gone_from(&start).unwrap()), listed(state, &start, is_gone));
        }
    }
    let all = listed(state, b"", |entry| !is_gone(entry));
    assert_eq!(table.live_rows(), all.len() as u64);
    assert_eq!(table.gone_rows(), (state.len() - all.len()) as u64);
    assert_eq!(walk(table.live_from(b"").unwrap()), all);
    assert_holds(table, &all);
}

fn assert_holds(table: &Table, rows: &[Row]) {
    let format = table.identity().object_format;
    for byte in 0..6 {
        let oid = oid(format, byte);
        let has = |row: &&Row| row.1.target == Some(Target::Object(oid));
        let expected: Vec<_> = rows.iter().filter(has).map(|row| row.0.clone()).collect();
        let found = table.holding(&oid).unwrap();
        let found: Vec<_> = found.iter().map(|name| name.as_bytes().to_vec()).collect();
        assert_eq!(found, expected, "{oid}");
    }
}

/// Few levels and letters, so that names meet, start with one another, and sort surprisingly.
fn names() -> impl Strategy<Value = RefName> {
    const LEVELS: &[&[u8]] = &[b"a", b"a-", b"\xff", b"\xc3\xa4", b"aa", b"0"];
    let level = prop::sample::select(LEVELS);
    let below = prop::collection::vec(level, 1..4);
    prop_oneof![
        8 => below.prop_map(|levels| [b"refs/", &levels.join(&b'/')[..]].concat()),
        1 => Just(b"HEAD".to_vec()),
    ]
    .prop_map(|name| RefName::new(name).unwrap())
}

pub(super) fn moves(format: ObjectFormat) -> impl Strategy<Value = Move> {
    let target = prop_oneof![
        4 => (0u8..6).prop_map(move |byte| Some(Target::Object(oid(format, byte)))),
        1 => names().prop_map(|name| Some(Target::Symbolic(name))),
        2 => Just(None),
    ];
    (names(), target).prop_map(|(name, target)| Move { name, target })
}

/// The moves of up to four adjacent tables.
pub(super) fn stacks() -> impl Strategy<Value = (ObjectFormat, Vec<Vec<Move>>)> {
    let format = prop_oneof![Just(ObjectFormat::Sha1), Just(ObjectFormat::Sha256)];
    format.prop_flat_map(|format| {
        let table = prop::collection::vec(moves(format), 1..40);
        (Just(format), prop::collection::vec(table, 1..5))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    // Breaks: nearly any line of this module; a merge that lets the oldest state win, that tells
    // the oldest moves first, or whose second pass looks at the live runs alone.
    #[test]
    fn tables_and_their_merges_are_maps((format, stack) in stacks(), first in 1u64..3) {
        let mut scratch = Scratch::new();
        let all = stack.concat();
        let names: BTreeSet<_> = all.iter().map(|moved| moved.name.clone()).chain([
            RefName::head(), RefName::new("refs/a").unwrap(), RefName::new("refs/none").unwrap(),
        ]).collect();
        let mut next = first;
        let mut tables = Vec::new();
        for moves in &stack {
            let table = scratch.table(format, next, moves);
            assert_is(&table, &state(next, moves), &names);
            tables.push(table);
            next += moves.len() as u64;
        }
        let expected = state(first, &all);
        assert_is(&scratch.merged(&tables), &expected, &names);
        // First the upper ones, then what came of them with the lowest.
        let upper = tables.split_off(1);
        if !upper.is_empty() {
            let inputs = [tables.remove(0), scratch.merged(&upper)];
            assert_is(&scratch.merged(&inputs), &expected, &names);
        }
    }
}

#[test]
fn a_table_of_every_kind_of_move_is_a_map() {
    let moves = varied();
    let names: BTreeSet<_> = moves.iter().map(|moved| moved.name.clone()).collect();
    for first in [1, 9] {
        let table = Scratch::new().table(ObjectFormat::Sha1, first, &moves);
        assert_is(&table, &state(first, &moves), &names);
    }
}

// Breaks: a cursor that ends with its block; rows of the second run counted on in the first's last
// block.
#[test]
fn blocks_and_pages_join() {
    let moves = many(5_000);
    let table = Scratch::new().table(ObjectFormat::Sha1, 1, &moves);
    let every = moves.iter().step_by(97).map(|moved| moved.name.clone());
    assert_is(&table, &state(1, &moves), &every.collect());
}

// Breaks: a search that begins at the page after the first that may hold the object, or ends with
// its first page.
#[test]
fn an_object_of_many_refs_is_found_on_all_its_pages() {
    let at = |n: usize| set(&format!("refs/tags/{n:04}"), if n < 500 { 1 } else { 2 });
    let moves: Vec<_> = (0..4_000).map(at).chain([set("refs/tags/x", 3)]).collect();
    let table = Scratch::new().table(ObjectFormat::Sha1, 1, &moves);
    assert!(table.directory.oid_pages.len() > 3);
    assert_holds(&table, &listed(&state(1, &moves), b"", |_| true));
}

// Breaks: comparing the name asked for with the stored text.
#[test]
fn a_name_that_looks_escaped_is_another() {
    let table = Scratch::new().table(ObjectFormat::Sha1, 1, &varied());
    assert!(table.target(b"refs/heads/a\xff").unwrap().is_some());
    assert!(table.target(b"refs/heads/a\\xff").unwrap().is_none());
}

// Breaks: a cursor that has the table keep all it reads.
#[test]
fn a_long_listing_is_not_kept() {
    let table = Scratch::new().table(ObjectFormat::Sha1, 1, &many(20_000));
    walk(table.live_from(b"").unwrap());
    let kept = table.blocks.iter().filter(|block| block.get().is_some()).count();
    assert!(table.blocks.len() > 16 && kept <= 8, "{kept} of {} blocks", table.blocks.len());
}
