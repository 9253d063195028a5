//! The names in one directory: what processes see, and what the disk may hold.
//!
//! A change of a name is durable after a sync of its directory. Until then a journaling file
//! system may have written it or not, in any order, but for two rules: a change is made whole (a
//! rename never leaves both names, or neither), and a change that survives brings along the
//! earlier ones of the same names, on which it rests.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};

use super::keep::{Keep, Tick};

/// The number of an inode.
pub(super) type Ino = u64;

#[derive(Clone, Debug)]
enum Change {
    Link(OsString, Ino),
    Unlink(OsString),
    Rename(OsString, OsString, Ino),
}

/// One directory's names.
#[derive(Clone, Debug, Default)]
pub(super) struct Dir {
    cache: BTreeMap<OsString, Ino>,
    disk: BTreeMap<OsString, Ino>,
    changes: Vec<(Tick, Change)>,
}

impl Dir {
    fn certain(names: BTreeMap<OsString, Ino>) -> Dir {
        Dir { cache: names.clone(), disk: names, changes: Vec::new() }
    }

    pub(super) fn find(&self, name: &OsStr) -> Option<Ino> {
        self.cache.get(name).copied()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = (&OsString, Ino)> {
        self.cache.iter().map(|(name, &ino)| (name, ino))
    }

    pub(super) fn is_certain(&self) -> bool {
        self.changes.is_empty()
    }

    pub(super) fn ticks(&self) -> impl Iterator<Item = Tick> {
        self.changes.iter().map(|(tick, _)| *tick)
    }

    pub(super) fn link(&mut self, tick: Tick, name: &OsStr, ino: Ino) {
        self.change(tick, Change::Link(name.to_owned(), ino));
    }

    pub(super) fn unlink(&mut self, tick: Tick, name: &OsStr) {
        self.change(tick, Change::Unlink(name.to_owned()));
    }

    pub(super) fn rename(&mut self, tick: Tick, from: &OsStr, to: &OsStr, ino: Ino) {
        self.change(tick, Change::Rename(from.to_owned(), to.to_owned(), ino));
    }

    fn change(&mut self, tick: Tick, change: Change) {
        change.apply(&mut self.cache);
        self.changes.push((tick, change));
    }

    pub(super) fn sync(&mut self) {
        self.disk = self.cache.clone();
        self.changes.clear();
    }

    /// The directory after a power cut.
    pub(super) fn survive(&self, keep: &mut Keep<'_>) -> Dir {
        let mut names = self.disk.clone();
        for (change, kept) in self.changes.iter().zip(self.kept(keep)) {
            if kept {
                change.1.apply(&mut names);
            }
        }
        Dir::certain(names)
    }

    /// Which changes survive: those that the policy keeps, and all that these rest on.
    fn kept(&self, keep: &mut Keep<'_>) -> Vec<bool> {
        let mut kept: Vec<bool> =
            self.changes.iter().map(|(tick, _)| keep.keeps(*tick, 0)).collect();
        let mut needed: BTreeSet<&OsStr> = BTreeSet::new();
        for ((_, change), kept) in self.changes.iter().zip(&mut kept).rev() {
            *kept |= change.names().any(|name| needed.contains(name));
            if *kept {
                needed.extend(change.names());
            }
        }
        kept
    }
}

impl Change {
    fn names(&self) -> impl Iterator<Item = &OsStr> {
        let (first, second) = match self {
            Change::Link(name, _) | Change::Unlink(name) => (name, None),
            Change::Rename(from, to, _) => (from, Some(to)),
        };
        std::iter::once(first).chain(second).map(OsString::as_os_str)
    }

    fn apply(&self, names: &mut BTreeMap<OsString, Ino>) {
        match self {
            Change::Link(name, ino) => {
                names.insert(name.clone(), *ino);
            }
            Change::Unlink(name) => {
                names.remove(name);
            }
            Change::Rename(from, to, ino) => {
                names.remove(from);
                names.insert(to.clone(), *ino);
            }
        }
    }
}
