//! The repositories a server has open.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use refstone::{
    ErrorKind, MinFree, ObjectFormat, ObjectId, OpenError, ReadError, RefStore, Stats, View,
};
use tokio::time::Instant;

use crate::git::GitEnv;
use crate::heal::Healing;
use crate::listing::{self, Listed};
use crate::peel::{PeelCache, Peeled};
use crate::projection::{self, Projections};
use crate::quarantine::{self, Keeps};
use crate::refs::{NoPush, Refs};
use crate::settings::{Settings, SettingsCache};
use crate::text;

/// Where the log lies, below the repository.
pub(crate) const LOG_DIRECTORY: &str = "refstone";

/// How long a request waits for a log that another process has locked.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);

/// How often it tries in that time.
const LOCK_RETRY: Duration = Duration::from_millis(20);

/// The directory name of a repository, such as `project.git`: safe to join to a path.
///
/// Letters, digits, `.`, `_` and `-`; neither a dot nor a dash at the start; `.git` at the end.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct RepositoryName(String);

impl RepositoryName {
    const BYTES_MAX: usize = 128;

    /// What [`parse`](Self::parse) takes, in words for whoever chose another name.
    pub(crate) const RULE: &str = "a name is ASCII letters, digits, '.', '_' and '-', starts with \
         neither a dot nor a dash, ends in '.git', and has at most 128 bytes";

