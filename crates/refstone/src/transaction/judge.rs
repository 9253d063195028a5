//! A transaction against the state: what moves, or why not.

use std::collections::{BTreeMap, BTreeSet};

use crate::current::Current;
use crate::edit::{Change, Deref, Edit};
use crate::holds::Held;
use crate::name::RefName;
use crate::refusal::{Reason, Refusal};
use crate::staged::Move;
use crate::symref::{self, ChainEnd};
use crate::transaction::check::{check, movement};
use crate::transaction::names::{Places, Reached, Shared};
use crate::transaction::overlay::Overlay;
use crate::transaction::plan::Plan;
use crate::transaction::rests::rests_on;

/// What a batch comes to: a verdict for each edit, and the moves of those that passed.
#[derive(Debug)]
pub(crate) struct Verdicts {
    /// Whether the edit moved a ref, in the order of the edits.
    pub(crate) moved: Vec<Result<bool, Refusal>>,
    pub(crate) moves: Vec<Move>,
}

/// Judges a transaction as a whole: all its moves, or the first reason against it.
///
/// # Errors
///
/// The refusal of the first edit that cannot be.
pub(crate) fn all_or_nothing(
    plan: &Plan<'_>,
    current: &Current<'_>,
    held: &Held,
) -> Result<Vec<Move>, Refusal> {
    if let Some((&index, reason)) = plan.refused.first_key_value() {
        return Err(plan.refusal(index, reason.clone()));
    }
    let ends = locate_all(plan, current)?;
    let mut reached = Reached::default();
    let shared = reach_all(plan, &mut reached, ends.iter().enumerate());
    if let Some(shared) = shared.into_iter().next() {
        return Err(plan.refusal(shared.edits[1], shared.reason));
    }
    let mut crowded = reached.crowded(plan, &ends);
    let (refs, mut places) = (Overlay::new(current), Places::default());
    let mut moves = Vec::with_capacity(ends.len());
    for (index, end) in ends.into_iter().enumerate() {
        let edit = &plan.edits[index];
        is_free(edit, &end, &refs, held)
            .and_then(|()| check(edit, &end, &refs, &mut places))
            .and_then(|()| crowded.remove(&index).map_or(Ok(()), Err))
            .map_err(|reason| plan.refusal(index, reason))?;
        moves.extend(movement(&edit.change, end));
    }
    Ok(moves)
}

/// Judges each edit on its own, as if they came one after the other: deletions first, so that a
/// batch may replace `a` by `a/b`, and else in order. Edits that share a ref are all refused, so
/// the refs that the edits are about are found before any of them moves.
pub(crate) fn one_by_one(plan: &Plan<'_>, current: &Current<'_>, held: &Held) -> Verdicts {
    let mut refused = plan.refused.clone();
    let ends = locate_each(plan, current, &mut refused);
    let mut moves = BTreeMap::new();
    let mut refs = Overlay::new(current);
    for index in deletions_first(plan.edits) {
        let Some(end) = ends.get(&index).filter(|_| !refused.contains_key(&index)) else {
            continue;
        };
        let edit = &plan.edits[index];
        // The edits before it may have moved refs.
        let mut places = Places::default();
        let passed =
            is_free(edit, end, &refs, held).and_then(|()| check(edit, end, &refs, &mut places));
        match passed.map(|()| movement(&edit.change, end.clone())) {
            Ok(moved) => {
                moved.iter().for_each(|moved| refs.note(moved));
                moves.extend(moved.map(|moved| (index, moved)));
            }
            Err(reason) => {
                refused.insert(index, reason);
            }
        }
    }
    verdicts(plan, refused, moves)
}

/// The refs to hold so that the verdict on a transaction that passed stays what it is.
///
/// # Errors
///
/// If a ref cannot be read.
pub(crate) fn holds_for(
    plan: &Plan<'_>,
    current: &Current<'_>,
) -> Result<BTreeSet<RefName>, Refusal> {
    let refs = Overlay::new(current);
    let mut names = BTreeSet::new();
    for (index, edit) in plan.edits.iter().enumerate() {
        let rests_on = locate(edit, current).and_then(|end| rests_on(edit, &end, &refs));
        names.extend(rests_on.map_err(|reason| plan.refusal(index, reason))?);
    }
    Ok(names)
}

/// Whether no prepared transaction holds what the edit needs. Costs nothing while there is none.
fn is_free(edit: &Edit, end: &ChainEnd, refs: &Overlay<'_, '_>, held: &Held) -> Result<(), Reason> {
    if held.is_empty() {
        return Ok(());
    }
    let missing = end.target.is_none().then_some(&end.name);
    held.refuses(&rests_on(edit, end, refs)?, missing)
}

fn verdicts(
    plan: &Plan<'_>,
    mut refused: BTreeMap<usize, Reason>,
    moves: BTreeMap<usize, Move>,
) -> Verdicts {
    let verdict = |index| match refused.remove(&index) {
        Some(reason) => Err(plan.refusal(index, reason)),
        None => Ok(moves.contains_key(&index)),
    };
    Verdicts {
        moved: (0..plan.edits.len()).map(verdict).collect(),
        moves: moves.into_values().collect(),
    }
}

fn deletions_first(edits: &[Edit]) -> impl Iterator<Item = usize> {
    let (deletions, others): (Vec<_>, Vec<_>) =
        (0..edits.len()).partition(|&index| edits[index].change == Change::Delete);
    deletions.into_iter().chain(others)
}

fn locate_all(plan: &Plan<'_>, current: &Current<'_>) -> Result<Vec<ChainEnd>, Refusal> {
    let mut ends = Vec::with_capacity(plan.edits.len());
    for (index, edit) in plan.edits.iter().enumerate() {
        ends.push(locate(edit, current).map_err(|reason| plan.refusal(index, reason))?);
    }
    Ok(ends)
}

fn locate_each(
    plan: &Plan<'_>,
    current: &Current<'_>,
    refused: &mut BTreeMap<usize, Reason>,
) -> BTreeMap<usize, ChainEnd> {
    let mut ends = BTreeMap::new();
    for (index, edit) in plan.edits.iter().enumerate() {
        match locate(edit, current) {
            Ok(end) => {
                ends.insert(index, end);
            }
            Err(reason) => {
                refused.entry(index).or_insert(reason);
            }
        }
    }
    let ends_by_index = ends.iter().map(|(&index, end)| (index, end));
    for shared in reach_all(plan, &mut Reached::default(), ends_by_index) {
        for index in shared.edits {
            refused.insert(index, shared.reason.clone());
        }
    }
    ends
}

/// The ref an edit is about.
fn locate(edit: &Edit, current: &Current<'_>) -> Result<ChainEnd, Reason> {
    let name = &edit.name;
    match edit.deref {
        Deref::Follow => Ok(symref::follow(name, |name| current.get(name.as_bytes()))?),
        Deref::NoFollow => {
            let target = current.get(name.as_bytes())?;
            Ok(ChainEnd { through: Vec::new(), name: name.clone(), target })
        }
    }
}

fn reach_all<'e>(
    plan: &Plan<'_>,
    reached: &mut Reached<'e>,
    ends: impl Iterator<Item = (usize, &'e ChainEnd)>,
) -> Vec<Shared> {
    if plan.edits.len() < 2 {
        return Vec::new();
    }
    let further = ends.filter(|(_, end)| !end.through.is_empty() || end.name.is_head());
    further.flat_map(|(index, end)| reached.add(plan, index, end)).collect()
}
