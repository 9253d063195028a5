//! How fast it is and what it takes. `cargo test --release -p refstone --lib -- --ignored
//! --nocapture tables_are_fast` measures a million refs; the ordinary test runs the same, small.

use std::collections::HashMap;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use refstone_log::{ObjectFormat, OsEnv, Seq, Timestamp};

use super::super::row::Row;
use super::super::{Entry, Order, Step, Table, TableWriter, merge};
use super::{Scratch, identity, trail};
use crate::edit::Target;
use crate::oid::ObjectId;
use crate::stop::Stop;

const TEAMS: usize = 100;

fn name(number: usize) -> String {
    format!("refs/heads/team-{:02}/topic-{:06}", number % TEAMS, number)
}

fn sorted(numbers: impl Iterator<Item = usize>) -> Vec<(String, usize)> {
    let mut names: Vec<_> = numbers.map(|number| (name(number), number)).collect();
    names.sort_unstable();
    names
}

/// A splitmix step: numbers that look random.
fn scramble(number: usize) -> usize {
    let mut z = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    usize::try_from(z ^ (z >> 31)).unwrap()
}

fn entry(seq: u64, number: usize) -> Entry {
    let mut oid = [0; 20];
    oid[..8].copy_from_slice(&scramble(number).to_be_bytes());
    let target = Some(Target::Object(ObjectId::from_bytes(&oid).unwrap()));
    Entry { seq: Seq::new(seq), at: Timestamp::from_micros(1_700_000_000_000_000), target }
}

/// Time of the clock, and of the processor.
#[derive(Debug)]
#[expect(dead_code, reason = "it is printed")]
struct Took(Duration, Duration);

struct Clock(Instant, Duration);

impl Clock {
    fn start() -> Clock {
        Clock(Instant::now(), cpu())
    }

    fn elapsed(&self) -> Took {
        Took(self.0.elapsed(), cpu().saturating_sub(self.1))
    }
}

fn build(path: &Path, first: u64, names: &[(String, usize)]) -> Took {
    let start = Clock::start();
    let identity = identity(ObjectFormat::Sha1, first, names.len());
    let mut writer = TableWriter::create(&OsEnv, path, identity, names.len() as u64).unwrap();
    for (name, number) in names {
        let entry = entry(first + (*number % names.len()) as u64, *number);
        let step = Step {
            seq: entry.seq,
            at: entry.at,
            actor: b"alice",
            old_oid: None,
            new_oid: entry.base().oid,
            symref: None,
            message: None,
        };
        writer.push(name.as_bytes(), &entry, |steps| steps.push(&step)).unwrap();
    }
    writer.finish().unwrap();
    start.elapsed()
}

/// Kilobytes of memory that the process has.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

/// Has the kernel forget a file's pages; says whether it was told to.
fn drop_cached(path: &Path) -> bool {
    let from = format!("if={}", path.display());
    let dd = Command::new("dd").args([&from, "iflag=nocache", "count=0", "status=none"]).status();
    dd.is_ok_and(|status| status.success())
}

/// CPU time of the calling thread.
fn cpu() -> Duration {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = stat.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or_default())
}

