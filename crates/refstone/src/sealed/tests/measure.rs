//! What writing, reading and merging take: `cargo test --release -p refstone measure_ -- --ignored
//! --nocapture --test-threads 1`.

use std::time::Instant;

use super::support::{FORMS, Pushes, Random, row, write};
use crate::sealed::{HistoryFile, HistoryWriter, merge};
use crate::stop::Stop;
use refstone_log::{ObjectFormat, OsEnv};

fn timed<T>(what: &str, count: usize, work: impl FnOnce() -> T) -> T {
    let (start, start_cpu) = (Instant::now(), cpu_seconds());
    let result = work();
    let (wall, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds() - start_cpu);
    let each = cpu * 1e6 / count as f64;
    println!("{what}: {each:.3} us of CPU each, {cpu:.4} s in all, {wall:.4} s by the clock");
    result
}

/// What this thread has spent on a CPU: on a busy machine the clock tells little.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1e9
}

/// Megabytes of memory resident now, and at most so far.
fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let kilobytes = |key| {
        let line = status.lines().find(|line| line.starts_with(key)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
    };
    format!("{} MB now, {} MB at most", kilobytes("VmRSS:"), kilobytes("VmHWM:"))
}

/// Forgets the peak so far.
fn reset_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

fn scattered(count: usize, rows: u32) -> Vec<u32> {
    let mut random = Random(9);
    let mut numbers: Vec<_> =
        (0..count).map(|_| u32::try_from(random.below(u64::from(rows))).unwrap()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

fn all_of(rows: usize) {
    let dir = tempfile::tempdir_in(".").unwrap();
    let moves: Vec<_> = Pushes::new(1, 4083).take(rows).collect();
    for form in FORMS {
        println!("--- {rows} rows, {form:?}");
        reset_peak();
        println!("before: {}", memory());
        let file = timed("write", rows, || write(dir.path(), &moves, form));
        println!("{} bytes, {:.2} a row", file.bytes(), file.bytes() as f64 / rows as f64);
        println!("written: {}", memory());
        reset_peak();
        let file = timed("open", 1, || HistoryFile::open(&OsEnv, file.path()).unwrap());
        timed("scan", rows, || {
            file.scan(0..file.rows()).map(|rows| rows.unwrap().len()).sum::<usize>()
        });
        timed("moves", rows, || file.moves(0..file.rows()).map(Result::unwrap).count());
        timed("verify", rows, || file.verify(Stop::NEVER).unwrap());
        let numbers = scattered(200, file.rows());
        for _ in 0..2 {
            timed("200 scattered objects", numbers.len(), || {
                file.each_new_oid(&numbers, |_, _| ()).unwrap();
            });
        }
        let row = numbers[100];
        timed("move 1", 1, || file.moves(row..row + 1).count());
        let seq = file.identity().last.get() / 3;
        timed("row_at", 1, || file.row_at(refstone_log::Seq::new(seq)).unwrap());
        println!("read: {}", memory());
    }
}

#[test]
#[ignore = "prints figures for people and asserts no time; run it in release, with --nocapture"]
fn measure_files() {
    for rows in [10_000, 100_000, 1_000_000] {
        all_of(rows);
    }
}

#[test]
#[ignore = "prints figures for people and asserts no time; run it in release, with --nocapture"]
fn measure_merge() {
    let dir = tempfile::tempdir_in(".").unwrap();
    let mut pushes = Pushes::new(1, 4083);
    for form in FORMS {
        let file = |_| write(dir.path(), &pushes.by_ref().take(250_000).collect::<Vec<_>>(), form);
        let files: Vec<_> = (0..4).map(file).collect();
        reset_peak();
        println!("before: {}", memory());
        let path = dir.path().join("merged");
        let merged =
            timed("merge", 1_000_000, || merge(&OsEnv, &path, &files, form, Stop::NEVER).unwrap());
        println!("{form:?}: {} rows; {}", merged.rows(), memory());
    }
}

#[test]
#[ignore = "prints figures for people and asserts no time; run it in release, with --nocapture"]
fn measure_push() {
    let dir = tempfile::tempdir_in(".").unwrap();
    let moves: Vec<_> = Pushes::new(1, 4083).take(4000).collect();
    for form in FORMS {
        let path = dir.path().join("file");
        let mut writer = HistoryWriter::create(&OsEnv, &path, ObjectFormat::Sha1, form).unwrap();
        // Less than a batch, so that nothing is encoded.
        timed("push", moves.len(), || {
            for moved in &moves {
                writer.push(moved.seq, moved.at, &row(moved)).unwrap();
            }
        });
    }
}
