use std::fs;
use std::process::Stdio;

use crate::command::{Repo, oid};
use crate::git;

/// A repository with a branch that was moved from the first commit to the second and then deleted.
fn repo_with_deleted() -> (Repo, [String; 3]) {
    let repo = Repo::new();
    let tree = git::run(&repo.path(), &["hash-object", "-t", "tree", "-w", "/dev/null"]);
    let commits = ["one", "two", "named by nobody"]
        .map(|message| git::run(&repo.path(), &["commit-tree", "-m", message, &tree]));
    let [one, two, _] = &commits;
    repo.update(&format!("create refs/heads/a {one}\n"));
    repo.update(&format!("update refs/heads/a {two} {one}\n"));
    repo.update("delete refs/heads/a\n");
    (repo, commits)
}

#[test]
fn a_deleted_branch_comes_back_as_a_transaction_like_any_other() {
    let (repo, [one, two, _]) = repo_with_deleted();
    let told = repo.run("restore", &["refs/heads/a", "--actor", "alice"]);
    assert_eq!(told.done(), format!("{two} refs/heads/a (transaction 4)\n"));
    assert_eq!(repo.run("refs", &[]).done(), format!("{two} refs/heads/a\n"));
    let newest = &repo.run("log", &["-1", "--json"]).json()[0];
    assert_eq!((&newest["seq"], &newest["actor"]), (&4.into(), &"alice".into()));
    assert_eq!((&newest["message"], &newest["old_oid"]), (&"restore".into(), &().into()));

    repo.run("compact", &[]).done();
    let told = repo.run("restore", &["refs/heads/a", "--at", "1", "--json", "-m", "why"]);
    let told = &told.json()[0];
    assert_eq!((&told["seq"], &told["moved"]), (&5.into(), &true.into()));
    assert_eq!(told["oid"], one);
    let again = repo.run("restore", &["refs/heads/a", "--at", "1"]);
    assert_eq!(again.done(), format!("{one} refs/heads/a (it is there already)\n"));
    let time = repo.run("log", &["--json"]).json()[1]["at"].as_str().unwrap().to_owned();
    repo.run("restore", &["refs/heads/a", "--at", &time]).done();
    assert_eq!(repo.run("refs", &[]).done(), format!("{two} refs/heads/a\n"));
}

#[test]
fn what_stands_against_it_is_told() {
    let (repo, [one, ..]) = repo_with_deleted();
    repo.run("restore", &["refs/heads/never"]).failed(1, "has never moved\nhint: ");
    repo.run("restore", &["refs/heads/a", "--at", "3"])
        .failed(1, "did not exist after transaction 3");
    repo.run("restore", &["a"]).failed(2, "hint: a full name is needed");
    repo.update(&format!("create refs/heads/a/b {one}\n"));
    repo.run("restore", &["refs/heads/a"]).failed(1, "'refs/heads/a/b' exists; cannot create");
    let _lock = repo.lock();
    repo.run("restore", &["refs/heads/a"]).failed(3, "another writer holds this lock");
}

// Breaks: moving the ref without asking git for the object. Every clone would fail.
#[test]
fn an_object_that_is_gone_is_not_restored() {
    let repo = Repo::new();
    repo.update(&format!("create refs/heads/a {}\n", oid('1')));
    repo.update("delete refs/heads/a\n");
    let told = repo.run("restore", &["refs/heads/a"]);
    told.failed(1, &format!("object {} is no longer in ", oid('1')));
    assert_eq!(repo.run("refs", &[]).done(), "");
}

#[test]
fn head_is_restored_itself() {
    let (repo, _) = repo_with_deleted();
    repo.update("option no-deref\nsymref-update HEAD refs/heads/b\n");
    let told = repo.run("restore", &["HEAD"]);
    assert_eq!(told.done(), "ref: refs/heads/main HEAD (transaction 5)\n");
}

#[test]
fn the_objects_of_history_are_listed_once_each() {
    let (repo, [one, two, _]) = repo_with_deleted();
    assert_eq!(repo.run("objects", &[]).done(), format!("{one}\n{two}\n"));
    let json = repo.run("objects", &["--json"]).json();
    assert_eq!(json, [&one, &two].map(|id| serde_json::json!({"oid": id})));
    repo.run("compact", &[]).done();
    repo.update(&format!("create refs/heads/b {two}\n"));
    assert_eq!(repo.run("objects", &[]).done(), format!("{one}\n{two}\n"));
    let refs = format!("{one} refs/history/{one}\n{two} refs/history/{two}\n");
    assert_eq!(repo.run("objects", &["--packed-refs"]).done(), refs);
}

// Breaks: ending with 0. Whoever removes what is not listed would remove what history needs.
#[test]
fn a_list_of_objects_that_is_cut_short_is_no_success() {
    let (repo, _) = repo_with_deleted();
    repo.damage_newest();
    repo.run("objects", &[]).failed(1, "refs.arrow: byte ");
}

/// The steps of docs/operations.md.
fn collect_garbage(repo: &Repo) -> std::process::Output {
    let kept = repo.run("objects", &["--packed-refs"]).done().to_owned();
    fs::write(repo.path().join("packed-refs"), kept).unwrap();
    git::run(&repo.path(), &["config", "extensions.preciousObjects", "false"]);
    let mut gc = git::git(&repo.path());
    let ended = gc.args(["-c", "gc.packRefs=false", "gc", "--quiet", "--prune=now"]).output();
    git::run(&repo.path(), &["config", "extensions.preciousObjects", "true"]);
    fs::remove_file(repo.path().join("packed-refs")).unwrap();
    ended.unwrap()
}

// Breaks: listing the objects of the refs that are there now.
#[test]
fn after_a_garbage_collection_that_keeps_history_an_old_value_is_restored() {
    let (repo, [one, two, unnamed]) = repo_with_deleted();
    repo.run("compact", &[]).done();
    let ended = collect_garbage(&repo);
    assert!(ended.status.success(), "{}", git::errors(&ended));
    let has = |id: &str| {
        let mut git = git::git(&repo.path());
        git.args(["cat-file", "-e", id]).stderr(Stdio::null()).status().unwrap().success()
    };
    assert!(!has(&unnamed), "it did collect");
    assert!(has(&one) && has(&two));
    repo.run("restore", &["refs/heads/a"]).done();
    repo.run("restore", &["refs/heads/a", "--at", "1"]).done();
    assert_eq!(repo.run("refs", &[]).done(), format!("{one} refs/heads/a\n"));
}

#[test]
fn a_collection_stops_before_it_removes_anything_if_an_object_is_missing_already() {
    let (repo, [.., unnamed]) = repo_with_deleted();
    repo.update(&format!("create refs/heads/b {}\n", oid('1')));
    assert!(!collect_garbage(&repo).status.success());
    git::run(&repo.path(), &["cat-file", "-e", &unnamed]);
}