    /// The name, if it is one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let stem = text.strip_suffix(".git")?;
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let starts_well = !stem.is_empty() && !stem.starts_with(['.', '-']);
        let fits = text.len() <= Self::BYTES_MAX && stem.bytes().all(legal);
        (starts_well && fits).then(|| Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// An open repository.
#[derive(Debug)]
pub(crate) struct Repository {
    path: PathBuf,
    objects: PathBuf,
    identity: Identity,
    refs: Refs,
    keeps: Arc<Keeps>,
    peels: PeelCache,
    settings: SettingsCache,
    projections: Projections,
    healing: Healing,
}

/// Tells a directory from another that took its place under the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    fn of(path: &Path) -> io::Result<Option<Self>> {
        match fs::metadata(path) {
            Ok(metadata) => Ok(Some(Self { device: metadata.dev(), inode: metadata.ino() })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Why a repository could not be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RepositoryError {
    #[error("the reference log of {name} cannot be opened: {source}")]
    Log { name: String, source: OpenError },
    #[error("{name}: {source}")]
    Io { name: String, source: io::Error },
    #[error("the server is shutting down")]
    ShuttingDown,
}

impl RepositoryError {
    /// Whether another attempt may succeed without anybody repairing anything.
    pub(crate) fn is_passing(&self) -> bool {
        self.is_locked() || matches!(self, Self::ShuttingDown)
    }

    /// What clients are told. What exactly is wrong with a log, and what to do about it, is for
    /// the operator: to a client the server's paths mean nothing, and its advice is no help.
    pub(crate) fn told(&self) -> String {
        match self {
            Self::Log { name, .. } if self.is_locked() => format!(
                "the reference log of {name} cannot be opened now: another process holds it; \
                 try again"
            ),
            Self::Log { name, .. } => format!(
                "the reference log of {name} cannot be opened; the server's log has the reason"
            ),
            Self::Io { .. } | Self::ShuttingDown => self.to_string(),
        }
    }

    fn is_locked(&self) -> bool {
        matches!(self, Self::Log { source, .. } if source.kind() == ErrorKind::Locked)
    }
}

impl Repository {
    /// Takes the log's lock. Whoever holds it may remove what a dead server left.
    fn open(path: &Path, identity: Identity, min_free: MinFree) -> Result<Self, RepositoryError> {
        let name = || path.file_name().unwrap_or_default().display().to_string();
        let refs = Refs::open(path, &path.join(LOG_DIRECTORY), min_free).map_err(|source| {
            let name = name();
            RepositoryError::Log { name, source }
        })?;
        let objects = path.join("objects");
        if refs.store().is_some() {
            sweep(path, &objects).map_err(|source| {
                let name = name();
                RepositoryError::Io { name, source }
            })?;
        }
        Ok(Self {
            path: path.to_owned(),
            objects,
            identity,
            refs,
            keeps: Arc::default(),
            peels: PeelCache::default(),
            settings: SettingsCache::default(),
            projections: Projections::default(),
            healing: Healing::default(),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The name clients know it by: that of its directory.
    pub(crate) fn name(&self) -> &str {
        self.path.file_name().and_then(OsStr::to_str).unwrap_or_default()
    }

    pub(crate) fn objects(&self) -> &Path {
        &self.objects
    }

    /// The store; none if it cannot be written.
    pub(crate) fn store(&self) -> Option<&RefStore> {
        self.refs.store()
    }

    /// The durable refs.
    pub(crate) fn view(&self) -> View {
        self.refs.view()
    }

    /// Takes note of references that a request could not read.
    pub(crate) fn note_unreadable(&self, problem: &ReadError) {
        self.healing.note(self.name(), self.store(), problem);
    }

    /// Whether a push makes sense at the moment.
    pub(crate) fn check_push(&self) -> Result<(), NoPush> {
        self.refs.check_push()
    }

    pub(crate) fn keeps(&self) -> &Arc<Keeps> {
        &self.keeps
    }

    pub(crate) fn projections(&self) -> &Projections {
        &self.projections
    }

    pub(crate) fn format(&self) -> ObjectFormat {
        self.refs.format()
    }

    pub(crate) async fn settings(&self) -> io::Result<Settings> {
        self.settings.read(&self.path).await
    }

    /// The tags among the refs of `view` below any of `prefixes`.
    pub(crate) async fn peel_below(
        &self,
        view: &View,
        prefixes: Vec<Vec<u8>>,
    ) -> io::Result<Peeled> {
        let view = view.clone();
        let gather = move || gather_oids(&view, &prefixes);
        let oids = tokio::task::spawn_blocking(gather).await;
        let oids = oids.map_err(io::Error::other)?;
        let oids = oids.inspect_err(|problem| self.note_unreadable(problem));
        let oids = oids.map_err(io::Error::other)?;
        self.peels.peel(&GitEnv::repository(&self.path), oids).await
    }
}

fn gather_oids(view: &View, prefixes: &[Vec<u8>]) -> Result<Vec<ObjectId>, ReadError> {
    let listed = prefixes.iter().flat_map(|p| listing::below_refs(view, p));
    let may_peel = |item: &Result<Listed, _>| item.as_ref().map_or(true, Listed::may_peel);
    listed.filter(may_peel).map(|item| Ok(item?.oid)).collect()
}

fn sweep(path: &Path, objects: &Path) -> io::Result<()> {
    quarantine::sweep(objects)?;
    match fs::remove_dir_all(path.join(projection::DIRECTORY)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// All repositories below one directory, opened when first asked for.
#[derive(Debug)]
pub(crate) struct Repositories {
    data: PathBuf,
    min_free: MinFree,
    /// `None` once the server shuts down.
    slots: Mutex<Option<HashMap<RepositoryName, Slot>>>,
}

/// Locked while a repository is being opened, so that it is opened once.
type Slot = Arc<tokio::sync::Mutex<Option<Arc<Repository>>>>;

impl Repositories {
    pub(crate) fn new(data: PathBuf, min_free: MinFree) -> Self {
        Self { data, min_free, slots: Mutex::new(Some(HashMap::new())) }
    }

    pub(crate) fn path(&self, name: &RepositoryName) -> PathBuf {
        self.data.join(name.as_str())
    }

    /// The repository, or `None` if there is none of this name.
    ///
    /// A directory that was removed or replaced behind the server's back is noticed here: a store
    /// on a removed directory would acknowledge pushes that nobody can ever read.
    pub(crate) async fn open(
        &self,
        name: &RepositoryName,
    ) -> Result<Option<Arc<Repository>>, RepositoryError> {
        let path = self.path(name);
        let identity = Identity::of(&path).map_err(|source| {
            let name = name.as_str().to_owned();
            RepositoryError::Io { name, source }
        })?;
        // A new slot only for what exists, so that guessing names costs nothing.
        let shared = match identity {
            Some(_) => self.slot(name)?,
            None => match self.known_slot(name)? {
                Some(slot) => slot,
                None => return Ok(None),
            },
        };
        let mut slot = shared.lock().await;
        self.check_running()?;
        let replaced = slot.take_if(|open| Some(open.identity) != identity || open.refs.is_stale());
        let was_read_only = replaced.as_ref().is_some_and(|open| open.store().is_none());
        if let Some(open) = replaced {
            close(open).await;
        }
        match (&*slot, identity) {
            (Some(open), _) => Ok(Some(Arc::clone(open))),
            (None, Some(identity)) => {
                let opened = open_when_unlocked(path, identity, self.min_free).await?;
                tell_read_only(&opened, was_read_only);
                Ok(Some(Arc::clone(slot.insert(Arc::new(opened)))))
            }
            (None, None) => {
                drop(slot);
                self.forget(name, &shared);
                Ok(None)
            }
        }
    }

    /// Closes a repository whose log was poisoned. The next request opens it anew, and recovery
    /// finds out what had become durable.
    pub(crate) async fn close(&self, name: &RepositoryName, repository: &Arc<Repository>) {
        let Ok(Some(slot)) = self.known_slot(name) else {
            return;
        };
        let mut slot = slot.lock().await;
        if let Some(open) = slot.take_if(|open| Arc::ptr_eq(open, repository)) {
            close(open).await;
        }
    }

    /// What each open repository's store did since it was opened, by name. One that cannot be
    /// written did nothing.
    pub(crate) async fn stats(&self) -> Vec<(String, Stats)> {
        let slots: Vec<Slot> =
            self.slots.lock().as_ref().map_or_else(Vec::new, |all| all.values().cloned().collect());
        let mut stats = Vec::new();
        for slot in slots {
            if let Some(open) = &*slot.lock().await
                && let Some(store) = open.store()
            {
                stats.push((open.name().to_owned(), store.stats()));
            }
        }
        stats.sort_by(|(a, _), (b, _)| a.cmp(b));
        stats
    }

    /// Closes everything; later requests are refused.
    pub(crate) async fn close_all(&self) {
        let slots = self.slots.lock().take().unwrap_or_default();
        for slot in slots.into_values() {
            if let Some(open) = slot.lock().await.take() {
                close(open).await;
            }
        }
    }

    /// Asked under the lock of a slot: what is opened after this, closing waits for.
    fn check_running(&self) -> Result<(), RepositoryError> {
        let running = self.slots.lock().is_some();
        running.then_some(()).ok_or(RepositoryError::ShuttingDown)
    }

    /// The slot of a name.
    fn slot(&self, name: &RepositoryName) -> Result<Slot, RepositoryError> {
        let mut slots = self.slots.lock();
        let slots = slots.as_mut().ok_or(RepositoryError::ShuttingDown)?;
        Ok(slots.entry(name.clone()).or_default().clone())
    }

    /// The slot of a name that was opened before.
    fn known_slot(&self, name: &RepositoryName) -> Result<Option<Slot>, RepositoryError> {
        let slots = self.slots.lock();
        let slots = slots.as_ref().ok_or(RepositoryError::ShuttingDown)?;
        Ok(slots.get(name).cloned())
    }

    /// Drops the slot of a repository that is gone, unless somebody else is about to look into it.
    fn forget(&self, name: &RepositoryName, slot: &Slot) {
        let mut slots = self.slots.lock();
        let Some(slots) = slots.as_mut() else { return };
        let is_ours = slots.get(name).is_some_and(|known| Arc::ptr_eq(known, slot));
        // The map's, and the caller's. No more can come while the map is locked.
        if is_ours && Arc::strong_count(slot) == 2 {
            slots.remove(name);
        }
    }
}

/// Tells the operator once, and not with every attempt, that a log cannot be written.
fn tell_read_only(opened: &Repository, was_read_only: bool) {
    if let Some(refs) = opened.refs.read_only().filter(|_| !was_read_only) {
        let (repository, problem) = (opened.name(), &refs.problem);
        tracing::error!(%repository, %problem, "a repository is served read-only");
    }
}

/// Waits a moment for the lock: a server that is being replaced is about to give it up, and so is a
/// command that recovers the log.
async fn open_when_unlocked(
    path: PathBuf,
    identity: Identity,
    min_free: MinFree,
) -> Result<Repository, RepositoryError> {
    let patience = Instant::now() + LOCK_PATIENCE;
    loop {
        let path = path.clone();
        let open = move || Repository::open(&path, identity, min_free);
        let opened = tokio::task::spawn_blocking(open).await;
        match opened.expect("opening a repository does not panic") {
            Err(error) if error.is_locked() && Instant::now() < patience => {
                tokio::time::sleep(LOCK_RETRY).await;
            }
            opened => return opened,
        }
    }
}

/// Logs what a store did since it was opened.
pub(crate) fn log_stats(repository: &str, stats: &Stats) {
    let millis = |time: Duration| time.as_micros() as f64 / 1000.0;
    let compactions = &stats.compactions;
    tracing::info!(
        repository,
        durable_seq = stats.durable_seq.get(),
        sealed_seq = stats.sealed_seq.get(),
        live_bytes = stats.live_bytes,
        transactions = stats.transactions,
        syncs = stats.syncs,
        sync_ms = millis(stats.sync_time),
        sync_ms_mean = stats.sync_time_mean().map(millis),
        group_size_mean = stats.group_size_mean(),
        lock_waits = stats.lock_waits,
        lock_wait_ms = millis(stats.lock_wait_time),
        compactions = compactions.compactions,
        sealed = compactions.done.sealed,
        compaction_failure = compactions.failure.as_deref().map(text::one_line),
        merge_failure = compactions.merge_failure.as_deref().map(text::one_line),
        "what it did since it was opened"
    );
}

async fn close(repository: Arc<Repository>) {
    let path = repository.path.clone();
    // Before closing, whose own sync is for no transaction.
    if let Some(store) = repository.store() {
        log_stats(repository.name(), &store.stats());
    }
    let close = move || repository.store().map_or(Ok(()), RefStore::close);
    let closed = tokio::task::spawn_blocking(close).await;
    let problem = match closed {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error.to_string(),
        Err(panic) => panic.to_string(),
    };
    let problem = text::one_line(&problem);
    tracing::error!(path = %path.display(), %problem, "a log did not close cleanly");
}

#[cfg(test)]
mod tests {
    use super::*;

    // Breaks: keeping what was known of every repository that ever was; a slot for a name that is guessed.
    #[tokio::test]
    async fn of_a_repository_that_is_gone_nothing_is_kept() {
        let data = tempfile::tempdir().unwrap();
        let repositories = Repositories::new(data.path().to_owned(), MinFree::OFF);
        let known = || repositories.slots.lock().as_ref().unwrap().len();
        let [a, b] = ["a.git", "b.git"].map(|name| RepositoryName::parse(name).unwrap());
        let path = repositories.path(&a);
        crate::init_repository(&path, &crate::InitOptions::default()).unwrap();
        assert!(repositories.open(&a).await.unwrap().is_some());
        assert!(repositories.open(&b).await.unwrap().is_none());
        assert_eq!(known(), 1);
        fs::remove_dir_all(&path).unwrap();
        let others = repositories.known_slot(&a).unwrap();
        assert!(repositories.open(&a).await.unwrap().is_none());
        assert_eq!(known(), 1, "somebody else has it");
        drop(others);
        assert!(repositories.open(&a).await.unwrap().is_none());
        assert_eq!(known(), 0);
    }

    #[test]
    fn names_cannot_leave_the_data_directory() {
        for good in ["a.git", "A-1_b.c.git", "9.git", "a..b.git"] {
            assert!(RepositoryName::parse(good).is_some(), "{good}");
        }
        let longest = format!("{}.git", "a".repeat(124));
        assert!(RepositoryName::parse(&longest).is_some());
        assert!(RepositoryName::RULE.contains(&format!("most {} bytes", longest.len())));
        let long = format!("a{longest}");
        for bad in [
            "a", ".git", "..git", ".a.git", "-a.git", "a/b.git", "../a.git", "a b.git", "é.git",
            "a.git/", "a\0.git", "a.GIT", "", &long,
        ] {
            assert!(RepositoryName::parse(bad).is_none(), "{bad:?}");
        }
    }
}
