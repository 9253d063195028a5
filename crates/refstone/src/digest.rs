//! What a range of transactions did to the refs, as a table holds it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use refstone_log::{Env, Seq, Timestamp};

use crate::edit::Target;
use crate::error::ReadError;
use crate::name::{NameHashing, RefName};
use crate::sealed::HistoryFile;
use crate::stop::Stop;
use crate::table::{Cursor, Entry, Identity, Table, TableWriter};

/// For each ref that moved: its last state, and which rows of the range's history are about it.
#[derive(Debug, Default)]
pub(crate) struct Digest {
    states: HashMap<RefName, (Entry, Vec<u32>), NameHashing>,
}

impl Digest {
    /// What a history file says.
    pub(crate) fn of(history: &HistoryFile) -> Result<Digest, ReadError> {
        let mut digest = Digest::default();
        for (row, moved) in (0..).zip(history.moves(0..history.rows())) {
            let moved = moved?;
            let entry = Entry { seq: moved.seq, at: moved.at, target: moved.target() };
            digest.note(moved.name, entry, row);
        }
        Ok(digest)
    }

    /// Notes a move. They come in the order of their rows.
    pub(crate) fn note(&mut self, name: RefName, entry: Entry, row: u32) {
        match self.states.get_mut(&name) {
            Some((state, rows)) => {
                *state = entry;
                rows.push(row);
            }
            None => drop(self.states.insert(name, (entry, vec![row]))),
        }
    }

    /// Gives `HEAD` the value it has until a row moves it.
    pub(crate) fn start_head(&mut self, target: RefName) {
        let (seq, at) = (Seq::ZERO, Timestamp::default());
        let entry = Entry { seq, at, target: Some(Target::Symbolic(target)) };
        self.states.entry(RefName::head()).or_insert((entry, Vec::new()));
    }

    /// Writes the table, synced and under its name; the caller syncs the directory.
    pub(crate) fn write(
        self,
        env: &dyn Env,
        path: &Path,
        identity: Identity,
        history_rows: u32,
        stop: Stop<'_>,
    ) -> Result<(), ReadError> {
        let lowest = identity.first == Seq::ZERO.next();
        let mut states: Vec<_> = self.states.into_iter().collect();
        states.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let gone = |entry: &Entry| lowest && entry.target.is_none();
        let mut writer = TableWriter::create(env, path, identity, u64::from(history_rows))?;
        let live = states.iter().filter(|(_, (entry, _))| !gone(entry));
        for (number, (name, (entry, rows))) in (0..).zip(live) {
            stop.check_at(number)?;
            writer.push(name.as_bytes(), entry, rows)?;
        }
        let gone = states.iter().filter(|(_, (entry, _))| gone(entry));
        for (number, (name, (entry, rows))) in (0..).zip(gone) {
            stop.check_at(number)?;
            writer.push_gone(name.as_bytes(), entry, rows)?;
        }
        writer.finish()?;
        Ok(())
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
        Ok(self.states.into_keys().next().map(|name| format!("'{name}' is missing")))
    }

    /// Takes out the ref a cursor stands on; says how it differs.
    fn take(&mut self, cursor: &mut Cursor) -> Result<Option<String>, ReadError> {
        let (Some(name), Some(row)) = (cursor.name(), cursor.row()) else { return Ok(None) };
        let (name, entry) = (RefName::from_proven(name), row.entry());
        let differs = match self.states.remove(&name) {
            None => Some(format!("'{name}' did not move")),
            Some((state, _)) if state != entry => Some(format!("'{name}' ends at another value")),
            Some((_, ref rows)) if !cursor.rows()?.eq(rows.iter().copied()) => {
                Some(format!("'{name}' has other rows"))
            }
            Some(_) => None,
        };
        Ok(differs)
    }
}

#[cfg(test)]
mod tests {
    use refstone_log::{ObjectFormat, OsEnv};

    use super::*;
    use crate::oid::ObjectId;

    fn digest(moves: &[(&str, Option<u8>)]) -> Digest {
        let mut digest = Digest::default();
        for (row, (name, id)) in (0..).zip(moves) {
            let target = id.map(|id| ObjectId::from_bytes(&[id; 20]).unwrap().into());
            let entry =
                Entry { seq: Seq::new(u64::from(row) + 1), at: Timestamp::default(), target };
            digest.note(RefName::new(format!("refs/heads/{name}")).unwrap(), entry, row);
        }
        digest
    }

    // Breaks: comparing states without the rows; not looking for refs that the table lacks, or at
    // those that are gone.
    #[test]
    fn a_table_differs_by_a_ref_a_state_or_a_row() {
        let moves = [("a", Some(1)), ("b", Some(2)), ("gone", Some(3)), ("gone", None)];
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
        digest(&moves).write(&OsEnv, &path, identity, 4, Stop::NEVER).unwrap();
        let table = Arc::new(Table::open(&OsEnv, &path).unwrap());
        let differs = |moves: &[_]| digest(moves).difference(&table).unwrap();
        assert_eq!(differs(&moves), None);
        let [a, b, gone, deleted] = moves;
        let c = ("c", Some(1));
        let other_rows = [("gone", Some(3)), b, ("a", Some(1)), deleted];
        for (moves, words) in [
            (&[a, b, gone, ("gone", Some(3))][..], "'refs/heads/gone' ends at another value"),
            (&[a, b][..], "'refs/heads/gone' did not move"),
            (&[a, b, gone, deleted, c], "'refs/heads/c' is missing"),
            (&[a, ("b", Some(3)), gone, deleted], "'refs/heads/b' ends at another value"),
            (&[gone, b, c, deleted], "'refs/heads/a' did not move"),
            (&other_rows, "'refs/heads/a' ends at another value"),
        ] {
            assert_eq!(differs(moves).as_deref(), Some(words));
        }
        let mut shifted = digest(&moves);
        let name = RefName::new("refs/heads/gone").unwrap();
        shifted.states.get_mut(&name).unwrap().1 = vec![1, 3];
        let found = shifted.difference(&table).unwrap();
        assert_eq!(found.as_deref(), Some("'refs/heads/gone' has other rows"));
    }
}
