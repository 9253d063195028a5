//! A log of secrets: the newest change of each key and nothing else, in a file that every change
//! makes anew.
//!
//! A ref log keeps what was; this one must forget it. So nothing is ever appended: a change writes
//! a whole file without what it replaces, syncs it, gives it the live name and syncs the
//! directory, and only then returns. A file is whole when it gets its name, so there is no torn
//! tail to be kept aside, and a crash leaves the old file or the new one. What else it may leave,
//! the file that was being made, goes before the next change and before an opening returns.
//!
//! It is the same format (`docs/format.md`): frames of one row, in the order of their sequences,
//! with a gap where a newer change of the same key replaced an older one. The chain of checksums
//! goes over what is there, so that not even a checksum remembers what is not.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::create::{self, remove_if_present};
use crate::draft::Draft;
use crate::env::{Env, EnvFile, EnvLock};
use crate::error::{AppendError, CommitError, ErrorKind, OpenError};
use crate::files;
use crate::frame::encode::FrameHead;
use crate::frame::gaps::Gaps;
use crate::frame::schema::Identity;
use crate::frame::{EOS, Frame, FrameError, Layout};
use crate::kind::{Kind, SecretRow};
use crate::recover::has;
use crate::sabotage::{self, Sabotage};
use crate::seq::{Seq, Timestamp};
use crate::walk::{Step, Walk};

/// The longest key of a secret, and the longest actor, in bytes.
pub const SECRET_NAME_LEN_MAX: usize = 255;
/// The longest secret, in bytes.
pub const SECRET_LEN_MAX: usize = 64 << 10;
/// The most secrets of one log: every change writes all of them.
///
/// Deleted ones are kept as long as they leave room for others.
pub const SECRET_KEYS_MAX: usize = 1024;

/// The bytes of one secret. They are not printed, and are wiped from memory when they are dropped.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    fn new(bytes: &[u8]) -> Secret {
        Secret(Zeroizing::new(bytes.to_vec()))
    }

    /// The secret itself.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The newest change of one key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SecretChange {
    /// The sequence of the change.
    pub seq: Seq,
    /// When it was made. Never before the change before it.
    pub at: Timestamp,
    /// Who made it.
    pub actor: Vec<u8>,
    /// What the secret is called.
    pub key: Vec<u8>,
    /// The secret; `None` if it was deleted.
    pub value: Option<Secret>,
}

impl SecretChange {
    fn read(frame: &Frame<'_>) -> SecretChange {
        let row = frame.secret_row(0);
        SecretChange {
            seq: frame.seq(),
            at: frame.at(),
            actor: row.actor.into_owned(),
            key: row.key.into_owned(),
            value: row.value.map(Secret::new),
        }
    }

    fn row(&self) -> SecretRow<'_> {
        let value = self.value.as_ref().map(Secret::as_bytes);
        SecretRow { actor: &self.actor, key: &self.key, value }
    }
}

/// The secrets of one directory. One writer at a time, proven by a lock that dies with its process.
#[derive(Debug)]
pub struct SecretLog {
    env: Arc<dyn Env>,
    dir: PathBuf,
    identity: Identity,
    changes: BTreeMap<Vec<u8>, SecretChange>,
    newest: Seq,
    newest_at: Timestamp,
    /// Why nothing can be changed any more, if so.
    stopped: Option<Arc<str>>,
    _lock: Box<dyn EnvLock>,
}

impl SecretLog {
    /// Creates a log without secrets in an empty or absent directory, durable with the names of all
    /// directories above it.
    ///
    /// # Errors
    /// If the directory holds anything, if another writer holds its lock, or as the operating
    /// system says. A crash or an error leaves no log, or a whole one.
    pub fn create(env: &dyn Env, dir: &Path) -> Result<(), OpenError> {
        env.create_dir_all(dir).map_err(OpenError::io(dir, "create the directory"))?;
        let _lock = create::lock(env, dir)?;
        check_vacant(env, dir)?;
        let log_id = env.random_id().map_err(OpenError::io(dir, "draw a log id"))?;
        let mut draft = write(env, dir, &Identity::fresh_secrets(log_id).encode_with_end())?;
        let live = files::secrets(dir);
        draft.rename(&live).map_err(OpenError::io(&live, "give the new log its name"))?;
        create::sync_names(env, dir)
    }

