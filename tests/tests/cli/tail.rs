use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::command::{Repo, oid};

const PATIENCE: Duration = Duration::from_secs(60);

/// A running `refstone tail`, killed when dropped.
struct Follower {
    child: Child,
    lines: Receiver<String>,
}

impl Follower {
    fn start(repo: &Repo, options: &[&str]) -> Follower {
        let mut command = repo.command("tail", options);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (told, lines) = channel();
        std::thread::spawn(move || {
            // Ends with the test, too.
            stdout.lines().map_while(Result::ok).try_for_each(|line| told.send(line))
        });
        Follower { child, lines }
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("a line comes")
    }

    fn seq(&self) -> u64 {
        serde_json::from_str::<Value>(&self.line()).unwrap()["seq"].as_u64().unwrap()
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The exit code of a child that ends by itself.
fn code(child: &mut Child) -> Option<i32> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("it does not end");
}

/// Moves one ref so many times, from a number on.
fn fill(repo: &Repo, from: u32, count: u32) {
    let line = |n| format!("start\nupdate refs/heads/a {n:040x}\ncommit\n");
    let script: String = (from..from + count).map(line).collect();
    repo.update(&script);
}

fn seqs(repo: &Repo, options: &[&str]) -> Vec<u64> {
    let shown = repo.run("tail", &[options, &["--json"]].concat());
    shown.json().iter().map(|line| line["seq"].as_u64().unwrap()).collect()
}

#[test]
fn a_transaction_is_one_object_and_starts_where_one_left_off() {
    let repo = Repo::new();
    let [one, two] = ['1', '2'].map(oid);
    repo.update(&format!("create refs/heads/a {one}\ncreate refs/heads/b {one}\n"));
    repo.run("compact", &[]).done();
    repo.update(&format!("update refs/heads/b {two}\n"));
    let mut told = repo.run("tail", &["--json"]).json();
    for transaction in &mut told {
        assert!(transaction.as_object_mut().unwrap().remove("at").unwrap().is_string());
    }
    let moved = |name: &str, old: Option<&str>, new: &str| {
        json!({
            "actor": "tester", "refname": name, "old_oid": old, "new_oid": new, "symref": null,
            "message": null,
        })
    };
    let expected = [
        json!({"seq": 1, "moves": [
            moved("refs/heads/a", None, &one), moved("refs/heads/b", None, &one),
        ]}),
        json!({"seq": 2, "moves": [moved("refs/heads/b", Some(&one), &two)]}),
    ];
    assert_eq!(told, expected);
    let (tail, log) = (repo.run("tail", &[]), repo.run("log", &[]));
    assert!(tail.done().lines().eq(log.done().lines().rev()));
    assert_eq!(seqs(&repo, &["--after", "1"]), [2]);
    assert_eq!(seqs(&repo, &["--after", "2"]), [0; 0]);
    assert_eq!(seqs(&repo, &["refs/heads/a"]), [1]);
}

// Breaks: ending without a word, as if there was no such log; a word where a program reads.
#[test]
fn nothing_to_tell_is_told_with_what_there_is() {
    let repo = Repo::new();
    let note = |options: &[&str]| {
        let shown = repo.run("tail", options);
        assert_eq!(shown.done(), "");
        shown.stderr
    };
    assert_eq!(note(&[]), "note: there is no move in this log; the log has no transaction yet\n");
    fill(&repo, 1, 2);
    let there = "; the log has the transactions 1 to 2\n";
    assert_eq!(
        note(&["--after", "2"]),
        format!("note: there is no move behind transaction 2{there}")
    );
    assert_eq!(
        note(&["refs/heads/b"]),
        format!("note: there is no move of refs/heads/b in this log{there}")
    );
    assert_eq!(note(&["--after", "2", "--json"]), "");
}

// Breaks: ending, or passing the transaction over, instead of waiting for it.
#[test]
fn a_follower_waits_for_what_is_not_there_yet() {
    let repo = Repo::new();
    fill(&repo, 1, 2);
    repo.run("tail", &["--after", "4"])
        .failed(1, "4 is not there yet, the newest is 2\nhint: a log");
    let mut follower = Follower::start(&repo, &["-f", "--json", "--after", "4"]);
    let mut note = String::new();
    BufReader::new(follower.child.stderr.take().unwrap()).read_line(&mut note).unwrap();
    assert!(note.starts_with("note: transaction 4 is not there yet, the newest is 2: waiting"));
    fill(&repo, 3, 3);
    assert_eq!(follower.seq(), 5);
}

// Breaks: telling what was read at a time for a transaction.
#[test]
fn a_large_transaction_is_one_object() {
    let repo = Repo::new();
    let one = oid('1');
    repo.update(&(0..5000).map(|n| format!("create refs/heads/b{n} {one}\n")).collect::<String>());
    fill(&repo, 1, 1);
    for _ in ["live", "sealed"] {
        let told = repo.run("tail", &["--json"]).json();
        let moves = told.iter().map(|line| line["moves"].as_array().unwrap().len());
        assert!(moves.eq([5000, 1]));
        repo.run("compact", &[]).done();
    }
}

// Breaks: reading on in the live file that a compaction replaced; starting in the new one at its
// beginning; ending when another process writes.
#[test]
fn a_follower_goes_on_over_compactions_and_writers() {
    let repo = Repo::new();
    fill(&repo, 1, 3);
    let follower = Follower::start(&repo, &["--follow", "--json"]);
    let mut expected = 1_u64..;
    let mut written = 3;
    for round in 0..8 {
        fill(&repo, written + 1, 3);
        written += 3;
        if round % 2 == 1 {
            repo.run("compact", if round % 4 == 3 { &["--all"] } else { &[] }).done();
            fill(&repo, written + 1, 1);
            written += 1;
        }
        if round % 3 == 2 {
            let mut seq = 0;
            while seq < u64::from(written) {
                seq = follower.seq();
                assert_eq!(Some(seq), expected.next());
            }
        }
    }
    let rest: Vec<u64> = expected.take_while(|seq| *seq <= u64::from(written)).collect();
    assert!(rest.iter().all(|seq| follower.seq() == *seq), "from {rest:?}");
    assert!(follower.lines.recv_timeout(Duration::from_millis(300)).is_err(), "nothing twice");
}

// Breaks: going on after the signal.
#[test]
fn a_signal_ends_a_follower_as_done() {
    let repo = Repo::new();
    fill(&repo, 1, 2);
    for signal in ["INT", "TERM"] {
        let mut follower = Follower::start(&repo, &["-f", "--json", "--after", "1"]);
        assert_eq!(follower.seq(), 2);
        follower.signal(signal);
        assert_eq!(code(&mut follower.child), Some(0), "{signal}");
        assert!(follower.lines.recv_timeout(PATIENCE).is_err());
    }
}

// Breaks: ending well what a signal has cut short.
#[test]
fn a_listing_that_a_signal_cuts_short_is_no_success() {
    let repo = Repo::new();
    fill(&repo, 1, 1_000);
    for (signal, expected) in [("INT", 130), ("TERM", 143)] {
        let mut command = repo.command("tail", &["--json"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut String::new()).unwrap();
        // A pipe is full long before the end.
        let pid = child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
        std::thread::sleep(Duration::from_millis(200));
        assert!(stdout.lines().count() < 999);
        assert_eq!(code(&mut child), Some(expected), "{signal}");
    }
}

// Breaks: noticing only when there is something to write.
#[test]
fn a_follower_that_nobody_reads_ends() {
    let repo = Repo::new();
    fill(&repo, 1, 1);
    let mut child = repo.command("tail", &["-f"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("1\t"), "{line}");
    assert_eq!(code(&mut child), Some(0));
}

// Breaks: following the bytes of the file instead of what is published.
#[test]
fn what_is_in_flight_is_not_told() {
    let repo = Repo::new();
    fill(&repo, 1, 3);
    let published = fs::read(repo.live()).unwrap();
    repo.unpublish_newest();
    let lock = repo.lock();
    assert_eq!(seqs(&repo, &[]), [1, 2]);
    let follower = Follower::start(&repo, &["-f", "--json"]);
    assert_eq!([follower.seq(), follower.seq()], [1, 2]);
    assert!(follower.lines.recv_timeout(Duration::from_millis(300)).is_err());
    let live = fs::File::options().write(true).open(repo.live()).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&live, &published, 0).unwrap();
    assert_eq!(follower.seq(), 3);
    drop(lock);
}

// Breaks: leaving out the transaction before the damage, or part of one.
#[test]
fn damage_ends_it_behind_what_is_sound() {
    let repo = Repo::new();
    fill(&repo, 1, 3);
    repo.damage_newest();
    for options in [&[][..], &["-f"]] {
        let told = repo.run("tail", options);
        told.failed(1, "refs.arrow: byte ");
        assert_eq!(told.stdout.iter().filter(|byte| **byte == b'\n').count(), 2);
    }
}
