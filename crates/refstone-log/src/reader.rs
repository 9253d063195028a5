//! Reads the published part of a log, without its lock, also beside a running writer.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::env::{Env, EnvFile};
use crate::error::OpenError;
use crate::files;
use crate::frame::decode::SharedSchema;
use crate::frame::gaps::Gaps;
use crate::frame::schema::Anchor;
use crate::frame::{EOS, Frame, PREFIX_LEN};
use crate::kind::ObjectFormat;
use crate::recover::{explain_open, refuse_empty};
use crate::seq::Seq;
use crate::walk::{Step, Walk};

/// The published transactions of one file, oldest first.
///
/// All it returns is durable: a length word is stored after the sync of its group. What a crash
/// left unpublished it does not see; [`Log::open`](crate::Log::open) judges that.
#[derive(Debug)]
pub struct LogReader {
    pub(crate) walk: Walk,
}

impl LogReader {
    /// Opens the live log of a directory.
    ///
    /// # Errors
    /// If there is no log, or its schema is damaged.
    pub fn open(env: &dyn Env, dir: &Path) -> Result<LogReader, OpenError> {
        let path: PathBuf = files::live(dir);
        let file = env.open_read(&path).map_err(|error| explain_open(env, dir, error))?;
        refuse_empty(env, dir, &*file)?;
        let file: Arc<dyn EnvFile> = Arc::from(file);
        Ok(LogReader { walk: Walk::start(file, &path)? })
    }

    /// The hash that names the objects of the repository.
    #[must_use]
    pub fn object_format(&self) -> ObjectFormat {
        self.walk.identity.object_format
    }

    /// The initial symbolic target of `HEAD`, as raw bytes.
    #[must_use]
    pub fn head(&self) -> &[u8] {
        &self.walk.identity.head
    }

    /// The Arrow schema of the log, for [`Frame::record_batch`].
    #[must_use]
    pub fn arrow_schema(&self) -> SharedSchema {
        self.walk.identity.arrow_schema()
    }

    /// The random identity the log got when it was created.
    #[must_use]
    pub fn log_id(&self) -> [u8; 16] {
        self.walk.identity.log_id
    }

    /// The newest transaction that was taken out of this file.
    #[must_use]
    pub fn anchor(&self) -> Anchor {
        self.walk.identity.anchor
    }

    /// Sequences that repairs lost.
    #[must_use]
    pub fn gaps(&self) -> &Gaps {
        &self.walk.identity.gaps
    }

    /// The newest sequence returned so far, or the last one before the file.
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.walk.tail.seq
    }

    /// Bytes from the start of the file to the end of the last frame returned.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.walk.tail.offset
    }

    /// The next transaction; `None` at the published end. Later calls go on from there.
    ///
    /// # Errors
    /// If a published frame is damaged.
    #[allow(clippy::should_implement_trait)] // A lending iterator: the frame borrows the reader.
    pub fn next(&mut self) -> Result<Option<Frame<'_>>, OpenError> {
        if !self.walk.next_is_published()? {
            // What was read may be old by the next call.
            self.walk.forget();
            return Ok(None);
        }
        match self.walk.step_fresh()? {
            Step::Frame { .. } => Ok(Some(self.walk.frame())),
            Step::End { .. } => Ok(None),
        }
    }

    /// Whether there is a next transaction.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn has_next(&mut self) -> Result<bool, OpenError> {
        self.walk.forget();
        let mut slot = [0; PREFIX_LEN];
        let read = self.walk.read_into(&mut slot, self.offset())?;
        Ok(slot[..read] != EOS)
    }

    /// Goes on at the same place in the file that another reader has opened; says whether that has
    /// such a place. It has not if it starts behind another transaction, or has other gaps.
    ///
    /// For who follows a log: an opening after a failed sync copies the log into a new file, as it
    /// is, and then nothing comes to the old one any more.
    pub fn go_on_in(&mut self, other: LogReader) -> bool {
        let same = self.walk.identity == other.walk.identity;
        if same {
            self.walk.go_on_in(other.walk);
        }
        same
    }

    /// Whether bytes follow the published end: a commit in flight, or what a crash left.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn has_unpublished_tail(&mut self) -> Result<bool, OpenError> {
        self.walk.forget();
        Ok(!self.walk.tail_is_clean()?)
    }
}
