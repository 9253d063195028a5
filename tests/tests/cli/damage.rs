//! What an error about a damaged file says: which kind of file it is, what is lost, and what helps.

use std::fs;
use std::path::PathBuf;

use crate::command::{Repo, Run, oid};

/// A repository with two files of history and something in the live log. Its table has more than one
/// block.
fn repo() -> Repo {
    let repo = Repo::new();
    let create = |n| format!("create refs/heads/b{n:04} {}\n", oid('1'));
    repo.update(&(0..3000).map(create).collect::<String>());
    repo.run("compact", &[]).done();
    repo.update(&format!("create refs/heads/x {}\n", oid('2')));
    repo.run("compact", &[]).done();
    repo.update(&format!("create refs/heads/y {}\n", oid('2')));
    repo
}

/// Flips a byte of a file that lies as far into it.
fn flip(repo: &Repo, file: &str, permille: usize) -> PathBuf {
    let path = repo.log_dir().join(file);
    let mut bytes = fs::read(&path).unwrap();
    let index = bytes.len() * permille / 1000;
    bytes[index] ^= 1;
    fs::write(&path, bytes).unwrap();
    path
}

fn tells(run: &Run, parts: &[&str]) {
    parts.iter().for_each(|part| run.failed(1, part));
}

// Breaks: one hint for all kinds of damage.
#[test]
fn damaged_history_is_to_be_restored_and_the_rest_goes_on() {
    let repo = repo();
    flip(&repo, "history/1-1.parquet", 300);
    for command in [
        &["log", "--all"][..],
        &["verify"],
        &["tail"],
        &["refs", "--at", "1"],
        &["export", "--history", "--format", "csv"],
        &["objects"],
        &["rebuild"],
        &["compact", "--all"],
    ] {
        // Its table has the end of the file.
        if command == ["refs", "--at", "1"] {
            repo.run(command[0], &command[1..]).done();
            continue;
        }
        let told = repo.run(command[0], &command[1..]);
        let file = "history/1-1.parquet, ";
        tells(
            &told,
            &[file, "This history file is damaged: restore it from a backup", "leave it where"],
        );
        assert!(!told.stderr.contains("repair"), "{told:?}");
    }
    // What it says of references and other transactions.
    assert_eq!(repo.run("refs", &[]).done().lines().count(), 3002);
    repo.update(&format!("update refs/heads/y {}\n", oid('3')));
    repo.run("compact", &[]).done();
    assert_eq!(repo.run("log", &["refs/heads/y", "-2"]).done().lines().count(), 2);
}

// Breaks: telling of a backup, or of a repair, where nothing is lost.
#[test]
fn a_damaged_table_is_made_anew_by_rebuild() {
    let repo = repo();
    // In a block: the table opens.
    flip(&repo, "tables/1-1.arrow", 500);
    for command in [&["refs"][..], &["verify"], &["project"], &["export", "none.git"]] {
        let told = repo.run(command[0], &command[1..]);
        let parts = ["tables/1-1.arrow: ", "This table is damaged, and nothing is lost by it"];
        tells(&told, &[&parts[..], &["`refstone rebuild`"]].concat());
        assert!(!told.stderr.contains("repair") && !told.stderr.contains("backup"), "{told:?}");
    }
    repo.run("rebuild", &[]).done();
    assert_eq!(repo.run("refs", &[]).done().lines().count(), 3002);
    repo.run("verify", &[]).done();
}

// Break: leaving out which file it is that nothing works without.
#[test]
fn a_damaged_live_log_is_restored_or_repaired() {
    let repo = repo();
    repo.damage_newest();
    for command in [
        &["log"][..],
        &["verify"],
        &["tail"],
        &["refs"],
        &["export", "none.git"],
        &["update-ref", "--stdin"],
        &["compact"],
        &["rebuild"],
        &["restore", "refs/heads/x"],
    ] {
        let told = repo.run(command[0], &command[1..]);
        tells(
            &told,
            &["refs.arrow: byte ", "the live log is damaged", "`refstone repair --dry-run`"],
        );
        assert!(!told.stderr.contains("history file"), "{told:?}");
    }
}
