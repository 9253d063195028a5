//! Out of a store: its refs, and its moves as reflogs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bstr::{BStr, BString, ByteSlice};
use refstone_log::{LogReader, ObjectFormat, OsEnv};

use super::import::EMPTY_REFLOG;
use super::reflog::Identity;
use super::{ExchangeError, GitRefs, IMPORT_ACTOR, ReflogEntry, Steps, Tell};
use crate::error::OpenError;
use crate::history::history;
use crate::name::RefName;
use crate::oid::ObjectId;
use crate::read::read_view;
use crate::row::RefMove;

pub(super) fn read(dir: &Path, mut tell: Tell<'_>) -> Result<GitRefs, ExchangeError> {
    let format = object_format(dir)?;
    let view = read_view(dir)?;
    let mut steps = Steps::new("reading", None, &mut tell);
    let mut found = GitRefs::new(format);
    for item in view.iter_prefix(b"") {
        steps.step()?;
        let (name, target) = item?;
        found.refs.insert(name, target);
    }
    let mut logs = Reflogs { format, entries: BTreeMap::new(), without_ref: BTreeSet::new() };
    for moved in history(dir, None)? {
        steps.step()?;
        let moved = moved?;
        // A writer may have gone on since the view was taken.
        if moved.seq > view.seq() {
            break;
        }
        logs.add(moved);
    }
    let Reflogs { mut entries, without_ref, .. } = logs;
    entries.retain(|name, _| found.refs.contains_key(name) || without_ref.contains(name));
    found.reflogs = entries;
    Ok(found)
}

fn object_format(dir: &Path) -> Result<ObjectFormat, ExchangeError> {
    Ok(LogReader::open(&OsEnv, dir).map_err(OpenError::from)?.object_format())
}

struct Reflogs {
    format: ObjectFormat,
    entries: BTreeMap<RefName, Vec<ReflogEntry>>,
    /// Refs that the import found gone, with their reflogs there.
    without_ref: BTreeSet<RefName>,
}

impl Reflogs {
    fn add(&mut self, moved: RefMove) {
        if moved.actor == IMPORT_ACTOR {
            return self.add_state(moved);
        }
        self.without_ref.remove(&moved.name);
        // Git logs nothing when a symbolic ref is pointed elsewhere without a word.
        if moved.symref.is_some() {
            return;
        }
        let zero = ObjectId::zero(self.format);
        let entry = ReflogEntry {
            old: moved.old_oid.unwrap_or(zero),
            new: moved.new_oid.unwrap_or(zero),
            identity: identity(&moved),
            message: moved.message.map(one_line),
        };
        self.entries.entry(moved.name).or_default().push(entry);
    }

    fn add_state(&mut self, moved: RefMove) {
        if moved.message.as_ref().is_some_and(|message| message == EMPTY_REFLOG) {
            self.entries.entry(moved.name.clone()).or_default();
        }
        if moved.new_oid.is_none() && moved.symref.is_none() {
            self.without_ref.insert(moved.name);
        }
    }
}

/// Git's raw identity as it is; of any other actor, one that git can read.
fn identity(moved: &RefMove) -> BString {
    let raw = Identity::parse(&moved.actor).is_some() && !moved.actor.contains(&b'\n');
    if raw {
        return moved.actor.clone();
    }
    let seconds = moved.at.as_micros().div_euclid(1_000_000).max(1);
    let actor: Vec<u8> = moved.actor.bytes().filter(|byte| !b"<>\n\t\0".contains(byte)).collect();
    format!("{} <> {seconds} +0000", BStr::new(&actor)).into_bytes().into()
}

/// A reflog has lines, so a message has none.
fn one_line(message: BString) -> BString {
    match message.contains(&b'\n') {
        true => message.replace("\n", " ").into(),
        false => message,
    }
}
