//! A file that gets its name when it is whole.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use refstone_log::{Env, EnvFile};

/// What the name of a file ends with while it is being written; left over by a crash, and ignored.
pub(crate) const TEMPORARY: &str = ".tmp";

/// A file being written from its start to its end, under a temporary name in its directory.
///
/// Dropping it unpublished removes it.
#[derive(Debug)]
pub(crate) struct NewFile<'e> {
    env: &'e dyn Env,
    file: Box<dyn EnvFile>,
    path: PathBuf,
    offset: u64,
    /// Where what was synced ends.
    synced: u64,
    published: bool,
}

/// Bytes that are written between two syncs. A long backlog would hold up the syncs of commits,
/// which go to the same disk.
const BACKLOG: u64 = 4 << 20;

impl<'e> NewFile<'e> {
    /// Starts a file that is to be called `path`; what a crash left of an earlier attempt goes.
    pub(crate) fn create(env: &'e dyn Env, path: &Path) -> io::Result<NewFile<'e>> {
        let temporary = temporary(path);
        match env.remove(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = env.create_new(&temporary)?;
        Ok(NewFile { env, file, path: path.to_owned(), offset: 0, synced: 0, published: false })
    }

    /// Syncs the content and gives the file its name. The name is durable when the caller has
    /// synced the directory.
    pub(crate) fn publish(mut self) -> io::Result<()> {
        self.file.sync_data()?;
        self.env.rename(&temporary(&self.path), &self.path)?;
        self.published = true;
        Ok(())
    }
}

impl Write for NewFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_all_at(bytes, self.offset)?;
        self.offset += bytes.len() as u64;
        if self.offset - self.synced >= BACKLOG {
            self.file.sync_data()?;
            self.synced = self.offset;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        if !self.published {
            // A file that stays is no harm: nobody reads temporary names.
            let _ = self.env.remove(&temporary(&self.path));
        }
    }
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(TEMPORARY);
    name.into()
}
