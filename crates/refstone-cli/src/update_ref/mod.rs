//! `refstone update-ref --stdin`: `script` cuts the input into commands, `phase` says which may
//! come when, `grammar` what they mean, and this module runs them on the store.

mod fields;
mod grammar;
mod objects;
mod phase;
mod quote;
mod script;
mod words;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::mem;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use clap::Args;
use refstone::{
    Committed, Deref, MinFree, OpenOptions, Prepared, Reason, RefStore, Transaction,
    TransactionError,
};
use serde::Serialize;

use self::grammar::{Command, Meaning};
use self::objects::Objects;
use self::phase::Phase;
use self::script::Script;
use self::words::{End, GrammarError};
use crate::exit::{CODES, Failure, tell};
use crate::output::Output;
use crate::repo;

/// The long help. It is no documentation comment, where `<ref>` would be a tag of HTML.
const HELP: &str = "\
Move references, in transactions, by commands on standard input

The commands are those of `git update-ref --stdin`:

  update SP <ref> SP <new-oid> [SP <old-oid>] LF
  create SP <ref> SP <new-oid> LF
  delete SP <ref> [SP <old-oid>] LF
  verify SP <ref> [SP <old-oid>] LF
  symref-update SP <ref> SP <new-target> [SP (ref SP <old-target> | oid SP <old-oid>)] LF
  symref-create SP <ref> SP <new-target> LF
  symref-delete SP <ref> [SP <old-target>] LF
  symref-verify SP <ref> [SP <old-target>] LF
  option SP no-deref LF
  start LF, prepare LF, commit LF, abort LF

An argument may be quoted as in C. A value is a full object id, or empty or zeros for none: the
store knows no objects, so it checks none and resolves nothing. A ref whose object the repository
does not have makes clones fail, loudly, until it is moved or deleted; with --check-objects git is
asked first, and refuses as it does for its own refs.

Without `start`, all is one transaction that is committed when the input ends. With it, nothing
happens before `commit`, and several transactions may follow each other. Each of `start`,
`prepare`, `commit` and `abort` is answered `<command>: ok`; `commit: ok` means that the
transaction is on stable storage.

The command holds the lock of the log from start to end, so nobody comes between `prepare` and
`commit`. It cannot run beside a server of the same repository.

With --json, one object for each committed transaction instead: `seq`, and `moved`, which is
false if there was nothing to do; no sequence was spent then.

A refusal is told in git's words and ends the command with exit code 1, an input that is none of
the above with 2. What was committed before stays.";

/// Move references, in transactions, by commands on standard input
#[derive(Debug, Args)]
#[command(long_about = HELP, after_long_help = CODES)]
pub(crate) struct UpdateRef {
    /// The repository
    repo: PathBuf,
    /// Read commands from standard input
    #[arg(long, required = true)]
    stdin: bool,
    /// Commands and arguments end with NUL, and nothing is quoted
    #[arg(short = 'z')]
    nul: bool,
    /// Edit the named references themselves, even if they are symbolic
    #[arg(long)]
    no_deref: bool,
    /// Refuse new values that are no objects of the repository, and branches that are no commits
    #[arg(long)]
    check_objects: bool,
    /// How much of the file system stays free: auto (64M), a size such as 2G, or 0 for no floor
    #[arg(long, value_name = "SIZE", default_value = "auto")]
    min_free: MinFree,
    /// Who moves the references [default: the login name of the environment]
    #[arg(long)]
    actor: Option<OsString>,
    /// Why; recorded with each reference that moves
    #[arg(short = 'm', value_name = "MESSAGE")]
    message: Option<OsString>,
    /// Print one JSON object for each committed transaction
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct JsonCommitted {
    seq: u64,
    moved: bool,
}

impl UpdateRef {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let message = self.message.map(OsString::into_vec);
        if message.as_ref().is_some_and(Vec::is_empty) {
            return Err(Failure::usage("Refusing to perform update with empty message.").fatal());
        }
        let dir = repo::log_directory(&self.repo)?;
        let options = OpenOptions::default().min_free(self.min_free);
        let store = RefStore::open_with(&dir, options)?;
        repo::tell_recovery(store.recovery());
        let session = Session {
            store: &store,
            actor: self.actor.unwrap_or_else(login).into_vec(),
            message,
            default_deref: if self.no_deref { Deref::NoFollow } else { Deref::Follow },
            output: Output::new(),
            json: self.json,
            objects: self.check_objects.then(|| Objects::beside(&dir)),
        };
        let end = if self.nul { End::Nul } else { End::Newline };
        let ran = session.run(Script::new(BufReader::new(io::stdin()), end));
        let closed = store.close();
        ran?;
        Ok(closed?)
    }
}

/// Whom the environment says to be at work. It is a name, not a proof, as `--actor` is.
pub(crate) fn login() -> OsString {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty());
    set("LOGNAME").or_else(|| set("USER")).unwrap_or_else(owner)
}

