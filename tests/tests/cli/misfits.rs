//! A live log that history does not go with.

use std::fs;

use crate::command::{Repo, oid};

/// Six transactions, four of them before the file was copied, and all in history.
fn with_a_copy() -> (Repo, Vec<u8>) {
    let repo = Repo::new();
    let mut copy = Vec::new();
    for n in 1..=6 {
        repo.update(&format!("create refs/heads/b{n} {}\n", oid('1')));
        if n == 4 {
            copy = fs::read(repo.live()).unwrap();
        }
    }
    repo.run("compact", &[]).done();
    (repo, copy)
}

// Breaks: a command that reads such a log and ends with 0.
#[test]
fn commands_that_only_read_refuse_an_older_copy_and_another_log() {
    let (repo, copy) = with_a_copy();
    let other = Repo::new();
    other.update(&format!("create refs/heads/other {}\n", oid('2')));
    let other = fs::read(other.live()).unwrap();
    let out = repo.scratch.path().join("out");
    let export = format!("export {}", out.display());
    let run = |line: &str| {
        let (command, arguments) = line.split_once(' ').unwrap_or((line, ""));
        repo.run(command, &arguments.split_whitespace().collect::<Vec<_>>())
    };
    for (live, words) in [
        (copy, "to reach transaction 6, as history does, found 4: it is an older copy"),
        (other, "found that of another log"),
    ] {
        fs::write(repo.live(), live).unwrap();
        for line in ["refs", "refs --at 2", "stat", "project", &export, "compact", "verify"] {
            run(line).failed(1, words);
        }
        assert!(!out.exists());
        // These show what history has.
        for line in ["log --all", "log --from 5", "tail", "export --history --format jsonl"] {
            let told = run(line);
            told.failed(1, words);
            assert!(String::from_utf8_lossy(&told.stdout).contains("refs/heads/b6"), "{told:?}");
        }
        run("objects").failed(1, words);
    }
    repo.run("repair", &[]).failed(1, "another log than the one that history came from");
}
