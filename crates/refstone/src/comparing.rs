//! Comparing a table with the history of the same range, in the memory that its refs take.

use std::collections::HashMap;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use crate::digest::beginning;
use crate::error::ReadError;
use crate::name::{NameHashing, RefName};
use crate::sealed::HistoryFile;
use crate::stop::Stop;
use crate::table::{Cursor, Entry, Step, Table, encode_alone};

/// What history says of each ref.
#[derive(Debug, Default)]
pub(crate) struct Said {
    refs: HashMap<RefName, (Entry, Moves), NameHashing>,
    text: Vec<u8>,
}

/// All moves of a ref in one number: the sum of their hashes. A table has them in order, which its own
/// check tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Moves {
    count: u64,
    sum: u64,
}

impl Moves {
    fn add(&mut self, step: &Step<'_>, text: &mut Vec<u8>) {
        text.clear();
        encode_alone(step, text);
        self.count += 1;
        self.sum = self.sum.wrapping_add(xxh3_64(text));
    }
}

impl Said {
    /// What a history file says.
    pub(crate) fn by(history: &HistoryFile, stop: Stop<'_>) -> Result<Said, ReadError> {
        let mut said = Said::default();
        for (row, moved) in (0..).zip(history.moves(0..history.rows())) {
            stop.check_at(row)?;
            let moved = moved?;
            said.note(moved.name.clone(), &Step::of(moved.seq, moved.at, &moved.as_row()));
        }
        Ok(said)
    }

    fn note(&mut self, name: RefName, step: &Step<'_>) {
        let entry = Entry::of(step);
        let (state, moves) =
            self.refs.entry(name).or_insert_with(|| (entry.clone(), Moves::default()));
        *state = entry;
        moves.add(step, &mut self.text);
    }

    /// `HEAD` has this value until a row moves it.
    pub(crate) fn start_head(&mut self, target: RefName) {
        self.refs.entry(RefName::head()).or_insert((beginning(target), Moves::default()));
    }

    /// In what a table differs from this, if it does.
    pub(crate) fn difference(mut self, table: &Arc<Table>) -> Result<Option<String>, ReadError> {
        for mut cursor in [table.live_from(b"")?, table.gone_from(b"")?] {
            while cursor.name().is_some() {
                if let Some(differs) = self.take(&mut cursor)? {
                    return Ok(Some(differs));
                }
                cursor.advance()?;
            }
        }
        Ok(self.refs.into_keys().next().map(|name| format!("'{name}' is missing")))
    }

    /// Takes out the ref a cursor stands on; says how it differs.
    fn take(&mut self, cursor: &mut Cursor) -> Result<Option<String>, ReadError> {
        let (Some(name), Some(row)) = (cursor.name(), cursor.row()) else { return Ok(None) };
        let (name, entry) = (RefName::from_proven(name), row.entry());
        let Some((state, said)) = self.refs.remove(&name) else {
            return Ok(Some(format!("'{name}' did not move")));
        };
        if state != entry {
            return Ok(Some(format!("'{name}' ends at another value")));
        }
        let mut moves = Moves::default();
        cursor.each_step(|step| {
            moves.add(step, &mut self.text);
            Ok::<_, ReadError>(())
        })?;
        Ok((moves != said).then(|| format!("'{name}' has other moves")))
    }
}

#[cfg(test)]
mod tests {
    use refstone_log::{ObjectFormat, OsEnv, Seq, Timestamp};

    use super::*;
    use crate::digest::Digest;
    use crate::oid::ObjectId;
    use crate::table::Identity;

    type Moved = (&'static str, Option<u8>, &'static str);

    fn each(moves: &[Moved], mut note: impl FnMut(RefName, &Step<'_>)) {
        for (seq, (name, id, actor)) in (1..).zip(moves) {
            let id = id.map(|id| ObjectId::from_bytes(&[id; 20]).unwrap());
            let step = Step {
                seq: Seq::new(seq),
                at: Timestamp::default(),
                actor: actor.as_bytes(),
                old_oid: None,
                new_oid: id.as_ref().map(ObjectId::as_bytes),
                symref: None,
                message: None,
            };
            note(RefName::new(format!("refs/heads/{name}")).unwrap(), &step);
        }
    }

    // Breaks: comparing states without the moves; not looking for refs that the table lacks, or at
    // those that are gone.
    #[test]
    fn a_table_differs_by_a_ref_a_state_or_a_move() {
        let moves = [
            ("a", Some(1), "alice"),
            ("b", Some(2), "alice"),
            ("gone", Some(3), "alice"),
            ("gone", None, "alice"),
        ];
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("1-4.arrow");
        let identity = Identity {
            log_id: [7; 16],
            object_format: ObjectFormat::Sha1,
            first: Seq::new(1),
            last: Seq::new(4),
            last_crc: 1,
            last_at: Timestamp::default(),
        };
        let mut digest = Digest::new(ObjectFormat::Sha1);
        each(&moves, |name, step| digest.note(name, step));
        digest.write(&OsEnv, &path, identity, Stop::NEVER).unwrap();
        let table = Arc::new(Table::open(&OsEnv, &path).unwrap());
        let differs = |moves: &[_]| {
            let mut said = Said::default();
            each(moves, |name, step| said.note(name, step));
            said.difference(&table).unwrap()
        };
        assert_eq!(differs(&moves), None);
        let [a, b, gone, deleted] = moves;
        let c = ("c", Some(1), "alice");
        let swapped = [("gone", Some(3), "alice"), b, ("a", Some(1), "alice"), deleted];
        for (moves, words) in [
            (
                &[a, b, gone, ("gone", Some(3), "alice")][..],
                "'refs/heads/gone' ends at another value",
            ),
            (&[a, b][..], "'refs/heads/gone' did not move"),
            (&[a, b, gone, deleted, c], "'refs/heads/c' is missing"),
            (&[a, ("b", Some(3), "alice"), gone, deleted], "'refs/heads/b' ends at another value"),
            (&[gone, b, c, deleted], "'refs/heads/a' did not move"),
            (&swapped, "'refs/heads/a' ends at another value"),
            (&[a, b, ("gone", Some(4), "alice"), deleted], "'refs/heads/gone' has other moves"),
            (&[a, b, ("gone", Some(3), "bob"), deleted], "'refs/heads/gone' has other moves"),
            (&[a, b, c, deleted], "'refs/heads/gone' has other moves"),
        ] {
            assert_eq!(differs(moves).as_deref(), Some(words));
        }
    }
}
