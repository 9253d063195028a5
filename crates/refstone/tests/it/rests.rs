//! A store that nobody writes holds the descriptor of its lock alone, whatever it has sealed.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::{fs, io};

use refstone::{
    CompactOptions, Compacting, CreateOptions, Edit, Env, ErrorKind, Merge, OpenOptions, OsEnv,
    RefStore, Seq, history_after,
};
use refstone_log::{EnvFile, EnvLayer};

use crate::common::{Scratch, head, listing, oid, tx};

/// The names of the files below a directory that this process has open.
fn held(dir: &Path) -> Vec<String> {
    let links = fs::read_dir("/proc/self/fd").unwrap();
    let files = links.filter_map(|link| fs::read_link(link.unwrap().path()).ok());
    let inside = files.filter(|file| file.starts_with(dir));
    inside.map(|file| file.file_name().unwrap().to_string_lossy().into_owned()).collect()
}

/// A store with two tables, none of which was read yet.
fn sealed() -> Scratch {
    let mut scratch = Scratch::new();
    for number in 1..=2 {
        let edits = (0..20).map(|n| Edit::set(head(&format!("{number}-{n}")), oid(number)));
        scratch.store.commit(&tx(edits)).unwrap();
        scratch.store.compact(CompactOptions::default(), &mut |_| ()).unwrap();
    }
    scratch.reopen();
    scratch
}

// Breaks: a table that is kept open; a live file that is, behind a compaction.
#[test]
fn a_store_at_rest_holds_its_lock_alone() {
    let scratch = sealed();
    assert_eq!(held(&scratch.dir()), ["LOCK"]);
    let refs = scratch.refs();
    assert_eq!(refs.len(), 41);
    assert_eq!(held(&scratch.dir()), ["LOCK"]);
    scratch.store.commit(&tx([Edit::set(head("new"), oid(3))])).unwrap();
    scratch.store.compact(CompactOptions::default(), &mut |_| ()).unwrap();
    assert!(scratch.store.log().rest().unwrap());
    assert_eq!(scratch.refs().len(), 42);
    assert_eq!(held(&scratch.dir()), ["LOCK"]);
}

// Break: removing files that a view has yet to read.
#[test]
fn a_view_reads_on_in_tables_that_were_merged_away() {
    let scratch = sealed();
    let view = scratch.store.view();
    let options = CompactOptions { merge: Merge::All, ..CompactOptions::default() };
    assert_eq!(scratch.store.compact(options, &mut |_| ()).unwrap().merged, 2);
    // By name: the merge itself has read the rows, and they are kept.
    assert_eq!(view.get(&head("1-3")).unwrap(), Some(oid(1).into()));
    assert_eq!(listing(&view), scratch.refs());
    drop(view);
    assert!(scratch.store.log().rest().unwrap());
    assert_eq!(held(&scratch.dir()), ["LOCK"]);
}

// Break: tables made anew under the names that a view reads by.
#[test]
fn a_view_reads_on_in_tables_that_were_made_anew() {
    let scratch = sealed();
    let view = scratch.store.view();
    scratch.store.rebuild(&mut |_| ()).unwrap();
    let refs = scratch.refs();
    fs::remove_dir_all(scratch.dir().join("tables")).unwrap();
    assert_eq!(listing(&view), refs);
    drop(view);
    assert_eq!(held(&scratch.dir()), ["LOCK"]);
}

// Break: a verdict or a read that wakes the log.
#[test]
fn reads_verdicts_and_followers_leave_a_store_at_rest() {
    let scratch = sealed();
    let taken = tx([Edit::create(head("1-1"), oid(7))]);
    assert_eq!(scratch.store.commit(&taken).unwrap_err().kind(), ErrorKind::Refused);
    scratch.store.check(&tx([Edit::create(head("new"), oid(7))])).unwrap();
    scratch.store.commit(&tx([Edit::set(head("1-1"), oid(1))])).unwrap();
    assert_eq!(history_after(&scratch.dir(), Seq::ZERO, None).unwrap().count(), 40);
    assert_eq!(held(&scratch.dir()), ["LOCK"]);
}