    /// Takes the lock, removes what a crash left over, and reads every secret.
    ///
    /// Returns only after all that was read is durable under its name. Costs one read of the file
    /// and one sync of each directory above it.
    ///
    /// # Errors
    /// [`Locked`](OpenError::Locked) if somebody writes the log, [`Kind`](OpenError::Kind) if it is
    /// one of refs, [`Corrupt`](OpenError::Corrupt) if it is damaged; then it was not changed.
    pub fn open(env: Arc<dyn Env>, dir: &Path) -> Result<SecretLog, OpenError> {
        let dir = &*files::settled(dir);
        // Before the lock, which would leave its file where there is no log.
        open_live(&*env, dir)?;
        let lock = create::lock(&*env, dir)?;
        if !sabotage::is(Sabotage::KeepLeftoverSecrets) {
            remove_if_present(&*env, &files::secrets_temporary(dir))?;
        }
        let path = files::secrets(dir);
        let mut walk = Walk::start_in(Kind::Secrets, open_live(&*env, dir)?, &path)?;
        let changes = read(&mut walk)?;
        create::sync_names(&*env, dir)?;
        Ok(SecretLog {
            dir: dir.to_owned(),
            identity: Identity { gaps: Gaps::default(), ..walk.identity.clone() },
            changes,
            newest: walk.tail.seq,
            newest_at: walk.tail.at,
            stopped: None,
            env,
            _lock: lock,
        })
    }

    /// The newest change of a key; `None` if it never had a secret. Of a log that has stopped, the
    /// newest before the change of unknown outcome.
    #[must_use]
    pub fn newest(&self, key: &[u8]) -> Option<&SecretChange> {
        self.changes.get(key)
    }

    /// The newest change of every key, deleted ones included, in the order of the keys.
    pub fn changes(&self) -> impl Iterator<Item = &SecretChange> {
        self.changes.values()
    }

    /// Sets a secret. When this returns, that is durable, and no file of the log holds what it
    /// replaced.
    ///
    /// Costs the writing of all secrets, and two syncs.
    ///
    /// # Errors
    /// [`NotCommitted`](CommitError::NotCommitted) and [`NoSpace`](AppendError::NoSpace): nothing
    /// changed, and the log goes on. [`Unknown`](CommitError::Unknown): the change may be durable
    /// or not; the log is stopped, and every later change
    /// [`Poisoned`](CommitError::Poisoned), until it is opened again.
    pub fn set(&mut self, actor: &[u8], key: &[u8], value: &[u8]) -> Result<Seq, AppendError> {
        self.change(actor, key, Some(value))
    }

    /// Deletes a secret, as durably as [`set`](SecretLog::set) sets it. Returns `None`, and changes
    /// nothing, if there is none.
    ///
    /// # Errors
    /// As [`set`](SecretLog::set).
    pub fn delete(&mut self, actor: &[u8], key: &[u8]) -> Result<Option<Seq>, AppendError> {
        // First, since a change of unknown outcome may be just this secret.
        self.check_running()?;
        match self.changes.get(key) {
            Some(SecretChange { value: Some(_), .. }) => self.change(actor, key, None).map(Some),
            _ => Ok(None),
        }
    }

