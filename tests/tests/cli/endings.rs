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
