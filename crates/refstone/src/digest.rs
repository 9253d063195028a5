//! What a range of transactions did to the refs, on its way into a table.

use std::collections::HashMap;
use std::path::Path;

use refstone_log::{Env, ObjectFormat, Seq, Timestamp};

use crate::edit::Target;
use crate::error::ReadError;
use crate::name::{NameHashing, RefName};
use crate::stop::Stop;
use crate::table::{
    Entry, Identity, Step, Steps, TableError, TableWriter, decode_alone, encode_alone,
};

/// What a ref takes beside its name, about.
const REF: usize = 64;

/// Where a move stands among all moves.
type Place = usize;

/// The moves of a range, each with the one before of the same ref.
#[derive(Debug)]
pub(crate) struct Digest {
    object_format: ObjectFormat,
    /// The newest move of each ref.
    newest: HashMap<RefName, Place, NameHashing>,
    /// Each move: one more than the place of the one before, or zero; then all of it.
    moves: Vec<u8>,
    count: u64,
    names: usize,
    head: Option<RefName>,
}

impl Digest {
    pub(crate) fn new(object_format: ObjectFormat) -> Digest {
        Digest {
            object_format,
            newest: HashMap::default(),
            moves: Vec::new(),
            count: 0,
            names: 0,
            head: None,
        }
    }

    /// Notes a move. They come in commit order.
    pub(crate) fn note(&mut self, name: RefName, step: &Step<'_>) {
        let place = self.moves.len();
        let name_len = name.as_bytes().len();
        let before = self.newest.insert(name, place);
        if before.is_none() {
            self.names += name_len + REF;
        }
        let before = before.map_or(0, |before| before as u64 + 1);
        self.moves.extend(before.to_le_bytes());
        encode_alone(step, &mut self.moves);
        self.count += 1;
    }

    /// The memory that it takes, about.
    pub(crate) fn bytes(&self) -> usize {
        self.moves.len() + self.names
    }

    /// Gives `HEAD` the value it has until a row moves it.
    pub(crate) fn start_head(&mut self, target: RefName) {
        self.head = Some(target);
    }

    /// Writes the table, synced and under its name; the caller syncs the directory.
    pub(crate) fn write(
        mut self,
        env: &dyn Env,
        path: &Path,
        identity: Identity,
        stop: Stop<'_>,
    ) -> Result<(), ReadError> {
        let lowest = identity.is_lowest();
        let refs = self.sorted();
        let gone = |entry: &Entry| lowest && entry.target.is_none();
        let mut writer = TableWriter::create(env, path, identity, self.count)?;
        let live = refs.iter().filter(|(_, entry, _)| !gone(entry));
        for (number, (name, entry, newest)) in (0..).zip(live) {
            stop.check_at(number)?;
            writer.push(name.as_bytes(), entry, |steps| self.tell(*newest, steps))?;
        }
        let gone = refs.iter().filter(|(_, entry, _)| gone(entry));
        for (number, (name, entry, newest)) in (0..).zip(gone) {
            stop.check_at(number)?;
            writer.push_gone(name.as_bytes(), entry, |steps| self.tell(*newest, steps))?;
        }
        writer.finish()?;
        Ok(())
    }

    /// The refs by name, each with its last state and, if it has moved, its newest move.
    fn sorted(&mut self) -> Vec<(RefName, Entry, Option<Place>)> {
        let newest = std::mem::take(&mut self.newest);
        let mut refs = Vec::with_capacity(newest.len() + 1);
        if let Some(head) = self.head.take().filter(|_| !newest.contains_key(&RefName::head())) {
            refs.push((RefName::head(), beginning(head), None));
        }
        for (name, place) in newest {
            if let Some((_, step)) = self.at(place) {
                refs.push((name, Entry::of(&step), Some(place)));
            }
        }
        refs.sort_unstable_by(|(a, ..), (b, ..)| a.cmp(b));
        refs
    }

    fn tell(&self, newest: Option<Place>, steps: &mut Steps<'_, '_>) -> Result<(), TableError> {
        let mut place = newest;
        while let Some((before, step)) = place.and_then(|place| self.at(place)) {
            steps.push(&step)?;
            place = before;
        }
        Ok(())
    }

    /// The move at a place, and where the one before is.
    fn at(&self, place: Place) -> Option<(Option<Place>, Step<'_>)> {
        let (before, bytes) = self.moves.get(place..)?.split_first_chunk()?;
        let before = usize::try_from(u64::from_le_bytes(*before)).ok()?;
        Some((before.checked_sub(1), decode_alone(bytes, self.object_format.len())?))
    }
}

/// `HEAD` as the log began with it.
pub(crate) fn beginning(head: RefName) -> Entry {
    Entry { seq: Seq::ZERO, at: Timestamp::default(), target: Some(Target::Symbolic(head)) }
}
