//! How a leader wakes those it covered: each by name, or a whole group by one word that all of it
//! sleeps on. `wake DIR`. Bare loops, greedy leaders.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};
use refstone_levers::group::{Gate, Staging};
use refstone_levers::{Loop, compare};

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
struct Turn {
    leading: bool,
    waiters: VecDeque<(u64, Arc<Parker>)>,
}

struct Shared {
    gate: Gate,
    turn: Mutex<Turn>,
}

thread_local! {
    static PARKER: Arc<Parker> = Arc::default();
}

impl Loop for Shared {
    fn new(file: File) -> Shared {
        Shared { gate: Gate::new(file), turn: Mutex::default() }
    }

    fn durable(&self) -> &AtomicU64 {
        &self.gate.durable
    }
}

fn stage(frame: &[u8]) -> impl FnOnce(&mut Staging) {
    |staging| staging.frames.extend_from_slice(frame)
}

impl Shared {
    fn by_name(&self, frame: &[u8]) {
        let (seq, _) = self.gate.stage(stage(frame));
        let parker = PARKER.with(Arc::clone);
        while self.durable().load(Ordering::Acquire) < seq {
            let mut turn = self.turn.lock();
            if self.durable().load(Ordering::Acquire) >= seq {
                return;
            }
            if turn.leading {
                turn.waiters.retain(|(_, waiter)| !Arc::ptr_eq(waiter, &parker));
                turn.waiters.push_back((seq, parker.clone()));
                drop(turn);
                parker.park();
                continue;
            }
            turn.leading = true;
            drop(turn);
            self.gate.lead();
            let durable = self.durable().load(Ordering::Acquire);
            let mut turn = self.turn.lock();
            turn.leading = false;
            let (done, rest): (VecDeque<_>, VecDeque<_>) =
                turn.waiters.drain(..).partition(|(seq, _)| *seq <= durable);
            turn.waiters = rest;
            let heir = turn.waiters.pop_front();
            drop(turn);
            heir.iter().chain(&done).for_each(|(_, parker)| parker.wake());
        }
    }

    fn by_group(&self, frame: &[u8]) {
        self.gate.commit(stage(frame));
    }
}

fn main() {
    compare(["by name", "by group"], [Shared::by_name, Shared::by_group], &[1, 2, 4, 16, 64, 256]);
}
