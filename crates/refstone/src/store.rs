//! The ref store: the log, the state above it, and the commit path between them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use refstone_log::{
    AppendError, Commit, CommitError, Env, Frame, Log, LogOptions, MinFree, Mode, ObjectFormat,
    OsEnv, Recovery, RefLogOptions, Resting, Seq, Stage,
};

use crate::compact::{CompactError, CompactOptions, Compacted};
use crate::error::{OpenError, ReadError, TransactionError};
use crate::holds::Holds;
use crate::maintenance::{Compacting, Maintenance};
use crate::name::RefName;
use crate::pending::{Committed, Pending, PendingEach, Verdict};
use crate::prepared::Prepared;
use crate::progress::Progress;
use crate::ranges::{Shelf, settled};
use crate::refusal::Refusal;
use crate::replay::Replay;
use crate::row;
use crate::shelves::{Shelves, initial_head};
use crate::snapshot::Snapshot;
use crate::staged::Move;
use crate::state::{Newest, State};
use crate::stats::Stats;
use crate::transaction::Transaction;
use crate::transaction::judge::{self, Verdicts};
use crate::transaction::plan::Plan;
use crate::view::View;

/// What makes a new store. Neither can be changed later, but `HEAD` can be moved.
///
/// ```
/// use refstone::{CreateOptions, ObjectFormat, RefName};
/// let options = CreateOptions {
///     object_format: ObjectFormat::Sha256,
///     head: RefName::new("refs/heads/trunk")?,
/// };
/// # Ok::<(), refstone::NameError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateOptions {
    /// The hash that names the repository's objects.
    pub object_format: ObjectFormat,
    /// The branch `HEAD` points to at first; it need not exist.
    pub head: RefName,
}

impl Default for CreateOptions {
    /// SHA-1 and `refs/heads/main`.
    fn default() -> Self {
        let head = RefName::new("refs/heads/main").expect("the name is legal");
        CreateOptions { object_format: ObjectFormat::Sha1, head }
    }
}

/// A durable store of git references.
///
/// Clones share one store. Transactions of many threads share syncs: each waits for one that
/// covers it. One writer per directory, proven by a lock that dies with the process.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let dir = &dir.path().join("refstone");
/// use refstone::{CreateOptions, Edit, ObjectId, RefName, RefStore, Transaction};
/// RefStore::create(dir, &CreateOptions::default())?;
/// let store = RefStore::open(dir)?;
/// let id: ObjectId = "d670460b4b4aece5915caf5c68d12f560a9fe3e4".parse()?;
/// let tx = Transaction::new("alice").with(Edit::create(RefName::new("refs/heads/main")?, id));
/// let committed = store.commit(&tx)?; // durable from here on
/// assert_eq!(committed.seq().get(), 1);
/// assert!(store.commit(&tx).is_err(), "it exists now");
/// store.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RefStore {
    log: Log,
    state: Arc<State>,
    maintenance: Arc<Maintenance>,
    holds: Holds,
    recovery: Arc<Recovery>,
    /// The newest durable transaction when it was opened.
    opened_at: Seq,
}

/// How a store is opened.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let dir = &dir.path().join("refstone");
/// # use refstone::{CreateOptions, RefStore};
/// # RefStore::create(dir, &CreateOptions::default())?;
/// use refstone::{Compacting, MinFree, OpenOptions};
/// let options = OpenOptions::default()
///     .compacting(Compacting::ByHand)
///     .min_free(MinFree::Bytes(1 << 30)); // a GiB
/// # let options = options.min_free(MinFree::OFF);
/// let store = RefStore::open_with(dir, options)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions {
    env: Arc<dyn Env>,
    compacting: Compacting,
    min_free: MinFree,
    mode: Mode,
    resting: Resting,
}

