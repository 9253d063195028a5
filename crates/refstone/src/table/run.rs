//! Rows of one block that are listed one after the other.

use std::ops::Range;
use std::sync::Arc;

use super::block::Block;
use crate::edit::Target;
use crate::name::RefName;

/// What a listing takes from a cursor at once: comparing names costs more than reading a row, so
/// it is done once for all rows that no other source has a name among.
#[derive(Debug, Default)]
pub(crate) struct Run {
    block: Option<Arc<Block>>,
    rows: Range<usize>,
}

impl Run {
    pub(super) fn new(block: Arc<Block>, rows: Range<usize>) -> Run {
        Run { block: Some(block), rows }
    }
}

/// The refs that are not deleted.
impl Iterator for Run {
    type Item = (RefName, Target);

    #[inline]
    fn next(&mut self) -> Option<(RefName, Target)> {
        let block = self.block.as_ref()?;
        for number in self.rows.by_ref() {
            let row = block.row(number);
            if let Some(target) = row.target() {
                return Some((RefName::from_proven(&row.name()), target));
            }
        }
        None
    }
}
