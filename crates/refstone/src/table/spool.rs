//! Bytes that wait until what stands before them in a file is written.

use std::io;
use std::path::PathBuf;

use refstone_log::{Env, EnvFile};

/// What is kept in memory; more goes to a file, which nobody syncs.
const HELD_MAX: usize = 4 << 20;

/// Read at once when it is given out.
const PIECE: usize = 1 << 20;

/// Bytes in the order in which they came. Dropping it removes its file.
#[derive(Debug)]
pub(super) struct Spool<'e> {
    env: &'e dyn Env,
    path: PathBuf,
    held: Vec<u8>,
    file: Option<Box<dyn EnvFile>>,
    /// Bytes in the file.
    spilled: u64,
}

impl<'e> Spool<'e> {
    /// The file is only made when it is needed; what a crash left of an earlier one goes.
    pub(super) fn new(env: &'e dyn Env, path: PathBuf) -> Spool<'e> {
        Spool { env, path, held: Vec::new(), file: None, spilled: 0 }
    }

    pub(super) fn len(&self) -> u64 {
        self.spilled + self.held.len() as u64
    }

    pub(super) fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.held.extend_from_slice(bytes);
        if self.held.len() < HELD_MAX {
            return Ok(());
        }
        let file = match &self.file {
            Some(file) => file,
            None => {
                match self.env.remove(&self.path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
                self.file.insert(self.env.create_new(&self.path)?)
            }
        };
        file.write_all_at(&self.held, self.spilled)?;
        self.spilled += self.held.len() as u64;
        self.held.clear();
        Ok(())
    }

    /// Gives out all of it, in pieces.
    pub(super) fn drain(&mut self, mut put: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut piece = vec![0; if self.spilled == 0 { 0 } else { PIECE }];
        let mut at = 0;
        while let Some(file) = self.file.as_ref().filter(|_| at < self.spilled) {
            let left = usize::try_from(self.spilled - at).unwrap_or(PIECE);
            let piece = &mut piece[..left.min(PIECE)];
            if file.read_full_at(piece, at)? < piece.len() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            put(piece)?;
            at += piece.len() as u64;
        }
        put(&std::mem::take(&mut self.held))
    }
}

impl Drop for Spool<'_> {
    fn drop(&mut self) {
        if let Some(open) = self.file.take() {
            // What somebody has open is not given back in steps, with syncs that would first write what
            // nobody needs. A file that stays is no harm: nobody reads temporary names.
            let _ = self.env.remove(&self.path);
            drop(open);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use refstone_log::{EnvLayer, FileLayer, OsEnv};

    use super::*;

    fn drained(path: &Path, pieces: &[Vec<u8>]) -> (bool, Vec<u8>) {
        let mut spool = Spool::new(&OsEnv, path.to_owned());
        pieces.iter().for_each(|piece| spool.push(piece).unwrap());
        let spilled = path.exists();
        let mut bytes = Vec::new();
        let put = |piece: &[u8]| {
            bytes.extend_from_slice(piece);
            Ok(())
        };
        spool.drain(put).unwrap();
        (spilled, bytes)
    }

    /// Files that are open, and whether there was one whenever a file was removed.
    #[derive(Clone, Debug)]
    struct Watched {
        open: Arc<()>,
        while_open: Arc<AtomicBool>,
    }

    #[derive(Debug)]
    struct WatchedFile(Box<dyn EnvFile>, Arc<()>);

    impl EnvLayer for Watched {
        fn below(&self) -> &dyn Env {
            &OsEnv
        }

        fn wrap(&self, _: &Path, file: Box<dyn EnvFile>) -> Box<dyn EnvFile> {
            Box::new(WatchedFile(file, self.open.clone()))
        }

        fn remove(&self, path: &Path) -> io::Result<()> {
            OsEnv.remove(path)?;
            self.while_open.fetch_and(Arc::strong_count(&self.open) > 1, Ordering::SeqCst);
            Ok(())
        }
    }

    impl FileLayer for WatchedFile {
        fn below(&self) -> &dyn EnvFile {
            &*self.0
        }

        fn above(&self, file: Box<dyn EnvFile>) -> Box<dyn EnvFile> {
            Box::new(WatchedFile(file, self.1.clone()))
        }
    }

    // Breaks: closing it first (its space is then given back in steps, each of which syncs what is left:
    // 100 MB that were still in memory alone are all written).
    #[test]
    fn what_spilled_is_dropped_unwritten() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("spool");
        let while_open = Arc::new(AtomicBool::new(true));
        let env = Watched { open: Arc::new(()), while_open: while_open.clone() };
        let mut spool = Spool::new(&env, path.clone());
        spool.push(&vec![7; HELD_MAX]).unwrap();
        drop(spool);
        assert!(!path.exists() && while_open.load(Ordering::SeqCst));
        assert_eq!(Arc::strong_count(&env.open), 1);
    }

    // Breaks: what is held given out before what went to the file; a file that stays.
    #[test]
    fn what_does_not_fit_memory_comes_back_from_a_file_that_goes() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("spool");
        let pieces: Vec<_> = (0..11).map(|n| vec![n; (1 << 20) - 7]).collect();
        for (count, spills) in [(0, false), (1, false), (11, true)] {
            std::fs::write(&path, "left by a crash").unwrap();
            if !spills {
                std::fs::remove_file(&path).unwrap();
            }
            let (spilled, bytes) = drained(&path, &pieces[..count]);
            assert_eq!(spilled, spills);
            assert!(bytes == pieces[..count].concat());
            assert!(!path.exists());
        }
    }
}
