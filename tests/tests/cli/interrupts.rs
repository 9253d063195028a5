//! Commands that take long, and are interrupted.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use refstone::{Compacting, Edit, ObjectId, OpenOptions, RefName, RefStore, Transaction};
use refstone_log::Mode;

use crate::command::{Repo, Run};

const TRANSACTIONS: u32 = 60_000;

/// A live log that takes a while to be compacted, and a copy of it for each test.
fn long_repo() -> Repo {
    static LIVE: OnceLock<Vec<u8>> = OnceLock::new();
    let repo = Repo::new();
    let log = LIVE.get_or_init(|| {
        let options = OpenOptions::default().compacting(Compacting::ByHand).mode(Mode::Buffered);
        let store = RefStore::open_with(&repo.log_dir(), options).unwrap();
        let name = RefName::new("refs/heads/a").unwrap();
        for number in 1..=TRANSACTIONS {
            let id = ObjectId::from_hex(format!("{number:040x}").as_bytes()).unwrap();
            store.commit(&Transaction::new("a").with(Edit::set(name.clone(), id))).unwrap();
        }
        store.sync().unwrap();
        store.close().unwrap();
        fs::read(repo.live()).unwrap()
    });
    fs::write(repo.live(), log).unwrap();
    repo
}

fn start(repo: &Repo, command: &str) -> Child {
    let mut command = repo.command(command, &[]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
}

fn wait_for(path: &Path) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !path.exists() {
        assert!(Instant::now() < deadline, "{} never came", path.display());
        sleep(Duration::from_millis(1));
    }
}

// Breaks: dying of the signal (no word, and a half-written file stays); going on after it.
#[test]
fn a_compaction_that_is_interrupted_says_so_and_leaves_nothing_half_done() {
    let repo = long_repo();
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let child = start(&repo, "compact");
        wait_for(&repo.log_dir().join(format!("history/1-{TRANSACTIONS}.parquet.tmp")));
        signal(&child, name);
        let ended = Run::of(child.wait_with_output().unwrap());
        ended.failed(code, "error: interrupted; no transaction is lost, and it can be run again\n");
        assert!(ended.stdout.is_empty());
        for shelf in ["history", "tables"] {
            let names = fs::read_dir(repo.log_dir().join(shelf));
            assert_eq!(names.map_or(0, Iterator::count), 0, "{shelf}");
        }
        let live = repo.run("verify", &["--json"]).json()[0]["transactions"].clone();
        assert_eq!(live, TRANSACTIONS);
    }
    let told = repo.run("compact", &[]);
    assert!(told.done().starts_with(&format!("sealed {TRANSACTIONS} transactions")), "{told:?}");
}

// Breaks: waiting for the first signal to be dealt with.
#[test]
fn a_second_signal_ends_it_at_once_and_nothing_is_lost() {
    let repo = long_repo();
    let child = start(&repo, "compact");
    wait_for(&repo.log_dir().join(format!("history/1-{TRANSACTIONS}.parquet.tmp")));
    signal(&child, "INT");
    signal(&child, "TERM");
    let ended = Run::of(child.wait_with_output().unwrap());
    assert!([130, 143].contains(&ended.code), "{ended:?}");
    repo.run("verify", &[]).done();
    repo.run("compact", &[]).done();
    assert_eq!(repo.run("verify", &["--json"]).json()[0]["history"]["rows"], TRANSACTIONS);
}

// Breaks: dying of the signal.
#[test]
fn a_check_that_is_interrupted_says_so() {
    let repo = long_repo();
    let mut pause = Duration::from_millis(20);
    loop {
        let child = start(&repo, "verify");
        sleep(pause);
        signal(&child, "INT");
        let output = child.wait_with_output().unwrap();
        match output.status.code() {
            Some(0) => panic!("it never listened, up to its end"),
            Some(_) => {
                let ended = Run::of(output);
                ended.failed(130, "error: interrupted; ");
                assert!(ended.stdout.is_empty());
                return;
            }
            // It did not listen yet.
            None => pause += Duration::from_millis(20),
        }
    }
}
