//! Reading all of a history file, and comparing it with what it says of itself.

use refstone_log::{Seq, Timestamp};

use super::error::{Place, SealedError};
use super::file::HistoryFile;
use super::rows::StoredRow;
use crate::stop::Stop;

impl HistoryFile {
    /// Checks everything: the checksum of every byte, that every row is a move of a ref, that
    /// sequences ascend without holes but the recorded ones, and that time does not go back.
    pub(crate) fn verify(&self, stop: Stop<'_>) -> Result<(), SealedError> {
        self.check_bytes()?;
        let mut order = Order { file: self, reached: None };
        for rows in self.scan(0..self.rows()) {
            let rows = rows?;
            for (index, row) in rows.iter().enumerate() {
                let number = rows.number(index);
                stop.check_at(number.into())?;
                self.told(number, row.ref_move())?;
                order.check(&row).map_err(|problem| self.damaged_row(number, problem))?;
            }
        }
        order.finish().map_err(|problem| self.damaged_row(self.rows().saturating_sub(1), problem))
    }

    fn damaged_row(&self, row: u32, problem: String) -> SealedError {
        SealedError::damaged(self.path(), Place::Row(row), problem)
    }
}

/// The order of the rows so far.
struct Order<'f> {
    file: &'f HistoryFile,
    reached: Option<(Seq, Timestamp)>,
}

impl Order<'_> {
    fn check(&mut self, row: &StoredRow<'_>) -> Result<(), String> {
        let identity = self.file.identity();
        match self.reached {
            None if row.seq == identity.first_present() => {}
            None => {
                let expected = identity.first_present();
                return Err(format!("transaction {}, expected {expected}", row.seq));
            }
            // The rows of a transaction share its time.
            Some((seq, at)) if row.seq == seq && row.at == at => {}
            Some((seq, at)) if row.seq == identity.next(seq) && row.at >= at => {}
            Some((seq, _)) => {
                return Err(format!("transaction {} follows {seq}, or is before it", row.seq));
            }
        }
        self.reached = Some((row.seq, row.at));
        Ok(())
    }

    fn finish(&self) -> Result<(), String> {
        let identity = self.file.identity();
        let expected = (identity.last, identity.last_at);
        match self.reached {
            Some(reached) if reached == expected => Ok(()),
            _ => Err(format!("the last row is not of transaction {}", identity.last)),
        }
    }
}
