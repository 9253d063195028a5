//! The torn bytes of a disk, and whether they are kept.

use std::ops::Range;

use refstone_log::Torn;

use super::disk::Disk;
use super::model::Verdict;
use super::observe;

/// What a recovery took off the end of a live file.
#[derive(Debug)]
pub(super) struct TornBytes {
    range: Range<usize>,
    bytes: Vec<u8>,
}

impl TornBytes {
    /// The torn bytes on a disk, as a later recovery of it reported them.
    pub(super) fn of(disk: &Disk, torn: Option<&Torn>) -> TornBytes {
        let offset = |offset| usize::try_from(offset).unwrap_or(usize::MAX);
        let range = torn.map_or(0..0, |torn| offset(torn.range.start)..offset(torn.range.end));
        let bytes = live(disk, &range);
        TornBytes { range, bytes }
    }

    /// After a recovery that returned, a file keeps them.
    pub(super) fn check_kept(&self, disk: &Disk) -> Verdict {
        let kept = observe::kept(disk, &observe::log_dir()).map_err(|error| error.to_string())?;
        if self.bytes.is_empty() || kept.contains(&self.bytes) {
            return Ok(());
        }
        Err(format!("the torn bytes {:?} are not kept", self.range))
    }

    /// While a recovery is under way, they are kept or still in the live file.
    pub(super) fn check_not_lost(&self, disk: &Disk) -> Verdict {
        if live(disk, &self.range) == self.bytes { Ok(()) } else { self.check_kept(disk) }
    }
}

fn live(disk: &Disk, range: &Range<usize>) -> Vec<u8> {
    let bytes = disk.read(&observe::live_path()).unwrap_or_default();
    let end = range.end.min(bytes.len());
    bytes[range.start.min(end)..end].to_vec()
}
