//! Who writes: one leader writes the whole group, or each committer writes its own frame outside
//! the mutex and the leader syncs the contiguous prefix. `handoff DIR`. Bare loops that wait alike.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};
use refstone_levers::{FRAME, Loop, compare};

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

impl Loop for Shared {
    fn new(file: File) -> Shared {
        Shared {
            file,
            staging: Mutex::default(),
            leading: Mutex::default(),
            changed: Condvar::new(),
            durable: AtomicU64::new(0),
            written: (0..4096).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn durable(&self) -> &AtomicU64 {
        &self.durable
    }
}

impl Shared {
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

fn main() {
    compare(
        ["leader writes", "each writes"],
        [Shared::leader_writes, Shared::each_writes],
        &[1, 4, 16, 64, 256],
    );
}
