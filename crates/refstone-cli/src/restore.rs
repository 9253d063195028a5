//! `refstone restore`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use refstone::{
    At, Change, Committed, Edit, ObjectId, RefName, RefStore, RestoreError, Target, Transaction,
    restoring,
};
use serde::Serialize;

use crate::exit::{CODES, Failure};
use crate::output::Output;
use crate::repo;
use crate::text::{self, Hex};
use crate::update_ref::login;
use crate::{at, moves, span};

/// Bring a reference back to an earlier value
///
/// Without --at, to the value before its last move: a deleted reference comes back, and one that was
/// rewound goes forward again. With it, to the value that it had then. A symbolic reference is
/// restored itself, and not what it points to.
///
/// This is an ordinary transaction, recorded as any other. It is refused if the reference moves
/// meanwhile, if its name is in the way of another, and if git no longer has the object.
///
/// It holds the lock, and cannot run beside a server of the same repository; there, push the object
/// that `refstone log` tells: `git push <url> <oid>:<ref>`, from a clone that has it.
///
/// With --json, one object: `seq`, `moved`, which is false if it had that value already, `refname`,
/// and `oid` or `symref`.
#[derive(Debug, Args)]
#[command(after_long_help = CODES)]
pub(crate) struct Restore {
    /// The repository
    repo: PathBuf,
    /// The reference, by its full name
    #[arg(value_name = "REF")]
    reference: OsString,
    /// As it was after this transaction, which must be there, or at this time (RFC 3339, or @ and
    /// seconds since 1970)
    #[arg(long, value_name = at::NAME, value_parser = at::parse)]
    at: Option<At>,
    /// Who moves the reference [default: the login name of the environment]
    #[arg(long)]
    actor: Option<OsString>,
    /// Why; recorded with the move
    #[arg(short = 'm', value_name = "MESSAGE", default_value = "restore")]
    message: OsString,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct JsonRestored {
    seq: u64,
    moved: bool,
    refname: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    refname_hex: Option<Hex>,
    oid: Option<String>,
    symref: Option<String>,
}

impl Restore {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let dir = repo::log_directory(&self.repo)?;
        let name = repo::full_name(&self.reference)?;
        let store = RefStore::open(&dir)?;
        repo::tell_recovery(store.recovery());
        let restored = self.restore(&store, &dir, &name);
        let closed = store.close();
        let (edit, committed) = restored?;
        closed?;
        self.say(&edit, committed)
    }

    fn restore(
        &self,
        store: &RefStore,
        dir: &Path,
        name: &RefName,
    ) -> Result<(Edit, Committed), Failure> {
        if let Some(At::Seq(asked)) = self.at {
            span::expect_there(asked, store.view().seq())?;
        }
        let edit = restoring(dir, name, self.at).map_err(|error| explain(&error))?;
        self.commit(store, dir, edit)
    }

    fn commit(
        &self,
        store: &RefStore,
        dir: &Path,
        edit: Edit,
    ) -> Result<(Edit, Committed), Failure> {
        if let Some(id) = value(&edit).and_then(Target::object) {
            check_object(dir, id)?;
        }
        let actor = self.actor.clone().unwrap_or_else(login).into_vec();
        let transaction = Transaction::new(actor).with_message(self.message.clone().into_vec());
        let committed = store.commit(&transaction.with(edit.clone()))?;
        Ok((edit, committed))
    }

    fn say(&self, edit: &Edit, committed: Committed) -> Result<(), Failure> {
        let name = edit.name.as_bytes();
        let value = value(edit);
        let mut output = Output::new();
        if self.json {
            output.json(&JsonRestored {
                seq: committed.seq().get(),
                moved: committed.moved(),
                refname: text::name(name),
                refname_hex: Hex::unless_utf8(name),
                oid: value.and_then(Target::object).map(|id| id.to_hex()),
                symref: value.and_then(Target::symbolic).map(|to| text::name(to.as_bytes())),
            })?;
            return output.finish();
        }
        let shown = value.map_or_else(String::new, moves::value);
        let line = match committed.moved() {
            true => {
                format!("{shown} {} (transaction {})", text::printable_name(name), committed.seq())
            }
            false => format!("{shown} {} (it is there already)", text::printable_name(name)),
        };
        output.line(&[line.as_bytes()])?;
        output.finish()
    }
}

fn value(edit: &Edit) -> Option<&Target> {
    match &edit.change {
        Change::Set(target) => Some(target),
        _ => None,
    }
}

fn explain(error: &RestoreError) -> Failure {
    let failure = Failure::of_kind(error.kind(), error.to_string());
    match error {
        RestoreError::Open(error) => error.into(),
        RestoreError::NeverMoved { .. } => {
            failure.with_hint("`refstone log` shows which references there were")
        }
        RestoreError::Absent { .. } => failure.with_hint(
            "`refstone log` shows its moves; --at takes the sequence of the one to go back to",
        ),
        _ => failure,
    }
}

/// Refuses an object that git says it does not have: a clone of the reference would fail. Where git
/// gives no answer there is nothing to compare with, as where the log lies alone.
fn check_object(dir: &Path, id: ObjectId) -> Result<(), Failure> {
    let Some(repository) = dir.parent().filter(|parent| parent.join("objects").is_dir()) else {
        return Ok(());
    };
    let mut git = Command::new("git");
    git.env("GIT_DIR", repository).env_remove("GIT_OBJECT_DIRECTORY");
    git.args(["-c", "safe.directory=*", "cat-file", "-e", &id.to_hex()]);
    let status = git.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    match status.map(|status| status.code()) {
        Ok(Some(1)) => {
            Err(Failure::refused(format!("object {id} is no longer in {}", text::path(repository)))
                .with_hint("push it first, under another name, from a clone that has it"))
        }
        _ => Ok(()),
    }
}
