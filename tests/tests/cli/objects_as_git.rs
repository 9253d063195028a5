//! `--check-objects` asks of new values what git asks of them, in git's words.

use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::command::{Repo, feed};
use crate::git::{self, Work};

/// A commit, a tree, a blob, a tag, and an id without an object.
struct Objects {
    work: Work,
    ids: [(&'static str, String); 5],
}

impl Objects {
    fn new() -> Objects {
        let work = Work::new();
        let git = |args: &[&str]| git::run(work.path(), args);
        git(&["tag", "-a", "-m", "t", "v1"]);
        std::fs::write(work.path().join("file"), "hi").unwrap();
        let ids = [
            ("<C>", work.commits[0].clone()),
            ("<T>", git(&["rev-parse", "HEAD^{tree}"])),
            ("<B>", git(&["hash-object", "-w", "file"])),
            ("<G>", git(&["rev-parse", "refs/tags/v1"])),
            ("<N>", "1".repeat(40)),
        ];
        Objects { work, ids }
    }

    fn spelled(&self, script: &str) -> Vec<u8> {
        let put = |script: String, (name, id): &(&str, String)| script.replace(name, id);
        self.ids.iter().fold(script.to_owned(), put).into_bytes()
    }

    fn with(&self, mut command: Command) -> Command {
        command.env("GIT_OBJECT_DIRECTORY", self.directory());
        command
    }

    fn directory(&self) -> PathBuf {
        self.work.objects()
    }
}

const SCRIPTS: &[&str] = &[
    "create refs/heads/a <N>\n",
    "create refs/heads/a <T>\n",
    "create refs/heads/a <G>\n",
    "create HEAD <B>\n",
    "create HEAD <N>\n",
    "option no-deref\nupdate HEAD <T>\n",
    "create refs/tags/t <T>\ncreate refs/tags/g <G>\ncreate refs/notes/b <B>\n",
    "create refs/tags/n <N>\n",
    "create ORIG_HEAD <B>\n",
    "create refs/heads/x <C>\n",
    // What is expected is not looked for.
    "update refs/heads/x <C> <N>\n",
    "verify refs/heads/x <N>\n",
    "start\ncreate refs/heads/a <N>\nprepare\n",
    "start\ncreate refs/heads/a <C>\ncreate refs/heads/b <N>\ncommit\n",
    // A branch by way of a symbolic ref outside of the branches, and the other way round.
    "symref-create refs/tags/s refs/heads/y\nsymref-create refs/heads/s refs/tags/y\n",
    "update refs/tags/s <B>\n",
    "update refs/heads/s <B>\n",
];

// Breaks: a check of the first value alone; of the named ref instead of the one that moves; a tag
// taken for the commit it names.
#[test]
fn new_values_are_refused_as_by_git() {
    let objects = Objects::new();
    let (git_repo, ours) = (TempDir::new().unwrap(), Repo::new());
    git::run(git_repo.path(), &["init", "-q", "--template=", "-b", "main"]);
    for script in SCRIPTS {
        let input = objects.spelled(script);
        let mut update = git::git(git_repo.path());
        update.args(["update-ref", "--stdin"]);
        let of_git = feed(objects.with(update), &input);
        let update = ours.command("update-ref", &["--stdin", "--check-objects"]);
        let told = feed(objects.with(update), &input);
        assert_eq!(told.code == 0, of_git.code == 0, "{script}{told:?}, git: {of_git:?}");
        assert_eq!((&told.stdout, &told.stderr), (&of_git.stdout, &of_git.stderr), "{script}");
    }
    let mut list = git::git(git_repo.path());
    list.args(["for-each-ref", "--format=%(objectname) %(refname)", "refs/notes", "refs/tags"]);
    let of_git = feed(objects.with(list), b"");
    let listed = ours.run("refs", &["refs/tags/"]);
    let notes = ours.run("refs", &["refs/notes/"]);
    assert_eq!([notes.done(), listed.done()].concat(), of_git.done());
}

// Git does not look for a value that the ref has already.
#[test]
fn a_value_that_is_there_already_is_not_looked_for() {
    let ours = Repo::new();
    let script = format!("update refs/heads/a {}\n", "1".repeat(40));
    ours.update(&script);
    let options = ["--stdin", "--check-objects"];
    ours.run_with("update-ref", &options, script.as_bytes()).done();
    let told = ours.run_with("update-ref", &options, script.replace("/a", "/b").as_bytes());
    told.failed(1, "fatal: cannot update ref 'refs/heads/b': trying to write ref 'refs/heads/b'");
}

// Breaks: writing all ids before the first answer is read.
#[test]
fn many_values_are_asked_for_at_once() {
    let objects = Objects::new();
    let ours = Repo::new();
    let script: String = (0..20_000).map(|i| format!("create refs/heads/{i} <C>\n")).collect();
    let update = ours.command("update-ref", &["--stdin", "--check-objects"]);
    feed(objects.with(update), &objects.spelled(&script)).done();
    assert_eq!(ours.run("refs", &[]).done().lines().count(), 20_000);
}