impl Default for OpenOptions {
    /// The operating system's files, compaction when it is due, 64 MiB that stay free, and no
    /// descriptor but that of the lock while nothing is written.
    fn default() -> Self {
        OpenOptions {
            env: Arc::new(OsEnv),
            compacting: Compacting::default(),
            min_free: MinFree::Auto,
            mode: Mode::Durable,
            resting: Resting::WhenIdle,
        }
    }
}

impl OpenOptions {
    /// The same through another [`Env`].
    #[must_use]
    pub fn env(self, env: Arc<dyn Env>) -> OpenOptions {
        OpenOptions { env, ..self }
    }

    /// The same, with transactions leaving the live log at another time.
    #[must_use]
    pub fn compacting(self, compacting: Compacting) -> OpenOptions {
        OpenOptions { compacting, ..self }
    }

    /// The same, with so much of the file system left free: a transaction that would leave less is
    /// refused, as [`AppendError::LowSpace`].
    #[must_use]
    pub fn min_free(self, min_free: MinFree) -> OpenOptions {
        OpenOptions { min_free, ..self }
    }

    /// The same, with transactions acknowledged at another boundary.
    ///
    /// [`Mode::Buffered`] is for loads of many transactions that are worth nothing before the last:
    /// they are acknowledged when the kernel has them, and one [`RefStore::sync`] ends them.
    #[must_use]
    pub fn mode(self, mode: Mode) -> OpenOptions {
        OpenOptions { mode, ..self }
    }

    /// The same, with the live log's file closed at other times.
    #[must_use]
    pub fn resting(self, resting: Resting) -> OpenOptions {
        OpenOptions { resting, ..self }
    }
}

impl RefStore {
    /// Creates a store in an empty or absent directory, usually `<repo>.git/refstone`; durable
    /// when it returns.
    ///
    /// # Errors
    ///
    /// If there is something in the directory, or as the operating system says.
    pub fn create(dir: &Path, options: &CreateOptions) -> Result<(), OpenError> {
        RefStore::create_with(&OsEnv, dir, options)
    }

    /// The same through another [`Env`].
    ///
    /// # Errors
    ///
    /// As [`RefStore::create`].
    pub fn create_with(
        env: &dyn Env,
        dir: &Path,
        options: &CreateOptions,
    ) -> Result<(), OpenError> {
        if !options.head.is_below_refs() {
            return Err(OpenError::HeadOutsideRefs {
                dir: dir.to_owned(),
                target: options.head.clone(),
            });
        }
        let options = RefLogOptions {
            object_format: options.object_format,
            head: options.head.as_bytes().to_vec(),
        };
        Ok(Log::create(env, dir, &options)?)
    }

    /// Opens a store for writing: takes its lock, recovers, replays the live log.
    ///
    /// Costs a read of the live log, and of a few pages of each table. Tables that are missing or
    /// damaged are made anew from history, which takes about a second per million rows.
    ///
    /// # Errors
    ///
    /// If another writer has it, if durable bytes are damaged, or as the operating system says. If
    /// the environment lets it be read only, the [kind](OpenError::kind) is
    /// [`ReadOnly`](refstone_log::ErrorKind::ReadOnly), and [`read_view`](crate::read_view) and
    /// [`history`](crate::history()) work.
    pub fn open(dir: &Path) -> Result<RefStore, OpenError> {
        RefStore::open_with(dir, OpenOptions::default())
    }

    /// The same with [`OpenOptions`].
    ///
    /// # Errors
    ///
    /// As [`RefStore::open`].
    pub fn open_with(dir: &Path, options: OpenOptions) -> Result<RefStore, OpenError> {
        let OpenOptions { env, compacting, min_free, mode, resting } = options;
        let dir = &*settled(dir);
        let state = Arc::new(State::default());
        let mut replay = Replay::default();
        let options = LogOptions { min_free, mode, resting };
        let mut apply = |frame: &Frame<'_>| replay.apply(frame);
        let (log, recovery) = Log::open_in(options, env.clone(), dir, state.clone(), &mut apply)?;
        let shelves = Shelves {
            env,
            history: Shelf::history(dir),
            tables: Shelf::tables(dir),
            log_id: log.log_id(),
            object_format: log.object_format(),
            head: initial_head(dir, log.head())?,
        };
        shelves.refuse_misfit(log.anchor(), log.durable_seq(), log.gaps())?;
        let tables = shelves.load_or_rebuild(log.anchor())?;
        let sealed = Snapshot::start(&shelves.head, tables);
        state.start(replay.finish_above(dir, &sealed)?);
        let maintenance = Maintenance::new(log.clone(), state.clone(), shelves, compacting);
        let (maintenance, recovery) = (Arc::new(maintenance), Arc::new(recovery));
        let (holds, opened_at) = (Holds::default(), log.durable_seq());
        Ok(RefStore { log, state, maintenance, holds, recovery, opened_at })
    }

