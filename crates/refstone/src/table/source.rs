//! The file of a table: every read ends in a checksum.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use refstone_log::{Env, EnvFile};

use super::error::{Flaw, TableError};
use super::layout::Part;

#[derive(Debug)]
pub(super) struct Source {
    pub(super) path: PathBuf,
    /// Once it is held it stays so.
    held: OnceLock<Box<dyn EnvFile>>,
    /// Opens the file for each read until it is held.
    env: Option<Arc<dyn Env>>,
}

impl Source {
    pub(super) fn held(path: PathBuf, file: Box<dyn EnvFile>) -> Source {
        Source { path, held: file.into(), env: None }
    }

    pub(super) fn let_go(self, env: Arc<dyn Env>) -> Source {
        Source { held: OnceLock::new(), env: Some(env), ..self }
    }

    pub(super) fn hold(&self) -> Result<(), TableError> {
        if let (None, Some(env)) = (self.held.get(), &self.env) {
            let file = env.open_read(&self.path).map_err(|error| self.io(error))?;
            let _another_came_first = self.held.set(file);
        }
        Ok(())
    }

    fn with_file<T>(&self, read: impl FnOnce(&dyn EnvFile) -> io::Result<T>) -> io::Result<T> {
        let opened = match (self.held.get(), &self.env) {
            (None, Some(env)) => env.open_read(&self.path),
            _ => Err(io::ErrorKind::NotFound.into()),
        };
        // Who removes or replaces the file holds it first. So as long as nobody does, what was
        // opened is the file that this table was read from.
        match self.held.get() {
            Some(file) => read(&**file),
            None => read(&*opened?),
        }
    }

    pub(super) fn len(&self) -> Result<u64, TableError> {
        self.with_file(|file| file.len()).map_err(|error| self.io(error))
    }

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
        let read = self.with_file(|file| file.read_full_at(&mut bytes, offset));
        let read = read.map_err(|error| self.io(error))?;
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

    pub(super) fn io(&self, source: io::Error) -> TableError {
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
