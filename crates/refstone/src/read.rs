//! Reading a store without its lock, beside a running writer.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use refstone_log::{LogReader, OsEnv};

use crate::error::OpenError;
use crate::name::RefName;
use crate::replay::Replay;
use crate::row::RefMove;
use crate::view::View;

/// All refs as the published log has them: durable, and as new as the writer's last sync.
///
/// Costs one read of the log.
///
/// # Errors
///
/// If there is no log, or it is damaged.
pub fn read_view(dir: &Path) -> Result<View, OpenError> {
    let mut reader = LogReader::open(&OsEnv, dir)?;
    let mut replay = Replay::default();
    while let Some(frame) = reader.next()? {
        replay.apply(&frame);
    }
    let snapshot = replay.finish(dir, reader.head(), reader.sealed_seq())?;
    Ok(View::new(Arc::new(snapshot)))
}

/// Every move the published log has, oldest first, of one ref or of all.
///
/// The moves of a deleted ref are among them: its history outlives it.
///
/// # Errors
///
/// If there is no log. Damage further on is the last item of the iterator.
pub fn history(dir: &Path, of: Option<&RefName>) -> Result<History, OpenError> {
    Ok(History {
        dir: dir.to_owned(),
        reader: LogReader::open(&OsEnv, dir)?,
        of: of.cloned(),
        read: VecDeque::new(),
        failed: false,
    })
}

/// The moves of [`history`]. At the end of the log it gives `None`, and may be asked again later.
#[derive(Debug)]
pub struct History {
    dir: PathBuf,
    reader: LogReader,
    of: Option<RefName>,
    /// Moves of the last transaction read, not given out yet.
    read: VecDeque<RefMove>,
    failed: bool,
}

impl Iterator for History {
    type Item = Result<RefMove, OpenError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.read.is_empty() && !self.failed {
            match self.read_transaction() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => {
                    // A transaction is told whole or not at all.
                    self.read.clear();
                    self.failed = true;
                    return Some(Err(error));
                }
            }
        }
        self.read.pop_front().map(Ok)
    }
}

impl History {
    /// Reads the moves of the next transaction; says whether there was one.
    fn read_transaction(&mut self) -> Result<bool, OpenError> {
        let Some(frame) = self.reader.next()? else {
            return Ok(false);
        };
        for row in 0..frame.row_count() {
            let moved = RefMove::from_row(&frame, row).map_err(|problem| OpenError::Row {
                dir: self.dir.clone(),
                seq: frame.seq(),
                row,
                problem,
            })?;
            if self.of.as_ref().is_none_or(|of| *of == moved.name) {
                self.read.push_back(moved);
            }
        }
        Ok(true)
    }
}
