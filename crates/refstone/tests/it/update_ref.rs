//! Scripts of `git update-ref --stdin`: run by git, and run by the store.
//!
//! In a script `A` and `B` are two commits, `M` is no object, `Z` is the zero id, and `!` before a
//! command means `option no-deref`.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use bstr::{BStr, BString, ByteSlice, ByteVec};
use refstone::{
    Change, Deref, Edit, Expected, ObjectFormat, ObjectId, RefName, RefStore, Target, Transaction,
};

use crate::reflog::{self, Logs};
use crate::reftable;

/// Values by name.
pub(crate) type Refs = BTreeMap<BString, BString>;

/// What both record with each move.
const MESSAGE: &str = "why";

/// How git stores refs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    Files,
    Reftable,
}

pub(crate) const BACKENDS: [Backend; 2] = [Backend::Files, Backend::Reftable];

fn git(dir: &Path) -> Command {
    let mut git = Command::new("git");
    git.current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "core.logAllRefUpdates")
        .env("GIT_CONFIG_VALUE_0", "always")
        .env("GIT_AUTHOR_NAME", "t")
        .env("GIT_AUTHOR_EMAIL", "t@example.org")
        .env("GIT_COMMITTER_NAME", "t")
        .env("GIT_COMMITTER_EMAIL", "t@example.org")
        .env("LC_ALL", "C");
    git
}

/// Objects that all repositories of a test share, since git checks that they exist.
pub(crate) struct Objects {
    dir: tempfile::TempDir,
    pub(crate) format: ObjectFormat,
    ids: BTreeMap<&'static str, String>,
}

impl Objects {
    pub(crate) fn new(format: ObjectFormat) -> Objects {
        let dir = tempfile::tempdir().unwrap();
        let git = |args: &[&str]| {
            let output = git(dir.path()).args(args).output().expect("this test needs git");
            assert!(output.status.success(), "{args:?}: {output:?}");
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        git(&["init", "-q", "-b", "main", &format!("--object-format={format}"), "."]);
        let tree = git(&["write-tree"]);
        let commit = |message| git(&["commit-tree", &tree, "-m", message]);
        let zero = "0".repeat(tree.len());
        let missing = "1".repeat(tree.len());
        let ids = [("A", commit("a")), ("B", commit("b")), ("M", missing), ("Z", zero)];
        let ids = BTreeMap::from(ids);
        Objects { dir, format, ids }
    }

    /// SHA-1, for all tests of a process.
    pub(crate) fn shared() -> &'static Objects {
        static SHARED: OnceLock<Objects> = OnceLock::new();
        SHARED.get_or_init(|| Objects::new(ObjectFormat::Sha1))
    }

    /// The script as git reads it; `\xNN` is a byte.
    pub(crate) fn spelled(&self, script: &str) -> BString {
        let line = |line: &str| {
            let (option, line) = match line.strip_prefix('!') {
                Some(line) => ("option no-deref\n", line),
                None => ("", line),
            };
            let word = |word| self.ids.get(word).map_or(word, String::as_str);
            let words: Vec<_> = line.split(' ').map(word).collect();
            format!("{option}{}\n", words.join(" "))
        };
        Vec::unescape_bytes(script.lines().map(line).collect::<String>()).into()
    }
}

/// A scratch repository.
pub(crate) struct Git {
    dir: tempfile::TempDir,
    backend: Backend,
    objects: PathBuf,
}

impl Git {
    pub(crate) fn new(objects: &Objects, backend: Backend) -> Git {
        let dir = tempfile::tempdir().unwrap();
        let mut init = git(dir.path());
        let backend_name = format!("{backend:?}").to_lowercase();
        init.args(["init", "-q", "--template=", "-b", "main"]);
        init.arg(format!("--ref-format={backend_name}"));
        init.arg(format!("--object-format={}", objects.format)).arg(".");
        assert!(init.status().expect("this test needs git").success());
        let objects = objects.dir.path().join(".git/objects");
        Git { dir, backend, objects }
    }

    /// The verdict, or git's words without their `fatal:`.
    pub(crate) fn run(&self, script: &BStr) -> Result<(), String> {
        self.run_with(&[], script)
    }

