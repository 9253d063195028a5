use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdout, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::command::{Repo, oid};

fn run_script(repo: &Repo, options: &[&str], script: &str) -> crate::command::Run {
    let options = [&["--stdin"], options].concat();
    repo.run_with("update-ref", &options, script.as_bytes())
}

#[test]
fn actor_and_message_are_recorded_with_every_ref_that_moves() {
    let repo = Repo::new();
    let one = oid('1');
    let script = format!("create refs/heads/a {one}\ncreate refs/heads/b {one}\n");
    run_script(&repo, &["--actor", "Åsa <a@b>", "-m", "two lines\nof it"], &script).done();
    for line in repo.run("log", &["--json"]).json() {
        let recorded = (&line["seq"], &line["actor"], &line["message"]);
        assert_eq!(recorded, (&1.into(), &"Åsa <a@b>".into(), &"two lines\nof it".into()));
    }
}

#[test]
fn an_empty_message_is_refused_as_by_git() {
    let told = run_script(&Repo::new(), &["-m", ""], "");
    told.failed(2, "fatal: Refusing to perform update with empty message.");
}

#[test]
fn json_tells_the_sequence_of_each_transaction_and_whether_it_moved_a_ref() {
    let repo = Repo::new();
    let one = oid('1');
    let script = format!(
        "start\ncreate refs/heads/a {one}\ncommit\n\
         start\nverify refs/heads/a {one}\nprepare\ncommit\n\
         start\ncreate refs/heads/b {one}\nabort\n\
         start\ncreate refs/heads/c {one}\ncommit\n"
    );
    let told = run_script(&repo, &["--json"], &script).json();
    let expected = [
        json!({"seq": 1, "moved": true}),
        json!({"seq": 1, "moved": false}),
        json!({"seq": 2, "moved": true}),
    ];
    assert_eq!(told, expected);
    let implicit = run_script(&repo, &["--json"], &format!("create refs/heads/d {one}\n"));
    assert_eq!(implicit.json(), [json!({"seq": 3, "moved": true})]);
}

// Break: an output that is flushed at the end only; a caller that waits for its answer would wait
// for ever. And, in the log: an answer before the sync.
#[test]
fn each_answer_comes_at_once_and_means_durable() {
    let repo = Repo::new();
    let mut child = repo
        .command("update-ref", &["--stdin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let answers = lines_of(child.stdout.take().unwrap());
    let mut ask = |script: &str| {
        input.write_all(script.as_bytes()).unwrap();
        answers.recv_timeout(Duration::from_secs(20)).expect("an answer")
    };
    assert_eq!(ask("start\n"), "start: ok");
    assert_eq!(ask(&format!("create refs/heads/a {}\nprepare\n", oid('1'))), "prepare: ok");
    assert_eq!(repo.run("refs", &[]).done(), "", "nothing happens before the commit");
    assert_eq!(ask("commit\n"), "commit: ok");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(repo.run("refs", &[]).done(), format!("{} refs/heads/a\n", oid('1')));
}

/// The lines of an output as they come.
fn lines_of(output: ChildStdout) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut lines = BufReader::new(output).lines();
        lines.try_for_each(|line| sender.send(line.unwrap()))
    });
    receiver
}

// Breaks: a hold, or a lock, that is a file.
#[test]
fn a_killed_process_holds_nothing_it_had_prepared() {
    let repo = Repo::new();
    let mut child = repo
        .command("update-ref", &["--stdin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let answers = lines_of(child.stdout.take().unwrap());
    let script = format!("start\ncreate refs/heads/a {}\nprepare\n", oid('1'));
    input.write_all(script.as_bytes()).unwrap();
    for answer in ["start: ok", "prepare: ok"] {
        assert_eq!(answers.recv_timeout(Duration::from_secs(20)).as_deref(), Ok(answer));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(repo.run("refs", &[]).done(), "");
    repo.update(&format!("create refs/heads/a {}\n", oid('2')));
}

#[test]
fn a_started_transaction_that_is_not_committed_leaves_no_trace() {
    let repo = Repo::new();
    let script = format!("start\ncreate refs/heads/a {}\nprepare\n", oid('1'));
    assert_eq!(run_script(&repo, &[], &script).done(), "start: ok\nprepare: ok\n");
    assert_eq!(repo.run("log", &[]).done(), "");
}

// Break: closing the session without the commit of the transactions before the refused one.
#[test]
fn what_was_committed_before_a_refusal_stays() {
    let repo = Repo::new();
    let one = oid('1');
    let script = format!(
        "start\ncreate refs/heads/a {one}\ncommit\nstart\ncreate refs/heads/a {one}\ncommit\n"
    );
    let told = run_script(&repo, &[], &script);
    told.failed(1, "fatal: commit: cannot lock ref 'refs/heads/a': reference already exists\n");
    assert_eq!(told.stdout, b"start: ok\ncommit: ok\nstart: ok\n");
    assert_eq!(repo.run("refs", &[]).done(), format!("{one} refs/heads/a\n"));
}

#[test]
fn abbreviations_and_names_are_no_values_and_that_is_said() {
    let repo = Repo::new();
    repo.update(&format!("create refs/heads/a {}\n", oid('1')));
    for value in ["1111111", "refs/heads/a", "HEAD"] {
        let told = run_script(&repo, &[], &format!("create refs/heads/b {value}\n"));
        told.failed(2, &format!("fatal: create refs/heads/b: invalid <new-oid>: {value}\nhint: "));
    }
}

#[test]
fn a_repository_of_sha256_takes_its_own_ids_only() {
    let repo = Repo::with(&["--object-format", "sha256"]);
    let id = "ab".repeat(32);
    run_script(&repo, &[], &format!("create refs/heads/a {id}\n")).done();
    assert_eq!(repo.run("refs", &[]).done(), format!("{id} refs/heads/a\n"));
    let told = run_script(&repo, &[], &format!("create refs/heads/b {}\n", oid('1')));
    told.failed(2, "invalid <new-oid>");
}

#[test]
fn names_that_are_not_utf8_are_moved_and_told_as_bytes() {
    let repo = Repo::new();
    let quoted = format!("create \"refs/heads/\\377\\303\\244\" {}\n", oid('1'));
    run_script(&repo, &[], &quoted).done();
    let listed = repo.run("refs", &[]).stdout;
    assert!(listed.ends_with(b" refs/heads/\xff\xc3\xa4\n"), "{listed:?}");
}
