//! Rest: a log that nobody writes holds no descriptor but that of its lock.
//!
//! Descriptors are what many open logs run out of first. A log is at rest when it was opened, and
//! goes back to rest when nobody has written for a while ([`crate::idle`] says when). The next
//! transaction wakes it: it opens the file, and takes it for its own only if it finds it as it left
//! it.
//!
//! With the last descriptor goes the kernel's memory of a write-back that failed: whoever opens the
//! file later is not told of it. So a log lets go of its file only after a sync of all that was
//! stored since the last one, which are the length word of the last group and the zeros ahead.

use std::io;
use std::sync::Arc;

use crate::env::{EnvFile, FileId};
use crate::error::{AppendError, CommitError, OpenError, RewriteError};
use crate::files;
use crate::frame::PREFIX_LEN;
use crate::frame::layout::TRAILER_LEN;
use crate::idle;
use crate::log::Inner;
use crate::options::Resting;
use crate::round::Leader;
use crate::sabotage::{self, Sabotage};
use crate::writer::Writer;

/// The live file, as the writer has it.
#[derive(Debug)]
pub(crate) enum Live {
    Awake(Arc<dyn EnvFile>),
    AtRest(Mark),
}

/// What a file is known by when it is opened again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    id: FileId,
    len: u64,
    /// The end of the last frame, with its checksum, and the slot behind it.
    end: [u8; TRAILER_LEN + PREFIX_LEN],
}

impl Mark {
    /// The mark of a file whose last frame ends at `tail`; `None` if nobody can know it again.
    fn of(file: &dyn EnvFile, tail: u64) -> io::Result<Option<Mark>> {
        let Some(id) = file.id()? else { return Ok(None) };
        let mut end = [0; TRAILER_LEN + PREFIX_LEN];
        file.read_full_at(&mut end, tail - TRAILER_LEN as u64)?;
        Ok(Some(Mark { id, len: file.len()?, end }))
    }
}

impl Live {
    /// Lets go of a file all of which is synced and whose last frame ends at `tail`, if it can be
    /// known again.
    pub(crate) fn let_go(file: Arc<dyn EnvFile>, tail: u64) -> io::Result<Live> {
        Ok(match Mark::of(&*file, tail)? {
            Some(mark) => Live::AtRest(mark),
            None => Live::Awake(file),
        })
    }

    pub(crate) fn is_at_rest(&self) -> bool {
        matches!(self, Live::AtRest(_))
    }

    /// # Errors
    /// If the log is at rest.
    pub(crate) fn file(&self) -> io::Result<&Arc<dyn EnvFile>> {
        match self {
            Live::Awake(file) => Ok(file),
            Live::AtRest(_) => Err(io::Error::other("the log is at rest")),
        }
    }
}

/// Why a log did not wake.
#[derive(Debug)]
pub(crate) enum CannotWake {
    /// Its file cannot be opened; it may be later.
    Open(OpenError),
    /// Its file is not the one that it left: the log has stopped.
    Stopped(CommitError),
}

impl From<CannotWake> for AppendError {
    fn from(why: CannotWake) -> AppendError {
        match why {
            CannotWake::Open(error) => AppendError::Wake(error),
            CannotWake::Stopped(error) => error.into(),
        }
    }
}

impl From<CannotWake> for RewriteError {
    fn from(why: CannotWake) -> RewriteError {
        match why {
            CannotWake::Open(error) => error.into(),
            CannotWake::Stopped(error) => error.into(),
        }
    }
}

impl Inner {
    /// Opens the live file again if the log is at rest. Stops the log if the file is another one, or
    /// somebody has changed it: its transactions would follow on what this log has not seen.
    pub(crate) fn wake(&self, writer: &mut Writer) -> Result<Arc<dyn EnvFile>, CannotWake> {
        let mark = match &writer.live {
            Live::Awake(file) => return Ok(file.clone()),
            Live::AtRest(mark) => mark,
        };
        let live = files::live(&self.dir);
        let opened = self.env.open_write(&live).and_then(|file| {
            let found = Mark::of(&*file, writer.tail.offset)?;
            Ok((file.try_clone()?, Arc::from(file), found))
        });
        let stop = |what: &str| {
            let cause = format!("{}: {what} while the log was at rest", live.display());
            self.gate.stop(&cause, self.gate.acknowledged_seq());
            CannotWake::Stopped(CommitError::Poisoned { cause: cause.into() })
        };
        let (duplicate, file, found) = match opened {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(stop("the file was removed"));
            }
            Err(error) => return Err(CannotWake::Open(OpenError::io(&live, "open")(error))),
        };
        if found.as_ref() != Some(mark) {
            return Err(stop("the file was replaced or changed"));
        }
        self.gate.set_file(Some(duplicate));
        writer.live = Live::Awake(Arc::clone(&file));
        if self.resting == Resting::WhenIdle {
            idle::woke(self.me.clone(), writer.tail.seq);
        }
        Ok(file)
    }

    /// Puts the log to rest; says whether it is. It is not while somebody writes or rewrites it.
    pub(crate) fn rest(&self) -> Result<bool, CommitError> {
        self.gate.check()?;
        let Some(_not_rewritten) = self.rewriting.try_lock() else { return Ok(false) };
        let Some(_hold) = self.gate.try_hold() else { return Ok(false) };
        let mut leader = self.leader.lock();
        let extent = {
            // Never waited for: whoever stages may write another log meanwhile, and come here to make
            // room for it.
            let Some(mut writer) = self.writer.try_lock() else { return Ok(false) };
            if writer.closed {
                return Err(CommitError::Closed);
            }
            if writer.live.is_at_rest() {
                return Ok(true);
            }
            if writer.staged > 0 || leader.withheld.is_some() {
                return Ok(false);
            }
            writer.extended = false;
            writer.extent()
        };
        self.sync_before_rest(&mut leader, extent)?;
        Ok(self.let_go(&mut leader))
    }

    /// For who has the leadership.
    fn sync_before_rest(&self, leader: &mut Leader, extent: u64) -> Result<(), CommitError> {
        if sabotage::is(Sabotage::RestUnsynced) {
            return Ok(());
        }
        let guard = self.gate.stop_on_panic("the thread that put the log to rest panicked");
        let synced = self.sync_extent(leader, extent);
        guard.dismiss();
        if let Err(error) = synced {
            // All commits are durable. What is lost may be the word that publishes the last of them.
            let cause = format!("the sync of a log that goes to rest failed: {error}");
            self.gate.stop(&cause, leader.tail.seq);
        }
        self.gate.check()
    }

    /// Lets go of the file, unless somebody came during the sync.
    fn let_go(&self, leader: &mut Leader) -> bool {
        let Some(mut writer) = self.writer.try_lock() else { return false };
        if writer.closed || writer.staged > 0 || writer.extended {
            return false;
        }
        let live =
            writer.live.file().and_then(|file| Live::let_go(file.clone(), leader.tail.offset));
        match live {
            Ok(Live::AtRest(mark)) => {
                writer.live = Live::AtRest(mark);
                leader.file = None;
                self.gate.set_file(None);
                true
            }
            // A file that cannot be looked at is kept.
            _ => false,
        }
    }
}
