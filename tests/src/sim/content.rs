//! The bytes of one file: what processes see of it, and what the disk may hold.
//!
//! A sector on the disk holds what the cache held at some moment since the sector was last
//! synced. Sectors are independent of each other and of the length. So of the unsynced writes to
//! one sector a power cut keeps some first ones, while it may keep a late write to another sector
//! and lose all early ones.
//!
//! After a failed sync the kernel takes the dirty sectors for clean: processes go on reading
//! them, the next sync reports success without writing them, and the disk holds whatever reached
//! it. Only writing a sector again brings it back; and not even that if the sector was in new space:
//! ext4 forgets then that its block was never written, and the block reads as zeros after a power
//! cut, until the kernel drops the page.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::keep::{Keep, Tick};

/// The unit that a device writes whole or not at all, give or take its words.
pub(super) const SECTOR: usize = 512;
/// Aligned stores of so many bytes are never torn.
const WORD: usize = 4;

/// One write that the disk may not hold.
#[derive(Clone, Debug)]
struct Write {
    tick: Tick,
    offset: usize,
    bytes: Arc<[u8]>,
    /// A failed sync covered it, so no later sync will write it.
    lost: bool,
}

/// One file's bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    cache: Arc<Vec<u8>>,
    /// What is certainly on the disk, but for the sectors that `writes` touch.
    disk: Arc<Vec<u8>>,
    /// In the order in which they came.
    writes: Vec<Write>,
    /// Sectors of new space whose first sync failed: no sync brings them to the disk.
    stuck: BTreeSet<usize>,
}

impl Content {
    fn certain(bytes: Vec<u8>) -> Content {
        let bytes = Arc::new(bytes);
        Content { cache: bytes.clone(), disk: bytes, ..Content::default() }
    }

    /// What processes see.
    pub(super) fn cache(&self) -> &[u8] {
        &self.cache
    }

    /// Whether there is only one thing that the disk can hold.
    pub(super) fn is_certain(&self) -> bool {
        self.writes.is_empty()
    }

    /// The ticks of the writes that the disk may lack.
    pub(super) fn ticks(&self) -> impl Iterator<Item = Tick> {
        self.writes.iter().map(|write| write.tick)
    }

    pub(super) fn write(&mut self, tick: Tick, bytes: &[u8], offset: usize) {
        put(Arc::make_mut(&mut self.cache), bytes, offset);
        self.writes.push(Write { tick, offset, bytes: bytes.into(), lost: false });
    }

    /// Writes every dirty sector to the disk. What a failed sync had lost before stays lost.
    pub(super) fn sync(&mut self) {
        self.lose_what_is_stuck();
        if self.writes.iter().all(|write| !write.lost) {
            self.disk = self.cache.clone();
            self.writes.clear();
            return;
        }
        let dirty: BTreeSet<usize> =
            self.writes.iter().filter(|write| !write.lost).flat_map(Write::sectors).collect();
        let disk = Arc::make_mut(&mut self.disk);
        for &sector in &dirty {
            let start = sector * SECTOR;
            let end = (start + SECTOR).min(self.cache.len());
            put(disk, &self.cache[start..end], start);
        }
        // Lost writes are one sector each, so a sector is either wholly rewritten or not at all.
        self.writes.retain(|write| write.lost && !dirty.contains(&(write.offset / SECTOR)));
    }

    fn lose_what_is_stuck(&mut self) {
        if self.stuck.is_empty() {
            return;
        }
        let stuck = &self.stuck;
        let lose = |write: &Write| -> Vec<Write> {
            let is_stuck = |write: &Write| stuck.contains(&(write.offset / SECTOR));
            let lost = write.lost;
            write.lose().map(|part| Write { lost: lost || is_stuck(&part), ..part }).collect()
        };
        self.writes = self.writes.iter().flat_map(lose).collect();
    }

    /// A sync that fails: whatever is dirty is taken for clean, and may or may not be on the disk.
    pub(super) fn fail_sync(&mut self) {
        let new_space = self.disk.len().div_ceil(SECTOR);
        let dirty = self.writes.iter().flat_map(Write::sectors);
        self.stuck.extend(dirty.filter(|&sector| sector >= new_space));
        self.writes = self.writes.iter().flat_map(Write::lose).collect();
    }

