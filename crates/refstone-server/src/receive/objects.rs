//! What git says about the objects of a push: they still lie in quarantine, and are seen together
//! with those of the repository.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;

use bytes::Bytes;
use refstone::{ObjectId, ReadError, View};

use crate::git::{self, GitEnv};
use crate::quarantine::Quarantine;
use crate::repository::Repository;
use crate::wire::commands::PushRequest;

use super::Speaker;
use super::unpack::SHALLOW_FILE;

/// The kind of an object, as far as refs care.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Commit,
    Other,
}

/// The objects of a push.
#[derive(Debug)]
pub(super) struct Objects {
    env: GitEnv,
    shallow_file: Option<PathBuf>,
}

/// What is complete already: every object a ref names, and all that it needs.
#[derive(Debug)]
pub(super) struct Tips {
    oids: HashSet<ObjectId>,
    /// For `rev-list --stdin`, a line for each.
    excluded: String,
}

impl Tips {
    /// The tips of a view. `--not --all` would see nothing: git knows none of these refs, and every
    /// push would walk the whole history.
    pub(super) async fn of(view: View) -> io::Result<Self> {
        let gathered = tokio::task::spawn_blocking(move || Self::gather(&view)).await;
        gathered.map_err(io::Error::other)?.map_err(io::Error::other)
    }

    fn gather(view: &View) -> Result<Self, ReadError> {
        let mut oids = HashSet::new();
        for item in view.iter_prefix(b"") {
            oids.extend(item?.1.object());
        }
        let excluded = oids.iter().map(|oid| format!("^{oid}\n")).collect();
        Ok(Self { oids, excluded })
    }

    pub(super) fn contains(&self, oid: &ObjectId) -> bool {
        self.oids.contains(oid)
    }
}

impl Objects {
    pub(super) fn new(
        repository: &Repository,
        quarantine: &Quarantine,
        request: &PushRequest,
    ) -> Self {
        let (path, quarantine) = (repository.path(), quarantine.path());
        let shallow = !request.shallow.is_empty();
        Self {
            env: GitEnv::quarantine(path, repository.objects(), quarantine),
            shallow_file: shallow.then(|| quarantine.join(SHALLOW_FILE)),
        }
    }

    /// The kinds of those objects that exist.
    pub(super) async fn kinds(&self, oids: &[ObjectId]) -> io::Result<HashMap<ObjectId, Kind>> {
        let questions: String = oids.iter().map(|oid| format!("{oid}\n")).collect();
        let arguments = ["cat-file", "--buffer", "--batch-check=%(objectname) %(objecttype)"];
        let command = self.env.command(arguments);
        let answers = git::run(command, questions.into()).await?.success()?;
        Ok(answers.split(|&byte| byte == b'\n').filter_map(kind).collect())
    }

    /// Whether everything that `new` needs is there, down to `tips`. Children speak through
    /// `speaker`, if given.
    ///
    /// Tips that are missing themselves are ignored: one damaged ref must not stop every push.
    pub(super) async fn are_connected(
        &self,
        new: &[ObjectId],
        tips: &Tips,
        speaker: Option<&Speaker>,
    ) -> io::Result<bool> {
        let mut arguments = REV_LIST.to_vec();
        if speaker.is_some_and(Speaker::shows_progress) {
            arguments.insert(1, "--progress=Checking connectivity");
        }
        let command = self.env.command(arguments);
        let finished = git::run(command, question(new, tips)).await?;
        if let Some(speaker) = speaker {
            speaker.clone().relay(finished.stderr.as_slice()).await;
        }
        Ok(finished.status.success())
    }

    /// Whether `new` would be complete if this repository were as shallow as the client's.
    pub(super) async fn is_shallow(&self, new: ObjectId, tips: &Tips) -> io::Result<bool> {
        let Some(file) = &self.shallow_file else {
            return Ok(false);
        };
        let mut arguments = vec![OsStr::new("--shallow-file"), file.as_os_str()];
        arguments.extend(REV_LIST.map(OsStr::new));
        let command = self.env.command(arguments);
        let finished = git::run(command, question(&[new], tips)).await?;
        Ok(finished.status.success())
    }

    /// Whether `old` is in the history of `new`. `None` if git cannot tell.
    pub(super) async fn is_ancestor(
        &self,
        old: ObjectId,
        new: ObjectId,
    ) -> io::Result<Option<bool>> {
        let (old, new) = (old.to_string(), new.to_string());
        let command = self.env.command(["merge-base", "--is-ancestor", &old, &new]);
        let status = git::run(command, Bytes::new()).await?.status;
        Ok(status.code().filter(|&code| code <= 1).map(|code| code == 0))
    }
}

/// The order matters: `--ignore-missing` holds for what is read after it.
const REV_LIST: [&str; 5] = ["rev-list", "--objects", "--quiet", "--ignore-missing", "--stdin"];

fn question(new: &[ObjectId], tips: &Tips) -> Bytes {
    let mut lines: String = new.iter().map(|oid| format!("{oid}\n")).collect();
    lines.push_str(&tips.excluded);
    lines.into()
}

fn kind(line: &[u8]) -> Option<(ObjectId, Kind)> {
    let mut words = line.split(|&byte| byte == b' ');
    let oid = ObjectId::from_hex(words.next()?).ok()?;
    match words.next()? {
        b"commit" => Some((oid, Kind::Commit)),
        b"missing" => None,
        _ => Some((oid, Kind::Other)),
    }
}
