//! Stock git, one `git update-ref --stdin` process per writer, kept running.
//!
//! A process per update would measure process starts; this is git at its best. The processes lock
//! each other out through files, as any two git processes do.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use anyhow::{Context, Result, bail};

use super::{Keep, Peer, Store, Writer};
use crate::git;
use crate::workload::{Move, Oid};

pub(super) const FILES: Peer = Peer {
    name: "git_files",
    setup: "git update-ref --stdin, core.fsync=all, core.fsyncMethod=fsync; git syncs neither \
            directories nor reflogs, so this promises less than the others",
    product: true,
    open: |dir, keep| open(dir, keep, "files"),
};

pub(super) const REFTABLE: Peer = Peer {
    name: "git_reftable",
    setup: "git update-ref --stdin on reftable, core.fsync=all, core.fsyncMethod=fsync, no lock \
            time-out (at the default of 100 ms writers give up)",
    product: true,
    open: |dir, keep| open(dir, keep, "reftable"),
};

/// `reference` is not in git's default set (git-config, `core.fsync`); `all` has it. `fsync` is the
/// default method on Linux, named so that nothing else can be meant. Waiting for locks without
/// end is in git's favour: a time-out would turn a slow commit into a failed one.
const SETTINGS: [&str; 5] = [
    "core.fsync=all",
    "core.fsyncMethod=fsync",
    "core.filesRefLockTimeout=-1",
    "core.packedRefsTimeout=-1",
    "reftable.lockTimeout=-1",
];

struct Git {
    dir: PathBuf,
    log_updates: &'static str,
    /// Git sets refs to objects that exist only: these two, in turn.
    commits: [String; 2],
}

struct UpdateRef<'a> {
    git: &'a Git,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    request: String,
}

fn open(dir: &Path, keep: Keep, format: &str) -> Result<Box<dyn Store>> {
    let dir = dir.join("repo.git");
    let mut init = git::command(Path::new("."));
    init.args(["init", "--quiet", "--bare"]).arg(format!("--ref-format={format}")).arg(&dir);
    git::output(&mut init)?;
    let log_updates = match keep {
        Keep::StateAndLog => "core.logAllRefUpdates=always",
        Keep::State => "core.logAllRefUpdates=false",
    };
    let commit = |message| git::commit_empty_tree(&dir, message);
    let commits = [commit("even")?, commit("odd")?];
    Ok(Box::new(Git { dir, log_updates, commits }))
}

impl Git {
    fn object(&self, oid: &Oid) -> &str {
        &self.commits[usize::from(oid[19] & 1)]
    }
}

impl Store for Git {
    fn writer(&self) -> Result<Box<dyn Writer + '_>> {
        let mut command = git::command(&self.dir);
        for setting in SETTINGS.into_iter().chain([self.log_updates]) {
            command.args(["-c", setting]);
        }
        command.args(["update-ref", "--stdin"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("start git update-ref")?;
        let input = child.stdin.take().context("git's input")?;
        let output = BufReader::new(child.stdout.take().context("git's output")?);
        let mut process = UpdateRef { git: self, child, input, output, request: String::new() };
        // So that the process is up before anybody looks at a clock.
        process.ask("start\n", 1)?;
        process.ask("abort\n", 1)?;
        Ok(Box::new(process))
    }

    fn holds(&self, name: &str, value: &Oid) -> Result<bool> {
        let mut command = git::command(&self.dir);
        command.args(["rev-parse", "--verify", "--quiet", name]);
        let found = git::output(&mut command).unwrap_or_default();
        Ok(found == self.object(value))
    }
}

impl Writer for UpdateRef<'_> {
    fn commit(&mut self, moves: &[Move]) -> Result<()> {
        let mut request = std::mem::take(&mut self.request);
        request.clear();
        request.push_str("start\n");
        for Move { name, old, new } in moves {
            let new = self.git.object(new);
            match old.as_ref().map(|old| self.git.object(old)) {
                Some(old) => request.extend(["update ", name, " ", new, " ", old, "\n"]),
                None => request.extend(["create ", name, " ", new, "\n"]),
            }
        }
        request.push_str("commit\n");
        let answered = self.ask(&request, 2);
        self.request = request;
        answered
    }
}

impl UpdateRef<'_> {
    /// Sends commands, and reads as many answers: git prints `<command>: ok` for each that ends a
    /// phase, at once.
    fn ask(&mut self, request: &str, answers: usize) -> Result<()> {
        self.input.write_all(request.as_bytes())?;
        self.input.flush()?;
        for _ in 0..answers {
            let mut line = String::new();
            self.output.read_line(&mut line)?;
            if !line.trim_end().ends_with(": ok") {
                bail!("git update-ref said {line:?} to {:?}", request.lines().last());
            }
        }
        Ok(())
    }
}

impl Drop for UpdateRef<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
