//! The log: stage under the writer mutex, wait at the gate.

use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use crate::commit::{Commit, Stage};
use crate::create::{self, RefLogOptions};
use crate::env::{Env, EnvLock};
use crate::error::{AppendError, CommitError, OpenError, RewriteError};
use crate::files;
use crate::frame::decode::SharedSchema;
use crate::frame::gaps::Gaps;
use crate::frame::schema::{Anchor, Identity};
use crate::frame::{Frame, WORD_LEN};
use crate::gate::{Outcome, SyncGate, Ticket};
use crate::idle;
use crate::kind::{ObjectFormat, Rows};
use crate::options::{LogOptions, Mode, Observer, Resting};
use crate::recover::{Recovered, Recovery, explain_open, recover};
use crate::rest::Live;
use crate::rewrite::{Rewritten, Sealer};
use crate::round::Leader;
use crate::sabotage::{self, Sabotage};
use crate::seq::Seq;
use crate::space::Floor;
use crate::sync::{AtomicU64, Condvar, Mutex, MutexGuard, Ordering};
use crate::waits::Waits;
use crate::within::{self, Held, Within};
use crate::writer::Writer;

/// A durable log of transactions whose file is an Arrow IPC stream.
///
/// Clones share one log. Many threads append; one writer per directory, proven by a lock that
/// dies with the process. Dropping the last clone closes the log; [`Log::close`] also reports.
///
/// ```
/// use std::sync::Arc;
/// use refstone_log::{Log, NoObserver, ObjectFormat, OsEnv, RefLogOptions, RefRow};
/// # let temporary = tempfile::tempdir()?;
/// # let dir = temporary.path();
/// let options = RefLogOptions { object_format: ObjectFormat::Sha1, head: b"refs/heads/main".into() };
/// Log::create(&OsEnv, dir, &options)?;
/// let (log, _) = Log::open(Arc::new(OsEnv), dir, Arc::new(NoObserver), &mut |_| ())?;
/// let row = RefRow {
///     actor: b"alice",
///     refname: b"refs/heads/main",
///     old_oid: None,
///     new_oid: Some(&[7; 20]),
///     symref: None,
///     message: Some(b"first"),
/// };
/// let ack = log.append(&[row])?.wait()?; // durable from here on
/// assert_eq!(ack.seq().get(), 1);
/// log.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Log {
    pub(crate) inner: Arc<Owned>,
}

/// Closes the log with its last owner. Whoever looks after idle logs has a handle on the inside, and
/// keeps no log open that its owners have dropped.
#[derive(Debug)]
pub(crate) struct Owned(Arc<Inner>);

impl Deref for Owned {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // Nobody is left to tell; every waiter has had its answer, and recovery judges the rest.
        let _ = self.0.close();
    }
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) me: Weak<Inner>,
    pub(crate) resting: Resting,
    pub(crate) env: Arc<dyn Env>,
    identity: Identity,
    /// The length word of a published frame.
    pub(crate) word: [u8; WORD_LEN],
    pub(crate) dir: PathBuf,
    pub(crate) writer: Mutex<Writer>,
    /// Signalled when what a leader waits for is staged.
    pub(crate) gathered: Condvar,
    /// Of those who stage for the writer mutex.
    waits: Waits,
    pub(crate) gate: SyncGate,
    pub(crate) leader: Mutex<Leader>,
    observer: Arc<dyn Observer>,
    pub(crate) mode: Mode,
    /// Where the last acknowledged frame ends.
    pub(crate) live_bytes: AtomicU64,
    /// Held through a rewrite, and while the lock is given up.
    pub(crate) rewriting: Mutex<()>,
    lock: Mutex<Option<Box<dyn EnvLock>>>,
}

impl Log {
    /// Creates a log in an empty or absent directory, durable with the names of all directories
    /// above it. Spends no sequence.
    ///
    /// # Errors
    /// If the directory holds anything, if another writer holds its lock, or as the operating
    /// system says. A crash or an error leaves no log, or a whole one.
    pub fn create(env: &dyn Env, dir: &Path, options: &RefLogOptions) -> Result<(), OpenError> {
        create::create(env, dir, options)
    }

