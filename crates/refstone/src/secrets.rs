//! Secrets: host keys, tokens, whatever a server must keep and must be able to forget.
//!
//! A [`SecretStore`] maps keys to bytes. It is a log as the refs have one, with who changed what
//! and when, but it keeps of each key only the newest change:
//!
//! - When [`put`](SecretStore::put) or [`delete`](SecretStore::delete) returns, the change is on
//!   stable storage, and what it replaced is in no file of the store's directory.
//! - After a crash there is the old secret or the new one. What is left over of the other is gone
//!   before [`open`](SecretStore::open) returns.
//! - The files have the mode 0600 and their directory 0700, whatever the umask. A file or directory
//!   that lets others in is refused.
//!
//! What cannot be promised: the blocks of a disk that held a file keep its bytes until they are
//! used again, and so do flash cells, journals, snapshots, backups, memory that was swapped out,
//! and a process that had opened the old file.
//!
//! ```
//! # let temporary = tempfile::tempdir()?;
//! # let dir = &temporary.path().join("secrets");
//! use refstone::secrets::SecretStore;
//!
//! SecretStore::create(dir)?;
//! let store = SecretStore::open(dir)?;
//! store.put("init", "host-key", "first")?;
//! store.put("alice", "host-key", "second")?; // from here on, no file has "first"
//! assert_eq!(store.get("host-key").unwrap().as_bytes(), b"second");
//!
//! store.delete("alice", "host-key")?;
//! assert!(store.get("host-key").is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The file is `secrets.arrow`, an Arrow IPC stream that any stock reader opens (its owner's, that
//! is). Of a deleted secret it tells the key, and who deleted it when, until a new secret needs its
//! place ([`SECRET_KEYS_MAX`]).

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use refstone_log::{PrivateOsEnv, SecretLog};

pub use refstone_log::{
    AppendError, OpenError, SECRET_KEYS_MAX, SECRET_LEN_MAX, SECRET_NAME_LEN_MAX, Secret,
    SecretChange,
};

use crate::{Env, Seq};

/// Secrets by key, in a directory of their own. See the [module](self).
///
/// Shared between threads; one process at a time, proven by a lock that dies with it. Nothing waits
/// to be written when it is dropped.
#[derive(Debug)]
pub struct SecretStore {
    /// Held through a change, so that a reader sees no secret that is not durable.
    log: Mutex<SecretLog>,
}

impl SecretStore {
    /// Creates a store without secrets in an empty or absent directory, durable with its name.
    ///
    /// # Errors
    /// If the directory holds anything, lets others in, or as the operating system says. A crash or
    /// an error leaves no store, or a whole one.
    pub fn create(dir: &Path) -> Result<(), OpenError> {
        SecretLog::create(&PrivateOsEnv, dir)
    }

    /// Opens a store, and removes what a crash has left over.
    ///
    /// # Errors
    /// If there is none ([`NoSecrets`](OpenError::NoSecrets)), if another process has it open, if
    /// it is a ref store ([`Kind`](OpenError::Kind)), if it is damaged, or if its file or directory
    /// lets others in: the error names the mode.
    pub fn open(dir: &Path) -> Result<SecretStore, OpenError> {
        SecretStore::open_in(Arc::new(PrivateOsEnv), dir)
    }

    /// As [`open`](SecretStore::open), on other files than the operating system's. Modes are the
    /// environment's business.
    ///
    /// # Errors
    /// As [`open`](SecretStore::open).
    pub fn open_in(env: Arc<dyn Env>, dir: &Path) -> Result<SecretStore, OpenError> {
        SecretLog::open(env, dir).map(|log| SecretStore { log: Mutex::new(log) })
    }

    /// Sets a secret. When this returns, it is durable, and the one before is gone from every file.
    ///
    /// Costs the writing of all secrets, which are few, and two syncs. A key has 1 to
    /// [`SECRET_NAME_LEN_MAX`] bytes of any kind, a secret up to [`SECRET_LEN_MAX`].
    ///
    /// # Errors
    /// As [`SecretLog::set`]: after `NotCommitted`, `NoSpace` and `Invalid` the old secret
    /// stands; after `Unknown` either does, and the store must be opened again.
    pub fn put(
        &self,
        actor: impl AsRef<[u8]>,
        key: impl AsRef<[u8]>,
        secret: impl AsRef<[u8]>,
    ) -> Result<Seq, AppendError> {
        self.log.lock().set(actor.as_ref(), key.as_ref(), secret.as_ref())
    }

    /// Deletes a secret. When this returns, that is durable, and the secret is gone from every
    /// file; its key, who deleted it and when, stay.
    ///
    /// Returns `None`, and changes nothing, if there is no such secret.
    ///
    /// # Errors
    /// As [`put`](SecretStore::put).
    pub fn delete(
        &self,
        actor: impl AsRef<[u8]>,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Seq>, AppendError> {
        self.log.lock().delete(actor.as_ref(), key.as_ref())
    }

    /// A secret, as it is durably: after a change of unknown outcome, as it was before. Waits for a
    /// change that is under way.
    #[must_use]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<Secret> {
        self.log.lock().newest(key.as_ref())?.value.clone()
    }

    /// The keys that have a secret, in the order of their bytes.
    #[must_use]
    pub fn keys(&self) -> Vec<Vec<u8>> {
        let log = self.log.lock();
        let set = log.changes().filter(|change| change.value.is_some());
        set.map(|change| change.key.clone()).collect()
    }

    /// The newest change of a key, its deletion included: who made it, and when.
    #[must_use]
    pub fn newest_change(&self, key: impl AsRef<[u8]>) -> Option<SecretChange> {
        self.log.lock().newest(key.as_ref()).cloned()
    }
}
