//! The longest commit beside a compaction: `beside DIR [REFS] [RUNS] [modelled]`.
//!
//! With a modelled disk syncs do not reach the real one: each waits for what was written since the last,
//! at 1.2 bytes a nanosecond, in one queue for all files, and then for 90 µs. So a machine whose disk is
//! busy measures what commits wait for beside it: what a compaction writes at once, locks, and
//! processors.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use refstone::{
    CompactOptions, Compacting, CreateOptions, Edit, ObjectId, OpenOptions, RefName, RefStore,
    Transaction,
};
use refstone_log::{Env, EnvFile, EnvLayer, FileLayer, OsEnv};

const WRITERS: u64 = 4;
const BYTES_PER_NANO: f64 = 1.2;
/// The timer adds some 60 µs.
const LATENCY: Duration = Duration::from_micros(30);
/// What a disk takes within its latency.
const SMALL: u64 = 100_000;

/// The one queue of the disk.
#[derive(Clone, Debug, Default)]
struct Disk(Arc<Mutex<()>>);

#[derive(Debug)]
struct File {
    file: Box<dyn EnvFile>,
    disk: Disk,
    dirty: Arc<AtomicU64>,
}

impl EnvLayer for Disk {
    fn below(&self) -> &dyn Env {
        &OsEnv
    }

    fn wrap(&self, _: &Path, file: Box<dyn EnvFile>) -> Box<dyn EnvFile> {
        Box::new(File { file, disk: self.clone(), dirty: Arc::default() })
    }
}

impl FileLayer for File {
    fn below(&self) -> &dyn EnvFile {
        &*self.file
    }

    fn above(&self, file: Box<dyn EnvFile>) -> Box<dyn EnvFile> {
        Box::new(File { file, disk: self.disk.clone(), dirty: self.dirty.clone() })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let written = self.file.write_at(bytes, offset)?;
        self.dirty.fetch_add(written as u64, Ordering::Relaxed);
        Ok(written)
    }

    fn sync_data(&self) -> io::Result<()> {
        let dirty = self.dirty.swap(0, Ordering::Relaxed);
        let queue = self.disk.0.lock();
        if dirty > SMALL {
            thread::sleep(Duration::from_nanos((dirty as f64 / BYTES_PER_NANO) as u64));
        }
        drop(queue);
        thread::sleep(LATENCY);
        Ok(())
    }
}

fn set(name: String, count: u64, salt: u64) -> Edit {
    let mut id = [1; 20];
    id[..8].copy_from_slice(&count.to_be_bytes());
    id[8..16].copy_from_slice(&salt.to_be_bytes());
    let id = ObjectId::from_bytes(&id).expect("an id");
    Edit::set(RefName::new(name).expect("a name"), id)
}

/// Milliseconds of the longest commit while something else is done.
fn longest(store: &RefStore, work: impl FnOnce()) -> f64 {
    let over = AtomicBool::new(false);
    let push = |writer| {
        let (mut longest, mut count) = (Duration::ZERO, 0);
        while !over.load(Ordering::Relaxed) {
            count += 1;
            let moved = set(format!("refs/heads/writer-{writer}"), count, writer);
            let begun = Instant::now();
            store.commit(&Transaction::new("alice").with(moved)).expect("a commit");
            longest = longest.max(begun.elapsed());
        }
        longest
    };
    let push = &push;
    let longest = thread::scope(|scope| {
        let writers = [(); WRITERS as usize];
        let mut number = 0;
        let writers = writers.map(|()| {
            number += 1;
            scope.spawn(move || push(number))
        });
        work();
        over.store(true, Ordering::Relaxed);
        writers.map(|writer| writer.join().expect("a writer")).into_iter().max()
    });
    longest.expect("writers").as_secs_f64() * 1e3
}

fn run(dir: &Path, refs: u64, env: Arc<dyn Env>) {
    let _ = std::fs::remove_dir_all(dir);
    RefStore::create(dir, &CreateOptions::default()).expect("a store");
    let options = OpenOptions::default().env(env);
    let store = RefStore::open_with(dir, options.compacting(Compacting::ByHand)).expect("a store");
    let mut all = Transaction::new("alice");
    (0..refs).for_each(|number| all.push(set(format!("refs/heads/topic-{number:07}"), 0, number)));
    store.commit(&all).expect("a commit");
    drop(all);
    let quiet = longest(&store, || thread::sleep(Duration::from_secs(1)));
    let begun = Instant::now();
    let beside = longest(&store, || {
        store.compact(CompactOptions::default(), &mut |_| ()).expect("a compaction");
    });
    let took = begun.elapsed().as_millis();
    println!(
        "longest commit {beside:.1} ms beside a compaction of {took} ms, {quiet:.1} ms before"
    );
}

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = args.next().expect("usage: beside DIR [REFS] [RUNS] [modelled]");
    let mut number = |default| args.next().map_or(default, |arg| arg.parse().expect("a number"));
    let (refs, runs) = (number(1_000_000), number(7));
    let env: Arc<dyn Env> = match args.next() {
        Some(modelled) if modelled == "modelled" => Arc::new(Disk::default()),
        Some(other) => panic!("no such disk: {other}"),
        None => Arc::new(OsEnv),
    };
    let dir = Path::new(&dir).join("beside");
    println!("load {}", std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim());
    (0..runs).for_each(|_| run(&dir, refs, env.clone()));
    let _ = std::fs::remove_dir_all(&dir);
}
