//! Refs in and out: git's two ref stores, streams of moves that others wrote, and a projection for
//! readers of a repository's directory.
//!
//! [`GitRefs`] is what a ref store of git holds: refs and reflogs, as values. It is read from a git
//! repository ([`GitRefs::read`]) or from a store ([`GitRefs::of_store`]), and written to either
//! ([`GitRefs::write`], [`import_refs`]). Both ways are exact, so a round trip compares byte for
//! byte; `docs/exchange.md` says where git's formats cannot hold what the other can.
//!
//! A store is imported as a whole into a directory that nobody knows yet; who gives it its name
//! does so when it is complete.

mod arrow_moves;
mod error;
mod files;
mod git;
mod import;
mod objects;
mod parquet_moves;
mod projection;
mod reflog;
mod reftable;
mod store;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use refstone_log::ObjectFormat;

use crate::edit::Target;
use crate::name::RefName;

pub use arrow_moves::import_moves;
pub use error::ExchangeError;
pub use git::{GitRepository, RefFormat};
pub use import::{IMPORT_ACTOR, Imported, import_refs};
pub use objects::link_objects;
pub use parquet_moves::ParquetMoves;
pub use projection::{ProjectedRef, head_file, project, write_projected};
pub use reflog::ReflogEntry;

/// What a ref store of git holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitRefs {
    /// The hash that names objects.
    pub object_format: ObjectFormat,
    /// Every ref, symbolic ones unresolved, `HEAD` among them.
    pub refs: BTreeMap<RefName, Target>,
    /// Reflogs, each oldest first. One without entries exists all the same: git then logs the next
    /// move.
    pub reflogs: BTreeMap<RefName, Vec<ReflogEntry>>,
    /// What git itself would warn about and pass over: names that are not legal, broken contents.
    pub left_out: Vec<String>,
}

/// How far something is that takes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being done, as a verb: `reading`, `writing`.
    pub doing: &'static str,
    /// How many refs and reflog entries are done.
    pub done: u64,
    /// Of how many, if that is known.
    pub total: Option<u64>,
}

/// Told now and then how far a long operation is; what it answers may end it.
pub type Tell<'a> = &'a mut dyn FnMut(Progress) -> ControlFlow<()>;

/// How many steps are taken between two words about progress.
const STEPS_BETWEEN_TELLING: u64 = 1024;

/// Counts steps and tells of them.
struct Steps<'t, 'a> {
    progress: Progress,
    tell: &'t mut Tell<'a>,
}

impl<'t, 'a> Steps<'t, 'a> {
    fn new(doing: &'static str, total: Option<u64>, tell: &'t mut Tell<'a>) -> Steps<'t, 'a> {
        Steps { progress: Progress { doing, done: 0, total }, tell }
    }

    fn step(&mut self) -> Result<(), ExchangeError> {
        self.progress.done += 1;
        if self.progress.done.is_multiple_of(STEPS_BETWEEN_TELLING) { self.tell() } else { Ok(()) }
    }

    /// Tells of other steps.
    fn tell_of(
        &mut self,
        doing: &'static str,
        done: u64,
        total: Option<u64>,
    ) -> Result<(), ExchangeError> {
        self.progress = Progress { doing, done, total };
        self.tell()
    }

    fn tell(&mut self) -> Result<(), ExchangeError> {
        match (self.tell)(self.progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(ExchangeError::Interrupted),
        }
    }
}

impl GitRefs {
    /// Reads a git repository, which is not changed, whichever way it keeps its refs.
    ///
    /// Nobody should move refs meanwhile: git's files have no snapshot.
    ///
    /// # Errors
    ///
    /// If something cannot be read, or `tell` says to stop.
    pub fn read(source: &GitRepository, tell: Tell<'_>) -> Result<GitRefs, ExchangeError> {
        match source.ref_format {
            RefFormat::Files => files::read(source, tell),
            RefFormat::Reftable => reftable::read(source, tell),
        }
    }

    /// Writes the refs and reflogs into an empty bare repository, over the `HEAD` it has.
    ///
    /// Objects may be missing; if all are there, or in alternates, the tags among them are peeled.
    ///
    /// # Errors
    ///
    /// If a file cannot be written, which also names that are too long for the file system come to.
    pub fn write(&self, target: &GitRepository, tell: Tell<'_>) -> Result<(), ExchangeError> {
        match target.ref_format {
            RefFormat::Files => files::write(self, &target.dir, tell),
            RefFormat::Reftable => reftable::write(self, &target.dir, tell),
        }
    }

    /// Reads a store, as far as it is durable: its refs, and its moves as reflogs.
    ///
    /// A move with git's raw identity gives back the entry it was made of. Another one becomes
    /// `<actor> <> <time> +0000`. Refs that are gone have no reflog, as in git, unless they had one
    /// without a ref when they were imported.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let dir = &dir.path().join("refstone");
    /// # use refstone::{CreateOptions, Edit, ObjectId, RefName, RefStore, Transaction};
    /// # RefStore::create(dir, &CreateOptions::default())?;
    /// # let store = RefStore::open(dir)?;
    /// # let id = ObjectId::from_bytes(&[1; 20])?;
    /// use std::ops::ControlFlow;
    /// use refstone::exchange::GitRefs;
    /// let main = RefName::new("refs/heads/main")?;
    /// let tx = Transaction::new("alice").with_message("born").with(Edit::create(main.clone(), id));
    /// store.commit(&tx)?;
    /// let refs = GitRefs::of_store(dir, &mut |_| ControlFlow::Continue(()))?;
    /// assert_eq!(refs.refs[&main], id.into());
    /// assert_eq!(refs.reflogs[&main].len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`read_view`](crate::read_view) and [`history`](crate::history()), or if `tell` says to
    /// stop.
    pub fn of_store(dir: &Path, tell: Tell<'_>) -> Result<GitRefs, ExchangeError> {
        store::read(dir, tell)
    }

    fn new(object_format: ObjectFormat) -> GitRefs {
        let (refs, reflogs, left_out) = Default::default();
        GitRefs { object_format, refs, reflogs, left_out }
    }

    fn steps(&self) -> u64 {
        let entries = self.reflogs.values().map(Vec::len).sum::<usize>();
        (self.refs.len() + entries) as u64
    }
}
