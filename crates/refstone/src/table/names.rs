//! The name index: from a name's hash to the places where its row may be.
//!
//! Pages of slots with open addressing, in buckets of a cache line. The high bits of the hash choose
//! the page, the low ones the bucket to start at, and those between are compared, so that a missing
//! name costs one page and, but for one in hundreds of millions, no block.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::layout::{Place, index};

/// The most slots of a page: 32 KiB.
pub(super) const SLOTS_MAX: u32 = 4096;

/// The slots of a bucket.
pub(super) const BUCKET: usize = 8;
pub(super) const SLOTS_MIN: u32 = 8;

/// How the index is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    pub(super) seed: u64,
    pub(super) pages: u32,
    /// Of a page; a power of two, at least a bucket.
    pub(super) slots: u32,
}

impl Default for Geometry {
    fn default() -> Self {
        Geometry { seed: 0, pages: 0, slots: SLOTS_MIN }
    }
}

impl Geometry {
    /// Room for so many names: at most three of five slots are used.
    pub(super) fn new(seed: u64, names: usize) -> Option<Geometry> {
        if names == 0 {
            return Some(Geometry { seed, ..Geometry::default() });
        }
        let slots = u32::try_from(names.checked_mul(5)?.div_ceil(3)).ok()?;
        let pages = slots.div_ceil(SLOTS_MAX);
        let slots = if pages > 1 { SLOTS_MAX } else { slots.next_power_of_two().max(SLOTS_MIN) };
        Some(Geometry { seed, pages, slots })
    }

    pub(super) fn hash(&self, name: &[u8]) -> u64 {
        xxh3_64_with_seed(name, self.seed)
    }

    /// The page of a hash; there must be pages.
    pub(super) fn page(&self, hash: u64) -> usize {
        index(((hash >> 32) * u64::from(self.pages)) >> 32)
    }
}

/// The slots of one cache line, which are looked at together: comparing all of them takes less
/// time than one branch that the processor guesses wrongly.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub(super) struct Bucket([u64; BUCKET]);

impl Bucket {
    pub(super) fn new(bytes: &[[u8; 8]; BUCKET]) -> Bucket {
        Bucket(bytes.map(u64::from_le_bytes))
    }

    pub(super) fn slots(&self) -> &[u64; BUCKET] {
        &self.0
    }

    /// One bit for each slot that may hold the hash.
    fn matches(&self, fingerprint: u64) -> u32 {
        let bit = |(at, slot): (usize, &u64)| u32::from(slot >> 32 == fingerprint) << at;
        self.0.iter().enumerate().map(bit).sum()
    }

    fn is_full(&self) -> bool {
        self.0.iter().all(|slot| *slot != 0)
    }
}

/// The places that a page has for a hash; by default, none.
#[derive(Debug, Default)]
pub(super) struct Probe<'a> {
    page: &'a [Bucket],
    fingerprint: u64,
    bucket: usize,
    /// Of the bucket, those not returned yet.
    matches: u32,
    /// A page that has no empty slot must not hold a lookup for ever.
    left: usize,
}

impl<'a> Probe<'a> {
    /// The page must have a power of two of buckets.
    #[inline]
    pub(super) fn new(page: &'a [Bucket], hash: u64) -> Probe<'a> {
        let (fingerprint, bucket) = (fingerprint(hash), bucket(hash) & (page.len() - 1));
        let matches = page[bucket].matches(fingerprint);
        Probe { page, fingerprint, bucket, matches, left: page.len() }
    }
}

impl Iterator for Probe<'_> {
    type Item = Place;

    #[inline]
    fn next(&mut self) -> Option<Place> {
        loop {
            let bucket = self.page.get(self.bucket)?;
            while self.matches != 0 {
                let at = self.matches.trailing_zeros() as usize;
                self.matches &= self.matches - 1;
                // An empty slot looks like a fingerprint of zero.
                if let Some(place) = place(bucket.0[at]) {
                    return Some(place);
                }
            }
            if self.left <= 1 || !bucket.is_full() {
                self.left = 0;
                return None;
            }
            self.left -= 1;
            self.bucket = (self.bucket + 1) & (self.page.len() - 1);
            self.matches = self.page[self.bucket].matches(self.fingerprint);
        }
    }
}

/// The bucket that a search starts in, before it is brought into the page.
fn bucket(hash: u64) -> usize {
    index(hash) / BUCKET
}

fn fingerprint(hash: u64) -> u64 {
    (hash >> 12) & u64::from(u32::MAX)
}

fn slot(hash: u64, place: Place) -> u64 {
    fingerprint(hash) << 32 | u64::from(place.0 + 1)
}