    fn change(
        &mut self,
        actor: &[u8],
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<Seq, AppendError> {
        self.check_running()?;
        self.check(actor, key, value)?;
        let change = SecretChange {
            seq: self.newest.next(),
            at: self.env.now().max(self.newest_at),
            actor: actor.to_vec(),
            key: key.to_vec(),
            value: value.map(Secret::new),
        };
        let makes_room = self.makes_room_for(key);
        let stays = |other: &&SecretChange| {
            let replaced = other.key == key && !sabotage::is(Sabotage::KeepReplacedSecret);
            !replaced && Some(other.seq) != makes_room
        };
        let others = self.changes.values().filter(stays);
        let file = encode(&self.identity, others.chain([&change]).collect())?;
        self.replace(&file)?;
        self.changes.retain(|_, other| Some(other.seq) != makes_room);
        (self.newest, self.newest_at) = (change.seq, change.at);
        self.changes.insert(key.to_vec(), change);
        Ok(self.newest)
    }

    fn check_running(&self) -> Result<(), CommitError> {
        match &self.stopped {
            None => Ok(()),
            Some(cause) => Err(CommitError::Poisoned { cause: cause.clone() }),
        }
    }

    fn check(&self, actor: &[u8], key: &[u8], value: Option<&[u8]>) -> Result<(), AppendError> {
        let name_fits = !key.is_empty() && key.len() <= SECRET_NAME_LEN_MAX;
        let value_len = value.map_or(0, <[u8]>::len);
        let problem = if !name_fits {
            format!("the key of a secret has 1 to 255 bytes, and this one has {}", key.len())
        } else if actor.len() > SECRET_NAME_LEN_MAX {
            format!("the actor of a secret has up to 255 bytes, and this one has {}", actor.len())
        } else if value_len > SECRET_LEN_MAX {
            format!("a secret has up to 65536 bytes, and this one has {value_len}")
        } else if self.is_full_for(key) && self.makes_room_for(key).is_none() {
            "there are 1024 secrets, and no more are possible: delete one that is not needed"
                .to_owned()
        } else if self.newest >= Seq::MAX {
            "the log has used up its sequences".to_owned()
        } else {
            return Ok(());
        };
        Err(AppendError::Invalid(problem))
    }

    fn is_full_for(&self, key: &[u8]) -> bool {
        self.changes.len() >= SECRET_KEYS_MAX && !self.changes.contains_key(key)
    }

    /// The oldest deletion, if it must go to make room for a new key.
    fn makes_room_for(&self, key: &[u8]) -> Option<Seq> {
        let deleted = self.changes.values().filter(|change| change.value.is_none());
        deleted.map(|change| change.seq).min().filter(|_| self.is_full_for(key))
    }

    /// Puts a new file in the place of the live one.
    fn replace(&mut self, file: &[u8]) -> Result<(), AppendError> {
        let mut draft = write(&*self.env, &self.dir, file).map_err(not_committed)?;
        // Should this thread die here, nobody knows which file has the name.
        self.stopped = Some("a change of a secret was interrupted".into());
        let live = files::secrets(&self.dir);
        let swapped = draft.rename(&live).and_then(|()| self.sync_swap());
        if let Err(error) = swapped {
            let cause: Arc<str> = format!("{}: cannot replace it: {error}", live.display()).into();
            self.stopped = Some(cause.clone());
            return Err(CommitError::Unknown { cause }.into());
        }
        self.stopped = None;
        Ok(())
    }

    fn sync_swap(&self) -> io::Result<()> {
        if sabotage::is(Sabotage::SkipSwapSync) {
            return Ok(());
        }
        self.env.sync_dir(&self.dir)
    }
}

fn not_committed(error: OpenError) -> AppendError {
    match error {
        OpenError::Io { source, .. } if ErrorKind::of_io(&source) == ErrorKind::NoSpace => {
            AppendError::NoSpace { source }
        }
        error => CommitError::NotCommitted { cause: error.to_string().into() }.into(),
    }
}

fn check_vacant(env: &dyn Env, dir: &Path) -> Result<(), OpenError> {
    let names = env.list(dir).map_err(OpenError::io(dir, "list the directory"))?;
    let neutral = [files::lock(dir), files::secrets_temporary(dir)];
    match names.iter().find(|name| !neutral.iter().any(|path| path.ends_with(name))) {
        None => Ok(()),
        Some(name) => {
            let found = name.to_string_lossy().into_owned();
            Err(OpenError::NotEmpty { dir: dir.to_owned(), found })
        }
    }
}

/// Opens the live file, or says why there is none.
fn open_live(env: &dyn Env, dir: &Path) -> Result<Arc<dyn EnvFile>, OpenError> {
    let path = files::secrets(dir);
    match env.open_read(&path) {
        Ok(file) => Ok(Arc::from(file)),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(OpenError::io(&path, "open")(error))
        }
        Err(_) if has(env, dir, &files::live(dir)) => {
            let (expected, found) = (Kind::Secrets.name(), Kind::Refs.name());
            Err(OpenError::Kind { path: files::live(dir), expected, found })
        }
        Err(_) => Err(OpenError::NoSecrets { dir: dir.to_owned() }),
    }
}

/// Reads all changes. A file gets its name when it is whole: what is odd about it is damage.
fn read(walk: &mut Walk) -> Result<BTreeMap<Vec<u8>, SecretChange>, OpenError> {
    let mut changes = BTreeMap::new();
    while walk.next_is_published()? {
        let before = walk.tail;
        if let Step::End { problem } = walk.step()? {
            return Err(walk.damage(problem.into()));
        }
        let frame = walk.frame();
        let (rows, change) = (frame.row_count(), SecretChange::read(&frame));
        if rows > 1 || changes.insert(change.key.clone(), change).is_some() {
            walk.go_back(before);
            let problem = "a key that is there already, or a second row";
            return Err(walk.damage(FrameError::Structure { column: "key", problem }.into()));
        }
    }
    if !walk.tail_is_clean()? {
        let (expected, found) = (u32::from_le_bytes(walk.layout.word()), 0);
        return Err(walk.damage(FrameError::LengthWord { expected, found }.into()));
    }
    Ok(changes)
}

/// Writes and syncs the file that is to be the live one.
fn write<'e>(env: &'e dyn Env, dir: &Path, bytes: &[u8]) -> Result<Draft<'e>, OpenError> {
    let draft = Draft::start(env, &files::secrets_temporary(dir))?;
    draft.write(bytes, 0)?;
    draft.sync()?;
    Ok(draft)
}

