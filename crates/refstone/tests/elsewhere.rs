//! What was opened by a relative path, once another directory is the current one.
//!
//! A process of its own: it has one current directory.

#![allow(clippy::unwrap_used, reason = "an error that a test does not expect is its failure")]

use std::collections::BTreeMap;
use std::env::set_current_dir;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use refstone::secrets::SecretStore;
use refstone::{
    CompactOptions, CreateOptions, Edit, ObjectId, RefName, RefStore, Seq, Transaction,
    history_after, history_newest_first, read_view,
};
use refstone_log::{Log, NoObserver, ObjectFormat, OsEnv, RefLogOptions, RefRow};

const REFS: &str = "refstone";
const SECRETS: &str = "secrets";

fn set(name: &str, number: u8) -> Transaction {
    let name = RefName::new(format!("refs/heads/{name}")).unwrap();
    Transaction::new("alice").with(Edit::set(name, ObjectId::from_bytes(&[number; 20]).unwrap()))
}

/// Both kinds of stores, in the current directory.
fn make(number: u8) -> (RefStore, SecretStore) {
    RefStore::create(Path::new(REFS), &CreateOptions::default()).unwrap();
    let refs = RefStore::open(Path::new(REFS)).unwrap();
    refs.commit(&set("a", number)).unwrap();
    SecretStore::create(Path::new(SECRETS)).unwrap();
    let secrets = SecretStore::open(Path::new(SECRETS)).unwrap();
    secrets.put("alice", b"key", format!("first-{number}").as_bytes()).unwrap();
    (refs, secrets)
}

/// A bare log, in the current directory.
fn make_log() -> Log {
    let dir = Path::new("log");
    let options =
        RefLogOptions { object_format: ObjectFormat::Sha1, head: b"refs/heads/main".to_vec() };
    Log::create(&OsEnv, dir, &options).unwrap();
    Log::open(Arc::new(OsEnv), dir, Arc::new(NoObserver), &mut |_| ()).unwrap().0
}

fn append(log: &Log) {
    let row = RefRow {
        actor: b"alice",
        refname: b"refs/heads/a",
        old_oid: None,
        new_oid: Some(&[1; 20]),
        symref: None,
        message: None,
    };
    log.append(&[row][..]).unwrap().wait().unwrap();
}

/// Every file below a directory, with its bytes.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path())),
            false => drop(found.insert(entry.path(), fs::read(entry.path()).unwrap())),
        }
    }
    found
}

// Breaks: keeping the path as it was given, in `SecretLog`, `Log`, `RefStore`, `history`, or
// `history_newest_first`.
#[test]
fn stores_and_readers_stay_where_they_were_opened() {
    let scratch = tempfile::tempdir().unwrap();
    let [here, there] = ["here", "there"].map(|name| scratch.path().join(name));
    for dir in [&here, &there] {
        fs::create_dir(dir).unwrap();
    }
    set_current_dir(&there).unwrap();
    drop((make(2), make_log()));
    let untouched = files(&there);
    set_current_dir(&here).unwrap();
    let log = make_log();
    append(&log);
    log.rest().unwrap();
    let (refs, secrets) = make(1);
    refs.compact(CompactOptions::default(), &mut |_| ()).unwrap();
    let mut follower = history_after(Path::new(REFS), Seq::ZERO, None).unwrap();
    let newest = history_newest_first(Path::new(REFS), None).unwrap();
    let view = read_view(Path::new(REFS)).unwrap();

    set_current_dir(&there).unwrap();
    append(&log);
    secrets.put("alice", b"key", b"second-1").unwrap();
    refs.commit(&set("b", 3)).unwrap();
    refs.compact(CompactOptions::default(), &mut |_| ()).unwrap();
    refs.commit(&set("c", 4)).unwrap();
    refs.rebuild(&mut |_| ()).unwrap();

    let names = |moved: refstone::RefMove| moved.name.to_string();
    let followed: Vec<_> = follower.by_ref().map(Result::unwrap).map(names).collect();
    assert_eq!(followed, ["refs/heads/a", "refs/heads/b", "refs/heads/c"]);
    let oldest = newest.last().unwrap().unwrap();
    assert_eq!(oldest.new_oid, Some(ObjectId::from_bytes(&[1; 20]).unwrap()));
    assert_eq!(view.iter_prefix(b"refs/").count(), 1);
    refs.close().unwrap();
    drop(secrets);

    assert!(files(&there) == untouched, "a store of another directory was written");
    let secrets = SecretStore::open(&here.join(SECRETS)).unwrap();
    assert_eq!(secrets.get(b"key").unwrap().as_bytes(), b"second-1");
    let grep = |bytes: &Vec<u8>| bytes.windows(7).any(|part| part == b"first-1");
    assert!(!files(&here).values().any(grep), "what was replaced is gone");
    assert_eq!(read_view(&here.join(REFS)).unwrap().iter_prefix(b"refs/").count(), 3);
}
