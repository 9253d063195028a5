//! Where the objects of a push wait until it is accepted.
//!
//! A quarantine is a directory inside the object directory, with git's own name for it, so that
//! moving a pack out is a rename. Refused pushes leave nothing behind. The order on the way out is
//! the promise of the server: objects are on stable storage before a ref names them.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tempfile::TempDir;

const PREFIX: &str = "tmp_objdir-incoming-";

/// What a `.keep` file of this server contains, to tell it from an operator's.
const KEEP_TEXT: &str = "refstone: a push is about to name these objects\n";

/// A `.keep` file that is being written: git takes such names for leftovers, too.
const KEEP_PREFIX: &str = "tmp_keep_";

/// Extensions in the order they move. git takes a pack for complete when it sees the `.idx`.
const ORDER: [&str; 3] = ["pack", "rev", "idx"];

/// A directory for new objects; it vanishes with this value.
#[derive(Debug)]
pub(crate) struct Quarantine {
    directory: TempDir,
}

impl Quarantine {
    /// Makes one inside the object directory.
    pub(crate) fn create(objects: &Path) -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(objects)?;
        fs::create_dir(directory.path().join("pack"))?;
        Ok(Self { directory })
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Moves the packs to where everybody sees them, and returns when they are on stable storage.
    /// Until the result is dropped, no repack removes them.
    pub(crate) fn migrate(&self, objects: &Path, keeps: &Arc<Keeps>) -> io::Result<Kept> {
        let target = objects.join("pack");
        ensure_pack_directory(objects, &target)?;
        let mut kept = Kept::new(keeps, &target);
        let files = files_in_order(&self.path().join("pack"))?;
        for file in &files {
            kept.hold(file)?;
            File::open(file)?.sync_all()?;
        }
        let mut moved = Moved { keeps, files: Vec::new() };
        for file in &files {
            moved.rename(file, target.join(file_name(file)?))?;
        }
        sync_directory(&target)?;
        moved.files.clear();
        Ok(kept)
    }
}

/// Files that were moved out, and are removed with this value.
struct Moved<'k> {
    keeps: &'k Keeps,
    files: Vec<PathBuf>,
}

impl Moved<'_> {
    /// What was there before is another push's.
    fn rename(&mut self, from: &Path, to: PathBuf) -> io::Result<()> {
        let is_new = !to.exists();
        fs::rename(from, &to)?;
        self.files.extend(Some(to).filter(|_| is_new));
        Ok(())
    }
}

impl Drop for Moved<'_> {
    /// The index goes first, as it came last. A pack that another push moves at the same time stays: it
    /// holds it before it moves it.
    fn drop(&mut self) {
        let held = self.keeps.held.lock();
        for file in self.files.iter().rev() {
            if held.get(&file.with_extension("keep")) == Some(&1) {
                let removed = fs::remove_file(file);
                removed.unwrap_or_else(|error| {
                    tracing::warn!(%error, file = %file.display(), "objects of a failed push stay");
                });
            }
        }
    }
}

