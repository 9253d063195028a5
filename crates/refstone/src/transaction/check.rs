//! One edit against the refs: whether what it expects holds, and what it moves.

use std::borrow::Cow;

use crate::edit::{Change, Edit, Expected, Target};
use crate::refusal::Reason;
use crate::staged::Move;
use crate::symref::{self, ChainEnd};
use crate::transaction::names::Places;
use crate::transaction::overlay::Overlay;

/// Checks one edit whose ref is `end`.
pub(crate) fn check(
    edit: &Edit,
    end: &ChainEnd,
    refs: &Overlay<'_, '_>,
    places: &mut Places,
) -> Result<(), Reason> {
    special_names(&edit.change, end)?;
    expected_holds(&edit.expected, end, refs)?;
    // Git takes the name's lock even to delete or verify a missing ref, and so refuses it when the
    // name could not exist. A ref that exists has its place already: the common update ends here.
    match end.target {
        None => places.check(&end.name, refs),
        Some(_) => Ok(()),
    }
}

/// The few names outside `refs/` that obey rules of their own.
fn special_names(change: &Change, end: &ChainEnd) -> Result<(), Reason> {
    if end.name.is_below_refs() {
        return Ok(());
    }
    match (end.name.as_bytes(), change) {
        (b"FETCH_HEAD" | b"MERGE_HEAD", _) => Err(Reason::PseudoRef { pseudo: end.name.clone() }),
        (b"HEAD", Change::Delete) => Err(Reason::HeadDeletion),
        (b"HEAD", Change::Set(Target::Symbolic(target))) if !target.is_below_refs() => {
            let target = target.clone();
            Err(Reason::HeadOutsideRefs { target })
        }
        _ => Ok(()),
    }
}

fn expected_holds(
    expected: &Expected,
    end: &ChainEnd,
    refs: &Overlay<'_, '_>,
) -> Result<(), Reason> {
    match expected {
        Expected::Any => Ok(()),
        Expected::Absent => absent(end, refs),
        Expected::Value(Target::Object(id)) if id.is_zero() => absent(end, refs),
        Expected::Exists => existing(end).map(drop),
        Expected::Value(expected) => has_value(expected, end, refs),
    }
}

fn existing(end: &ChainEnd) -> Result<&Target, Reason> {
    end.target.as_ref().ok_or_else(|| Reason::Missing { missing: end.name.clone() })
}

fn absent(end: &ChainEnd, refs: &Overlay<'_, '_>) -> Result<(), Reason> {
    match (&end.target, resolved(end, refs)?) {
        (Some(actual), Some(_)) => Err(Reason::AlreadyExists { actual: actual.clone() }),
        _ => Ok(()),
    }
}

fn has_value(expected: &Target, end: &ChainEnd, refs: &Overlay<'_, '_>) -> Result<(), Reason> {
    let held = existing(end)?;
    let resolved = resolved(end, refs)?;
    let actual = match expected {
        Target::Object(_) => resolved,
        Target::Symbolic(_) => Some(Cow::Borrowed(held)),
    };
    if actual.as_deref() == Some(expected) {
        return Ok(());
    }
    Err(Reason::Conflict { expected: expected.clone(), actual: actual.map(Cow::into_owned) })
}

/// What the ref resolves to. An edit that is not followed may stand on a symbolic ref, and git
/// then compares with the object at the end of the chain, and refuses a chain it cannot read.
fn resolved<'a>(
    end: &'a ChainEnd,
    refs: &Overlay<'_, '_>,
) -> Result<Option<Cow<'a, Target>>, Reason> {
    match &end.target {
        Some(Target::Symbolic(_)) => {
            let end = symref::follow(&end.name, |name| refs.get(name.as_bytes()))?;
            Ok(end.target.map(Cow::Owned))
        }
        direct => Ok(direct.as_ref().map(Cow::Borrowed)),
    }
}

/// What an edit that passed moves, if anything.
pub(crate) fn movement(change: &Change, end: ChainEnd) -> Option<Move> {
    let new = match change {
        Change::Verify => return None,
        Change::Delete => None,
        Change::Set(target) => Some(target),
    };
    // Git writes neither ref nor reflog for a value that is there already, so this is no move.
    (new != end.target.as_ref()).then(|| Move {
        old: end.target.as_ref().and_then(Target::object),
        new: new.cloned(),
        name: end.name,
    })
}
