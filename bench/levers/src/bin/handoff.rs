//! Who writes: one leader writes the whole group, or each committer writes its own frame outside
//! the mutex and the leader syncs the contiguous prefix. `handoff DIR`. Bare loops that wait alike.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

const FRAME: usize = 672;
const FRAMES_MAX: u64 = 220_000;
const SPAN: Duration = Duration::from_millis(700);

#[derive(Default)]
struct Staging {
    frames: Vec<u8>,
    last: u64,
}

struct Shared {
    file: File,
    staging: Mutex<Staging>,
    leading: Mutex<bool>,
    changed: Condvar,
    durable: AtomicU64,
    /// The frames that were written, by sequence, in a ring.
    written: Vec<AtomicU64>,
}

impl Shared {
    fn new(dir: &Path) -> Shared {
        let path = dir.join("handoff");
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(path);
        let file = file.expect("a file");
        let zeros = vec![0; 1 << 20];
        for n in 0..160 {
            file.write_all_at(&zeros, n << 20).expect("room");
        }
        file.sync_all().expect("a disk");
        Shared {
            file,
            staging: Mutex::default(),
            leading: Mutex::default(),
            changed: Condvar::new(),
            durable: AtomicU64::new(0),
            written: (0..4096).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn slot(&self, seq: u64) -> &AtomicU64 {
        &self.written[seq as usize % self.written.len()]
    }

    fn wait(&self, seq: u64, lead: impl Fn() -> u64) {
        while self.durable.load(Ordering::Acquire) < seq {
            let mut leading = self.leading.lock();
            if self.durable.load(Ordering::Acquire) >= seq {
                return;
            }
            if *leading {
                self.changed.wait(&mut leading);
                continue;
            }
            *leading = true;
            drop(leading);
            let last = lead();
            self.durable.store(last, Ordering::Release);
            *self.leading.lock() = false;
            self.changed.notify_all();
        }
    }

    fn leader_writes(&self, frame: &[u8]) {
        let seq = {
            let mut staging = self.staging.lock();
            staging.frames.extend_from_slice(frame);
            staging.last += 1;
            staging.last
        };
        self.wait(seq, || {
            let (group, last) = {
                let mut staging = self.staging.lock();
                (std::mem::take(&mut staging.frames), staging.last)
            };
            let first = last - (group.len() / FRAME) as u64;
            self.file.write_all_at(&group, first * FRAME as u64).expect("room");
            self.file.sync_data().expect("a disk");
            last
        });
    }

    fn each_writes(&self, frame: &[u8]) {
        let seq = {
            let mut staging = self.staging.lock();
            staging.last += 1;
            staging.last
        };
        self.file.write_all_at(frame, (seq - 1) * FRAME as u64).expect("room");
        self.slot(seq).store(seq, Ordering::Release);
        self.wait(seq, || {
            let mut last = self.durable.load(Ordering::Relaxed);
            while self.slot(last + 1).load(Ordering::Acquire) == last + 1 {
                last += 1;
            }
            self.file.sync_data().expect("a disk");
            last
        });
    }
}

fn run(dir: &Path, writers: usize, commit: fn(&Shared, &[u8])) -> f64 {
    let shared = Shared::new(dir);
    let (start, frame) = (Instant::now(), [0x5a; FRAME]);
    let goes_on = || start.elapsed() < SPAN && shared.durable.load(Ordering::Relaxed) < FRAMES_MAX;
    std::thread::scope(|scope| {
        for _ in 0..writers {
            scope.spawn(|| {
                while goes_on() {
                    commit(&shared, &frame);
                }
            });
        }
    });
    shared.durable.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64()
}

fn main() {
    let dir = PathBuf::from(std::env::args().nth(1).expect("usage: handoff DIR"));
    std::fs::create_dir_all(&dir).expect("a directory");
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("load {}", load.trim());
    let commits: [fn(&Shared, &[u8]); 2] = [Shared::leader_writes, Shared::each_writes];
    for writers in [1, 4, 16, 64, 256] {
        let mut rates = [vec![], vec![]];
        for n in [0, 1, 1, 0, 0, 1, 1, 0, 0, 1] {
            rates[n].push(run(&dir, writers, commits[n]));
        }
        let [leader, each] = rates.map(|mut rates| {
            rates.sort_by(f64::total_cmp);
            rates[rates.len() / 2]
        });
        let ratio = each / leader;
        println!(
            "{writers:4} writers: leader writes {leader:8.0}/s, each writes {each:8.0}/s, x{ratio:.2}"
        );
    }
}
