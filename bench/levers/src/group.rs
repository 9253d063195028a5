//! A gate of the kind that was kept: one leader writes and syncs what is staged, and wakes all whom
//! that covers by one word.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::FRAME;

/// What is staged. Lives under the writer mutex.
#[derive(Default)]
pub struct Staging {
    pub frames: Vec<u8>,
    pub last: u64,
    pub crc: u32,
    pub group: u64,
}

pub struct Gate {
    file: File,
    staging: Mutex<Staging>,
    leading: Mutex<bool>,
    pub durable: AtomicU64,
    /// Group `g` sleeps on word `g % 4`, whose value is the round that was last of interest there.
    words: [AtomicU32; 4],
}

impl Gate {
    pub fn new(file: File) -> Gate {
        Gate {
            file,
            staging: Mutex::default(),
            leading: Mutex::default(),
            durable: AtomicU64::new(0),
            words: Default::default(),
        }
    }

    /// Stages one frame under the mutex; returns its sequence and its group.
    pub fn stage(&self, stage: impl FnOnce(&mut Staging)) -> (u64, u64) {
        let mut staging = self.staging.lock();
        staging.last += 1;
        stage(&mut staging);
        (staging.last, staging.group)
    }

    /// Stages one frame and returns when it is durable.
    pub fn commit(&self, stage: impl FnOnce(&mut Staging)) {
        let (seq, group) = self.stage(stage);
        let word = &self.words[group as usize % 4];
        while self.durable.load(Ordering::Acquire) < seq {
            let mut leading = self.leading.lock();
            if self.durable.load(Ordering::Acquire) >= seq {
                return;
            }
            if *leading {
                let seen = word.load(Ordering::Acquire);
                drop(leading);
                atomic_wait::wait(word, seen);
                continue;
            }
            *leading = true;
            drop(leading);
            let led = self.lead();
            let next = &self.words[(led + 1) as usize % 4];
            let mine = &self.words[led as usize % 4];
            let mut leading = self.leading.lock();
            *leading = false;
            next.fetch_add(1, Ordering::Release);
            drop(leading);
            atomic_wait::wake_one(next);
            mine.fetch_add(1, Ordering::Release);
            atomic_wait::wake_all(mine);
        }
    }

    /// Writes and syncs what is staged; returns the group that was led. One thread at a time.
    pub fn lead(&self) -> u64 {
        let (frames, last, number) = {
            let mut staging = self.staging.lock();
            staging.group += 1;
            (std::mem::take(&mut staging.frames), staging.last, staging.group - 1)
        };
        let first = last - (frames.len() / FRAME) as u64;
        self.file.write_all_at(&frames, first * FRAME as u64).expect("room");
        self.file.sync_data().expect("a disk");
        self.durable.store(last, Ordering::Release);
        number
    }
}