    /// The hash that names the repository's objects.
    #[must_use]
    pub fn object_format(&self) -> ObjectFormat {
        self.log.object_format()
    }

    /// What opening the log had to repair.
    #[must_use]
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// The log below, for its watermarks and counts. What is appended to it directly is judged by
    /// nobody, and is seen only when the store is opened again.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// All refs now, as far as they are durable. Takes no lock.
    #[must_use]
    pub fn view(&self) -> View {
        self.state.view()
    }

    /// Commits a transaction, all or nothing, and waits until it is durable: it survives a killed
    /// process and a power cut, and every view and reader has it.
    ///
    /// Costs one sync of the disk, shared with all who commit at the same time.
    ///
    /// A transaction that moves no ref (it only verifies, or sets what is set already) spends no
    /// sequence and writes nothing; its answer still waits until what it looked at is durable. So
    /// does a refusal.
    ///
    /// # Errors
    ///
    /// [`TransactionError`], which tells whether it happened.
    pub fn commit(&self, tx: &Transaction) -> Result<Committed, TransactionError> {
        self.stage(tx)?.wait()
    }

    /// Commits every edit that can be, as one frame, and says what became of each.
    ///
    /// Edits are judged as if they came one after the other, deletions first, so that a batch may
    /// replace `a` by `a/b`. Edits that share a ref, be it over a symbolic ref, are all refused.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let dir = &dir.path().join("refstone");
    /// # use refstone::{CreateOptions, Edit, ObjectId, RefName, RefStore, Transaction};
    /// # RefStore::create(dir, &CreateOptions::default())?;
    /// # let store = RefStore::open(dir)?;
    /// # let id = ObjectId::from_bytes(&[1; 20])?;
    /// let create = |name| Ok::<_, refstone::NameError>(Edit::create(RefName::new(name)?, id));
    /// store.commit(&Transaction::new("alice").with(create("refs/heads/a")?))?;
    /// let push = Transaction::new("bob").with(create("refs/heads/a")?).with(create("refs/heads/b")?);
    /// let answers = store.commit_each(&push)?;
    /// assert_eq!(answers[0].as_ref().unwrap_err().reason.short(), "reference already exists");
    /// assert!(answers[1].as_ref().is_ok_and(|committed| committed.moved()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the frame failed: then no edit happened, or, if the outcome is unknown, all that could.
    pub fn commit_each(
        &self,
        tx: &Transaction,
    ) -> Result<Vec<Result<Committed, Refusal>>, AppendError> {
        Ok(self.stage_each(tx)?.wait()?)
    }