/// The place in a slot that is not empty.
pub(super) fn place(slot: u64) -> Option<Place> {
    let number = u32::try_from(slot & u64::from(u32::MAX)).ok()?;
    number.checked_sub(1).map(Place)
}

/// All pages of an index of these hashes, with the geometry that they fit into.
///
/// A page that overflows is all but impossible; more pages spread the hashes anew. `None` if that
/// does not help, which takes thousands of hashes that are almost equal.
pub(super) fn build(
    mut geometry: Geometry,
    names: &[(u64, Place)],
) -> Option<(Geometry, Vec<u64>)> {
    const TRIES: usize = 16;
    for _ in 0..TRIES {
        if let Some(slots) = fill(&geometry, names) {
            return Some((geometry, slots));
        }
        geometry.slots = SLOTS_MAX;
        geometry.pages = geometry.pages.checked_add(geometry.pages / 8 + 1)?;
    }
    None
}

fn fill(geometry: &Geometry, names: &[(u64, Place)]) -> Option<Vec<u64>> {
    let len = geometry.slots as usize;
    let mut slots = vec![0; geometry.pages as usize * len];
    let mut used = vec![0; geometry.pages as usize];
    for &(hash, place) in names {
        let number = geometry.page(hash);
        used[number] += 1;
        // A page keeps an empty slot: it ends the search for a missing name.
        if used[number] == len {
            return None;
        }
        let page = &mut slots[number * len..][..len];
        let start = bucket(hash) * BUCKET;
        let free = (0..len).map(|step| start.wrapping_add(step) & (len - 1));
        let free = free.into_iter().find(|&at| page[at] == 0)?;
        page[free] = slot(hash, place);
    }
    Some(slots)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buckets(slots: &[u64]) -> Vec<Bucket> {
        slots.as_chunks().0.iter().map(|slots| Bucket(*slots)).collect()
    }

    fn found(geometry: &Geometry, slots: &[u64], hash: u64) -> Vec<Place> {
        let len = geometry.slots as usize;
        let page = &slots[geometry.page(hash) * len..][..len];
        Probe::new(&buckets(page), hash).collect()
    }

    #[test]
    fn small_indexes_are_small_and_large_ones_loose() {
        for (names, pages, slots) in [(1, 1, 8), (5, 1, 16), (2457, 1, 4096), (2458, 2, 4096)] {
            let geometry = Geometry::new(0, names).unwrap();
            assert_eq!((geometry.pages, geometry.slots), (pages, slots), "{names} names");
        }
        let million = Geometry::new(0, 1_000_000).unwrap();
        assert_eq!((million.pages, million.slots), (407, 4096));
    }

    // Breaks: an overflowing page that takes one name more.
    #[test]
    fn pages_that_overflow_are_spread_again() {
        // All in the lowest sixteenth of the hashes: the first of two pages gets them all.
        let hash = |n: u64| (n << 48) | n.wrapping_mul(0x9e37_79b9) & 0xffff_ffff;
        let names: Vec<_> =
            (0..4096u64).map(|n| (hash(n), Place(u32::try_from(n).unwrap()))).collect();
        let tight = Geometry { seed: 0, pages: 2, slots: 4096 };
        assert!(fill(&tight, &names).is_none());
        let (geometry, slots) = build(tight, &names).unwrap();
        assert!(geometry.pages > 2);
        for (hash, place) in names {
            assert!(found(&geometry, &slots, hash).contains(&place));
        }
    }

    // Breaks: a search that ends with its first bucket, or at the page's end.
    #[test]
    fn equal_hashes_are_all_found_and_too_many_refused() {
        // The last bucket of a page of eight overflows into the first ones.
        let names: Vec<_> = (0..30).map(|n| (u64::MAX, Place(n))).collect();
        let (geometry, slots) = build(Geometry::new(0, 30).unwrap(), &names).unwrap();
        let mut places = found(&geometry, &slots, u64::MAX);
        places.sort_unstable();
        assert_eq!(places, (0..30).map(Place).collect::<Vec<_>>());
        let names = vec![(7, Place(1)); 5000];
        assert!(build(Geometry::new(0, 5000).unwrap(), &names).is_none());
    }

    // Breaks: an empty slot taken for a place.
    #[test]
    fn a_fingerprint_of_zero_is_found() {
        let (geometry, slots) = build(Geometry::new(0, 1).unwrap(), &[(0, Place(5))]).unwrap();
        assert_eq!(found(&geometry, &slots, 0), [Place(5)]);
        assert_eq!(found(&geometry, &slots, 1 << 12), []);
    }

    // Breaks: a probe without a bound.
    #[test]
    fn a_page_without_an_empty_slot_ends_a_search() {
        assert_eq!(Probe::new(&buckets(&[1 << 32; 32]), u64::MAX).count(), 0);
    }
}
