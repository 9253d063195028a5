use std::os::unix::fs::FileExt;
use std::sync::Arc;

use refstone_log::{Log, NoObserver, OsEnv, RefRow};
use serde_json::json;

use crate::command::{Repo, oid};

fn repo_with_two() -> Repo {
    let repo = Repo::new();
    let one = oid('1');
    repo.update(&format!("create refs/heads/a {one}\ncreate refs/heads/b {one}\n"));
    repo.update(&format!("create refs/heads/c {one}\n"));
    repo
}

#[test]
fn a_sound_log_is_counted() {
    let repo = repo_with_two();
    let told = repo.run("verify", &[]);
    assert!(told.done().starts_with("sound: 2 transactions (1 to 2), 3 moves, "), "{told:?}");
    let report = &repo.run("verify", &["--json"]).json()[0];
    let bytes = report["bytes"].as_u64().unwrap();
    assert!(bytes > 1000);
    let expected = json!({
        "ok": true, "transactions": 2, "rows": 3, "first_seq": 1, "last_seq": 2, "bytes": bytes,
        "unpublished": 0, "unfinished_bytes": 0, "gaps": [], "damage": null, "damaged_tables": [],
        "missing_tables": [],
        "sound_history": [], "all_damage": [],
        "history": {"files": 0, "rows": 0, "bytes": 0},
        "tables": {"files": 0, "rows": 0, "bytes": 0},
    });
    assert_eq!(*report, expected);
}

#[test]
fn damage_is_located_and_ends_with_one() {
    let repo = repo_with_two();
    repo.damage_newest();
    let told = repo.run("verify", &[]);
    told.failed(1, "error: ");
    told.failed(1, "where transaction 2 belongs");
    assert!(told.stdout.starts_with(b"sound up to the damage: 1 transaction (1 to 1), 2 moves"));
    let told = repo.run("verify", &["--json"]);
    assert_eq!(told.code, 1);
    let report: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!((&report["ok"], &report["transactions"]), (&false.into(), &1.into()));
    assert_eq!(
        (&report["damage"]["offset"], &report["damage"]["seq"]),
        (&report["bytes"], &2.into())
    );
}

// Break: taking the exit code from the printing instead of the finding.
#[test]
fn damage_that_nobody_reads_about_still_ends_with_one() {
    let repo = repo_with_two();
    repo.damage_newest();
    for arguments in [&[][..], &["--json"]] {
        let mut command = repo.command("verify", arguments);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        assert_eq!(command.stdout(writer).status().unwrap().code(), Some(1));
    }
}

#[test]
fn beside_a_writer_a_transaction_in_flight_is_no_damage() {
    let repo = repo_with_two();
    repo.unpublish_newest();
    let _lock = repo.lock();
    let report = &repo.run("verify", &["--json"]).json()[0];
    assert_eq!((&report["ok"], &report["last_seq"]), (&true.into(), &1.into()));
    assert_eq!(report["unpublished"], 1);
    let told = repo.run("verify", &[]);
    assert!(
        told.done().contains("1 whole transaction and 0 bytes of an unfinished one"),
        "{told:?}"
    );
}

#[test]
fn bytes_of_a_torn_write_are_counted_and_no_damage() {
    let repo = repo_with_two();
    let end = repo.run("verify", &["--json"]).json()[0]["bytes"].as_u64().unwrap();
    let live = std::fs::File::options().write(true).open(repo.live()).unwrap();
    live.write_all_at(&[7; 100], end + 8).unwrap();
    let report = &repo.run("verify", &["--json"]).json()[0];
    assert_eq!((&report["ok"], &report["unfinished_bytes"]), (&true.into(), &108.into()));
}

// Break: checking bytes alone. A checksum proves that a row is as it was written, not that it is a
// move of a ref.
#[test]
fn a_row_that_is_no_move_of_a_ref_is_damage() {
    let repo = repo_with_two();
    let env = Arc::new(OsEnv);
    let (log, _) = Log::open(env, &repo.log_dir(), Arc::new(NoObserver), &mut |_| ()).unwrap();
    let row = RefRow {
        actor: b"somebody",
        refname: b"refs/heads/a..b",
        old_oid: None,
        new_oid: Some(&[1; 20]),
        symref: None,
        message: None,
    };
    log.append(&[row]).unwrap().wait().unwrap();
    log.close().unwrap();
    let told = repo.run("verify", &[]);
    told.failed(1, "transaction 3, row 0: invalid ref name 'refs/heads/a..b'");
}

// Breaks: taking a missing table for damage.
#[test]
fn a_copy_without_tables_is_sound_with_a_note() {
    let repo = repo_with_two();
    repo.run("compact", &[]).done();
    std::fs::remove_dir_all(repo.log_dir().join("tables")).unwrap();
    let told = repo.run("verify", &[]);
    assert!(told.done().starts_with("sound: "), "{told:?}");
    assert!(told.stderr.contains("note: missing: 1 table"), "{told:?}");
    let report = &repo.run("verify", &["--json"]).json()[0];
    assert_eq!((&report["ok"], &report["damaged_tables"]), (&true.into(), &json!([])));
    assert_eq!(report["missing_tables"].as_array().unwrap().len(), 1);
}