/// Lookups per second of CPU time, and per second of the clock, of all threads together.
fn look_up(
    names: &[String],
    threads: usize,
    each: usize,
    get: impl Fn(&[u8]) -> Option<Target> + Sync,
) -> (f64, f64) {
    let start = Instant::now();
    let cpu: Duration = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|thread| {
                let names = names.iter().cycle().skip(thread * 7_919).take(each);
                let get = &get;
                scope.spawn(move || {
                    let start = cpu();
                    for name in names {
                        black_box(get(name.as_bytes()));
                    }
                    cpu().saturating_sub(start)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let lookups = (threads * each) as f64;
    (lookups / cpu.as_secs_f64(), lookups / start.elapsed().as_secs_f64())
}

fn list(table: &Arc<Table>) -> (Took, usize) {
    let start = Clock::start();
    let mut cursor = table.live_from(b"").unwrap();
    let (mut rows, mut bytes) = (0, 0);
    while let (Some(name), Some(row)) = (cursor.name(), cursor.row()) {
        bytes += black_box(name).len();
        black_box(row.target());
        rows += 1;
        cursor.advance().unwrap();
    }
    assert!(bytes > rows);
    (start.elapsed(), rows)
}

/// A listing as a stack makes it: the least of two names each time.
fn list_merged(tables: &[Arc<Table>]) -> (Took, usize) {
    let start = Clock::start();
    let mut cursors: Vec<_> = tables.iter().map(|table| table.live_from(b"").unwrap()).collect();
    let mut rows = 0;
    loop {
        let least = cursors.iter().enumerate().filter_map(|(at, c)| Some((c.name()?, at))).min();
        let Some((_, at)) = least else { return (start.elapsed(), rows) };
        black_box(cursors[at].row().and_then(Row::target));
        rows += 1;
        cursors[at].advance().unwrap();
    }
}

fn measure(refs: usize, lookups: usize) {
    let mut scratch = Scratch::new();
    let path = scratch.path();
    let all = sorted(0..refs);
    let before = resident();
    let built = build(&path, 1, &all);
    let grown = resident().saturating_sub(before);
    println!("{refs} refs: build {built:?}, memory +{grown} kB");

    let cold = drop_cached(&path);
    let before = resident();
    let start = Clock::start();
    let table = Arc::new(Table::open(&OsEnv, &path).unwrap());
    let opened = start.elapsed();
    let wanted = &all[scramble(7) % refs].0;
    assert!(table.target(wanted.as_bytes()).unwrap().is_some());
    let looked = start.elapsed();
    let grown = resident().saturating_sub(before);
    println!("{:.1} bytes per ref", table.bytes() as f64 / refs as f64);
    println!("open {opened:?}, with a lookup {looked:?} (cold: {cold}), memory +{grown} kB");

    let start = Clock::start();
    trail(&table, wanted.as_bytes(), Order::NewestFirst).unwrap();
    println!("moves of a ref {:?}", start.elapsed());
    for _ in 0..2 {
        let (took, rows) = list(&table);
        assert_eq!(rows, refs);
        println!("list {took:?}, memory +{} kB", resident().saturating_sub(before));
    }

    let sample = 1 << 16;
    let there: Vec<_> = (0..sample).map(|n| name(scramble(n) % refs)).collect();
    let missing: Vec<_> = there.iter().map(|name| format!("{name}-x")).collect();
    for (name, _) in all.iter().step_by(256) {
        assert!(table.target(name.as_bytes()).unwrap().is_some());
    }
    println!("warm memory +{} kB", resident().saturating_sub(before));
    let oid = match entry(1, 5).target {
        Some(Target::Object(oid)) => oid,
        _ => unreachable!("an object"),
    };
    let start = Clock::start();
    assert_eq!(table.holding(&oid).unwrap()[0].as_bytes(), name(5).as_bytes());
    println!("refs of an object {:?}", start.elapsed());

    let get = |name: &[u8]| table.target(name).unwrap().flatten();
    assert!(there.iter().all(|name| get(name.as_bytes()).is_some()));
    assert!(missing.iter().all(|name| get(name.as_bytes()).is_none()));
    // What a map that is all in memory does meanwhile tells the table's share from the machine's.
    let pair = |(name, number): &(String, usize)| {
        (name.as_bytes().to_vec(), entry(1, *number).target.unwrap())
    };
    let map: HashMap<Vec<u8>, Target> = all.iter().map(pair).collect();
    for threads in [1, 2, 4] {
        for (names, what) in [(&there, "there"), (&missing, "missing")] {
            let (cpu, wall) = look_up(names, threads, lookups, get);
            let (map, _) = look_up(names, threads, lookups, |name| map.get(name).cloned());
            println!(
                "get {what}, {threads} threads: {:.1} M/s of CPU time, {:.1} M/s; a hash map {:.1}",
                cpu / 1e6,
                wall / 1e6,
                map / 1e6
            );
        }
    }
    drop(map);
    let (took, _) = list(&table);
    println!("list warm {took:?}");

    // A tenth moves again, and as many refs are new.
    let upper = scratch.path();
    let moved = (0..refs / 10).map(|n| n * 10).chain(refs..refs + refs / 10);
    build(&upper, refs as u64 + 1, &sorted(moved));
    let tables = [table, Arc::new(Table::open(&OsEnv, &upper).unwrap())];
    let (took, _) = list_merged(&tables);
    println!("list of two tables {took:?}");
    let start = Clock::start();
    let merged = merge(&OsEnv, &scratch.path(), &tables, Stop::NEVER).unwrap();
    println!("merge {:?}", start.elapsed());
    assert_eq!(merged.live_rows(), (refs + refs / 10) as u64);
    let start = Clock::start();
    merged.verify(Stop::NEVER).unwrap();
    println!("verify {:?}", start.elapsed());
}

#[test]
fn a_measurement_of_few_refs_runs() {
    measure(3_000, 1_000);
}

#[test]
#[ignore = "prints figures for people and asserts no time; run it in release, with --nocapture"]
fn tables_are_fast() {
    measure(1_000_000, 4_000_000);
}