/// Who runs this process, where the environment does not say: the number of the user, if nothing
/// names it.
fn owner() -> OsString {
    let Ok(process) = fs::metadata("/proc/self") else { return "unknown".into() };
    let uid = process.uid().to_string();
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| format!("uid:{uid}")).into()
}

/// The commands of one input, run on a store: what git-update-ref(1) calls a session.
struct Session<'a> {
    store: &'a RefStore,
    actor: Vec<u8>,
    message: Option<Vec<u8>>,
    default_deref: Deref,
    output: Output,
    json: bool,
    /// Where new values are looked for; `None` if they are not.
    objects: Option<Objects>,
}

impl Session<'_> {
    fn run(mut self, mut script: Script<impl BufRead>) -> Result<(), Failure> {
        let mut phase = Phase::Open;
        let mut deref = self.default_deref;
        let mut transaction = self.transaction();
        let mut prepared = None;
        while let Some(command) = script.next().map_err(|error| cannot_read(&error))? {
            let command = command.map_err(misunderstood)?;
            phase = phase.after(command.verb).map_err(misunderstood)?;
            let meaning = Meaning { objects: self.store.object_format(), deref };
            let warn = &mut |text: String| tell("warning", &text);
            match command.parse(meaning, warn).map_err(misunderstood)? {
                Command::Edit(edit) => {
                    transaction.push(edit);
                    deref = self.default_deref;
                }
                Command::NoDeref => deref = Deref::NoFollow,
                // What came before `start` without one of its own is part of it, as in git.
                Command::Start => self.acknowledge("start")?,
                Command::Prepare => {
                    let asked = mem::replace(&mut transaction, self.transaction());
                    prepared = Some(self.prepare("prepare: ", asked)?);
                    self.acknowledge("prepare")?;
                }
                Command::Commit => {
                    let asked = mem::replace(&mut transaction, self.transaction());
                    let passed = match prepared.take() {
                        Some(prepared) => prepared,
                        None => self.prepare("commit: ", asked)?,
                    };
                    self.acknowledge_commit(passed.commit()?)?;
                }
                Command::Abort => {
                    prepared.take().into_iter().for_each(Prepared::abort);
                    transaction = self.transaction();
                    self.acknowledge("abort")?;
                }
            }
        }
        if phase == Phase::Open {
            let committed = self.prepare("", transaction)?.commit()?;
            self.say_committed(committed)?;
        }
        self.output.finish().map_err(must_be_read)
    }

    fn transaction(&self) -> Transaction {
        let transaction = Transaction::new(self.actor.clone());
        match &self.message {
            Some(message) => transaction.with_message(message.clone()),
            None => transaction,
        }
    }

    /// The verdict on a transaction. What passed is committed or dropped.
    fn prepare(&self, label: &str, transaction: Transaction) -> Result<Prepared, Failure> {
        let prepared = self.store.prepare(transaction).map_err(|error| refused(label, error))?;
        if let Some(objects) = &self.objects {
            objects.check(label, prepared.transaction(), &self.store.view())?;
        }
        Ok(prepared)
    }

    fn acknowledge_commit(&mut self, committed: Committed) -> Result<(), Failure> {
        self.say_committed(committed)?;
        self.acknowledge("commit")
    }

    /// Git's answer, at once: a caller may wait for it before it goes on.
    fn acknowledge(&mut self, command: &str) -> Result<(), Failure> {
        if !self.json {
            let said = self.output.line(&[command.as_bytes(), b": ok"]);
            said.map_err(must_be_read)?;
        }
        self.output.flush().map_err(must_be_read)
    }

    fn say_committed(&mut self, committed: Committed) -> Result<(), Failure> {
        if !self.json {
            return Ok(());
        }
        let line = JsonCommitted { seq: committed.seq().get(), moved: committed.moved() };
        self.output.json(&line).map_err(must_be_read)
    }
}

/// A listing that is cut off is no failure. Answers are: the caller asked for them, and cannot know
/// how far its commands were carried out.
fn must_be_read(failure: Failure) -> Failure {
    match failure {
        Failure::OutputClosed => Failure::environment(
            "standard output was closed before all was answered; later commands were not run",
        ),
        other => other,
    }
}

fn cannot_read(error: &io::Error) -> Failure {
    Failure::environment(format!("could not read from stdin: {error}")).fatal()
}

fn misunderstood(error: GrammarError) -> Failure {
    let failure = Failure::usage(error.text).fatal();
    match error.hint {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}

/// A refusal in git's words. Everything else keeps its own, since git has none for it.
fn refused(label: &str, error: TransactionError) -> Failure {
    match error {
        TransactionError::Refused(refusal) => {
            // Git refuses these when it reads the command, and then says no label.
            let label = if matches!(refusal.reason, Reason::PseudoRef { .. }) { "" } else { label };
            Failure::refused(format!("{label}{refusal}")).fatal()
        }
        other => other.into(),
    }
}
