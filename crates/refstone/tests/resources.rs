//! What a store costs while nothing happens: disk, memory, descriptors, threads.
//!
//! A process of its own, in which the tests take turns: they count what the whole process has.

#![allow(clippy::unwrap_used, reason = "an error that a test does not expect is its failure")]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use refstone::{CompactOptions, CreateOptions, Edit, ObjectId, RefName, RefStore, Transaction};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;

/// While stores are written: the live files of 256, each with its duplicate that the gate syncs
/// through, and one more for each of two threads.
const DESCRIPTORS_AWAKE: usize = 2 * 256 + 2 * 2;

/// What else the process has open.
const DESCRIPTORS_BESIDE: usize = 50;

const PATIENCE: Duration = Duration::from_secs(60);

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

/// Threads of the test harness, which come and go, and the one that looks after awake stores.
const THREADS_BESIDE: usize = 3;

impl Usage {
    fn now() -> Usage {
        Usage {
            memory_bytes: status("VmRSS:") << 10,
            descriptors: fs::read_dir("/proc/self/fd").unwrap().count(),
            threads: status("Threads:"),
        }
    }

    /// Waits until each store has gone to rest, checks what it has added since, and says it.
    fn assert_little_since(before: Usage, stores: usize) {
        let start = Instant::now();
        while Usage::now().descriptors > before.descriptors + stores {
            assert!(start.elapsed() < PATIENCE, "{:?}", Usage::now());
            thread::sleep(Duration::from_millis(50));
        }
        Usage::now().assert_little(before, stores);
    }

    fn assert_little(self, before: Usage, stores: usize) {
        let memory = self.memory_bytes.saturating_sub(before.memory_bytes) / stores;
        let descriptors = self.descriptors - before.descriptors;
        let threads = self.threads.saturating_sub(before.threads);
        println!(
            "{stores} idle stores: {} KiB each, {descriptors} descriptors, {threads} threads",
            memory >> 10
        );
        assert!(memory <= MEMORY_BYTES_MAX, "{memory} bytes each");
        assert_eq!(descriptors, stores, "one each, for its lock");
        assert!(threads <= THREADS_BESIDE, "{threads} threads");
    }

    /// Checks that of `stores` that were just written not all are awake.
    fn assert_few_awake(before: Usage, stores: usize) {
        let descriptors = Usage::now().descriptors - before.descriptors;
        println!("{stores} stores that were just written: {descriptors} descriptors");
        assert!(descriptors <= stores + DESCRIPTORS_AWAKE, "{descriptors} descriptors");
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

/// Afterwards the store has one table.
fn compact(store: &RefStore) {
    store.compact(CompactOptions::default(), &mut |_| ()).unwrap();
}

/// A directory in memory, if there is one: many stores cost many syncs, which nothing here is about.
fn scratch() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// Lets the process have the descriptors of so many stores, or of as many as the machine allows:
/// only the privileged go above the hard limit. Says how many.
fn stores_allowed(stores: usize) -> usize {
    let wanted = (stores + DESCRIPTORS_AWAKE + DESCRIPTORS_BESIDE) as u64;
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
    let stores = descriptors - DESCRIPTORS_AWAKE - DESCRIPTORS_BESIDE;
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

// Breaks: a descriptor kept for the live file, or for a table; a thread per store; a buffer of 128
// KiB kept per store; as many stores awake as are written.
#[test]
fn an_idle_store_takes_little_memory_one_descriptor_and_no_thread() {
    let _turn = turn();
    let many = stores_allowed(300);
    let root = scratch();
    drop(create_many(&root.path().join("first"), 10));
    let before = Usage::now();
    let stores = create_many(&root.path().join("then"), many);
    Usage::now().assert_little(before, many);
    stores.iter().for_each(commit_one);
    Usage::assert_few_awake(before, many);
    Usage::assert_little_since(before, many);
    stores.iter().for_each(compact);
    Usage::assert_little_since(before, many);
    assert!(stores.iter().all(holds_its_ref));
    Usage::now().assert_little(before, many);
    drop(stores);
    assert_eq!(Usage::now().descriptors, before.descriptors);
}

/// `cargo test -p refstone --release --test resources -- --ignored --nocapture ten_thousand`
#[test]
#[ignore = "wants 10,566 descriptors, and 320 MiB in memory"]
fn ten_thousand_stores_open_in_one_process() {
    let _turn = turn();
    let many = stores_allowed(10_000);
    let root = scratch();
    let before = Usage::now();
    let stores = create_many(root.path(), many);
    stores.iter().for_each(commit_one);
    Usage::assert_few_awake(before, many);
    Usage::assert_little_since(before, many);
    assert!(stores.iter().all(holds_its_ref));
    stores.iter().for_each(commit_one);
    Usage::assert_little_since(before, many);
}

fn holds_its_ref(store: &RefStore) -> bool {
    let main = RefName::new("refs/heads/main").unwrap();
    store.view().get(&main).unwrap() == Some(object().into())
}
