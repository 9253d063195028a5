//! Changes of secrets of every shape, and the rows that must be left of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use refstone_log::{Env, SecretLog};

/// One change of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Who.
    pub actor: Vec<u8>,
    /// What it is called.
    pub key: Vec<u8>,
    /// The secret; `None` deletes it.
    pub value: Option<Vec<u8>>,
}

fn bytes(lens: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[a-z\\\\]{1,9}".prop_map(String::into_bytes),
        ".{1,9}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), lens),
    ]
}

/// Changes of a few keys, so that many replace an earlier one or delete it.
pub fn changes() -> impl Strategy<Value = Vec<Change>> {
    let keys = prop::collection::vec(bytes(1..255), 1..6);
    keys.prop_flat_map(|keys| {
        let change = (bytes(0..255), prop::sample::select(keys), prop::option::of(bytes(0..700)));
        let change = change.prop_map(|(actor, key, value)| Change { actor, key, value });
        prop::collection::vec(change, 0..24)
    })
}

/// Makes the changes in a new log, half of them after it was opened again. Returns those that must
/// be left, with their sequences.
///
/// # Panics
/// If one of them fails.
#[must_use]
pub fn make(env: &Arc<dyn Env>, dir: &Path, changes: &[Change]) -> Vec<(u64, Change)> {
    SecretLog::create(&**env, dir).expect("a new log");
    let mut newest: BTreeMap<&[u8], (u64, Change)> = BTreeMap::new();
    let mut last = 0;
    for half in [&changes[..changes.len() / 2], &changes[changes.len() / 2..]] {
        let mut log = SecretLog::open(env.clone(), dir).expect("the log opens");
        for change in half {
            let Change { actor, key, value } = change;
            let seq = match value {
                Some(value) => Some(log.set(actor, key, value).expect("it is set")),
                None => log.delete(actor, key).expect("it is deleted"),
            };
            let was_set = newest.get(&**key).is_some_and(|(_, change)| change.value.is_some());
            assert_eq!(seq.is_some(), value.is_some() || was_set, "{change:?}");
            if let Some(seq) = seq {
                last += 1;
                assert_eq!(seq.get(), last, "sequences rise by one");
                newest.insert(key, (last, change.clone()));
            }
        }
    }
    let mut left: Vec<_> = newest.into_values().collect();
    left.sort_unstable_by_key(|(seq, _)| *seq);
    left
}
