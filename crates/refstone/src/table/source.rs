//! The open file of a table: every read ends in a checksum.

use std::path::PathBuf;

use refstone_log::EnvFile;

use super::error::{Flaw, TableError};
use super::layout::Part;

#[derive(Debug)]
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) file: Box<dyn EnvFile>,
}

impl Source {
    /// Reads bytes that have a checksum; `what` ends in a word that goes before the offset.
    pub(super) fn read(
        &self,
        what: &'static str,
        offset: u64,
        part: Part,
    ) -> Result<Box<[u8]>, TableError> {
        let bytes = self.read_raw(what, offset, part.len as usize)?;
        self.check(what, offset, part.crc, &bytes)?;
        Ok(bytes)
    }

    pub(super) fn read_raw(
        &self,
        what: &'static str,
        offset: u64,
        len: usize,
    ) -> Result<Box<[u8]>, TableError> {
        let mut bytes = vec![0; len];
        let read = self.file.read_full_at(&mut bytes, offset).map_err(|e| self.io(e))?;
        if read < len {
            return Err(self.damaged(what, offset, format!("{len} bytes"), read.to_string()));
        }
        Ok(bytes.into())
    }

    pub(super) fn check(
        &self,
        what: &'static str,
        offset: u64,
        crc: u32,
        bytes: &[u8],
    ) -> Result<(), TableError> {
        let found = crc32c::crc32c(bytes);
        if found == crc {
            return Ok(());
        }
        Err(self.damaged(what, offset, format!("checksum {crc:08x}"), format!("{found:08x}")))
    }

    pub(super) fn io(&self, source: std::io::Error) -> TableError {
        TableError::Io { path: self.path.clone(), source }
    }

    pub(super) fn damaged(
        &self,
        what: &'static str,
        number: u64,
        expected: impl Into<String>,
        actual: impl Into<String>,
    ) -> TableError {
        self.flawed(Flaw::new(what, number, expected, actual))
    }

    pub(super) fn flawed(&self, flaw: Flaw) -> TableError {
        TableError::Damaged { path: self.path.clone(), flaw }
    }
}
