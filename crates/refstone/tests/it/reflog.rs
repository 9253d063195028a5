//! Reflogs: as git keeps them, and as the history of a store tells them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use bstr::{BString, ByteSlice};
use refstone::{ObjectId, RefMove, RefName, Target};

use crate::common::Scratch;
use crate::update_ref::{Backend, path_name};

/// One line of a reflog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) old: BString,
    pub(crate) new: BString,
    pub(crate) message: BString,
}

/// By ref, oldest entry first.
pub(crate) type Logs = BTreeMap<BString, Vec<Entry>>;

/// What `.git/logs` holds.
pub(crate) fn of_files(git_dir: &Path) -> Logs {
    let mut logs = Logs::new();
    let root = git_dir.join("logs");
    if root.is_dir() {
        read_dir(&root, &root, &mut logs);
    }
    logs.retain(|_, entries| !entries.is_empty());
    logs
}

fn read_dir(root: &Path, dir: &Path, logs: &mut Logs) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_dir(root, &path, logs);
            continue;
        }
        let lines = fs::read(&path).unwrap();
        logs.insert(path_name(root, &path), lines.lines().map(parse).collect());
    }
}

/// `<old> <new> <name> <email> <time> <zone>`, and the message behind a tab.
fn parse(line: &[u8]) -> Entry {
    let (head, message) = line.split_once_str("\t").unwrap_or((line, b""));
    let mut words = head.split_str(" ");
    let mut word = || BString::from(words.next().unwrap());
    Entry { old: word(), new: word(), message: message.into() }
}

/// The logs that git would have kept of what a store has recorded.
///
/// Git's log of a ref starts at its last creation and has objects alone: a symbolic ref counts as
/// what it resolves to (in reftables: what it would have resolved to before the transaction). And
/// git's log of `HEAD` has every move of the branch it points to.
pub(crate) fn told_by(store: &Scratch, backend: Backend) -> Logs {
    let moves = refstone::history(&store.dir(), None).unwrap().map(Result::unwrap);
    let zero = zero_id(store);
    let mut teller = Teller { zero, backend, refs: BTreeMap::new(), logs: Logs::new() };
    teller.refs.insert(b"HEAD".into(), Target::Symbolic(RefName::new("refs/heads/main").unwrap()));
    let moves: Vec<_> = moves.collect();
    for transaction in moves.chunk_by(|a, b| a.seq == b.seq) {
        teller.tell(transaction);
    }
    teller.logs
}

fn zero_id(store: &Scratch) -> BString {
    ObjectId::zero(store.store.object_format()).to_string().into()
}

struct Teller {
    zero: BString,
    backend: Backend,
    refs: BTreeMap<BString, Target>,
    logs: Logs,
}

impl Teller {
    fn tell(&mut self, transaction: &[RefMove]) {
        let before = self.refs.clone();
        for moved in transaction {
            let name = BString::from(moved.name.as_bytes());
            match target(moved) {
                Some(target) => drop(self.refs.insert(name, target)),
                None => drop(self.refs.remove(&name)),
            }
        }
        let branch = before.get(&BString::from("HEAD")).and_then(Target::symbolic);
        let head_moves = transaction.iter().any(|moved| moved.name.is_head());
        for moved in transaction {
            let name = BString::from(moved.name.as_bytes());
            let entry = self.entry(moved, &before);
            if branch == Some(&moved.name) && !head_moves {
                self.log(b"HEAD".into(), entry.clone());
            }
            match self.refs.contains_key(&name) {
                true => self.log(name, entry),
                false => drop(self.logs.remove(&name)),
            }
        }
    }

    fn log(&mut self, name: BString, entry: Option<Entry>) {
        self.logs.entry(name).or_default().extend(entry);
    }

    /// `None` if the ref points to nothing now: git writes no line for that.
    fn entry(&self, moved: &RefMove, before: &BTreeMap<BString, Target>) -> Option<Entry> {
        let name = moved.name.as_bytes();
        let zero = || self.zero.clone();
        let new = match &moved.symref {
            Some(target) if self.backend == Backend::Reftable => resolve(before, target.as_bytes()),
            _ => resolve(&self.refs, name),
        };
        if new.is_none() && target(moved).is_some() {
            return None;
        }
        let message = moved.message.clone().unwrap_or_default();
        let old = resolve(before, name).unwrap_or_else(zero);
        Some(Entry { old, new: new.unwrap_or_else(zero), message })
    }
}

fn target(moved: &RefMove) -> Option<Target> {
    let symbolic = moved.symref.clone().map(Target::Symbolic);
    symbolic.or(moved.new_oid.map(Target::Object))
}

fn resolve(refs: &BTreeMap<BString, Target>, name: &[u8]) -> Option<BString> {
    let mut name = BString::from(name);
    for _ in 0..refstone::SYMREF_READS_MAX {
        match refs.get(&name)? {
            Target::Object(id) => return Some(id.to_string().into()),
            Target::Symbolic(next) => name = next.as_bytes().into(),
        }
    }
    None
}
