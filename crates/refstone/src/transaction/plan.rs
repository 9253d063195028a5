//! What can be said about edits without looking at the store.

use std::collections::{BTreeMap, HashMap};

use refstone_log::ObjectFormat;

use crate::edit::{Change, Edit, Expected, Target};
use crate::name::NameHashing;
use crate::oid::ObjectId;
use crate::refusal::{Reason, Refusal};

/// Edits after the checks that need no state, made before the writer's lock is taken.
#[derive(Debug)]
pub(crate) struct Plan<'t> {
    pub(crate) edits: &'t [Edit],
    /// Edits that are refused whatever the store holds, by their index.
    pub(crate) refused: BTreeMap<usize, Reason>,
    pub(crate) named: Named<'t>,
}

/// Which edit names a ref. Of a single edit it knows nothing: that cannot collide.
#[derive(Debug)]
pub(crate) enum Named<'t> {
    /// The edits come in the order of their names, each name once: most large transactions do.
    InOrder(&'t [Edit]),
    Hashed(HashMap<&'t [u8], usize, NameHashing>),
}

impl Named<'_> {
    pub(crate) fn get(&self, name: &[u8]) -> Option<usize> {
        match self {
            Named::InOrder(edits) => {
                edits.binary_search_by(|edit| edit.name.as_bytes().cmp(name)).ok()
            }
            Named::Hashed(edits) => edits.get(name).copied(),
        }
    }
}

impl<'t> Plan<'t> {
    pub(crate) fn new(edits: &'t [Edit], format: ObjectFormat) -> Plan<'t> {
        let wrong = |(index, edit)| Some((index, wrong_value(edit, format)?));
        let mut plan = Plan {
            edits,
            refused: edits.iter().enumerate().filter_map(wrong).collect(),
            named: Named::InOrder(if edits.len() > 1 { edits } else { &[] }),
        };
        if !edits.is_sorted_by(|edit, next| edit.name < next.name) {
            plan.named = Named::Hashed(plan.name_all());
        }
        plan
    }

    /// The refusal of one edit.
    pub(crate) fn refusal(&self, index: usize, reason: Reason) -> Refusal {
        let name = self.edits[index].name.clone();
        Refusal { name, reason }
    }

    fn name_all(&mut self) -> HashMap<&'t [u8], usize, NameHashing> {
        let mut named = HashMap::with_capacity_and_hasher(self.edits.len(), NameHashing);
        for (index, edit) in self.edits.iter().enumerate() {
            if let Some(earlier) = named.insert(edit.name.as_bytes(), index) {
                self.refuse_both(earlier, index);
            }
        }
        named
    }

    fn refuse_both(&mut self, earlier: usize, later: usize) {
        for index in [earlier, later] {
            let shared = self.edits[index].name.clone();
            self.refused.insert(index, Reason::Duplicate { shared, via: None });
        }
    }
}

fn wrong_value(edit: &Edit, format: ObjectFormat) -> Option<Reason> {
    let new = match &edit.change {
        Change::Set(Target::Object(id)) if id.is_zero() => return Some(Reason::ZeroValue),
        Change::Set(Target::Object(id)) => wrong_format(id, format),
        _ => None,
    };
    new.or_else(|| match &edit.expected {
        Expected::Value(Target::Object(id)) => wrong_format(id, format),
        _ => None,
    })
}

fn wrong_format(id: &ObjectId, expected: ObjectFormat) -> Option<Reason> {
    (id.format() != expected).then_some(Reason::WrongObjectFormat { expected, actual: *id })
}
