//! What bare loops share: a zero-filled file, frames, writers in a closed loop, and interleaved runs.

pub mod group;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of one transaction.
pub const FRAME: usize = 672;
/// As many fit into the file.
const FRAMES_MAX: u64 = 220_000;
const SPAN: Duration = Duration::from_millis(500);
/// Each of two five times, none always first.
const ORDER: [usize; 10] = [0, 1, 1, 0, 0, 1, 1, 0, 0, 1];

/// A loop that commits one frame and returns when it is durable.
pub trait Loop: Sync + Sized {
    /// Over a new file.
    fn new(file: File) -> Self;

    /// How many are durable.
    fn durable(&self) -> &AtomicU64;
}

/// A way to commit.
pub type Commit<L> = fn(&L, &[u8]);

fn zero_filled(dir: &Path) -> File {
    let path = dir.join("lever");
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(path);
    let file = file.expect("a file");
    let zeros = vec![0; 1 << 20];
    for n in 0..160 {
        file.write_all_at(&zeros, n << 20).expect("room");
    }
    file.sync_all().expect("a disk");
    file
}

fn run<L: Loop>(dir: &Path, writers: usize, commit: Commit<L>) -> f64 {
    let bare = L::new(zero_filled(dir));
    let (start, frame) = (Instant::now(), [0x5a; FRAME]);
    let durable = || bare.durable().load(Ordering::Relaxed);
    let goes_on = || start.elapsed() < SPAN && durable() < FRAMES_MAX;
    std::thread::scope(|scope| {
        for _ in 0..writers {
            scope.spawn(|| {
                while goes_on() {
                    commit(&bare, &frame);
                }
            });
        }
    });
    durable() as f64 / start.elapsed().as_secs_f64()
}

/// Two ways to commit in interleaved runs; prints the medians of commits per second.
pub fn compare<L: Loop>(names: [&str; 2], commits: [Commit<L>; 2], writers: &[usize]) {
    let dir = PathBuf::from(std::env::args().nth(1).expect("usage: PROGRAM DIR"));
    std::fs::create_dir_all(&dir).expect("a directory");
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("load {}", load.trim());
    for &writers in writers {
        let mut rates = [vec![], vec![]];
        for n in ORDER {
            rates[n].push(run(&dir, writers, commits[n]));
        }
        let [first, second] = rates.map(|mut rates| {
            rates.sort_by(f64::total_cmp);
            rates[rates.len() / 2]
        });
        let [a, b] = names;
        let ratio = second / first;
        println!("{writers:4} writers: {a} {first:8.0}/s, {b} {second:8.0}/s, x{ratio:.2}");
    }
}
