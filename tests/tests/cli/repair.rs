use std::fs;

use serde_json::json;

use crate::command::{Repo, oid};

/// Five transactions, the third of which is damaged; the bytes of the damaged file.
fn damaged() -> (Repo, Vec<u8>) {
    let repo = Repo::new();
    let mut middle = 0;
    for n in 1..=5 {
        repo.update(&format!("create refs/heads/b{n} {}\n", oid('1')));
        if n == 3 {
            middle = repo.middle_of_newest();
        }
    }
    let mut bytes = fs::read(repo.live()).unwrap();
    bytes[middle] ^= 1;
    fs::write(repo.live(), &bytes).unwrap();
    (repo, bytes)
}

// Breaks: a repaired log that does not open; gaps that nobody is told of.
#[test]
fn a_damaged_log_is_repaired_and_says_what_is_lost() {
    let (repo, bytes) = damaged();
    repo.run("refs", &[]).failed(1, "where transaction 3 belongs");
    let plan = repo.run("repair", &["--dry-run"]);
    for line in [
        "repaired: 4 transactions would be saved, the newest is 5\n",
        "lost: transactions 3\n",
        "nothing was changed: this was a dry run\n",
    ] {
        assert!(plan.done().contains(line), "{plan:?}");
    }
    assert!(fs::read(repo.live()).unwrap() == bytes, "a dry run changed it");

    let told = repo.run("repair", &[]);
    assert!(
        told.done().starts_with("repaired: 4 transactions saved, the newest is 5\n"),
        "{told:?}"
    );
    let kept = repo.log_dir().join("refs.arrow.damaged-1");
    assert!(told.done().contains(&format!("is kept in {}", kept.display())), "{told:?}");
    assert!(fs::read(kept).unwrap() == bytes, "the original is another");

    let verified = repo.run("verify", &[]);
    assert!(verified.done().contains("recorded these sequences as lost: 3\n"), "{verified:?}");
    let report = &repo.run("verify", &["--json"]).json()[0];
    assert_eq!((&report["ok"], &report["gaps"]), (&json!(true), &json!([[3, 3]])));
    let names = |run: &str| run.lines().map(|l| l.rsplit('/').next().unwrap().to_owned()).collect();
    let names: Vec<String> = names(repo.run("refs", &[]).done());
    assert_eq!(names, ["b1", "b2", "b4", "b5"]);
    repo.update(&format!("create refs/heads/b6 {}\n", oid('6')));
    let newest = &repo.run("log", &["--json"]).json()[0];
    assert_eq!((&newest["seq"], &newest["refname"]), (&json!(6), &json!("refs/heads/b6")));
}

#[test]
fn a_repair_is_told_as_json() {
    let (repo, _) = damaged();
    let told = &repo.run("repair", &["--json"]).json()[0];
    let kept = repo.log_dir().join("refs.arrow.damaged-1");
    assert_eq!(told["original"], json!(kept.to_str().unwrap()));
    assert!(told["damage"].as_str().unwrap().contains("where transaction 3 belongs"));
    assert_eq!((&told["transactions"], &told["last_seq"]), (&json!(4), &json!(5)));
    assert_eq!((&told["lost"], &told["given_up"]), (&json!([[3, 3]]), &json!([])));
    let [start, end] = [0, 1].map(|at| told["damaged_bytes"][0][at].as_u64().unwrap());
    assert!(end - start > 600, "{told}");
    assert_eq!(told["torn_bytes"], json!([]));
}

// Break: repairing, and so changing, what is sound.
#[test]
fn what_is_not_damaged_or_not_there_is_not_repaired() {
    let repo = Repo::new();
    repo.update(&format!("create refs/heads/a {}\n", oid('1')));
    let bytes = fs::read(repo.live()).unwrap();
    for arguments in [&[][..], &["--dry-run"], &["--json"]] {
        repo.run("repair", arguments).failed(1, "nothing in this log is damaged");
    }
    assert!(fs::read(repo.live()).unwrap() == bytes, "it was changed");
    repo.damage_newest();
    let lock = repo.lock();
    repo.run("repair", &[]).failed(3, "another writer holds this lock");
    drop(lock);
    fs::remove_file(repo.live()).unwrap();
    let told = repo.run("repair", &[]);
    told.failed(3, "there is no live log here");
    told.failed(3, "\nhint: nothing here tells what the log was");
}

