//! What a table's header and footer say of its sections.

use flate2::Crc;
use refstone_log::ObjectFormat;

use super::bytes::{Cursor, Problem};
use super::{MAGIC, footer_len, header_len, version};

/// Where sections start; 0 stands for one that is not there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Footer {
    pub(super) block_size: usize,
    /// The root of the index of references, which is its last block.
    pub(super) ref_index: usize,
    /// Which references point at an object.
    objects: usize,
    /// Also 0 in a table that has logs alone.
    pub(super) logs: usize,
    /// The root of the index of logs.
    pub(super) log_index: usize,
    /// Where the footer starts, and all sections have ended.
    pub(super) end: usize,
}

impl Footer {
    /// Reads it, if its checksum is right and it repeats the header.
    pub(super) fn read(table: &[u8], format: ObjectFormat) -> Result<Footer, Problem> {
        let header_len = header_len(format);
        let mut header = Cursor::at(table, 0);
        if header.take(MAGIC.len())? != MAGIC || header.number(1)? != u64::from(version(format)) {
            return Err(header.problem("no header of a table of this object format"));
        }
        let block_size = header.length(3)?;
        let end = table.len().checked_sub(footer_len(format)).filter(|&end| end >= header_len);
        let end = end.ok_or(Cursor::at(table, 0).problem("it is too short"))?;
        let mut footer = Cursor::at(table, end);
        let (summed, sum) = table[end..].split_at(footer_len(format) - 4);
        let mut crc = Crc::new();
        crc.update(summed);
        if crc.sum().to_be_bytes() != *sum {
            return Err(footer.problem("the checksum of the footer is not that of its bytes"));
        }
        if footer.take(header_len)? != &table[..header_len] {
            return Err(footer.problem("the footer does not repeat the header"));
        }
        let mut position = |shift: u32| match footer.length(8)? >> shift {
            position if position <= end => Ok(position),
            _ => Err(footer.problem("a section starts behind the end")),
        };
        // The low 5 bits of the second are the length of shortened object ids.
        let [ref_index, objects, _, logs, log_index] =
            [position(0)?, position(5)?, position(0)?, position(0)?, position(0)?];
        Ok(Footer { block_size, ref_index, objects, logs, log_index, end })
    }

    /// Where the section behind the references starts, or the footer.
    pub(super) fn behind_refs(&self) -> usize {
        [self.objects, self.logs].into_iter().find(|&start| start > 0).unwrap_or(self.end)
    }
}
