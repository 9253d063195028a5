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
    /// How many bytes were written since the last sync.
    backlog: usize,
    published: bool,
}

/// The most bytes that are written between two syncs. The sync of a commit, which goes to the same
/// disk, waits for what is written there before it: for a millisecond, where the disk takes as many
/// bytes in one.
const BACKLOG: usize = 1 << 20;

impl<'e> NewFile<'e> {
    /// Starts a file that is to be called `path`; what a crash left of an earlier attempt goes.
    pub(crate) fn create(env: &'e dyn Env, path: &Path) -> io::Result<NewFile<'e>> {
        let temporary = temporary(path);
        match env.remove(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = env.create_new(&temporary)?;
        Ok(NewFile { env, file, path: path.to_owned(), offset: 0, backlog: 0, published: false })
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
        let piece = &bytes[..bytes.len().min(BACKLOG - self.backlog)];
        self.file.write_all_at(piece, self.offset)?;
        self.offset += piece.len() as u64;
        self.backlog += piece.len();
        if self.backlog == BACKLOG {
            self.file.sync_data()?;
            self.backlog = 0;
        }
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        if !self.published {
            // A file that stays is no harm: nobody reads temporary names.
            if self.env.remove(&temporary(&self.path)).is_ok() {
                self.file.give_back();
            }
        }
    }
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(TEMPORARY);
    name.into()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use refstone_log::{EnvLayer, FileLayer, OsEnv};

    use super::*;

    /// How many bytes were written before each sync, and since the last.
    #[derive(Clone, Debug)]
    struct Pieces(Arc<Mutex<Vec<usize>>>);

    #[derive(Debug)]
    struct Counted {
        file: Box<dyn EnvFile>,
        pieces: Pieces,
    }

    impl EnvLayer for Pieces {
        fn below(&self) -> &dyn Env {
            &OsEnv
        }

        fn wrap(&self, _: &Path, file: Box<dyn EnvFile>) -> Box<dyn EnvFile> {
            Box::new(Counted { file, pieces: self.clone() })
        }
    }

    impl FileLayer for Counted {
        fn below(&self) -> &dyn EnvFile {
            &*self.file
        }

        fn above(&self, file: Box<dyn EnvFile>) -> Box<dyn EnvFile> {
            Box::new(Counted { file, pieces: self.pieces.clone() })
        }

        fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
            let written = self.file.write_at(bytes, offset)?;
            *self.pieces.0.lock().last_mut().unwrap() += written;
            Ok(written)
        }

        fn sync_data(&self) -> io::Result<()> {
            self.pieces.0.lock().push(0);
            self.file.sync_data()
        }
    }

    // Breaks: syncing only at the end, or only when a write is over; losing where a piece ends.
    #[test]
    fn what_is_written_is_synced_in_pieces_however_it_comes() {
        const MIB: usize = 1 << 20;
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("file");
        let pieces = Pieces(Arc::new(Mutex::new(vec![0])));
        let content: Vec<u8> = (0..=250).cycle().take(5 * MIB / 2).collect();
        let mut file = NewFile::create(&pieces, &path).unwrap();
        file.write_all(&content[..MIB / 2]).unwrap();
        file.write_all(&content[MIB / 2..]).unwrap();
        file.publish().unwrap();
        assert_eq!(*pieces.0.lock(), [MIB, MIB, MIB / 2, 0]);
        assert!(std::fs::read(&path).unwrap() == content);
    }
}
