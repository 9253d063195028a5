//! How a leader wakes those it covered: each by name, or a whole group by one word that all of it
//! sleeps on. `wake DIR`. Bare loops, greedy leaders.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};
use refstone_levers::{FRAME, Loop, compare};

#[derive(Default)]
struct Staging {
    frames: Vec<u8>,
    last: u64,
    group: u64,
}

#[derive(Default)]
struct Parker {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Parker {
    fn wake(&self) {
        *self.woken.lock() = true;
        self.changed.notify_one();
    }

    fn park(&self) {
        let mut woken = self.woken.lock();
        while !std::mem::take(&mut *woken) {
            self.changed.wait(&mut woken);
        }
    }
}

#[derive(Default)]
struct Gate {
    leading: bool,
    waiters: VecDeque<(u64, Arc<Parker>)>,
}

struct Shared {
    file: File,
    staging: Mutex<Staging>,
    gate: Mutex<Gate>,
    durable: AtomicU64,
    /// Group `g` sleeps on word `g % 4`, whose value is the round that was last of interest there.
    words: [AtomicU32; 4],
}

thread_local! {
    static PARKER: Arc<Parker> = Arc::default();
}

impl Loop for Shared {
    fn new(file: File) -> Shared {
        Shared {
            file,
            staging: Mutex::default(),
            gate: Mutex::default(),
            durable: AtomicU64::new(0),
            words: Default::default(),
        }
    }

    fn durable(&self) -> &AtomicU64 {
        &self.durable
    }
}

impl Shared {
    fn stage(&self, frame: &[u8]) -> (u64, u64) {
        let mut staging = self.staging.lock();
        staging.frames.extend_from_slice(frame);
        staging.last += 1;
        (staging.last, staging.group)
    }

    /// Returns the group that was led.
    fn lead(&self) -> u64 {
        let (group, last, number) = {
            let mut staging = self.staging.lock();
            staging.group += 1;
            (std::mem::take(&mut staging.frames), staging.last, staging.group - 1)
        };
        let first = last - (group.len() / FRAME) as u64;
        self.file.write_all_at(&group, first * FRAME as u64).expect("room");
        self.file.sync_data().expect("a disk");
        self.durable.store(last, Ordering::Release);
        number
    }

    fn by_name(&self, frame: &[u8]) {
        let (seq, _) = self.stage(frame);
        let parker = PARKER.with(Arc::clone);
        while self.durable.load(Ordering::Acquire) < seq {
            let mut gate = self.gate.lock();
            if self.durable.load(Ordering::Acquire) >= seq {
                return;
            }
            if gate.leading {
                gate.waiters.retain(|(_, waiter)| !Arc::ptr_eq(waiter, &parker));
                gate.waiters.push_back((seq, parker.clone()));
                drop(gate);
                parker.park();
                continue;
            }
            gate.leading = true;
            drop(gate);
            self.lead();
            let durable = self.durable.load(Ordering::Acquire);
            let mut gate = self.gate.lock();
            gate.leading = false;
            let (done, rest): (VecDeque<_>, VecDeque<_>) =
                gate.waiters.drain(..).partition(|(seq, _)| *seq <= durable);
            gate.waiters = rest;
            let heir = gate.waiters.pop_front();
            drop(gate);
            heir.iter().chain(&done).for_each(|(_, parker)| parker.wake());
        }
    }

    fn by_group(&self, frame: &[u8]) {
        let (seq, group) = self.stage(frame);
        let word = &self.words[group as usize % 4];
        while self.durable.load(Ordering::Acquire) < seq {
            let mut gate = self.gate.lock();
            if self.durable.load(Ordering::Acquire) >= seq {
                return;
            }
            if gate.leading {
                let seen = word.load(Ordering::Acquire);
                drop(gate);
                atomic_wait::wait(word, seen);
                continue;
            }
            gate.leading = true;
            drop(gate);
            let led = self.lead();
            let next = &self.words[(led + 1) as usize % 4];
            let mine = &self.words[led as usize % 4];
            let mut gate = self.gate.lock();
            gate.leading = false;
            next.fetch_add(1, Ordering::Release);
            drop(gate);
            atomic_wait::wake_one(next);
            mine.fetch_add(1, Ordering::Release);
            atomic_wait::wake_all(mine);
        }
    }
}

fn main() {
    compare(["by name", "by group"], [Shared::by_name, Shared::by_group], &[1, 2, 4, 16, 64, 256]);
}
