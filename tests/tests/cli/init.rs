use tempfile::TempDir;

use crate::command::{Repo, oid, run};

#[test]
fn a_new_repository_has_head_and_has_spent_no_sequence() {
    let repo = Repo::new();
    assert_eq!(repo.run("refs", &["--symbolic"]).done(), "ref: refs/heads/main HEAD\n");
    let report = &repo.run("verify", &["--json"]).json()[0];
    assert_eq!((&report["transactions"], &report["last_seq"]), (&0.into(), &0.into()));
    repo.update(&format!("create HEAD {}\n", oid('1')));
    assert_eq!(repo.run("log", &["--json"]).json()[0]["seq"], 1);
}

#[test]
fn hash_and_branch_are_chosen_and_told() {
    let scratch = TempDir::new().unwrap();
    let path = scratch.path().join("r.git");
    let told =
        run(["init", path.to_str().unwrap(), "--object-format", "sha256", "-b", "dev", "--json"]);
    let expected = serde_json::json!({
        "path": path, "object_format": "sha256", "head": "refs/heads/dev",
    });
    assert_eq!(told.json(), [expected]);
    let refs = run(["refs", path.to_str().unwrap(), "--symbolic"]);
    assert_eq!(refs.done(), "ref: refs/heads/dev HEAD\n");
}

#[test]
fn what_is_there_is_never_made_anew() {
    let repo = Repo::new();
    repo.update(&format!("create refs/heads/a {}\n", oid('1')));
    repo.run("init", &[]).failed(1, "exists already");
    assert_eq!(repo.run("refs", &[]).done(), format!("{} refs/heads/a\n", oid('1')));
}

#[test]
fn a_directory_of_something_else_is_left_alone() {
    let scratch = TempDir::new().unwrap();
    std::fs::write(scratch.path().join("thesis.txt"), "years").unwrap();
    run(["init", scratch.path().to_str().unwrap()]).failed(1, "is no refstone repository");
}

#[test]
fn a_branch_that_cannot_be_is_a_mistake_of_usage() {
    for name in ["a..b", "refs/heads/main", ""] {
        let scratch = TempDir::new().unwrap();
        let path = scratch.path().join("r.git");
        let told = run(["init", path.to_str().unwrap(), "--initial-branch", name]);
        assert_eq!(told.code, 2, "{name:?}: {told:?}");
        assert!(!path.exists());
    }
}
