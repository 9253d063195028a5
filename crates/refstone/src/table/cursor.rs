//! Walking a table in the order of names.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::Table;
use super::block::Block;
use super::error::TableError;
use super::row::Row;
use super::run::Run;
use super::step::Step;
use super::trail::Order;
use super::window::Window;

/// How many blocks a cursor has the table keep. A listing of a few thousand refs finds them there
/// when it comes again; one of a million reads them again, rather than holding all of them for ever.
const BLOCKS_KEPT: usize = 8;

/// A place in a run of rows: the row it stands on, then those behind it in unsigned byte order.
#[derive(Debug)]
pub(crate) struct Cursor {
    table: Arc<Table>,
    /// The block it stands in, and its number; `None` at the end.
    block: Option<Arc<Block>>,
    number: usize,
    row: usize,
    /// Of the run.
    end: usize,
    kept: usize,
    /// The name, if it is not stored as it is.
    unescaped: Option<Vec<u8>>,
    moves: Window,
}

impl Table {
    /// A cursor on the first row that is not before `start`: of refs that exist and, in a table
    /// that is not the lowest, of deletions too.
    pub(crate) fn live_from(self: &Arc<Self>, start: &[u8]) -> Result<Cursor, TableError> {
        Cursor::new(self, 0, self.footer.live_blocks(), start)
    }

    /// The same for the deleted refs of the lowest table.
    pub(crate) fn gone_from(self: &Arc<Self>, start: &[u8]) -> Result<Cursor, TableError> {
        Cursor::new(self, self.footer.live_blocks(), self.blocks.len(), start)
    }
}

impl Cursor {
    fn new(
        table: &Arc<Table>,
        first: usize,
        end: usize,
        start: &[u8],
    ) -> Result<Cursor, TableError> {
        let entries = &table.directory.blocks[first..end];
        let behind = entries.partition_point(|block| table.directory.first_name(block) <= start);
        let mut cursor = Cursor {
            table: table.clone(),
            block: None,
            number: first + behind.saturating_sub(1),
            row: 0,
            end,
            kept: 0,
            unescaped: None,
            moves: Window::shared(),
        };
        cursor.load()?;
        cursor.seek(start)?;
        Ok(cursor)
    }

    /// The raw name of the row it stands on; `None` at the end.
    #[inline]
    pub(crate) fn name(&self) -> Option<&[u8]> {
        let block = self.block.as_ref()?;
        match &self.unescaped {
            Some(name) => Some(name),
            None => Some(block.stored_name(self.row)),
        }
    }

    /// The row it stands on; `None` at the end.
    #[inline]
    pub(crate) fn row(&self) -> Option<Row<'_>> {
        self.block.as_ref().map(|block| block.row(self.row))
    }

    /// Gives out the moves of the row's ref, newest first.
    pub(crate) fn each_step<E: From<TableError>>(
        &mut self,
        mut each: impl FnMut(&Step<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(block) = &self.block else { return Ok(()) };
        let mut left = self.table.moves_at(block, self.number, self.row)?;
        while let Some(steps) = left.next_chunk(&self.table, &mut self.moves, Order::NewestFirst)? {
            steps.iter().try_for_each(&mut each)?;
        }
        Ok(())
    }

    /// Goes to the next row. After an error it stands where it stood.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<(), TableError> {
        if self.block.is_none() {
            return Ok(());
        }
        self.row += 1;
        if self.is_behind_block() {
            return self.next_block().inspect_err(|_| self.row -= 1);
        }
        self.look();
        Ok(())
    }

    /// The rows from here to the first whose name is not before `limit`, all of one block; the
    /// cursor goes behind them. It may be behind its block then, which is no place to look at:
    /// [`Cursor::leave_block`] goes on from there, when the next row is needed.
    pub(crate) fn take_run(&mut self, limit: Option<&[u8]>) -> Run {
        let Some(block) = self.block.clone() else { return Run::default() };
        let end = match limit {
            Some(limit) => first_near(&block, self.row + 1, limit),
            None => block.rows(),
        };
        let rows = self.row..end;
        self.row = end;
        if !self.is_behind_block() {
            self.look();
        }
        Run::new(block, rows)
    }

    /// Reads the next block if the cursor is behind its own.
    #[inline]
    pub(crate) fn leave_block(&mut self) -> Result<(), TableError> {
        if self.is_behind_block() { self.next_block() } else { Ok(()) }
    }

    fn is_behind_block(&self) -> bool {
        self.block.as_ref().is_some_and(|block| self.row == block.rows())
    }

    fn next_block(&mut self) -> Result<(), TableError> {
        self.number += 1;
        self.load().inspect_err(|_| self.number -= 1)
    }

    /// Stands on the first row of its block.
    fn load(&mut self) -> Result<(), TableError> {
        self.block = match self.number < self.end {
            true => Some(self.read()?),
            false => None,
        };
        self.row = 0;
        self.look();
        Ok(())
    }

    fn read(&mut self) -> Result<Arc<Block>, TableError> {
        if self.kept < BLOCKS_KEPT {
            self.kept += 1;
            return self.table.block(self.number).cloned();
        }
        match self.table.blocks[self.number].get() {
            Some(block) => Ok(block.clone()),
            None => self.table.read_block(self.number).map(Arc::new),
        }
    }

    fn look(&mut self) {
        let name = self.block.as_ref().map(|block| block.name(self.row));
        self.unescaped = match name {
            Some(Cow::Owned(name)) => Some(name),
            _ => None,
        };
    }

    /// Goes to the first row of its block that is not before `start`, or else to the next block.
    fn seek(&mut self, start: &[u8]) -> Result<(), TableError> {
        let Some(block) = &self.block else { return Ok(()) };
        self.row = first_from(block, 0..block.rows(), start);
        if self.is_behind_block() {
            return self.next_block();
        }
        self.look();
        Ok(())
    }
}

/// The first of these rows whose name is not before `name`; their end if there is none.
fn first_from(block: &Block, rows: Range<usize>, name: &[u8]) -> usize {
    let Range { start: mut low, end: mut high } = rows;
    while low < high {
        let middle = low.midpoint(high);
        if *block.name(middle) < *name {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// The same of the rows from `start` on, in steps that double: fast for what is near.
fn first_near(block: &Block, start: usize, name: &[u8]) -> usize {
    let (mut low, mut step) = (start, 1);
    while low + step <= block.rows() {
        let last = low + step - 1;
        if *block.name(last) >= *name {
            return first_from(block, low..last, name);
        }
        (low, step) = (last + 1, 2 * step);
    }
    first_from(block, low..block.rows(), name)
}
