//! The tables of a store, one above the other: newest wins.

use std::sync::Arc;

use refstone_log::Seq;

use crate::edit::Target;
use crate::error::ReadError;
use crate::name::RefName;
use crate::oid::ObjectId;
use crate::table::{Cursor, Table};

/// Tables of adjacent ranges, oldest first; together they reach from the first transaction to the
/// newest that was sealed.
#[derive(Debug, Default)]
pub(crate) struct Stack {
    tables: Vec<Arc<Table>>,
}

impl Stack {
    pub(crate) fn new(tables: Vec<Arc<Table>>) -> Stack {
        Stack { tables }
    }

    pub(crate) fn tables(&self) -> &[Arc<Table>] {
        &self.tables
    }

    /// The newest transaction that is in the tables.
    pub(crate) fn reaches(&self) -> Seq {
        self.tables.last().map_or(Seq::ZERO, |table| table.identity().last)
    }

    /// What a ref holds.
    #[inline]
    pub(crate) fn get(&self, name: &[u8]) -> Result<Option<Target>, ReadError> {
        for table in self.tables.iter().rev() {
            if let Some(target) = table.target(name)? {
                return Ok(target);
            }
        }
        Ok(None)
    }

    /// One cursor for each table, newest first, at the first name that is not less than `start`.
    pub(crate) fn cursors(&self, start: &[u8]) -> Result<Vec<Cursor>, ReadError> {
        let cursors = self.tables.iter().rev().map(|table| Ok(table.live_from(start)?));
        cursors.collect()
    }

    /// Refs that held this object in some table. Newer states may say otherwise.
    pub(crate) fn candidates(&self, oid: &ObjectId) -> Result<Vec<RefName>, ReadError> {
        let mut names = Vec::new();
        for table in &self.tables {
            names.extend(table.holding(oid)?);
        }
        Ok(names)
    }
}
