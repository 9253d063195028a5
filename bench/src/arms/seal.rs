//! A sealer that keeps what leaves the log as it is.
//!
//! The store's own sealer, which writes columns, is not there yet.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use refstone::Seq;
use refstone_log::{Leaving, Sealer};

/// Writes frames, as they are, to a file that is durable before they leave the log.
pub(super) struct FileSealer {
    dir: PathBuf,
    /// Transactions sealed.
    pub(super) count: u64,
    /// The newest of them.
    pub(super) last: Seq,
}

impl FileSealer {
    /// Seals into files in this directory.
    pub(super) fn into(dir: &Path) -> FileSealer {
        FileSealer { dir: dir.to_owned(), count: 0, last: Seq::ZERO }
    }
}

impl Sealer for FileSealer {
    fn seal(
        &mut self,
        leaving: &mut Leaving<'_>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let path = self.dir.join("sealing");
        let mut file = BufWriter::with_capacity(1 << 20, File::create(&path)?);
        while let Some(frame) = leaving.next()? {
            file.write_all(frame.as_bytes())?;
            self.count += 1;
            self.last = frame.seq();
        }
        file.into_inner()?.sync_all()?;
        std::fs::rename(&path, self.dir.join(format!("through-{}", self.last)))?;
        File::open(&self.dir)?.sync_all()?;
        Ok(())
    }
}
