//! What a range of transactions did to the refs, as a table holds it.

use std::collections::HashMap;
use std::path::Path;

use refstone_log::{Env, Seq, Timestamp};

use crate::edit::Target;
use crate::error::ReadError;
use crate::name::RefName;
use crate::table::{Entry, Identity, TableWriter};

/// For each ref that moved: its last state, and which rows of the range's history are about it.
#[derive(Debug, Default)]
pub(crate) struct Digest {
    states: HashMap<RefName, (Entry, Vec<u32>)>,
}

impl Digest {
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
    ) -> Result<(), ReadError> {
        let lowest = identity.first == Seq::ZERO.next();
        let mut states: Vec<_> = self.states.into_iter().collect();
        states.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let gone = |entry: &Entry| lowest && entry.target.is_none();
        let mut writer = TableWriter::create(env, path, identity, u64::from(history_rows))?;
        for (name, (entry, rows)) in states.iter().filter(|(_, (entry, _))| !gone(entry)) {
            writer.push(name.as_bytes(), entry, rows)?;
        }
        for (name, (entry, rows)) in states.iter().filter(|(_, (entry, _))| gone(entry)) {
            writer.push_gone(name.as_bytes(), entry, rows)?;
        }
        writer.finish()?;
        Ok(())
    }
}