    /// Commits many transactions under one barrier, each with its own outcome.
    ///
    /// They are judged in order, each seeing those before it. One thread commits hundreds of
    /// thousands of moves per second so, each acknowledged only when it is durable.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let dir = &dir.path().join("refstone");
    /// # use refstone::{CreateOptions, Edit, ObjectId, RefName, RefStore, Transaction};
    /// # RefStore::create(dir, &CreateOptions::default())?;
    /// # let store = RefStore::open(dir)?;
    /// let id = ObjectId::from_bytes(&[1; 20])?;
    /// let create = |name| Ok::<_, refstone::NameError>(Edit::create(RefName::new(name)?, id));
    /// let outcomes = store.commit_batch(&[
    ///     Transaction::new("alice").with(create("refs/heads/a")?),
    ///     Transaction::new("bob").with(create("refs/heads/a")?),
    ///     Transaction::new("carol").with(create("refs/heads/b")?),
    /// ]);
    /// let passed: Vec<bool> = outcomes.iter().map(Result::is_ok).collect();
    /// assert_eq!(passed, [true, false, true]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "each transaction has its own outcome"]
    pub fn commit_batch(
        &self,
        transactions: &[Transaction],
    ) -> Vec<Result<Committed, TransactionError>> {
        // All are staged before the first is waited for: then one round takes them together.
        let staged: Vec<_> = transactions.iter().map(|tx| self.stage(tx)).collect();
        staged.into_iter().map(|staged| staged?.wait()).collect()
    }

    /// Stages a transaction without waiting for the disk. Later transactions see it at once; views
    /// and readers do when it is durable, which [`Pending::wait`] waits for.
    ///
    /// Costs about two microseconds, and for each ref that did not move lately a look into the
    /// tables. Waits only while more than a few MiB are staged.
    ///
    /// # Errors
    ///
    /// If it cannot be written; it left no trace then. A refusal is told by [`Pending::wait`].
    pub fn stage(&self, tx: &Transaction) -> Result<Pending, AppendError> {
        self.maintenance.compact_if_due();
        let plan = self.plan(tx);
        self.log.append_with(|stage| {
            let newest = self.state.newest();
            let current = newest.current();
            let judged = judge::all_or_nothing(&plan, &current, &self.holds.lock());
            let read = current.newest_read();
            let (verdict, moves) = match judged {
                Ok(moves) => (Ok(newest.verdict(read, !moves.is_empty())), moves),
                Err(refusal) => (Err(refusal), Vec::new()),
            };
            drop(newest);
            let commit = self.append(stage, tx, moves, read)?;
            Ok(Pending { commit, verdict })
        })?
    }

    /// Stages a batch as [`RefStore::commit_each`] commits it, without waiting for the disk.
    ///
    /// # Errors
    ///
    /// As [`RefStore::stage`].
    pub fn stage_each(&self, tx: &Transaction) -> Result<PendingEach, AppendError> {
        self.maintenance.compact_if_due();
        let plan = self.plan(tx);
        self.log.append_with(|stage| {
            let newest = self.state.newest();
            let current = newest.current();
            let Verdicts { moved, moves } = judge::one_by_one(&plan, &current, &self.holds.lock());
            let read = current.newest_read();
            let verdict = |moved: Result<bool, _>| moved.map(|moved| newest.verdict(read, moved));
            let verdicts = moved.into_iter().map(verdict).collect();
            drop(newest);
            let commit = self.append(stage, tx, moves, read)?;
            Ok(PendingEach { commit, verdicts })
        })?
    }

