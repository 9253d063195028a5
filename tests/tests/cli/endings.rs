//! Exit codes, and outputs that nobody reads.

use std::fs::File;
use std::io;
use std::process::Stdio;

use crate::command::{Repo, Run, feed, oid, refstone, run, run_with};

#[test]
fn the_codes_are_documented_where_one_looks() {
    for arguments in [vec!["--help"], vec!["refs", "--help"], vec!["update-ref", "--help"]] {
        let help = run(arguments);
        for code in ["  0  done", "  1  refused", "  2  the command line", "  3  the environment"] {
            assert!(help.done().contains(code), "{help:?}");
        }
    }
}

#[test]
fn a_command_line_that_is_not_understood_ends_with_two() {
    let repo = Repo::new();
    for arguments in [&["refs"][..], &["nonsense"], &[], &["update-ref", "r.git"]] {
        assert_eq!(run(arguments).code, 2, "{arguments:?}");
    }
    repo.run("log", &["-n", "many"]).failed(2, "invalid value");
    repo.run("init", &["--object-format", "md5"]).failed(2, "expected `sha1` or `sha256`");
}

#[test]
fn a_lock_that_somebody_holds_ends_with_three_and_a_hint() {
    let repo = Repo::new();
    let _lock = repo.lock();
    let told = repo.run("update-ref", &["--stdin"]);
    told.failed(3, "another writer holds this lock");
    told.failed(3, "\nhint: a running `refstone serve`");
}

#[test]
fn a_log_that_is_gone_beside_its_history_is_damage() {
    let repo = Repo::new();
    std::fs::create_dir(repo.log_dir().join("history")).unwrap();
    std::fs::remove_file(repo.live()).unwrap();
    for command in ["refs", "log", "tail", "stat", "objects", "verify", "compact"] {
        repo.run(command, &[]).failed(1, "the live log is missing");
    }
}

// Breaks: reading nothing where the live log is missing.
#[test]
fn history_is_told_without_its_live_log_and_a_repair_goes_on_behind_it() {
    let repo = Repo::new();
    repo.update(&format!("create refs/heads/a {}\n", oid('1')));
    repo.update(&format!("create refs/heads/b {}\n", oid('2')));
    repo.run("compact", &[]).done();
    let before = repo.run("log", &[]).done().to_owned();
    repo.update(&format!("create refs/heads/c {}\n", oid('3')));
    std::fs::remove_file(repo.live()).unwrap();

    let log = repo.run("log", &[]);
    log.failed(1, "the live log is missing");
    log.failed(1, "`refstone repair --dry-run` tells what can be saved");
    assert_eq!(log.stdout, before.as_bytes());
    let export = repo.run("export", &["--history", "--format", "jsonl"]);
    export.failed(1, "the live log is missing");
    assert_eq!(export.stdout.iter().filter(|byte| **byte == b'\n').count(), 2);
    let whole = repo.run("export", &["--history", "--format", "csv", "--to", "2"]);
    assert_eq!(whole.done().lines().count(), 3);
    let verify = repo.run("verify", &[]);
    verify.failed(1, "the live log is missing");
    assert!(
        verify
            .stdout
            .starts_with(b"sound apart from the damage: 2 moves, the newest of transaction 2")
    );
    repo.run("refs", &[]).failed(1, "the live log is missing");

    let plan = repo.run("repair", &["--dry-run"]);
    assert!(plan.done().contains("would go on behind transaction 2 of history\n"), "{plan:?}");
    assert!(!repo.live().exists());
    let report = &repo.run("repair", &["--json"]).json()[0];
    assert_eq!((&report["last_seq"], &report["original"]), (&2.into(), &serde_json::Value::Null));
    let given_up = report["given_up"][0][1].as_u64().unwrap();
    assert_eq!(repo.run("log", &[]).done(), before);
    repo.update(&format!("create refs/heads/d {}\n", oid('4')));
    assert_eq!(repo.run("log", &["-1", "--json"]).json()[0]["seq"], given_up + 1);
    repo.run("verify", &[]).done();
    repo.run("repair", &[]).failed(1, "nothing in this log is damaged");
}