// Break: a follower that misses what comes after a rest.
#[test]
fn a_follower_goes_on_over_rests_and_compactions() {
    let scratch = Scratch::new();
    let mut follower = history_after(&scratch.dir(), Seq::ZERO, None).unwrap();
    for number in 1..=6 {
        scratch.store.commit(&tx([Edit::set(head("a"), oid(number))])).unwrap();
        if number % 2 == 0 {
            scratch.store.compact(CompactOptions::default(), &mut |_| ()).unwrap();
        }
        assert!(scratch.store.log().rest().unwrap());
        assert_eq!(follower.next().unwrap().unwrap().new_oid, Some(oid(number)));
        assert!(follower.next().is_none());
    }
}

// Break: giving up the lock with tables that are opened by their names: the next owner removes them.
#[test]
fn a_view_outlives_its_store() {
    let mut scratch = sealed();
    let view = scratch.store.view();
    let options = CompactOptions { merge: Merge::All, ..CompactOptions::default() };
    scratch.reopen();
    assert_eq!(scratch.store.compact(options, &mut |_| ()).unwrap().merged, 2);
    assert_eq!(view.get(&head("1-3")).unwrap(), Some(oid(1).into()));
    assert_eq!(listing(&view), scratch.refs());
}

/// Two tables cannot be opened so many times, or from when they are merged until there are descriptors
/// again.
#[derive(Debug, Default)]
struct FewDescriptors {
    scarce: AtomicU32,
    scarce_once_merged: AtomicBool,
}

impl EnvLayer for FewDescriptors {
    fn below(&self) -> &dyn Env {
        &OsEnv
    }

    fn open_read(&self, path: &Path) -> io::Result<Box<dyn EnvFile>> {
        let merged = path.ends_with("tables/1-1.arrow") || path.ends_with("tables/2-2.arrow");
        let one_less = |left: u32| left.checked_sub(1);
        let fails = || self.scarce.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        if merged && fails().is_ok() {
            return Err(io::Error::other("no descriptor is left"));
        }
        OsEnv.open_read(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if to.ends_with("tables/1-2.arrow") && self.scarce_once_merged.load(Ordering::Relaxed) {
            self.scarce.store(u32::MAX, Ordering::Relaxed);
        }
        OsEnv.rename(from, to)
    }
}

/// A store with two tables, and its environment.
fn with_few_descriptors(dir: &Path) -> (RefStore, Arc<FewDescriptors>) {
    let env = Arc::new(FewDescriptors::default());
    RefStore::create(dir, &CreateOptions::default()).unwrap();
    let options = OpenOptions::default().env(env.clone()).compacting(Compacting::ByHand);
    let store = RefStore::open_with(dir, options).unwrap();
    for number in 1..=2 {
        let edits = (0..20).map(|n| Edit::set(head(&format!("{number}-{n}")), oid(number)));
        store.commit(&tx(edits)).unwrap();
        store.compact(CompactOptions::default(), &mut |_| ()).unwrap();
    }
    (store, env)
}

// Break: sweeping what no file in use is, while a view opens it by its name.
#[test]
fn a_table_that_cannot_be_held_stays_as_long_as_a_view_has_it() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("refstone");
    let (store, env) = with_few_descriptors(&dir);
    let view = store.view();
    env.scarce_once_merged.store(true, Ordering::Relaxed);
    let all = CompactOptions { merge: Merge::All, ..CompactOptions::default() };
    assert_eq!(store.compact(all, &mut |_| ()).unwrap().merged, 2);
    assert!(dir.join("tables/1-1.arrow").exists());
    store.compact(CompactOptions::default(), &mut |_| ()).unwrap();
    env.scarce.store(0, Ordering::Relaxed);
    assert_eq!(view.get(&head("1-3")).unwrap(), Some(oid(1).into()));
    store.compact(CompactOptions::default(), &mut |_| ()).unwrap();
    assert!(!dir.join("tables/1-1.arrow").exists(), "it is held now");
    assert_eq!(view.get(&head("2-3")).unwrap(), Some(oid(2).into()));
}

// Break: making tables anew under the names of tables that could not be held.
#[test]
fn a_rebuild_without_descriptors_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let (store, env) = with_few_descriptors(&scratch.path().join("refstone"));
    let view = store.view();
    // There are again when the tables are made.
    env.scarce.store(2, Ordering::Relaxed);
    assert_eq!(store.rebuild(&mut |_| ()).unwrap_err().kind(), ErrorKind::Io);
    env.scarce.store(0, Ordering::Relaxed);
    assert_eq!(view.get(&head("1-3")).unwrap(), Some(oid(1).into()));
    store.rebuild(&mut |_| ()).unwrap();
}
