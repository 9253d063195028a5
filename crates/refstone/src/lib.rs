//! A durable git reference store on a log whose file is an Arrow IPC stream.
//!
//! A [`RefStore`] holds refs as git has them: names that are [checked](RefName), values that are
//! [objects or other refs](Target), and [transactions](Transaction) of [edits](Edit) that compare
//! before they set. An acknowledged transaction is on stable storage, and so is everything that a
//! refusal or a [`View`] was based on. Many threads share one sync. What holds, with an example
//! for each, is in [`promises`].
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let dir = &dir.path().join("refstone");
//! use refstone::{CreateOptions, Edit, ObjectId, Reason, RefName, RefStore, Transaction};
//!
//! RefStore::create(dir, &CreateOptions::default())?;
//! let store = RefStore::open(dir)?;
//! let main = RefName::new("refs/heads/main")?;
//! let [old, new] = [[1; 20], [2; 20]].map(|id| ObjectId::from_bytes(&id).unwrap());
//!
//! // HEAD points to a branch that is not born: an edit of HEAD follows it, and creates it.
//! let birth = Transaction::new("alice").with(Edit::create(RefName::head(), old));
//! store.commit(&birth)?;
//! assert_eq!(store.view().resolve(&main)?.oid, Some(old));
//!
//! // Update-if; the second time it is not at the old value any more.
//! let update = Transaction::new("bob").with(Edit::update(main.clone(), new, old));
//! store.commit(&update)?;
//! let again = store.commit(&update).unwrap_err();
//! assert!(matches!(again.refusal().unwrap().reason, Reason::Conflict { .. }));
//!
//! // The log tells who moved what; it is read without a lock.
//! let actors: Vec<_> = refstone::history(dir, Some(&main))?.map(|m| m.unwrap().actor).collect();
//! assert_eq!(actors, ["alice", "bob"]);
//! store.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! A whole program that embeds the store is `examples/embed.rs`.
//!
//! # Transactions
//!
//! | | all or nothing | each edit for itself |
//! |---|---|---|
//! | wait for the disk | [`commit`](RefStore::commit) | [`commit_each`](RefStore::commit_each) |
//! | go on, wait or `.await` later | [`stage`](RefStore::stage) | [`stage_each`](RefStore::stage_each) |
//!
//! [`commit_batch`](RefStore::commit_batch) commits many transactions under one barrier,
//! [`prepare`](RefStore::prepare) is the first half of a two-phase commit, and
//! [`check`](RefStore::check) only asks. [`Refusal`] says which edit was refused, and for what.
//!
//! # Threads and tasks
//!
//! A store is `Clone`, `Send` and `Sync`, and so are views; clones share one store. Whoever waits
//! first leads: it writes and syncs what all have staged meanwhile, so more threads cost hardly more
//! syncs.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let dir = &dir.path().join("refstone");
//! # use refstone::{CreateOptions, Edit, ObjectId, RefName, RefStore, Transaction};
//! # RefStore::create(dir, &CreateOptions::default())?;
//! # let store = RefStore::open(dir)?;
//! # let id = ObjectId::from_bytes(&[1; 20])?;
//! let workers: Vec<_> = (0..8)
//!     .map(|n| {
//!         let store = store.clone();
//!         std::thread::spawn(move || {
//!             let name = RefName::new(format!("refs/heads/topic-{n}")).expect("it is legal");
//!             store.commit(&Transaction::new("worker").with(Edit::create(name, id)))
//!         })
//!     })
//!     .collect();
//! for worker in workers {
//!     worker.join().expect("no panic")?;
//! }
//! assert_eq!(store.view().iter_prefix(b"refs/heads/").count(), 8);
//! # Ok(())
//! # }
//! ```
//!
//! A task stages, which takes microseconds (it waits only while some MiB are staged, and looks a ref
//! that did not move lately up in a file), and awaits: [`Pending`] has an example. Questions to a view
//! may read a page of a file.
//!
//! # Reading
//!
//! [`RefStore::view`] is all refs now, as far as they are durable: a snapshot that takes no lock and
//! never changes. It is [asked](View::get) for one ref, [followed](View::resolve) over symbolic
//! refs, [listed](View::scan) in pages, and asked [which refs hold an object](View::refs_at).
//!
//! Without the store, by directory alone and beside a running writer, [`read_view`] gives the same view,
//! [`read_view_at`] the refs of any earlier moment and [`read_ref_at`] one of them, [`history()`] every
//! move with who, when and why, [`history_newest_first`] from the newest on, and [`history_after`] goes
//! on where a follower has stopped. [`restoring`] is the edit that brings a ref back.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let dir = &dir.path().join("refstone");
//! # use refstone::{At, CreateOptions, Edit, ObjectId, RefName, RefStore, Transaction};
//! # RefStore::create(dir, &CreateOptions::default())?;
//! # let store = RefStore::open(dir)?;
//! # let id = ObjectId::from_bytes(&[1; 20])?;
//! let topic = RefName::new("refs/heads/topic")?;
//! let created = store.commit(&Transaction::new("alice").with(Edit::create(topic.clone(), id)))?;
//! store.commit(&Transaction::new("bob").with(Edit::delete(topic.clone())))?;
//! assert_eq!(store.view().get(&topic)?, None);
//!
//! let then = refstone::read_view_at(dir, At::Seq(created.seq()))?;
//! assert_eq!(then.get(&topic)?, Some(id.into()));
//! assert_eq!(then.refs_at(&id)?, [topic]);
//! # Ok(())
//! # }
//! ```
//!
//! # What happens by itself
//!
//! When the live log has become long, a thread that ends when it is done [compacts](Compacting) it:
//! transactions become history, and tables below the view, in files beside it. Neither views nor
//! readers see a difference. [`RefStore::compact`] does it at once, [`RefStore::stats`] and
//! [`survey()`] count what there is, [`verify()`] checks every byte.
//!
//! A store that is idle has no thread and takes some KiB. It keeps its lock open, the live file twice,
//! and each table; tables grow with the logarithm of the history.
//!
//! # Errors
//!
//! Each operation has its own error type, which says what, where, and what was expected. All sort
//! themselves by [`ErrorKind`], which tells what became of a transaction and what to do now:
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let dir = &dir.path().join("refstone");
//! # use refstone::{CreateOptions, Edit, ErrorKind, ObjectId, RefName, RefStore, Transaction};
//! # RefStore::create(dir, &CreateOptions::default())?;
//! # let store = RefStore::open(dir)?;
//! # let id = ObjectId::from_bytes(&[1; 20])?;
//! # let tx = Transaction::new("alice").with(Edit::create(RefName::new("refs/heads/a")?, id));
//! # store.commit(&tx)?;
//! let advice = match store.commit(&tx) {
//!     Ok(committed) => format!("transaction {} is durable", committed.seq()),
//!     Err(error) => match error.kind() {
//!         ErrorKind::Refused | ErrorKind::Invalid => format!("it did not happen: {error}"),
//!         ErrorKind::LowSpace | ErrorKind::NoSpace => format!("free some space: {error}"),
//!         ErrorKind::NotCommitted => format!("it did not happen; try again: {error}"),
//!         ErrorKind::Unknown => format!("reopen the store, and look: {error}"),
//!         _ => format!("it did not happen; the store must be reopened: {error}"),
//!     },
//! };
//! assert!(advice.starts_with("it did not happen: cannot lock ref 'refs/heads/a'"));
//! # Ok(())
//! # }
//! ```
//!
//! # Further
//!
//! [`exchange`] brings refs in and out; [`secrets`] is a store that forgets what it replaces.
//! `refstone-log` is the log below. `docs/durability.md` owns
//! the promises and what they assume of the disk, `docs/format.md` the bytes, and
//! `docs/semantics.md` tells each difference from git.

