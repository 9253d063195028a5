//! A file that is being made, and goes again unless it was finished.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::create::remove_if_present;
use crate::env::{Env, EnvFile};
use crate::error::OpenError;

/// A file that nobody else knows of. Half of one would only take space, which there may be little of, so
/// dropping it removes it, unless it is to stay.
#[derive(Debug)]
pub(crate) struct Draft<'e> {
    env: &'e dyn Env,
    pub(crate) file: Arc<dyn EnvFile>,
    pub(crate) path: PathBuf,
    stays: bool,
}

impl<'e> Draft<'e> {
    /// Starts a file under a name that is free.
    pub(crate) fn create(env: &'e dyn Env, path: &Path) -> io::Result<Draft<'e>> {
        let file = Arc::from(env.create_new(path)?);
        Ok(Draft { env, file, path: path.to_owned(), stays: false })
    }

    /// Starts a file under a temporary name; what a crash left of an earlier one goes.
    pub(crate) fn start(env: &'e dyn Env, path: &Path) -> Result<Draft<'e>, OpenError> {
        remove_if_present(env, path)?;
        Draft::create(env, path).map_err(OpenError::io(path, "create"))
    }

    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> Result<(), OpenError> {
        self.file.write_all_at(bytes, offset).map_err(OpenError::io(&self.path, "write"))
    }

    pub(crate) fn write_zeros(&self, range: Range<u64>) -> Result<(), OpenError> {
        self.file.write_zeros_at(range).map_err(OpenError::io(&self.path, "write"))
    }

    pub(crate) fn sync(&self) -> Result<(), OpenError> {
        self.file.sync_data().map_err(OpenError::io(&self.path, "sync"))
    }

    /// Gives the file the name that it is for: it stays.
    pub(crate) fn rename(&mut self, name: &Path) -> io::Result<()> {
        self.env.rename(&self.path, name)?;
        self.stays = true;
        Ok(())
    }

    /// Lets the file stay under the name that it has.
    pub(crate) fn keep(&mut self) {
        self.stays = true;
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        // It fails where a rename that failed was carried out all the same. Else a file that stays is no
        // harm: the next one removes it first.
        if !self.stays && self.env.remove(&self.path).is_ok() {
            self.file.give_back();
        }
    }
}