    pub(crate) fn run_with(&self, options: &[&str], script: &BStr) -> Result<(), String> {
        let mut git = git(self.dir.path());
        git.args(["update-ref", "-m", MESSAGE, "--stdin"]).args(options);
        git.env("GIT_OBJECT_DIRECTORY", &self.objects);
        git.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = git.spawn().unwrap();
        // The end of the pipe ends the script. Git may end before it has read all of it.
        let _ = child.stdin.take().unwrap().write_all(script);
        let output = child.wait_with_output().unwrap();
        let text = output.stderr.to_str_lossy();
        let text = text.lines().find_map(|line| line.strip_prefix("fatal: "));
        match output.status.success() {
            true => Ok(()),
            false => Err(text.expect("git says why").to_owned()),
        }
    }

    /// All refs, dangling ones too, which no command lists.
    pub(crate) fn refs(&self) -> Refs {
        let git_dir = self.dir.path().join(".git");
        match self.backend {
            Backend::Files => files(&git_dir),
            Backend::Reftable => reftable::read(&git_dir).0,
        }
    }

    pub(crate) fn logs(&self) -> Logs {
        let git_dir = self.dir.path().join(".git");
        match self.backend {
            Backend::Files => reflog::of_files(&git_dir),
            Backend::Reftable => reftable::read(&git_dir).1,
        }
    }
}

fn files(git_dir: &Path) -> Refs {
    let mut refs = BTreeMap::new();
    for entry in fs::read_dir(git_dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().as_bytes();
        if name.iter().all(|&c| c.is_ascii_uppercase() || c == b'_') {
            read_ref(git_dir, &path, &mut refs);
        }
    }
    read_refs(git_dir, &git_dir.join("refs"), &mut refs);
    refs
}

fn read_refs(git_dir: &Path, dir: &Path, refs: &mut Refs) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => read_refs(git_dir, &path, refs),
            false => read_ref(git_dir, &path, refs),
        }
    }
}

fn read_ref(git_dir: &Path, path: &Path, refs: &mut Refs) {
    let value = fs::read(path).unwrap();
    let value = value.trim_end();
    let value = value.strip_prefix(b"ref: ").unwrap_or(value);
    refs.insert(path_name(git_dir, path), value.into());
}

/// The path below a directory, as the name of a ref.
pub(crate) fn path_name(root: &Path, path: &Path) -> BString {
    path.strip_prefix(root).unwrap().as_os_str().as_bytes().into()
}

pub(crate) fn refs_of(store: &RefStore) -> Refs {
    let text = |target: &Target| match target {
        Target::Object(id) => id.to_string().into(),
        Target::Symbolic(name) => name.as_bytes().into(),
    };
    let view = store.view();
    let refs = view.iter_prefix(b"").map(Result::unwrap);
    refs.map(|(name, target)| (name.as_bytes().into(), text(&target))).collect()
}

/// Runs a script of `git update-ref --stdin` on the store.
pub(crate) fn run(store: &RefStore, script: &BStr) -> Result<(), String> {
    store.commit(&transaction(script)).map(drop).map_err(|error| error.to_string())
}

/// The transaction that a script stands for.
pub(crate) fn transaction(script: &BStr) -> Transaction {
    let mut tx = Transaction::new("tester").with_message(MESSAGE);
    let mut deref = Deref::Follow;
    for line in script.lines() {
        if line == b"option no-deref" {
            deref = Deref::NoFollow;
            continue;
        }
        tx.push(Edit { deref, ..edit(line) });
        deref = Deref::Follow;
    }
    tx
}

fn edit(line: &[u8]) -> Edit {
    let words: Vec<_> = line.split_str(" ").collect();
    let verb = words[0].to_str().unwrap();
    let of = name(words[1]);
    let rest = &words[2..];
    let expected = expected(verb, rest);
    let change = match verb {
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

fn expected(command: &str, rest: &[&[u8]]) -> Expected {
    match (command, rest) {
        ("create" | "symref-create", _) | ("verify" | "symref-verify", []) => Expected::Absent,
        ("update", [_, old]) | ("delete" | "verify", [old]) => Expected::Value(oid(old).into()),
        ("symref-delete" | "symref-verify", [old]) => Expected::Value(name(old).into()),
        ("symref-update", [_, b"ref", old]) => Expected::Value(name(old).into()),
        ("symref-update", [_, b"oid", old]) => Expected::Value(oid(old).into()),
        _ => Expected::Any,
    }
}

fn name(bytes: &[u8]) -> RefName {
    RefName::new(bytes).unwrap()
}

fn oid(hex: &[u8]) -> ObjectId {
    ObjectId::from_hex(hex).unwrap()
}