    /// Judges a transaction and holds what the verdict rests on, until it is committed or aborted.
    ///
    /// This is the first half of a two-phase commit. Meanwhile a transaction that touches a held
    /// ref, or whose new name would be in the way of one, is refused as [`Reason::Locked`]; all
    /// others pass. What is held lives in this process alone and dies with it.
    ///
    /// The answer is durable as that of [`RefStore::commit`] is: it waits until all that was read
    /// is on stable storage.
    ///
    /// [`Reason::Locked`]: crate::Reason::Locked
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let dir = &dir.path().join("refstone");
    /// # use refstone::{CreateOptions, Edit, ObjectId, Reason, RefName, RefStore, Transaction};
    /// # RefStore::create(dir, &CreateOptions::default())?;
    /// # let store = RefStore::open(dir)?;
    /// let id = ObjectId::from_bytes(&[1; 20])?;
    /// let create = |name| Ok::<_, refstone::NameError>(Edit::create(RefName::new(name)?, id));
    /// let prepared = store.prepare(Transaction::new("alice").with(create("refs/heads/a")?))?;
    /// let other = Transaction::new("bob").with(create("refs/heads/a/b")?);
    /// let refused = store.commit(&other).unwrap_err();
    /// assert!(matches!(refused.refusal().unwrap().reason, Reason::Locked { .. }));
    /// prepared.commit()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`RefStore::commit`]; then nothing is held.
    pub fn prepare(&self, tx: Transaction) -> Result<Prepared, TransactionError> {
        let plan = self.plan(&tx);
        let (judged, read) = self.log.append_with(|stage| {
            let newest = self.state.newest();
            let current = newest.current();
            let mut held = self.holds.lock();
            let judged = judge::all_or_nothing(&plan, &current, &held);
            let read = current.newest_read();
            let judged = judged.and_then(|moves| {
                let names = judge::holds_for(&plan, &current)?;
                let hold = self.holds.hold(&mut held, names, tx.actor());
                let verdict = newest.verdict(read, !moves.is_empty());
                Ok((verdict, moves, hold))
            });
            (judged, stage.covering(read))
        })?;
        read.wait()?;
        let (verdict, moves, hold) = judged?;
        Ok(Prepared { store: self.clone(), tx, moves, verdict, hold })
    }

    /// Stages what a prepared transaction moves, and lets go of what it held.
    pub(crate) fn stage_prepared(&self, prepared: Prepared) -> Result<Commit, AppendError> {
        self.maintenance.compact_if_due();
        let Prepared { tx, moves, hold, .. } = prepared;
        self.log.append_with(|stage| {
            let commit = self.append(stage, &tx, moves, Seq::ZERO);
            // Under the writer mutex, so that whoever comes next finds the moves, not the hold.
            drop(hold);
            commit
        })?
    }

    /// Says whether a transaction would pass now, without writing or holding anything.
    ///
    /// The answer is durable, but another transaction may come between it and a commit, which
    /// judges again. See [`RefStore::prepare`].
    ///
    /// # Errors
    ///
    /// As [`RefStore::commit`].
    pub fn check(&self, tx: &Transaction) -> Result<(), TransactionError> {
        let plan = self.plan(tx);
        let (judged, read) = self.log.append_with(|stage| {
            let newest = self.state.newest();
            let current = newest.current();
            let judged = judge::all_or_nothing(&plan, &current, &self.holds.lock());
            (judged, stage.covering(current.newest_read()))
        })?;
        read.wait()?;
        judged?;
        Ok(())
    }

