//! Storage that betrays the log, to prove that the lab would notice a log that betrays its users.
//!
//! Each sabotage turns a correct log into one with a known fault: a log on storage that does not
//! sync behaves as one that never calls sync.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use refstone_log::{Env, EnvFile, EnvLayer, FileLayer};

use super::fs::SimFs;

/// What the storage does wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sabotage {
    /// Nothing.
    #[default]
    None,
    /// A sync of a file that was opened under a name with this in its end does nothing.
    NoSync(&'static str),
    /// A sync of a directory does nothing.
    NoSyncDir,
    /// A sync of a directory of this name does nothing.
    NoSyncDirOf(&'static str),
    /// The sync of the directory after a file was replaced does nothing.
    NoSyncAfterReplacing,
    /// A sync of the live file happens only after the next write: the length word comes first.
    LateSync,
    /// A failed sync is reported as a success.
    FailedSyncIsSuccess,
    /// A write of bytes that are read back anyway is left out.
    NoWriteAgain,
    /// Torn bytes are not kept.
    NothingKept,
    /// A file that is replaced stays under another name.
    ReplacedKept,
}

impl Sabotage {
    /// The file system with this fault.
    #[must_use]
    pub fn env(self, fs: &SimFs) -> Arc<dyn Env> {
        match self {
            Sabotage::None => Arc::new(fs.clone()),
            sabotage => {
                Arc::new(Sabotaged { fs: fs.clone(), sabotage, replaced: AtomicBool::new(false) })
            }
        }
    }
}

#[derive(Debug)]
struct Sabotaged {
    fs: SimFs,
    sabotage: Sabotage,
    /// Whether a rename has just replaced a file.
    replaced: AtomicBool,
}

impl Sabotaged {
    /// Keeps a copy of a file, durable but for its name.
    fn keep(&self, path: &Path) -> io::Result<()> {
        let copy = path.with_extension("old");
        let _ = self.fs.remove(&copy);
        let bytes = self.fs.disk().read(path)?.to_vec();
        let file = self.fs.create_new(&copy)?;
        file.write_all_at(&bytes, 0).and_then(|()| file.sync_data())
    }
}

impl EnvLayer for Sabotaged {
    fn below(&self) -> &dyn Env {
        &self.fs
    }

    fn wrap(&self, path: &Path, file: Box<dyn EnvFile>) -> Box<dyn EnvFile> {
        let name = path.to_string_lossy().into_owned();
        let owes_sync = Arc::default();
        Box::new(SabotagedFile { file, name, sabotage: self.sabotage, owes_sync })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.replaced.store(self.fs.disk().read(to).is_ok(), Ordering::Relaxed);
        if self.sabotage == Sabotage::ReplacedKept && self.replaced.load(Ordering::Relaxed) {
            self.keep(to)?;
        }
        self.fs.rename(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let replaced = self.replaced.swap(false, Ordering::Relaxed);
        match self.sabotage {
            Sabotage::NoSyncDir => Ok(()),
            Sabotage::NoSyncAfterReplacing if replaced => Ok(()),
            Sabotage::NoSyncDirOf(name) if dir.ends_with(name) => Ok(()),
            _ => self.fs.sync_dir(dir),
        }
    }
}

#[derive(Debug)]
struct SabotagedFile {
    file: Box<dyn EnvFile>,
    name: String,
    sabotage: Sabotage,
    /// Shared by all duplicates of the descriptor.
    owes_sync: Arc<AtomicBool>,
}

impl SabotagedFile {
    fn holds_already(&self, bytes: &[u8], offset: u64) -> bool {
        let mut there = vec![0; bytes.len()];
        self.file.read_at(&mut there, offset).is_ok_and(|read| read == bytes.len())
            && there == bytes
    }
}

impl FileLayer for SabotagedFile {
    fn below(&self) -> &dyn EnvFile {
        &*self.file
    }

    fn above(&self, file: Box<dyn EnvFile>) -> Box<dyn EnvFile> {
        let (name, owes_sync) = (self.name.clone(), self.owes_sync.clone());
        Box::new(SabotagedFile { file, name, sabotage: self.sabotage, owes_sync })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        match self.sabotage {
            Sabotage::NothingKept if self.name.contains(".cut-") => return Ok(bytes.len()),
            Sabotage::NoWriteAgain if self.holds_already(bytes, offset) => return Ok(bytes.len()),
            _ => {}
        }
        let written = self.file.write_at(bytes, offset)?;
        if self.owes_sync.swap(false, Ordering::Relaxed) {
            self.file.sync_data()?;
        }
        Ok(written)
    }

    fn sync_data(&self) -> io::Result<()> {
        match self.sabotage {
            Sabotage::NoSync(end) if self.name.ends_with(end) => Ok(()),
            Sabotage::LateSync if self.name.ends_with("refs.arrow") => {
                self.owes_sync.store(true, Ordering::Relaxed);
                Ok(())
            }
            Sabotage::FailedSyncIsSuccess => self.file.sync_data().or(Ok(())),
            _ => self.file.sync_data(),
        }
    }
}