    /// The kernel drops clean pages from its memory: lost sectors are read from the disk again.
    pub(super) fn evict(&mut self, keep: &mut Keep<'_>) {
        let writes = std::mem::take(&mut self.writes);
        let dirty: BTreeSet<usize> =
            writes.iter().filter(|write| !write.lost).flat_map(Write::sectors).collect();
        let is_gone = |write: &Write| write.lost && !dirty.contains(&(write.offset / SECTOR));
        let (gone, stay): (Vec<Write>, _) = writes.into_iter().partition(is_gone);
        for write in &gone {
            self.stuck.remove(&(write.offset / SECTOR));
        }
        self.writes = gone;
        let truth = self.survivor(keep);
        self.read_again(&truth);
        self.disk = Arc::new(truth);
        self.writes = stay;
    }

    /// Fills the cache's lost sectors from the disk; behind its end are zeros.
    fn read_again(&mut self, truth: &[u8]) {
        let cache = Arc::make_mut(&mut self.cache);
        for index in self.writes.iter().flat_map(Write::range) {
            cache[index] = truth.get(index).copied().unwrap_or(0);
        }
    }

    /// The file after a power cut.
    pub(super) fn survivor(&self, keep: &mut Keep<'_>) -> Vec<u8> {
        if self.writes.is_empty() {
            return self.disk.to_vec();
        }
        let len = self.surviving_len(keep);
        let last = self.last_kept(keep);
        let mut bytes = vec![0; self.cache.len().max(self.disk.len())];
        bytes[..self.disk.len()].copy_from_slice(&self.disk);
        for (index, write) in self.writes.iter().enumerate() {
            for sector in write.sectors() {
                if index < last[sector] {
                    let torn = index + 1 == last[sector];
                    write.put_sector(sector, &mut bytes, torn.then_some(keep));
                }
            }
        }
        bytes.truncate(len);
        bytes
    }

    pub(super) fn survive(&self, keep: &mut Keep<'_>) -> Content {
        Content::certain(self.survivor(keep))
    }

    /// The length is metadata: old or new, whatever became of the bytes.
    fn surviving_len(&self, keep: &mut Keep<'_>) -> usize {
        let (mut grown, mut len) = (self.disk.len(), self.disk.len());
        for write in &self.writes {
            if write.range().end > grown {
                grown = write.range().end;
                len = if keep.keeps(write.tick, write.bytes.len()) { grown } else { len };
            }
        }
        len
    }

    /// For each sector, how many of all writes (counted from the first) it may hold.
    fn last_kept(&self, keep: &mut Keep<'_>) -> Vec<usize> {
        let mut last = vec![0; self.cache.len().div_ceil(SECTOR)];
        for (index, write) in self.writes.iter().enumerate() {
            for sector in write.sectors() {
                if keep.keeps(write.tick, write.bytes.len()) {
                    last[sector] = index + 1;
                }
            }
        }
        last
    }
}

impl Write {
    fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.bytes.len()
    }

    fn sectors(&self) -> Range<usize> {
        self.offset / SECTOR..self.range().end.div_ceil(SECTOR)
    }

    /// The bytes of the write that lie in a sector.
    fn within(&self, sector: usize) -> Range<usize> {
        let start = (sector * SECTOR).max(self.offset);
        start..((sector + 1) * SECTOR).min(self.range().end)
    }

    fn lose(&self) -> impl Iterator<Item = Write> {
        self.sectors().map(|sector| {
            let range = self.within(sector);
            let bytes = &self.bytes[range.start - self.offset..range.end - self.offset];
            Write { tick: self.tick, offset: range.start, bytes: bytes.into(), lost: true }
        })
    }

    /// Puts the write's part of a sector; with `tearing`, perhaps only its first words.
    fn put_sector(&self, sector: usize, target: &mut [u8], tearing: Option<&mut Keep<'_>>) {
        let mut range = self.within(sector);
        let first_word = range.start / WORD;
        let words = range.end.div_ceil(WORD) - first_word;
        if let Some(kept) = tearing.and_then(|keep| keep.tears(words)) {
            range.end = range.end.min((first_word + kept) * WORD).max(range.start);
        }
        let bytes = &self.bytes[range.start - self.offset..range.end - self.offset];
        target[range].copy_from_slice(bytes);
    }
}

/// Writes into a vector as into a file: a hole before the bytes is zeros.
fn put(target: &mut Vec<u8>, bytes: &[u8], offset: usize) {
    if target.len() < offset {
        target.extend_from_slice(&vec![0; offset - target.len()]);
    }
    let (over, behind) = bytes.split_at(bytes.len().min(target.len() - offset));
    target[offset..offset + over.len()].copy_from_slice(over);
    target.extend_from_slice(behind);
}
