//! What a store costs while nothing happens: disk, memory, descriptors, threads.
//!
//! A process of its own, in which the tests take turns: they count what the whole process has.

#![allow(clippy::unwrap_used, reason = "an error that a test does not expect is its failure")]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use refstone::{CompactOptions, CreateOptions, Edit, ObjectId, RefName, RefStore, Transaction};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;

/// The lock file, the live file, and its duplicate that the gate syncs through.
const DESCRIPTORS_PER_STORE: usize = 3;

/// What else the process has open.
const DESCRIPTORS_BESIDE: usize = 100;

const DISK_BYTES_MAX: u64 = 128 << 10;

const MEMORY_BYTES_MAX: usize = 100 << 10;

fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone, Copy, Debug)]
struct Usage {
    memory_bytes: usize,
    descriptors: usize,
    threads: usize,
}

/// Threads of the test harness, which come and go.
const THREADS_BESIDE: usize = 3;

impl Usage {
    fn now() -> Usage {
        Usage {
            memory_bytes: status("VmRSS:") << 10,
            descriptors: fs::read_dir("/proc/self/fd").unwrap().count(),
            threads: status("Threads:"),
        }
    }

    /// Checks what each of `stores` has added since, and says it.
    fn assert_little_since(self, before: Usage, stores: usize, descriptors_each: usize) {
        let memory = self.memory_bytes.saturating_sub(before.memory_bytes) / stores;
        let descriptors = self.descriptors - before.descriptors;
        let threads = self.threads.saturating_sub(before.threads);
        println!(
            "{stores} idle stores: {} KiB each, {descriptors} descriptors, {threads} threads",
            memory >> 10
        );
        assert!(memory <= MEMORY_BYTES_MAX, "{memory} bytes each");
        assert_eq!(descriptors, stores * descriptors_each);
        assert!(threads <= THREADS_BESIDE, "{threads} threads");
    }
}

/// A number from `/proc/self/status`; memory is in KiB there.
fn status(field: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

fn create(dir: &Path) -> RefStore {
    RefStore::create(dir, &CreateOptions::default()).unwrap();
    RefStore::open(dir).unwrap()
}

fn create_many(root: &Path, stores: usize) -> Vec<RefStore> {
    (0..stores).map(|n| create(&root.join(n.to_string()))).collect()
}

fn object() -> ObjectId {
    ObjectId::from_bytes(&[1; 20]).unwrap()
}

fn commit_one(store: &RefStore) {
    let name = RefName::new("refs/heads/main").unwrap();
    let edit = Edit::set(name, object());
    store.commit(&Transaction::new("alice").with(edit)).unwrap();
}

/// Afterwards the store has one table, which it keeps open.
fn compact(store: &RefStore) {
    store.compact(CompactOptions::default(), &mut |_| ()).unwrap();
}

/// A directory in memory, if there is one: many stores cost many syncs, which nothing here is about.
fn scratch() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// Lets the process have the descriptors of so many stores, or of as many as the machine allows:
/// only the privileged go above the hard limit. Says how many.
fn stores_allowed(stores: usize, descriptors_each: usize) -> usize {
    let wanted = (stores * descriptors_each + DESCRIPTORS_BESIDE) as u64;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return stores;
    }
    let maximum = limit.maximum.map(|maximum| maximum.max(wanted));
    let raised = Rlimit { current: Some(wanted), maximum };
    if setrlimit(Resource::Nofile, raised).is_ok() {
        return stores;
    }
    let hard = Rlimit { current: limit.maximum, ..limit };
    setrlimit(Resource::Nofile, hard).unwrap();
    let descriptors = usize::try_from(limit.maximum.unwrap()).unwrap();
    let stores = (descriptors - DESCRIPTORS_BESIDE) / descriptors_each;
    eprintln!("NOT {wanted} DESCRIPTORS: {descriptors} are allowed here, so {stores} stores");
    stores
}

// Breaks: a first extent of 256 KiB.
#[test]
fn a_fresh_store_takes_little_of_the_disk() {
    let _turn = turn();
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("refstone");
    let store = create(&dir);
    commit_one(&store);
    let sizes = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap());
    let bytes: u64 = sizes.map(|file| file.len().max(file.blocks() * 512)).sum();
    println!("a fresh store takes {} KiB of disk", bytes >> 10);
    assert!(bytes <= DISK_BYTES_MAX, "{bytes} bytes");
}

// Breaks: one more descriptor kept per store; a thread per store; a buffer of 128 KiB kept per store.
#[test]
fn an_idle_store_takes_little_memory_few_descriptors_and_no_thread() {
    let _turn = turn();
    let many = stores_allowed(1000, DESCRIPTORS_PER_STORE + 1);
    let root = scratch();
    drop(create_many(&root.path().join("first"), 10));
    let before = Usage::now();
    let stores = create_many(&root.path().join("then"), many);
    Usage::now().assert_little_since(before, many, DESCRIPTORS_PER_STORE);
    stores.iter().for_each(commit_one);
    Usage::now().assert_little_since(before, many, DESCRIPTORS_PER_STORE);
    stores.iter().for_each(compact);
    Usage::now().assert_little_since(before, many, DESCRIPTORS_PER_STORE + 1);
    drop(stores);
    assert_eq!(Usage::now().descriptors, before.descriptors);
}

#[test]
#[ignore = "wants 30,100 descriptors, and 320 MiB for 10,000 stores"]
fn ten_thousand_stores_open_in_one_process() {
    let _turn = turn();
    let many = stores_allowed(10_000, DESCRIPTORS_PER_STORE);
    let root = scratch();
    let before = Usage::now();
    let stores = create_many(root.path(), many);
    stores.iter().for_each(commit_one);
    Usage::now().assert_little_since(before, many, DESCRIPTORS_PER_STORE);
    let main = RefName::new("refs/heads/main").unwrap();
    let held = |store: &RefStore| store.view().get(&main).unwrap();
    assert!(stores.iter().all(|store| held(store) == Some(object().into())));
}
