//! Reading the moves of one ref, chunk by chunk, from either end.

use std::ops::Range;
use std::sync::Arc;

use super::block::Block;
use super::error::TableError;
use super::step::{Chunk, LEN_MAX, Step};
use super::window::Window;
use super::{Entry, Table};

const MOVES: &str = "the moves of a ref, chunk at byte";

/// Which end of a history comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    OldestFirst,
    NewestFirst,
}

/// The moves of a ref in a table that are still to be read.
#[derive(Debug)]
pub(crate) struct Trail {
    table: Arc<Table>,
    left: Left,
    window: Window,
}

impl Trail {
    /// The moves of a ref in a table; `None` if no transaction of it moved the ref.
    ///
    /// Costs a page of the name index and a block. Moves are read when they are taken, some pages at a
    /// time, and none of them is kept.
    pub(crate) fn of(table: Arc<Table>, name: &[u8]) -> Result<Option<Trail>, TableError> {
        let left = table.moves_of(name)?;
        Ok(left.map(|left| Trail { table, left, window: Window::default() }))
    }

    /// The next chunk of them from one end. Its moves come newest first, whichever end it is.
    pub(crate) fn next_chunk(&mut self, order: Order) -> Result<Option<Vec<Step<'_>>>, TableError> {
        self.left.next_chunk(&self.table, &mut self.window, order)
    }
}

/// Where the moves of a ref are that are still to be read.
#[derive(Debug)]
pub(super) struct Left {
    entry: Entry,
    /// Of all of them.
    start: u64,
    range: Range<u64>,
}

impl Left {
    pub(super) fn new(entry: Entry, range: Range<u64>) -> Left {
        Left { entry, start: range.start, range }
    }

    /// Where the oldest of them ends.
    pub(super) fn end(&self) -> u64 {
        self.range.end
    }

    pub(super) fn next_chunk<'a>(
        &'a mut self,
        table: &'a Table,
        window: &'a mut Window,
        order: Order,
    ) -> Result<Option<Vec<Step<'a>>>, TableError> {
        if self.range.is_empty() {
            return Ok(None);
        }
        let chunk = self.find_chunk(table, window, order)?;
        let base = match chunk.start == self.start {
            true => self.entry.base(),
            false => table.identity.base(),
        };
        let bytes = window.get(table, &chunk, &self.range, order)?;
        let steps = Chunk::decode(bytes, base, table.identity.object_format.len());
        let steps = steps.ok_or_else(|| table.no_chunk(&chunk))?;
        match order {
            Order::NewestFirst => self.range.start = chunk.end,
            Order::OldestFirst => self.range.end = chunk.start,
        }
        Ok(Some(steps))
    }

    /// Where the next chunk from one end is: its length stands there.
    fn find_chunk(
        &self,
        table: &Table,
        window: &mut Window,
        order: Order,
    ) -> Result<Range<u64>, TableError> {
        let Range { start, end } = self.range;
        let tip = match order {
            Order::NewestFirst => start..end.min(start + LEN_MAX),
            Order::OldestFirst => start.max(end.saturating_sub(LEN_MAX))..end,
        };
        let bytes = window.get(table, &tip, &self.range, order)?;
        let chunk = match order {
            Order::NewestFirst => {
                Chunk::len_at_start(bytes).and_then(|len| Some(start..start.checked_add(len)?))
            }
            Order::OldestFirst => {
                Chunk::len_at_end(bytes).and_then(|len| Some(end.checked_sub(len)?..end))
            }
        };
        let inside = chunk.filter(|chunk| start <= chunk.start && chunk.end <= end);
        inside.ok_or_else(|| table.no_chunk(&tip))
    }
}

impl Table {
    /// Where the moves of a ref are; `None` if no transaction of the table moved it.
    pub(super) fn moves_of(&self, name: &[u8]) -> Result<Option<Left>, TableError> {
        let Some((block, place)) = self.find(name)? else { return Ok(None) };
        self.moves_at(block, place.block(), place.row()).map(Some)
    }

    /// The same of a row of a block.
    pub(super) fn moves_at(
        &self,
        block: &Block,
        number: usize,
        row: usize,
    ) -> Result<Left, TableError> {
        let start = match row.checked_sub(1) {
            Some(above) => block.moves_end(above),
            None => self.directory.blocks[number].moves_start,
        };
        let end = block.moves_end(row);
        if start > end || end > self.footer.moves_len {
            let expected = format!("moves from byte {start} to {end}");
            return Err(self.source.damaged("the end of the moves", end, expected, "others"));
        }
        Ok(Left::new(block.row(row).entry(), start..end))
    }

    fn no_chunk(&self, range: &Range<u64>) -> TableError {
        let at = self.sections.moves + range.start;
        self.source.damaged(MOVES, at, "moves of the ref", "other bytes")
    }
}
