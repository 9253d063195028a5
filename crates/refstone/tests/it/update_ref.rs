//! Scripts of `git update-ref --stdin`: run by git, and run by the store.
//!
//! In a script `A` and `B` are two commits, `Z` is the zero id, and `!` before a command means
//! `option no-deref`.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use refstone::{Change, Deref, Edit, Expected, ObjectId, RefName, RefStore, Target, Transaction};

use crate::common::name;

fn git(dir: &Path) -> Command {
    let mut git = Command::new("git");
    git.current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_AUTHOR_NAME", "t")
        .env("GIT_AUTHOR_EMAIL", "t@example.org")
        .env("GIT_COMMITTER_NAME", "t")
        .env("GIT_COMMITTER_EMAIL", "t@example.org")
        .env("LC_ALL", "C");
    git
}

/// Two commits that all repositories of the test share, since git checks that objects exist.
pub(crate) struct Objects {
    dir: tempfile::TempDir,
    ids: BTreeMap<&'static str, String>,
}

impl Objects {
    pub(crate) fn new() -> Objects {
        let dir = tempfile::tempdir().unwrap();
        let git = |args: &[&str]| {
            let output = git(dir.path()).args(args).output().expect("this test needs git");
            assert!(output.status.success(), "{args:?}: {output:?}");
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        git(&["init", "-q", "-b", "main", "."]);
        let tree = git(&["write-tree"]);
        let commit = |message| git(&["commit-tree", &tree, "-m", message]);
        let ids = BTreeMap::from([("A", commit("a")), ("B", commit("b")), ("Z", "0".repeat(40))]);
        Objects { dir, ids }
    }

    /// The script as git reads it.
    pub(crate) fn spelled(&self, script: &str) -> String {
        let line = |line: &str| {
            let (option, line) = match line.strip_prefix('!') {
                Some(line) => ("option no-deref\n", line),
                None => ("", line),
            };
            let word = |word| self.ids.get(word).map_or(word, String::as_str);
            let words: Vec<_> = line.split(' ').map(word).collect();
            format!("{option}{}\n", words.join(" "))
        };
        script.lines().map(line).collect()
    }
}

/// A scratch repository.
pub(crate) struct Git {
    dir: tempfile::TempDir,
    objects: PathBuf,
}

impl Git {
    pub(crate) fn new(objects: &Objects) -> Git {
        let dir = tempfile::tempdir().unwrap();
        let mut init = git(dir.path());
        init.args(["init", "-q", "--template=", "--ref-format=files", "-b", "main", "."]);
        assert!(init.status().expect("this test needs git").success());
        let objects = objects.dir.path().join(".git/objects");
        Git { dir, objects }
    }

    /// The verdict, or git's words without their `fatal:`.
    pub(crate) fn run(&self, script: &str) -> Result<(), String> {
        let mut git = git(self.dir.path());
        git.args(["update-ref", "--stdin"]).env("GIT_OBJECT_DIRECTORY", &self.objects);
        git.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = git.spawn().unwrap();
        // The end of the pipe ends the script.
        child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        let text = text.lines().find_map(|line| line.strip_prefix("fatal: "));
        match output.status.success() {
            true => Ok(()),
            false => Err(text.expect("git says why").to_owned()),
        }
    }

    /// All refs as the files have them, dangling ones too, which no command lists.
    pub(crate) fn refs(&self) -> BTreeMap<String, String> {
        let git_dir = self.dir.path().join(".git");
        let mut refs = BTreeMap::new();
        for entry in fs::read_dir(&git_dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if name.chars().all(|c| c.is_ascii_uppercase() || c == '_') {
                read_ref(&git_dir, &path, &mut refs);
            }
        }
        read_refs(&git_dir, &git_dir.join("refs"), &mut refs);
        refs
    }
}

fn read_refs(git_dir: &Path, dir: &Path, refs: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => read_refs(git_dir, &path, refs),
            false => read_ref(git_dir, &path, refs),
        }
    }
}

fn read_ref(git_dir: &Path, path: &Path, refs: &mut BTreeMap<String, String>) {
    let name = path.strip_prefix(git_dir).unwrap().to_str().unwrap();
    let value = fs::read_to_string(path).unwrap();
    refs.insert(name.to_owned(), value.trim().replace("ref: ", ""));
}

pub(crate) fn refs_of(store: &RefStore) -> BTreeMap<String, String> {
    let view = store.view();
    let refs = view.iter_prefix(b"");
    refs.map(Result::unwrap).map(|(name, target)| (name.to_string(), target.to_string())).collect()
}

/// Runs a script of `git update-ref --stdin` on the store.
pub(crate) fn run(store: &RefStore, script: &str) -> Result<(), String> {
    let mut tx = Transaction::new("tester");
    let mut deref = Deref::Follow;
    for line in script.lines() {
        if line == "option no-deref" {
            deref = Deref::NoFollow;
            continue;
        }
        tx.push(Edit { deref, ..edit(line) });
        deref = Deref::Follow;
    }
    store.commit(&tx).map(drop).map_err(|error| error.to_string())
}

fn edit(line: &str) -> Edit {
    let words: Vec<_> = line.split(' ').collect();
    let of = name(words[1]);
    let rest = &words[2..];
    let expected = expected(words[0], rest);
    let change = match words[0] {
        "verify" | "symref-verify" => Change::Verify,
        "delete" | "symref-delete" => Change::Delete,
        "create" | "update" => set(oid(rest[0]).into()),
        "symref-create" | "symref-update" => set(name(rest[0]).into()),
        other => panic!("no command: {other}"),
    };
    let deref = Deref::Follow;
    Edit { name: of, expected, change, deref }
}

fn set(target: Target) -> Change {
    match target {
        Target::Object(id) if id.is_zero() => Change::Delete,
        target => Change::Set(target),
    }
}

fn expected(command: &str, rest: &[&str]) -> Expected {
    let name: fn(&str) -> RefName = name;
    match (command, rest) {
        ("create" | "symref-create", _) | ("verify" | "symref-verify", []) => Expected::Absent,
        ("update", [_, old]) | ("delete" | "verify", [old]) => Expected::Value(oid(old).into()),
        ("symref-delete" | "symref-verify", [old]) => Expected::Value(name(old).into()),
        ("symref-update", [_, "ref", old]) => Expected::Value(name(old).into()),
        ("symref-update", [_, "oid", old]) => Expected::Value(oid(old).into()),
        _ => Expected::Any,
    }
}

fn oid(hex: &str) -> ObjectId {
    hex.parse().unwrap()
}