fn ensure_pack_directory(objects: &Path, pack: &Path) -> io::Result<()> {
    match fs::create_dir(pack) {
        Ok(()) => sync_directory(objects),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// The files of finished packs. Others, such as a `tmp_pack_x` of a child that died, stay behind.
fn files_in_order(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if let Some(rank) = path.extension().and_then(rank) {
            files.push((rank, path));
        }
    }
    files.sort_unstable();
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

fn rank(extension: &OsStr) -> Option<usize> {
    ORDER.iter().position(|known| extension == *known)
}

fn file_name(path: &Path) -> io::Result<&OsStr> {
    path.file_name().ok_or_else(|| io::Error::other(format!("{} has no file name", path.display())))
}

/// Makes renames and new names in a directory durable.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Which packs of a repository pushes hold, and how many each: the same pack may be pushed twice at
/// once, and the first to end must not take the other's protection away.
#[derive(Debug, Default)]
pub(crate) struct Keeps {
    held: Mutex<HashMap<PathBuf, usize>>,
}

impl Keeps {
    /// The file is made, and removed, under the lock: it is there exactly while somebody holds it.
    fn hold(&self, keep: &Path) -> io::Result<()> {
        let mut held = self.held.lock();
        if !held.contains_key(keep) && !keep.exists() {
            write_keep(keep)?;
        }
        *held.entry(keep.to_owned()).or_default() += 1;
        Ok(())
    }

    fn release(&self, keep: &Path) {
        let mut held = self.held.lock();
        let Some(holders) = held.get_mut(keep) else {
            return;
        };
        *holders -= 1;
        if *holders == 0 {
            held.remove(keep);
            remove_keep(keep);
        }
    }
}

/// Packs that no repack removes while this value lives.
#[derive(Debug)]
pub(crate) struct Kept {
    keeps: Arc<Keeps>,
    directory: PathBuf,
    held: Vec<PathBuf>,
}

impl Kept {
    fn new(keeps: &Arc<Keeps>, directory: &Path) -> Self {
        Self { keeps: Arc::clone(keeps), directory: directory.to_owned(), held: Vec::new() }
    }

    /// Leaves the `.keep` files behind. When it is unknown whether a ref names the objects, they
    /// stay protected until the repository is opened again, which settles it.
    pub(crate) fn leave(mut self) {
        self.held.clear();
    }

    fn hold(&mut self, file: &Path) -> io::Result<()> {
        let keep = self.directory.join(file_name(file)?).with_extension("keep");
        if !self.held.contains(&keep) {
            self.keeps.hold(&keep)?;
            self.held.push(keep);
        }
        Ok(())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        for keep in &self.held {
            self.keeps.release(keep);
        }
    }
}

/// Under another name first: half of one would be taken for an operator's, and stay for ever.
fn write_keep(keep: &Path) -> io::Result<()> {
    let directory = keep.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(KEEP_PREFIX).tempfile_in(directory)?;
    file.write_all(KEEP_TEXT.as_bytes())?;
    match file.persist_noclobber(keep) {
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        written => written.map(drop).map_err(|error| error.error),
    }
}

/// An operator's own `.keep` stays.
fn remove_keep(keep: &Path) {
    if fs::read(keep).is_ok_and(|text| text == KEEP_TEXT.as_bytes()) {
        let removed = fs::remove_file(keep);
        removed.unwrap_or_else(|error| {
            tracing::warn!(%error, keep = %keep.display(), "a .keep file stays behind");
        });
    }
}

/// Removes what pushes left behind when the server died. Only for the holder of the log's lock:
/// to everybody else these directories may be in use.
pub(crate) fn sweep(objects: &Path) -> io::Result<()> {
    for name in names_in(objects)? {
        if name.as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
            fs::remove_dir_all(objects.join(name))?;
        }
    }
    let pack = objects.join("pack");
    for name in names_in(&pack)? {
        let path = pack.join(&name);
        if name.as_encoded_bytes().starts_with(KEEP_PREFIX.as_bytes()) {
            fs::remove_file(path)?;
        } else if path.extension().is_some_and(|extension| extension == "keep") {
            remove_keep(&path);
        }
    }
    Ok(())
}

fn names_in(directory: &Path) -> io::Result<Vec<OsString>> {
    match fs::read_dir(directory) {
        Ok(entries) => entries.map(|entry| Ok(entry?.file_name())).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quarantine_with_pack(objects: &Path) -> Quarantine {
        let quarantine = Quarantine::create(objects).unwrap();
        for name in ["pack-1.idx", "pack-1.pack", "pack-1.rev", "tmp_pack_x"] {
            fs::write(quarantine.path().join("pack").join(name), name).unwrap();
        }
        quarantine
    }

    fn sorted_names(directory: &Path) -> Vec<OsString> {
        let mut names = names_in(directory).unwrap();
        names.sort();
        names
    }

    #[test]
    fn packs_move_before_their_index_and_are_kept_while_held() {
        let objects = tempfile::tempdir().unwrap();
        let keeps = Arc::new(Keeps::default());
        let quarantine = quarantine_with_pack(objects.path());
        let order = files_in_order(&quarantine.path().join("pack")).unwrap();
        let order: Vec<_> = order.iter().map(|file| file.extension().unwrap()).collect();
        assert_eq!(order, ["pack", "rev", "idx"]);

        let kept = quarantine.migrate(objects.path(), &keeps).unwrap();
        drop(quarantine);
        let pack = objects.path().join("pack");
        let names = ["pack-1.idx", "pack-1.keep", "pack-1.pack", "pack-1.rev"];
        assert_eq!(sorted_names(&pack), names);
        assert_eq!(sorted_names(objects.path()), ["pack"]);

        drop(kept);
        assert_eq!(sorted_names(&pack), ["pack-1.idx", "pack-1.pack", "pack-1.rev"]);
    }

    // Breaks: moving a file before all are synced; not taking back what was moved; taking back what
    // another push has moved, or what was there before.
    #[test]
    fn a_migration_that_fails_leaves_nothing_of_its_own() {
        let objects = tempfile::tempdir().unwrap();
        let pack = objects.path().join("pack");
        fs::create_dir_all(pack.join("pack-1.idx")).unwrap();
        let keeps = Arc::new(Keeps::default());
        let fails = || {
            let quarantine = quarantine_with_pack(objects.path());
            quarantine.migrate(objects.path(), &keeps).unwrap_err();
        };
        fails();
        assert_eq!(sorted_names(&pack), ["pack-1.idx"]);

        let other = pack.join("pack-1.keep");
        keeps.hold(&other).unwrap();
        fails();
        let names = ["pack-1.idx", "pack-1.keep", "pack-1.pack", "pack-1.rev"];
        assert_eq!(sorted_names(&pack), names);
        keeps.release(&other);
        fails();
        assert_eq!(sorted_names(&pack), ["pack-1.idx", "pack-1.pack", "pack-1.rev"]);
    }

    #[test]
    fn the_last_holder_of_a_pack_removes_the_keep() {
        let objects = tempfile::tempdir().unwrap();
        let keeps = Arc::new(Keeps::default());
        let hold = || {
            let quarantine = quarantine_with_pack(objects.path());
            quarantine.migrate(objects.path(), &keeps).unwrap()
        };
        let (first, second) = (hold(), hold());
        let keep = objects.path().join("pack/pack-1.keep");
        drop(first);
        assert!(keep.exists());
        drop(second);
        assert!(!keep.exists());
    }

    #[test]
    fn an_operators_keep_outlives_every_push() {
        let objects = tempfile::tempdir().unwrap();
        let keep = objects.path().join("pack/pack-1.keep");
        fs::create_dir(objects.path().join("pack")).unwrap();
        fs::write(&keep, "because\n").unwrap();
        let quarantine = quarantine_with_pack(objects.path());
        drop(quarantine.migrate(objects.path(), &Arc::new(Keeps::default())).unwrap());
        sweep(objects.path()).unwrap();
        assert_eq!(fs::read(&keep).unwrap(), b"because\n");
    }

    #[test]
    fn a_sweep_removes_what_a_dead_server_left() {
        let objects = tempfile::tempdir().unwrap();
        let keeps = Arc::new(Keeps::default());
        let quarantine = quarantine_with_pack(objects.path());
        quarantine.migrate(objects.path(), &keeps).unwrap().leave();
        let stale = quarantine.directory.keep();
        let keep = objects.path().join("pack/pack-1.keep");
        let half = objects.path().join("pack/tmp_keep_x");
        fs::write(&half, "refst").unwrap();
        assert!(stale.exists() && keep.exists());
        sweep(objects.path()).unwrap();
        assert!(!stale.exists() && !keep.exists() && !half.exists());
        assert!(objects.path().join("pack/pack-1.pack").exists());
    }
}
