//! A group-committed transaction log whose file **is** an Arrow IPC stream.
//!
//! Each transaction is one framed `RecordBatch`; stock Arrow readers open the file while it is
//! being written, and see only what is durable. Many threads [append](Log::append); one leader's
//! sync covers all who wait.
//!
//! Read on in this order: [`Log`] and its [`Commit`], the [`SyncGate`], what
//! [recovery](Recovery) does, [`LogReader`], and the [`Env`] through which all I/O goes.
//! `docs/format.md` has the bytes, `docs/durability.md` the promises.

mod backward;
mod commit;
mod create;
mod doubt;
mod draft;
mod env;
mod error;
mod files;
mod frame;
mod gate;
mod gather;
#[cfg_attr(feature = "shuttle", path = "shuttle/idle.rs")]
mod idle;
mod kind;
mod layer;
mod log;
mod options;
mod os_env;
#[cfg_attr(feature = "shuttle", path = "shuttle/pool.rs")]
mod pool;
mod private_env;
mod reader;
mod reclaim;
mod recover;
mod repair;
mod rest;
mod resync;
mod rewrite;
mod round;
mod sabotage;
mod secret_log;
mod seq;
mod sleepers;
mod space;
#[cfg_attr(feature = "shuttle", path = "shuttle/sync.rs")]
mod sync;
mod verify;
mod waits;
mod walk;
mod within;
mod writer;

pub use backward::BackwardReader;
pub use commit::{Ack, Commit, Stage};
pub use create::RefLogOptions;
pub use env::{Env, EnvFile, EnvLock, FileId};
pub use error::{AppendError, CommitError, Damage, DamageKind, ErrorKind, OpenError, RewriteError};
pub use frame::gaps::Gaps;
pub use frame::schema::{Anchor, SchemaError};
pub use frame::text;
pub use frame::{Frame, FrameError};
pub use gate::{Hold, SyncGate};
pub use gather::Gathering;
pub use kind::{DecodedRefRow, ObjectFormat, RefRow, Rows, UnknownObjectFormat};
pub use layer::{EnvLayer, FileLayer};
pub use log::Log;
pub use options::{LogOptions, Mode, NoObserver, Observer, Resting};
pub use os_env::OsEnv;
pub use private_env::PrivateOsEnv;
pub use reader::LogReader;
pub use recover::{Recovery, Torn};
pub use repair::{RepairError, RepairOptions, Repaired, Sealed, repair, resume};
pub use rewrite::{Leaving, Rewritten, Sealer};
pub use secret_log::{
    SECRET_KEYS_MAX, SECRET_LEN_MAX, SECRET_NAME_LEN_MAX, Secret, SecretChange, SecretLog,
};
pub use seq::{Seq, Timestamp};
pub use space::{MinFree, UnknownMinFree};
pub use verify::{VerifyReport, verify};