    /// Takes all durable transactions out of the live log now: they become sealed history, and
    /// tables below the view. Commits go on meanwhile; they wait as long as
    /// [`Log::rewrite`](refstone_log::Log::rewrite) says.
    ///
    /// Nobody needs to call this: a store compacts itself before its live log becomes long (see
    /// [`Compacting`]). `progress` is called every thousand transactions.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let dir = &dir.path().join("refstone");
    /// # use refstone::{CompactOptions, CreateOptions, Edit, ErrorKind, ObjectId, RefName, RefStore};
    /// # use refstone::Transaction;
    /// # RefStore::create(dir, &CreateOptions::default())?;
    /// # let store = RefStore::open(dir)?;
    /// # let id = ObjectId::from_bytes(&[1; 20])?;
    /// let main = RefName::new("refs/heads/main")?;
    /// store.commit(&Transaction::new("alice").with(Edit::create(main.clone(), id)))?;
    /// let compacted = store.compact(CompactOptions::default(), &mut |_| ())?;
    /// assert_eq!((compacted.sealed, compacted.sealed_seq.get()), (1, 1));
    /// assert_eq!(store.view().get(&main)?, Some(id.into()));
    /// store.close()?;
    /// let closed = store.compact(CompactOptions::default(), &mut |_| ()).unwrap_err();
    /// assert_eq!(closed.kind(), ErrorKind::Closed);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// `progress` may use the store, and commit, but not compact, rebuild or close it: that is refused.
    ///
    /// # Errors
    ///
    /// [`CompactError`]. No transaction is lost, whatever it says. With
    /// [`CompactError::Merge`] the transactions have left the live log all the same.
    pub fn compact(
        &self,
        options: CompactOptions,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Compacted, CompactError> {
        self.maintenance.compact(options, progress)
    }

    /// Whether so much stands in the live log that a store takes it out by itself.
    pub(crate) fn compaction_is_due(&self) -> bool {
        self.maintenance.is_due()
    }

    /// Makes all tables anew from history, which they were derived from.
    ///
    /// Takes about a second per million rows of history. Commits go on meanwhile, compactions wait.
    /// `progress` is told [how far](Progress::Rebuilding) it is; it may do what that of a compaction may.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if history cannot be read, if tables cannot be written, if the store is closed, or
    /// if it is called from the progress of a compaction or of another rebuild.
    pub fn rebuild(&self, progress: &mut dyn FnMut(Progress)) -> Result<(), ReadError> {
        self.maintenance.rebuild(progress)
    }

    /// What the store has done since it was opened.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let (gate, durable_seq) = (self.log.gate(), self.log.durable_seq());
        Stats {
            durable_seq,
            sealed_seq: self.maintenance.sealed_seq(),
            live_bytes: self.log.live_bytes(),
            transactions: durable_seq.get() - self.opened_at.get(),
            syncs: gate.syncs(),
            sync_time: Duration::from_nanos(gate.sync_nanos()),
            lock_waits: self.log.lock_waits(),
            lock_wait_time: Duration::from_nanos(self.log.lock_wait_nanos()),
            compactions: self.maintenance.totals(),
        }
    }

    /// Keeps the live log short.
    #[must_use]
    pub fn maintenance(&self) -> &Maintenance {
        &self.maintenance
    }

    /// Says whether there is as much free space as a transaction must leave; see
    /// [`OpenOptions::min_free`].
    ///
    /// # Errors
    ///
    /// [`AppendError::LowSpace`] if there is less.
    pub fn check_space(&self) -> Result<(), AppendError> {
        self.log.check_space()
    }

    /// Makes all that was acknowledged durable, in any mode; returns the newest such transaction.
    ///
    /// # Errors
    ///
    /// [`CommitError`], if the sync failed or the log had stopped.
    pub fn sync(&self) -> Result<Seq, CommitError> {
        self.log.sync()
    }

    /// Commits what is staged and releases the lock. Later transactions fail as closed.
    ///
    /// A compaction or a rebuild that runs is given up at its next few thousand rows, and waited for; the
    /// next one begins where it began.
    ///
    /// # Errors
    ///
    /// If something staged could not be committed; or if it is called from the progress of a
    /// compaction, as [`CommitError::Reentered`]: the store is as open as it was then.
    pub fn close(&self) -> Result<(), CommitError> {
        self.maintenance.stop()?;
        self.log.close()
    }

    /// Stages the moves; if there are none, the answer waits for the newest transaction read.
    ///
    /// What is read has a lower sequence than what is appended, so waiting for the append covers
    /// both. The writer mutex keeps others from judging meanwhile, so the state is not locked
    /// while rows are encoded: the leader of a round may want it.
    fn append(
        &self,
        stage: &mut Stage<'_>,
        tx: &Transaction,
        moves: Vec<Move>,
        read: Seq,
    ) -> Result<Commit, AppendError> {
        if moves.is_empty() {
            return Ok(stage.covering(read));
        }
        let seq = stage.next_seq();
        let commit = stage.append(&row::Moved { tx, moves: &moves })?;
        self.state.stage(seq, moves);
        Ok(commit)
    }

    fn plan<'t>(&self, tx: &'t Transaction) -> Plan<'t> {
        Plan::new(tx.edits(), self.object_format())
    }
}

impl Newest<'_> {
    fn verdict(&self, read: Seq, moves: bool) -> Verdict {
        match moves {
            true => Verdict::Moves,
            false => Verdict::Stays(self.durable_seq().max(read)),
        }
    }
}
