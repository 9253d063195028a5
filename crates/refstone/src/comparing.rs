//! Comparing a table with the history of the same range, in the memory that its refs take.

use std::collections::HashMap;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use crate::digest::beginning;
use crate::error::ReadError;
use crate::name::{NameHashing, RefName};
use crate::sealed::HistoryFile;
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
    pub(crate) fn by(history: &HistoryFile) -> Result<Said, ReadError> {
        let mut said = Said::default();
        for moved in history.moves(0..history.rows()) {
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
