//! The bare disk: the least that any store must do for a durable commit.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// What refstone writes for the standard push, so that the floor writes as much.
pub const FRAME_LEN: usize = 672;

/// A loop of `pwrite` and `fdatasync` in a file that was filled with zeros and synced before: no
/// block is allocated and no size changes, which is the fastest durable append there is on most
/// file systems.
#[derive(Debug)]
pub struct Floor {
    file: File,
    end: u64,
    filled: u64,
}

impl Floor {
    /// With room for `commits` appends.
    pub fn create(dir: &Path, commits: usize) -> Result<Floor> {
        let path = dir.join("floor");
        let options = OpenOptions::new().read(true).write(true).create_new(true).clone();
        let file = options.open(&path).with_context(|| format!("create {}", path.display()))?;
        let filled = (commits * FRAME_LEN) as u64;
        let zeros = vec![0; 1 << 20];
        for offset in (0..filled).step_by(zeros.len()) {
            file.write_all_at(&zeros, offset)?;
        }
        file.sync_all()?;
        Ok(Floor { file, end: 0, filled })
    }

    /// One durable append; returns what its sync took.
    pub fn commit(&mut self) -> Result<Duration> {
        anyhow::ensure!(self.end < self.filled, "the floor's file is full");
        self.file.write_all_at(&[0xa5; FRAME_LEN], self.end)?;
        self.end += FRAME_LEN as u64;
        let start = Instant::now();
        self.file.sync_data()?;
        Ok(start.elapsed())
    }
}

/// Times of `count` syncs, one after the other, by one thread.
pub fn sync_times(dir: &Path, count: usize) -> Result<Vec<Duration>> {
    let dir = tempfile::tempdir_in(dir)?;
    let mut floor = Floor::create(dir.path(), count)?;
    (0..count).map(|_| floor.commit()).collect()
}
