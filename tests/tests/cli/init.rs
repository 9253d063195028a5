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
        "path": path.canonicalize().unwrap(), "object_format": "sha256", "head": "refs/heads/dev",
    });
    assert_eq!(told.json(), [expected]);
    let refs = run(["refs", path.to_str().unwrap(), "--symbolic"]);
    assert_eq!(refs.done(), "ref: refs/heads/dev HEAD\n");
}

#[test]
fn the_path_that_was_made_is_told_whatever_its_name() {
    let scratch = TempDir::new().unwrap();
    let init = |name: &str, options: &[&str]| {
        let mut command = crate::command::refstone();
        command.current_dir(scratch.path()).args(["init", name]).args(options);
        crate::command::feed(command, b"")
    };
    let told = init("plain", &[]);
    let path = scratch.path().canonicalize().unwrap().join("plain");
    assert!(told.done().starts_with(&format!("created {}: ", path.display())), "{told:?}");
    assert!(told.stderr.contains("names end in .git"), "{told:?}");
    assert_eq!(run(["log", path.to_str().unwrap()]).done(), "");
    assert_eq!(init("usual.git", &[]).stderr, "");
    let usual = path.with_file_name("usual");
    assert_eq!(run(["log", usual.to_str().unwrap()]).done(), "", "git finds it so, too");
    let quiet = init("quiet", &["-q"]);
    assert_eq!((quiet.done(), quiet.stderr.as_str()), ("", ""));
    init("quiet", &["-q"]).failed(1, "exists already");
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
    std::fs::create_dir(scratch.path().join(".git")).unwrap();
    run(["init", scratch.path().to_str().unwrap()]).failed(1, "hint: `refstone import` makes");
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