    /// Takes the lock, recovers, and hands every transaction of the log to `replay`, in order.
    ///
    /// Returns only after all that was replayed is durable; on error forget what was replayed.
    /// Costs one read of the file, one checksum of each byte, and one sync.
    ///
    /// # Errors
    /// [`Locked`](OpenError::Locked) if somebody writes the log,
    /// [`Corrupt`](OpenError::Corrupt) if durable bytes are damaged or missing; then nothing was
    /// changed. [`ReadOnly`](OpenError::ReadOnly) if it can only be read. A torn end is repaired:
    /// [`Recovery`] says what was taken off and where it is kept.
    pub fn open(
        env: Arc<dyn Env>,
        dir: &Path,
        observer: Arc<dyn Observer>,
        replay: &mut dyn FnMut(&Frame<'_>),
    ) -> Result<(Log, Recovery), OpenError> {
        Log::open_in(LogOptions::default(), env, dir, observer, replay)
    }

    /// As [`open`](Log::open), with options; a [`Mode`] is one. Recovery makes all it accepts
    /// durable in any mode.
    ///
    /// # Errors
    /// As [`open`](Log::open).
    pub fn open_in(
        options: impl Into<LogOptions>,
        env: Arc<dyn Env>,
        dir: &Path,
        observer: Arc<dyn Observer>,
        replay: &mut dyn FnMut(&Frame<'_>),
    ) -> Result<(Log, Recovery), OpenError> {
        // Before the lock, which would leave its file where there is no log.
        if let Err(error) = env.open_read(&files::live(dir)) {
            return Err(explain_open(&*env, dir, error));
        }
        let opened = Log::open_to_write(options.into(), env, dir, observer, replay);
        opened.map_err(|error| error.or_read_only(dir))
    }

    fn open_to_write(
        options: LogOptions,
        env: Arc<dyn Env>,
        dir: &Path,
        observer: Arc<dyn Observer>,
        replay: &mut dyn FnMut(&Frame<'_>),
    ) -> Result<(Log, Recovery), OpenError> {
        let dir = &files::settled(dir);
        let lock = create::lock(&*env, dir)?;
        let recovered = recover(&*env, dir, replay)?;
        // Whoever gave the file its name may have died before the name was durable.
        create::sync_names(&*env, dir)?;
        let report = recovered.report.clone();
        let inner = Inner::new(options, env, dir, recovered, observer, lock);
        let inner = inner.map_err(OpenError::io(&files::live(dir), "measure"))?;
        Ok((Log { inner: Arc::new(Owned(inner)) }, report))
    }

    /// Stages one transaction: one frame, all or nothing.
    ///
    /// Not durable yet: only [`Commit::wait`] acknowledges it. Costs about a microsecond; waits
    /// only while more than a few MiB are staged.
    ///
    /// # Errors
    /// If the rows cannot be written, or the log cannot: nothing was staged, no sequence spent.
    pub fn append<R: Rows + ?Sized>(&self, rows: &R) -> Result<Commit, AppendError> {
        self.append_with(|stage| stage.append(rows))?
    }

    /// Runs `f` under the writer mutex, where it may compare before it appends: nothing else is
    /// staged meanwhile.
    ///
    /// Within `f` the log itself cannot be used for what takes the mutex or waits for the disk, or
    /// for a [`Commit`]: that is refused as [`Reentered`](CommitError::Reentered).
    ///
    /// # Errors
    /// If the log is closed or stopped; then `f` was not called.
    ///
    /// # Panics
    /// Only if `f` does. Then the log stops, since what `f` staged may not match what it knows.
    pub fn append_with<T>(&self, f: impl FnOnce(&mut Stage<'_>) -> T) -> Result<T, AppendError> {
        within::refuse(&self.inner, &[Held::Writer], "stage a transaction")?;
        let mut writer = self.inner.writer_with_room()?;
        if writer.live.is_at_rest() {
            drop(writer);
            idle::make_room();
            writer = self.inner.writer_with_room()?;
        }
        self.inner.gate.check()?;
        if writer.closed {
            return Err(CommitError::Closed.into());
        }
        let guard = self.inner.gate.stop_on_panic("the code that staged a transaction panicked");
        let within = Within::enter(&self.inner, Held::Writer);
        let result = f(&mut Stage { log: self, writer: &mut writer });
        drop(within);
        guard.dismiss();
        Ok(result)
    }

    /// Says whether there is as much free space as the log leaves free, without staging anything:
    /// for a caller with costly work to do before it appends.
    ///
    /// # Errors
    /// [`LowSpace`](AppendError::LowSpace) if there is less.
    pub fn check_space(&self) -> Result<(), AppendError> {
        self.check_space_for(0)
    }

    /// The same for a file beside the log that is to have so many bytes.
    ///
    /// # Errors
    /// [`LowSpace`](AppendError::LowSpace) if it would leave less than the log leaves free.
    pub fn check_space_for(&self, bytes: u64) -> Result<(), AppendError> {
        within::refuse(&self.inner, &[Held::Writer], "look at the free space")?;
        self.inner.writer.lock().check_space(bytes)
    }

    /// Waits until all that was staged before the call is durable, and says how far that is.
    ///
    /// # Errors
    /// If something since the last barrier failed, or its outcome is unknown: also what nobody
    /// waited for. A failed write is told once.
    pub fn barrier(&self) -> Result<Seq, CommitError> {
        let inner: &Inner = &self.inner;
        inner.refuse_to_wait("wait for what is staged")?;
        let ticket = inner.ticket(&inner.writer.lock());
        inner.gate.barrier(ticket, inner)?;
        self.inner.gate.untold()?;
        Ok(ticket.seq)
    }

    /// Makes all that was staged before the call durable, in any mode, and says how far that is.
    ///
    /// In a durable log this is [`barrier`](Log::barrier), and costs a sync only if something is
    /// staged. In a buffered log it costs one sync if anything was written since the last.
    ///
    /// # Errors
    /// As [`Commit::wait`]. If the sync fails, what was written since the last one is of unknown
    /// outcome.
    pub fn sync(&self) -> Result<Seq, CommitError> {
        // A log that stopped after its last sync has nothing left to make durable.
        if self.barrier()? > self.durable_seq() {
            self.inner.sync()?;
        }
        Ok(self.durable_seq())
    }

    /// The newest sequence handed to the kernel. It may not survive a power cut.
    #[must_use]
    pub fn written_seq(&self) -> Seq {
        self.inner.gate.written_seq()
    }

    /// The newest sequence that is durable.
    #[must_use]
    pub fn durable_seq(&self) -> Seq {
        self.inner.gate.durable_seq()
    }

    /// The gate, for its watermarks and counts.
    #[must_use]
    pub fn gate(&self) -> &SyncGate {
        &self.inner.gate
    }

    /// The hash that names the objects of the repository.
    #[must_use]
    pub fn object_format(&self) -> ObjectFormat {
        self.inner.identity.object_format
    }

    /// Refuses a log whose object ids are those of another hash than the repository's.
    ///
    /// # Errors
    /// [`OpenError::ObjectFormat`], which names both.
    pub fn expect_object_format(&self, expected: ObjectFormat) -> Result<(), OpenError> {
        let found = self.object_format();
        if found == expected {
            return Ok(());
        }
        Err(OpenError::ObjectFormat { path: files::live(&self.inner.dir), expected, found })
    }

    /// The initial symbolic target of `HEAD`, as raw bytes.
    #[must_use]
    pub fn head(&self) -> &[u8] {
        &self.inner.identity.head
    }

    /// The random identity the log got when it was created.
    #[must_use]
    pub fn log_id(&self) -> [u8; 16] {
        self.inner.identity.log_id
    }

    /// The newest transaction that was already taken out of the live file when the log was opened.
    #[must_use]
    pub fn anchor(&self) -> Anchor {
        self.inner.identity.anchor
    }

    /// Sequences that repairs lost.
    #[must_use]
    pub fn gaps(&self) -> &Gaps {
        &self.inner.identity.gaps
    }

    /// The Arrow schema of the log, for [`Frame::record_batch`].
    #[must_use]
    pub fn arrow_schema(&self) -> SharedSchema {
        self.inner.identity.arrow_schema()
    }

    /// Bytes from the start of the file to the end of the last durable frame.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.inner.live_bytes.load(Ordering::Relaxed)
    }

    /// How many calls of [`append`](Log::append) and [`append_with`](Log::append_with) found the
    /// writer mutex taken since the log was opened.
    ///
    /// Those that find it free are not counted, and cost nothing for it.
    #[must_use]
    pub fn lock_waits(&self) -> u64 {
        self.inner.waits.count()
    }

    /// Nanoseconds that these calls waited for it, all together: not for the disk, nor for room in a
    /// full group.
    #[must_use]
    pub fn lock_wait_nanos(&self) -> u64 {
        self.inner.waits.nanos()
    }

    /// Takes the transactions up to `through` (or up to the newest durable one, if that is less)
    /// out of the live file, after `sealer` has made them durable elsewhere.
    ///
    /// Appends keep staging meanwhile. Commits wait for the swap, which copies what was committed
    /// last and takes two syncs of a small file and its directory, and for what else the disk is busy
    /// with. Readers that hold the old file finish undisturbed. Returns `None` if nothing was to leave.
    ///
    /// # Errors
    /// If sealing or a file operation failed: before the swap the log serves on as before, after
    /// it the log is stopped until it is reopened. No transaction is lost either way.
    pub fn rewrite(
        &self,
        through: Seq,
        sealer: &mut dyn Sealer,
    ) -> Result<Option<Rewritten>, RewriteError> {
        let waits_for = [Held::Writer, Held::Turn, Held::Rewrite];
        within::refuse(&self.inner, &waits_for, "rewrite the log")?;
        self.inner.rewrite(through, sealer)
    }

    /// Closes the live file until the next transaction, and leaves the lock alone open; says whether
    /// it is closed now. It is not while anything is staged or buffered, or the log is being
    /// rewritten.
    ///
    /// An open log that is not written needs no call: see [`Resting`]. Costs a sync, and the next
    /// transaction some five microseconds more. A log at rest takes part in everything: only a
    /// transaction that moves something, or a rewrite, wakes it. Then the file must be as it was: if
    /// it was removed or replaced, or has another end, the log is stopped.
    ///
    /// # Errors
    /// If the log is closed or stopped; or if the sync failed, and then it is stopped. All that was
    /// acknowledged is durable.
    pub fn rest(&self) -> Result<bool, CommitError> {
        self.inner.rest()
    }

    /// Commits what is staged, leaves the file fully published and synced, releases the lock. Waits for
    /// a rewrite that is under way, which may take as long as its sealer.
    ///
    /// Later appends fail as [`Closed`](CommitError::Closed); closing again does nothing.
    ///
    /// # Errors
    /// If something staged could not be committed, or the log had stopped. The lock is released
    /// all the same.
    pub fn close(&self) -> Result<(), CommitError> {
        let waits_for = [Held::Writer, Held::Turn, Held::Rewrite];
        within::refuse(&self.inner, &waits_for, "close the log")?;
        self.inner.close()
    }
}

impl Inner {
    fn new(
        options: LogOptions,
        env: Arc<dyn Env>,
        dir: &Path,
        recovered: Recovered,
        observer: Arc<dyn Observer>,
        lock: Box<dyn EnvLock>,
    ) -> io::Result<Arc<Inner>> {
        let Recovered { file, identity, layout, tail, extent, .. } = recovered;
        let floor = Floor::new(env.clone(), dir.to_owned(), options.min_free);
        // Recovery has synced all of it.
        let live = Live::let_go(file, tail.offset)?;
        let duplicate = match &live {
            Live::Awake(file) => Some(file.try_clone()?),
            Live::AtRest(_) => None,
        };
        Ok(Arc::new_cyclic(|me| Inner {
            me: me.clone(),
            resting: options.resting,
            env,
            identity,
            word: layout.word(),
            dir: dir.to_owned(),
            writer: Mutex::new(Writer::new(layout, tail, live, extent, floor)),
            gathered: Condvar::new(),
            waits: Waits::new(),
            gate: SyncGate::new(duplicate, tail.seq),
            leader: Mutex::new(Leader {
                tail,
                file: None,
                synced_extent: extent,
                withheld: None,
                spare: Vec::new(),
            }),
            observer,
            mode: options.mode,
            live_bytes: AtomicU64::new(tail.offset),
            rewriting: Mutex::new(()),
            lock: Mutex::new(Some(lock).filter(|_| !sabotage::is(Sabotage::UnlockAtOpen))),
        }))
    }

    /// The writer, once the group buffer has room. If nobody leads, this thread does.
    fn writer_with_room(&self) -> Result<MutexGuard<'_, Writer>, CommitError> {
        loop {
            let writer = self.waits.lock(&self.writer);
            if !writer.is_full() {
                return Ok(writer);
            }
            let ticket = self.ticket(&writer);
            drop(writer);
            self.refuse_to_wait("wait for room in the group")?;
            match self.gate.barrier(ticket, self) {
                // The group that filled the buffer failed, and so left room.
                Ok(()) | Err(CommitError::NotCommitted { .. }) => {}
                // What filled the buffer may be of unknown outcome; what was never staged is not.
                Err(error) => {
                    self.gate.check()?;
                    return Err(error);
                }
            }
        }
    }

    /// Refuses to wait for a leader in a thread that one is waiting for.
    pub(crate) fn refuse_to_wait(&self, operation: &'static str) -> Result<(), CommitError> {
        within::refuse(self, &[Held::Writer, Held::Turn], operation)
    }

    /// Tells the observer what is acknowledged.
    pub(crate) fn tell_durable(&self, through: Seq) {
        let _within = Within::enter(self, Held::Turn);
        self.observer.durable(through);
    }

    /// Tells the observer what is withdrawn.
    pub(crate) fn tell_rolled_back(&self, to: Seq) {
        let _within = Within::enter(self, Held::Writer);
        self.observer.rolled_back(to);
    }

    /// A ticket for all that is staged.
    fn ticket(&self, writer: &Writer) -> Ticket {
        Ticket { seq: writer.tail.seq, generation: self.gate.generation() }
    }

    fn close(&self) -> Result<(), CommitError> {
        let ticket = {
            let mut writer = self.writer.lock();
            if std::mem::replace(&mut writer.closed, true) {
                return Ok(());
            }
            self.ticket(&writer)
        };
        let committed = self.gate.barrier(ticket, self).and_then(|()| self.gate.check());
        // Nobody may write once the lock is gone: neither a leader that was under way when the log
        // stopped, nor a rewrite, whose sealer writes beside the log.
        if sabotage::is(Sabotage::UnlockBeforeLeader) {
            self.lock.lock().take();
        }
        let _not_rewritten = self.rewriting.lock();
        let hold = self.gate.hold();
        // The last length word was stored after the last sync: one more makes it durable, so that
        // a closed log is proven to its end.
        let synced = match &committed {
            Ok(()) => self.sync_last_word(),
            Err(_) => Ok(()),
        };
        self.lock.lock().take();
        drop(hold);
        committed.and(synced)
    }

    /// Fails once the log is closed.
    pub(crate) fn check_open(&self) -> Result<(), CommitError> {
        if self.writer.lock().closed { Err(CommitError::Closed) } else { Ok(()) }
    }

    /// Makes what was written durable and publishes it, if anything is withheld.
    pub(crate) fn sync(&self) -> Result<(), CommitError> {
        let _hold = self.gate.hold();
        self.settle_withheld(&mut self.leader.lock())
    }

    /// The same, for who has the leadership.
    pub(crate) fn settle_withheld(&self, leader: &mut Leader) -> Result<(), CommitError> {
        self.gate.check()?;
        if leader.withheld.is_none() {
            return Ok(());
        }
        let tail = leader.tail;
        let guard = self.gate.stop_on_panic("the thread that made the log durable panicked");
        let settled = self.settle(leader, tail);
        guard.dismiss();
        match settled {
            Outcome::Poisoned { cause, .. } => {
                self.gate.stop(&cause, tail.seq);
                Err(CommitError::Unknown { cause })
            }
            _ => Ok(()),
        }
    }

    /// For who has the leadership.
    fn sync_last_word(&self) -> Result<(), CommitError> {
        let mut leader = self.leader.lock();
        self.settle_withheld(&mut leader)?;
        if self.writer.lock().live.is_at_rest() {
            return Ok(());
        }
        // All commits are durable already, so a failure here loses nothing, but must be told.
        self.sync_file(&mut leader).map_err(|error| CommitError::Unknown {
            cause: format!("syncing the closed log failed: {error}").into(),
        })
    }
}