#[test]
fn an_older_copy_of_the_live_log_gives_way_to_one_that_goes_on() {
    let repo = Repo::new();
    repo.update(&format!("create refs/heads/a {}\n", oid('1')));
    let old = std::fs::read(repo.live()).unwrap();
    repo.update(&format!("create refs/heads/b {}\n", oid('2')));
    repo.run("compact", &[]).done();
    std::fs::write(repo.live(), &old).unwrap();
    for command in ["verify", "compact"] {
        repo.run(command, &[])
            .failed(1, "to reach transaction 2, as history does, found 1: it is an");
    }
    let told = repo.run("repair", &[]);
    assert!(told.done().contains("goes on behind transaction 2 of history\n"), "{told:?}");
    let kept = repo.log_dir().join("refs.arrow.damaged-1");
    assert!(told.done().contains(&format!("is kept in {}\n", kept.display())), "{told:?}");
    assert_eq!(std::fs::read(kept).unwrap(), old);
    assert_eq!(repo.run("refs", &[]).done().lines().count(), 2);
    repo.run("verify", &[]).done();
}

fn repo_with_many() -> Repo {
    let repo = Repo::new();
    let one = oid('1');
    let line = |n| format!("create refs/heads/a-rather-long-name-for-a-branch-{n} {one}\n");
    repo.update(&(0..5000).map(line).collect::<String>());
    repo
}

// Break: `println!`, which panics; or taking a closed pipe for an error of the environment.
#[test]
fn a_listing_that_nobody_reads_to_its_end_ends_quietly() {
    let repo = repo_with_many();
    for (command, arguments) in [
        ("refs", &[][..]),
        ("refs", &["--json"]),
        ("log", &["--all"]),
        ("tail", &["-f"]),
        ("objects", &[]),
        ("stat", &[]),
        ("verify", &[]),
    ] {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut child = repo.command(command, arguments);
        let child = child.stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped()).spawn();
        let ended = Run::of(child.unwrap().wait_with_output().unwrap());
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{command}");
    }
}

// Break: a buffer that is flushed by its drop, which loses the error.
#[test]
fn an_output_that_is_full_ends_with_three() {
    let repo = repo_with_many();
    for command in ["refs", "log", "tail", "stat", "objects", "verify"] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = repo.command(command, &[]).stdout(full).output().unwrap();
        Run::of(output).failed(3, "cannot write to standard output");
    }
}

// Break: ending with 0, as a listing does. The caller would take commands for done that were not
// even read.
#[test]
fn answers_that_nobody_reads_are_no_success() {
    let repo = Repo::new();
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let mut command = repo.command("update-ref", &["--stdin"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    let script = format!("start\ncreate refs/heads/a {}\ncommit\n", oid('1'));
    io::Write::write_all(&mut child.stdin.take().unwrap(), script.as_bytes()).unwrap();
    let ended = Run::of(child.wait_with_output().unwrap());
    ended.failed(3, "later commands were not run");
    assert_eq!(repo.run("refs", &[]).done(), "");
}

#[test]
fn errors_are_one_line_without_what_drives_a_terminal() {
    let told = run(["refs", "/none/\x1b[2J"]);
    told.failed(3, "error: /none/\\x1b[2J: there is no such directory\nhint: ");
    assert_eq!(told.stderr.lines().count(), 2);
}

#[test]
fn an_actor_is_somebody_even_where_nobody_is_logged_in() {
    let repo = Repo::new();
    let mut command = refstone();
    command.env_remove("LOGNAME").env_remove("USER");
    command.arg("update-ref").arg(repo.path()).arg("--stdin");
    feed(command, format!("create refs/heads/a {}\n", oid('1')).as_bytes()).done();
    let user = std::process::Command::new("id").arg("-un").output().unwrap().stdout;
    let user = String::from_utf8(user).unwrap();
    assert_eq!(repo.run("log", &["--json"]).json()[0]["actor"], user.trim_end());
}

#[test]
fn a_version_is_told() {
    assert!(run_with(["--version"], b"").done().starts_with("refstone "));
}
