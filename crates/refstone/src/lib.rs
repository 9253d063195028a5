//! A durable git reference store on a log whose file is an Arrow IPC stream.
//!
//! A [`RefStore`] holds refs as git has them: names that are [checked](RefName), values that are
//! [objects or other refs](Target), and [transactions](Transaction) of [edits](Edit) that compare
//! before they set. An acknowledged transaction is on stable storage, and so is everything that a
//! refusal or a [`View`] was based on. Many threads share one sync.
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

// In reading order. First the values.
mod oid;

mod name;

mod edit;

// What a transaction is, and the pure rules that judge it.
mod transaction;

mod refusal;

mod symref;

// The state: tables and what is newer make a durable view; what is staged stands above it.
#[cfg_attr(not(test), expect(dead_code, reason = "its tests look whole entries up"))]
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

mod ranges;

#[allow(dead_code)]
mod sealed;

mod digest;

mod shelves;

mod compact;

mod maintenance;

mod archive;

mod history;

mod read;

mod restore;

// What it consists of, and whether that is sound.
mod stats;

mod survey;

mod verify;

mod error;

// What goes in and out beside transactions.
pub mod exchange;

// The opposite of a ref store: what it replaces is gone.
pub mod secrets;

pub use compact::{CompactError, CompactOptions, Compacted, Merge, Progress};
pub use edit::{Change, Deref, Edit, Expected, Target};
pub use error::{OpenError, ReadError, RowProblem, TransactionError};
pub use history::{
    History, NewestFirst, history, history_after, history_newest_first, history_with,
};
pub use maintenance::{Compacting, Maintenance, Totals};
pub use name::{NAME_LEN_MAX, NameError, NameProblem, PushChange, RefName};
pub use oid::{ObjectId, ObjectIdError};
pub use pending::{Committed, Pending, PendingEach};
pub use prepared::Prepared;
pub use read::{At, read_object_format, read_view, read_view_at, read_view_with};
pub use refstone_log::{
    AppendError, CommitError, Env, ErrorKind, Log, MinFree, Mode, ObjectFormat, OsEnv, Recovery,
    Seq, Timestamp,
};
pub use refusal::{Reason, Refusal};
pub use restore::{RestoreError, restoring};
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