#[test]
fn a_damaged_schema_is_taken_from_a_copy() {
    let repo = Repo::new();
    let copy = repo.scratch.path().join("copy.arrow");
    fs::copy(repo.live(), &copy).unwrap();
    repo.update(&format!("create refs/heads/a {}\n", oid('1')));
    let mut bytes = fs::read(repo.live()).unwrap();
    bytes[40..400].fill(0);
    fs::write(repo.live(), bytes).unwrap();
    repo.run("repair", &[]).failed(1, "--schema-from");
    let told = repo.run("repair", &["--schema-from", copy.to_str().unwrap()]);
    assert!(told.done().contains("1 transaction saved") && told.done().contains("lost: nothing"));
    assert!(repo.run("refs", &[]).done().contains("refs/heads/a"));
}

/// A repository with two transactions in history, three in the live log, and a copy of the live log from
/// before the last of them.
fn sealed() -> (Repo, Vec<u8>) {
    let repo = Repo::new();
    for n in 1..=5 {
        repo.update(&format!("create refs/heads/b{n} {}\n", oid('1')));
        if n == 2 {
            repo.run("compact", &[]).done();
        }
    }
    let live = fs::read(repo.live()).unwrap();
    (repo, live)
}

// Breaks: asking for a copy although history tells; an anchor that is not that of history; taking a
// transaction for garbage.
#[test]
fn a_damaged_schema_is_told_by_history() {
    let (repo, mut bytes) = sealed();
    bytes[40..400].fill(0);
    fs::write(repo.live(), &bytes).unwrap();
    let plan = repo.run("repair", &["--dry-run"]);
    assert!(plan.done().contains("3 transactions would be saved, the newest is 5"), "{plan:?}");
    assert!(fs::read(repo.live()).unwrap() == bytes, "a dry run changed it");
    let told = repo.run("repair", &[]);
    assert!(
        told.done().contains("3 transactions saved, the newest is 5\nlost: nothing"),
        "{told:?}"
    );
    assert_eq!(repo.run("refs", &[]).done().lines().count(), 5);
    assert!(repo.run("verify", &[]).done().starts_with("sound: 5 moves, "));
    let kept = repo.log_dir().join("refs.arrow.damaged-1");
    assert!(fs::read(kept).unwrap() == bytes, "the original is another");
}

// Breaks: a way that ends at an error; giving a sequence out twice; throwing the file away.
#[test]
fn beside_history_a_live_log_of_garbage_gives_way_to_one_behind_history() {
    for with_copy in [false, true] {
        let (repo, live) = sealed();
        let copy = repo.scratch.path().join("copy.arrow");
        fs::write(&copy, &live).unwrap();
        let garbage: Vec<u8> =
            (0..9000_u32).flat_map(|n| n.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
        fs::write(repo.live(), &garbage).unwrap();
        let copy = ["--schema-from", copy.to_str().unwrap()];
        let options = if with_copy { &copy[..] } else { &[] };
        let told = repo.run("repair", options);
        let line = "repaired: a new live log goes on behind transaction 2 of history\n";
        assert!(told.done().contains(line), "{told:?}");
        let kept = repo.log_dir().join("refs.arrow.damaged-1");
        assert!(told.done().contains(&format!("is kept in {}", kept.display())), "{told:?}");
        assert!(fs::read(kept).unwrap() == garbage, "the original is another");
        repo.update(&format!("create refs/heads/next {}\n", oid('1')));
        let newest = repo.run("log", &["-1", "--json"]).json()[0]["seq"].as_u64().unwrap();
        assert!(newest > 5, "{newest} was given out before");
        repo.run("verify", &[]).done();
    }
}

#[test]
fn where_nothing_tells_the_schema_it_is_said_what_would() {
    let repo = Repo::new();
    repo.update(&format!("create refs/heads/a {}\n", oid('1')));
    let copy = repo.scratch.path().join("copy.arrow");
    fs::copy(repo.live(), &copy).unwrap();
    let other = Repo::new();
    fs::write(repo.live(), vec![7; 9000]).unwrap();
    let from =
        |file: &std::path::Path| repo.run("repair", &["--schema-from", file.to_str().unwrap()]);
    repo.run("repair", &[]).failed(1, "\nhint: nothing was changed. Any older refs.arrow of this");
    from(&copy).failed(1, "\nhint: nothing was changed. Name a copy");
    from(&other.live()).failed(1, "it is another log's\nhint: nothing was changed. Name a copy");
    from(&repo.live())
        .failed(2, "\nhint: --schema-from takes a copy of this repository's refs.arrow");
    from(&repo.path().join("none")).failed(3, "none: cannot open");
}
