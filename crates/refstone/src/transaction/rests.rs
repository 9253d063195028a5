//! The refs that the verdict on an edit rests on.

use std::collections::BTreeSet;

use crate::edit::{Edit, Expected, Target};
use crate::name::RefName;
use crate::refusal::Reason;
use crate::symref::{self, ChainEnd, NoEnd};
use crate::transaction::overlay::Overlay;

/// The named ref, those it is followed over, the one that is moved, and those that an unfollowed
/// symbolic ref is compared over.
///
/// While none of them moves, and no ref gets in the way of the one that is moved, the verdict on
/// the edit stays what it is.
///
/// # Errors
///
/// [`Reason::Unreadable`].
pub(crate) fn rests_on(
    edit: &Edit,
    end: &ChainEnd,
    refs: &Overlay<'_, '_>,
) -> Result<BTreeSet<RefName>, Reason> {
    let mut names = names_of(end);
    if compares_an_object(&edit.expected) && matches!(end.target, Some(Target::Symbolic(_))) {
        match symref::follow(&end.name, |name| refs.get(name.as_bytes())) {
            Ok(end) => names.extend(names_of(&end)),
            // It is refused for that, and rests on nothing further.
            Err(NoEnd::TooDeep) => {}
            Err(unreadable) => return Err(unreadable.into()),
        }
    }
    Ok(names)
}

fn names_of(end: &ChainEnd) -> BTreeSet<RefName> {
    end.through.iter().chain([&end.name]).cloned().collect()
}

fn compares_an_object(expected: &Expected) -> bool {
    matches!(expected, Expected::Absent | Expected::Value(Target::Object(_)))
}
