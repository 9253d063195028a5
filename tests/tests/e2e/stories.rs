//! What a user does to a repository, and what the server and git say to it.

use std::fs;
use std::path::{Path, PathBuf};

use refstone_tests::process::{Server, git_fails, git_ok};
use tempfile::TempDir;

use crate::histories::{commit, varied};

struct Story {
    root: TempDir,
    source: PathBuf,
    server: Option<Server>,
    url: String,
}

impl Story {
    fn new() -> Story {
        let root = TempDir::new().unwrap();
        let server = Server::start(&root.path().join("data"));
        let source = varied(root.path());
        let url = server.url("story");
        git_ok(&source, &["push", "--quiet", &url, "refs/*:refs/*"]);
        Story { root, source, server: Some(server), url }
    }

    fn push(&self, arguments: &[&str]) -> String {
        git_ok(&self.source, &[&["push", "--quiet", &self.url], arguments].concat())
    }

    fn push_fails(&self, arguments: &[&str]) -> String {
        git_fails(&self.source, &[&["push", &self.url], arguments].concat())
    }

    /// What the server says a ref is; empty if it has none.
    fn remote(&self, name: &str) -> String {
        let line = git_ok(self.root.path(), &["ls-remote", &self.url, name]);
        line.split('\t').next().unwrap_or_default().to_owned()
    }

    fn all(&self) -> String {
        git_ok(self.root.path(), &["ls-remote", &self.url])
    }

    fn finish(mut self) {
        self.server.take().unwrap().finish();
    }
}

fn head(dir: &Path) -> String {
    git_ok(dir, &["rev-parse", "HEAD"])
}

#[test]
fn a_deleted_branch_is_gone_and_may_come_back() {
    let story = Story::new();
    assert!(!story.remote("refs/heads/side/2").is_empty());
    story.push(&["--delete", "side/2"]);
    assert_eq!(story.remote("refs/heads/side/2"), "");
    story.push(&["refs/heads/side/2"]);
    assert!(!story.remote("refs/heads/side/2").is_empty());
    story.finish();
}

// Break: a server that lets a stale old value through, or refuses a force.
#[test]
fn a_rewound_branch_is_refused_and_then_forced() {
    let story = Story::new();
    let newest = story.remote("refs/heads/trunk");
    git_ok(&story.source, &["reset", "--quiet", "--hard", "HEAD~3"]);
    let said = story.push_fails(&["trunk"]);
    assert!(said.contains("rejected") && said.contains("non-fast-forward"), "{said}");
    assert_eq!(story.remote("refs/heads/trunk"), newest);

    let stale = format!("--force-with-lease=trunk:{}", head(&story.source));
    let said = story.push_fails(&[&stale, "trunk"]);
    assert!(said.contains("stale info"), "{said}");
    story.push(&["--force", "trunk"]);
    assert_eq!(story.remote("refs/heads/trunk"), head(&story.source));
    story.finish();
}

// Breaks: moving the good refs of an atomic push; losing the reason of the bad one.
#[test]
fn an_atomic_push_moves_all_refs_or_none() {
    let story = Story::new();
    let before = story.all();
    commit(&story.source, "more", "more\n");
    // `side` cannot be a branch: there are branches below it.
    let refs = ["HEAD:refs/heads/one", "HEAD:refs/heads/side", "HEAD:refs/tags/two"];
    let said = story.push_fails(&[&["--atomic"], &refs[..]].concat());
    assert!(said.contains("refname conflict"), "{said}");
    assert!(said.contains("atomic"), "{said}");
    assert_eq!(story.all(), before);

    let said = story.push_fails(&refs);
    assert!(said.contains("refname conflict"), "{said}");
    assert_eq!(story.remote("refs/heads/one"), head(&story.source), "good refs go through");
    assert_eq!(story.remote("refs/tags/two"), head(&story.source));

    story.push(&["--atomic", "HEAD:refs/heads/three", "HEAD:refs/heads/four"]);
    assert_eq!(story.remote("refs/heads/four"), head(&story.source));
    story.finish();
}

// Break: a command parser that does not know `shallow` lines.
#[test]
fn a_push_from_a_shallow_clone_arrives_whole() {
    let story = Story::new();
    let clone = story.root.path().join("shallow");
    let target = clone.to_str().unwrap();
    let shallow = ["clone", "--quiet", "--depth=1", "--branch=trunk", &story.url, target];
    git_ok(story.root.path(), &shallow);
    assert!(clone.join(".git/shallow").exists(), "the clone is not shallow");
    let pushed = commit(&clone, "from-the-shallow", "content\n");
    git_ok(&clone, &["push", "--quiet", "origin", "HEAD:refs/heads/from-shallow"]);
    assert_eq!(story.remote("refs/heads/from-shallow"), pushed);

    let full = story.root.path().join("full");
    git_ok(
        story.root.path(),
        &["clone", "--quiet", "--mirror", &story.url, full.to_str().unwrap()],
    );
    git_ok(&full, &["fsck", "--strict", "--no-dangling"]);
    let count = git_ok(&full, &["rev-list", "--count", "refs/heads/from-shallow"]);
    let expected = git_ok(&story.source, &["rev-list", "--count", "trunk"]);
    assert_eq!(count.parse::<u32>().unwrap(), expected.parse::<u32>().unwrap() + 1);
    story.finish();
}

// Break: answering the probe that comes before a chunked push with anything but an empty 200.
#[test]
fn a_push_of_more_than_a_mebibyte_arrives() {
    let story = Story::new();
    let noise: Vec<u8> =
        (0..3_u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(story.source.join("noise"), &noise).unwrap();
    git_ok(&story.source, &["add", "noise"]);
    git_ok(&story.source, &["commit", "--quiet", "--message", "noise"]);
    story.push(&["trunk"]);
    let clone = story.root.path().join("big");
    git_ok(story.root.path(), &["clone", "--quiet", &story.url, clone.to_str().unwrap()]);
    git_ok(&clone, &["switch", "--quiet", "trunk"]);
    assert!(fs::read(clone.join("noise")).unwrap() == noise);
    story.finish();
}

#[test]
fn what_git_would_refuse_is_refused_with_its_words_and_changes_nothing() {
    let story = Story::new();
    let before = story.all();
    for (refspec, words) in [
        ("HEAD:refs/heads/side", "refname conflict"),
        ("HEAD:refs/heads/trunk/below", "refname conflict"),
        ("v2:refs/heads/a-tag", "rejected"),
    ] {
        let said = story.push_fails(&["--force", refspec]);
        assert!(said.contains(words), "{refspec}: {said}");
        assert_eq!(story.all(), before, "{refspec}");
    }
    story.finish();
}