/// The whole file that holds these changes.
fn encode(
    identity: &Identity,
    mut changes: Vec<&SecretChange>,
) -> Result<Zeroizing<Vec<u8>>, AppendError> {
    changes.sort_unstable_by_key(|change| change.seq);
    let identity = Identity { gaps: gaps(&changes), ..identity.clone() };
    let layout = Layout::new(identity.columns(), identity.log_id);
    let schema = identity.encode();
    let frames: usize = changes.iter().map(|change| frame_len_max(&layout, change)).sum();
    // All at once: a buffer that grows leaves its old bytes behind.
    let mut file = Zeroizing::new(Vec::with_capacity(schema.len() + frames + EOS.len()));
    file.extend_from_slice(&schema);
    let (mut previous_crc, mut durable_seq) = (identity.anchor.crc, Seq::ZERO);
    for change in changes {
        let head = FrameHead { seq: change.seq, at: change.at, previous_crc, durable_seq };
        previous_crc = layout.encode(&head, &change.row(), &mut file)?;
        durable_seq = change.seq;
    }
    file.extend_from_slice(&EOS);
    Ok(file)
}

/// The sequences between those of the changes, which are in ascending order.
fn gaps(changes: &[&SecretChange]) -> Gaps {
    let mut next = Seq::ZERO.next();
    let mut gaps = Gaps::default();
    for change in changes {
        if next < change.seq {
            gaps.add(next, Seq::new(change.seq.get() - 1));
        }
        next = change.seq.next();
    }
    gaps
}

fn frame_len_max(layout: &Layout, change: &SecretChange) -> usize {
    /// Sequence, time, offsets, validity, padding and trailer of one row.
    const REST: usize = 200;
    /// A byte of text may become `\xNN`.
    const ESCAPED: usize = 4;
    let value = change.value.as_ref().map_or(0, |value| value.as_bytes().len());
    layout.template.len() + ESCAPED * (change.actor.len() + change.key.len()) + value + REST
}

impl Identity {
    /// The file of a log that has nothing yet.
    fn encode_with_end(&self) -> Vec<u8> {
        let mut bytes = self.encode();
        bytes.extend_from_slice(&EOS);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(seq: u64, key: &str, len: usize) -> SecretChange {
        SecretChange {
            seq: Seq::new(seq),
            at: Timestamp::from_micros(5),
            actor: vec![0xff; SECRET_NAME_LEN_MAX],
            key: key.as_bytes().to_vec(),
            value: (len > 0).then(|| Secret::new(&vec![7; len])),
        }
    }

    // Break: REST = 20.
    #[test]
    fn the_buffer_of_secrets_never_grows() {
        let identity = Identity::fresh_secrets([3; 16]);
        for len in [0, 1, 9, SECRET_LEN_MAX] {
            let changes = [change(2, "a", len), change(9, "b", 0)];
            let schema = Identity { gaps: gaps(&changes.each_ref()), ..identity.clone() }.encode();
            let layout = Layout::new(identity.columns(), identity.log_id);
            let frames: usize = changes.iter().map(|c| frame_len_max(&layout, c)).sum();
            let file = encode(&identity, changes.iter().collect()).unwrap();
            assert!(file.len() <= schema.len() + frames + EOS.len());
        }
    }

    // Breaks: counting the keys also when a key is set again; forgetting the newest deletion first.
    #[test]
    fn there_are_only_so_many_secrets_and_the_oldest_deletion_makes_room() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("secrets");
        SecretLog::create(&crate::OsEnv, &dir).unwrap();
        let mut log = SecretLog::open(Arc::new(crate::OsEnv), &dir).unwrap();
        for number in 1..=SECRET_KEYS_MAX {
            let change = change(number as u64, &format!("key-{number}"), 3);
            log.newest = change.seq;
            log.changes.insert(change.key.clone(), change);
        }
        assert_eq!(log.set(b"a", b"one-more", b"s").unwrap_err().kind(), ErrorKind::Invalid);
        log.set(b"a", b"key-7", b"again").unwrap();
        log.delete(b"a", b"key-9").unwrap();
        log.delete(b"a", b"key-8").unwrap();
        log.set(b"a", b"one-more", b"s").unwrap();
        drop(log);
        let log = SecretLog::open(Arc::new(crate::OsEnv), &dir).unwrap();
        assert_eq!(log.changes().count(), SECRET_KEYS_MAX);
        assert!(log.newest(b"key-9").is_none());
        assert!(log.newest(b"key-8").unwrap().value.is_none());
        assert_eq!(log.newest(b"one-more").unwrap().seq.get(), SECRET_KEYS_MAX as u64 + 4);
    }

    // Break: taking the newer of two changes, so that the older stays in the file.
    #[test]
    fn a_file_with_two_changes_of_one_key_is_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let identity = Identity::fresh_secrets([3; 16]);
        let changes = [change(1, "a", 3), change(2, "a", 4)];
        let file = encode(&identity, changes.iter().collect()).unwrap();
        std::fs::write(files::secrets(dir.path()), &*file).unwrap();
        let error = SecretLog::open(Arc::new(crate::OsEnv), dir.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains("transaction 2"), "{error}");
    }
}