// In reading order. First the values.
mod oid;

mod short_bytes;

mod name;

mod edit;

// What a transaction is, and the pure rules that judge it.
mod transaction;

mod refusal;

mod symref;

// The state: tables and what is newer make a durable view; what is staged stands above it.
mod table;

mod stack;

mod recent;

mod snapshot;

mod view;

mod staged;

mod current;

mod state;

// The store, on the log.
mod row;

mod replay;

mod pending;

mod holds;

mod prepared;

mod store;

// What has left the live log: history and tables, and how it gets there.
mod new_file;

mod stop;

mod progress;

mod ranges;

mod sealed;

mod digest;

mod making;

mod comparing;

mod shelves;

mod fit;

mod compact;

mod maintenance;

mod orphaned;

mod archive;

mod resume;

mod history;

mod read;

mod restore;

// What it consists of, and whether that is sound.
mod stats;

mod survey;

mod verify;

mod error;

pub mod promises;

// What goes in and out beside transactions.
pub mod exchange;

// The opposite of a ref store: what it replaces is gone.
pub mod secrets;

pub use compact::{CompactError, CompactOptions, Compacted, Merge};
pub use edit::{Change, Deref, Edit, Expected, Target};
pub use error::{OpenError, ReadError, RowProblem, TransactionError};
pub use history::{
    History, NewestFirst, history, history_after, history_newest_first, history_newest_first_with,
    history_with,
};
pub use maintenance::{Compacting, Maintenance, Totals};
pub use name::{NAME_LEN_MAX, NameError, NameProblem, PushChange, RefName};
pub use oid::{ObjectId, ObjectIdError};
pub use pending::{Committed, Pending, PendingEach};
pub use prepared::Prepared;
pub use progress::Progress;
pub use read::{
    At, read_object_format, read_ref_at, read_ref_with, read_seq, read_view, read_view_at,
    read_view_with,
};
pub use refstone_log::{
    AppendError, CommitError, Env, ErrorKind, Log, MinFree, Mode, ObjectFormat, OsEnv, Recovery,
    Resting, Seq, Timestamp,
};
pub use refusal::{Reason, Refusal};
pub use restore::{RestoreError, restoring};
pub use resume::{ResumeError, ResumeOptions, Resumed, resume, sealed_identity};
pub use row::RefMove;
pub use sealed::Form as HistoryForm;
pub use stats::Stats;
pub use store::{CreateOptions, OpenOptions, RefStore};
pub use survey::{HistoryPart, LiveFile, Survey, TablePart, survey};
pub use symref::SYMREF_READS_MAX;
pub use transaction::Transaction;
pub use verify::{Checked, StoreReport, verify};
pub use view::{ResolveError, Resolved, Scan, View};

/// The example of the README, so that it compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
