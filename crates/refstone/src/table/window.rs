//! Reading the section of moves, some pages at a time.

use std::ops::Range;

use super::Table;
use super::error::TableError;
use super::layout::{MOVES_PAGE, Part, SUM_LEN, SUMS_PAGE, index};
use super::trail::Order;

const MOVES: &str = "the moves at byte";
const SUMS: &str = "the checksums of moves at byte";

/// Bytes that are read ahead: at first, and once much is read.
const AHEAD: Range<u64> = 8 << 10..128 << 10;

/// Part of the section, which moves along it.
#[derive(Debug, Default)]
pub(super) struct Window {
    start: u64,
    bytes: Box<[u8]>,
    /// Bytes to read ahead; none before the first.
    ahead: u64,
    /// Whether others read on behind what one asks for.
    shared: bool,
    /// The last page of checksums, and its number.
    sums: Option<(u64, Box<[u8]>)>,
}

impl Window {
    /// A window for the moves of many refs.
    pub(super) fn shared() -> Window {
        Window { ahead: AHEAD.end, shared: true, ..Window::default() }
    }

    /// Some bytes of the section, which lie within those that more may be read of. Newer moves stand
    /// before older ones.
    pub(super) fn get(
        &mut self,
        table: &Table,
        range: &Range<u64>,
        within: &Range<u64>,
        order: Order,
    ) -> Result<&[u8], TableError> {
        let held = self.start..self.start + self.bytes.len() as u64;
        if range.start < held.start || range.end > held.end {
            let ahead = self.ahead.max(AHEAD.start);
            let all = 0..table.footer.moves_len;
            let within = if self.shared { &all } else { within };
            let wanted = match order {
                Order::NewestFirst => {
                    range.start..within.end.min(range.end.max(range.start + ahead))
                }
                Order::OldestFirst => {
                    within.start.max(range.start.min(range.end.saturating_sub(ahead)))..range.end
                }
            };
            self.read(table, &wanted)?;
            self.ahead = (2 * ahead).min(AHEAD.end);
        }
        let start = index(range.start - self.start);
        Ok(&self.bytes[start..start + index(range.end - range.start)])
    }

    /// Reads whole pages.
    fn read(&mut self, table: &Table, wanted: &Range<u64>) -> Result<(), TableError> {
        let start = wanted.start - wanted.start % MOVES_PAGE;
        let end = wanted.end.next_multiple_of(MOVES_PAGE).min(table.footer.moves_len);
        let offset = table.sections.moves + start;
        let bytes = table.source.read_raw(MOVES, offset, index(end - start))?;
        let pages = start / MOVES_PAGE..;
        for (number, page) in pages.zip(bytes.chunks(index(MOVES_PAGE))) {
            let crc = self.sum(table, number)?;
            table.source.check(MOVES, table.sections.moves + number * MOVES_PAGE, crc, page)?;
        }
        (self.start, self.bytes) = (start, bytes);
        Ok(())
    }

    /// The checksum of a page.
    fn sum(&mut self, table: &Table, page: u64) -> Result<u32, TableError> {
        let (number, place) = (page * SUM_LEN / SUMS_PAGE, index(page * SUM_LEN % SUMS_PAGE));
        let sums = match self.sums.take() {
            Some((held, sums)) if held == number => sums,
            _ => table.sums_page(number)?,
        };
        let (_, sums) = self.sums.insert((number, sums));
        let sum = sums[place..].first_chunk().copied().unwrap_or_default();
        Ok(u32::from_le_bytes(sum))
    }
}

impl Table {
    fn sums_page(&self, number: u64) -> Result<Box<[u8]>, TableError> {
        let offset = self.sections.sums + number * SUMS_PAGE;
        let len = SUMS_PAGE.min(self.sections.end - offset);
        let len = u32::try_from(len).expect("at most a page");
        let part = Part { len, crc: self.directory.sums_page_crcs[index(number)] };
        self.source.read(SUMS, offset, part)
    }
}
