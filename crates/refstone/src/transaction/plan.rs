//! What can be said about edits without looking at the store.

use std::collections::{BTreeMap, HashMap};

use refstone_log::ObjectFormat;

use crate::edit::{Change, Edit, Expected, Target};
use crate::oid::ObjectId;
use crate::refusal::{Reason, Refusal};

/// Edits after the checks that need no state, made before the writer's lock is taken.
#[derive(Debug)]
pub(crate) struct Plan<'t> {
    pub(crate) edits: &'t [Edit],
    /// Edits that are refused whatever the store holds, by their index.
    pub(crate) refused: BTreeMap<usize, Reason>,
    /// Which edit names a ref; empty for a single edit, which cannot collide.
    pub(crate) named: HashMap<&'t [u8], usize>,
}

impl<'t> Plan<'t> {
    pub(crate) fn new(edits: &'t [Edit], format: ObjectFormat) -> Plan<'t> {
        let wrong = |(index, edit)| Some((index, wrong_value(edit, format)?));
        let mut plan = Plan {
            edits,
            refused: edits.iter().enumerate().filter_map(wrong).collect(),
            named: HashMap::new(),
        };
        if edits.len() > 1 {
            plan.name_all();
        }
        plan
    }

    /// The refusal of one edit.
    pub(crate) fn refusal(&self, index: usize, reason: Reason) -> Refusal {
        let name = self.edits[index].name.clone();
        Refusal { name, reason }
    }

    fn name_all(&mut self) {
        self.named.reserve(self.edits.len());
        for (index, edit) in self.edits.iter().enumerate() {
            if let Some(earlier) = self.named.insert(edit.name.as_bytes(), index) {
                self.refuse_both(earlier, index);
            }
        }
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
        Change::Set(Target::Object(id)) => Some(*id),
        _ => None,
    };
    let old = match &edit.expected {
        Expected::Value(Target::Object(id)) => Some(*id),
        _ => None,
    };
    if new.is_some_and(|id| id.is_zero()) {
        return Some(Reason::ZeroValue);
    }
    new.into_iter().chain(old).find_map(|id| wrong_format(id, format))
}

fn wrong_format(actual: ObjectId, expected: ObjectFormat) -> Option<Reason> {
    (actual.format() != expected).then_some(Reason::WrongObjectFormat { expected, actual })
}
