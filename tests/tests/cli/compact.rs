use std::fs;

use serde_json::json;

use crate::command::{Repo, oid, run};

/// Moves one ref `count` times.
fn fill(repo: &Repo, count: u32) {
    let line = |n| format!("start\nupdate refs/heads/a {n:040x}\ncommit\n");
    let script: String = (1..=count).map(line).collect();
    repo.update(&script);
}

fn files(repo: &Repo, shelf: &str) -> Vec<String> {
    let entries = fs::read_dir(repo.log_dir().join(shelf)).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

// Breaks: merging what is due alone, whatever was asked for.
#[test]
fn transactions_leave_the_live_log_and_nothing_looks_different() {
    let repo = Repo::new();
    fill(&repo, 30);
    let before = ["log", "refs"].map(|command| repo.run(command, &[]).done().to_owned());
    let told = repo.run("compact", &[]);
    assert!(told.done().starts_with("sealed 30 transactions, up to 30: 30 moves and "), "{told:?}");
    assert_eq!(told.stderr, "");
    assert_eq!(before, ["log", "refs"].map(|command| repo.run(command, &[]).done().to_owned()));
    assert_eq!(repo.run("verify", &["--json"]).json()[0]["transactions"], 0);
    let again = repo.run("compact", &[]);
    assert_eq!(again.done(), "nothing to do: all up to transaction 30 is sealed\n");

    fill(&repo, 3);
    let all = &repo.run("compact", &["--all", "--json"]).json()[0];
    let bytes = all["bytes_written"].as_u64().unwrap();
    let expected = json!({
        "sealed": 3, "sealed_seq": 33, "merged": 2, "reformed": 0, "rows_written": 36,
        "bytes_written": bytes,
    });
    assert_eq!(*all, expected);
    assert_eq!(files(&repo, "history"), ["1-33.parquet"]);
}

#[test]
fn the_form_of_history_can_be_chosen() {
    let repo = Repo::new();
    fill(&repo, 5);
    repo.run("compact", &["--form", "derived"]).done();
    let stat = &repo.run("stat", &["--json"]).json()[0];
    assert_eq!(stat["history"][0]["form"], "derived");
    repo.run("compact", &["--form", "short"]).failed(2, "expected `full` or `derived`");
}

// Breaks: leaving one file as it is, whatever its form; writing it anew each time; losing its table.
#[test]
fn a_single_file_is_written_anew_in_the_form_that_is_asked_for() {
    let repo = Repo::new();
    let told = repo.run("compact", &["--all"]);
    assert_eq!(told.done(), "nothing to do: the log has no transaction yet\n");
    fill(&repo, 40);
    repo.run("compact", &[]).done();
    let before = ["log", "refs"].map(|command| repo.run(command, &[]).done().to_owned());
    let form = || repo.run("stat", &["--json"]).json()[0]["history"][0]["form"].clone();

    let kept = repo.run("compact", &["--form", "derived"]);
    assert_eq!(kept.done(), "nothing to do: all up to transaction 40 is sealed\n");
    assert_eq!(form(), "full");
    for (wanted, rows) in [("derived", 40), ("derived", 0), ("full", 40)] {
        let told = &repo.run("compact", &["--all", "--form", wanted, "--json"]).json()[0];
        let reformed = u32::from(rows > 0);
        assert_eq!((&told["reformed"], &told["rows_written"]), (&json!(reformed), &json!(rows)));
        assert_eq!((form(), files(&repo, "history").len()), (json!(wanted), 1));
        assert!(repo.run("verify", &[]).done().starts_with("sound: 40 moves, "));
        assert_eq!(before, ["log", "refs"].map(|command| repo.run(command, &[]).done().to_owned()));
    }
    let told = repo.run("compact", &["--all", "--form", "derived"]);
    assert!(
        told.done().starts_with("wrote the file of history anew in another form: 40 moves and ")
    );
    let told = repo.run("compact", &["--all", "--form", "derived"]);
    let done =
        "nothing to do: all up to transaction 40 is sealed, in one file of the form derived\n";
    assert_eq!(told.done(), done);
}

#[test]
fn beside_a_server_it_says_that_the_server_does_it() {
    let repo = Repo::new();
    let _lock = repo.lock();
    for (command, words) in
        [("compact", "it compacts by itself"), ("rebuild", "when it starts, it makes anew tables")]
    {
        let told = repo.run(command, &[]);
        told.failed(3, "another writer holds this lock");
        told.failed(3, &format!("\nhint: a running `refstone serve` holds the lock: {words}"));
    }
}

#[test]
fn tables_are_made_anew() {
    let repo = Repo::new();
    assert_eq!(repo.run("rebuild", &[]).done(), "nothing to do: nothing has been sealed yet\n");
    fill(&repo, 5);
    repo.run("compact", &[]).done();
    let refs = repo.run("refs", &[]).done().to_owned();
    let table = repo.log_dir().join("tables/1-5.arrow");
    let sound = fs::read(&table).unwrap();
    fs::write(&table, b"nonsense").unwrap();
    assert_eq!(repo.run("refs", &[]).done(), refs, "history has it as well");
    let told = repo.run("rebuild", &[]);
    assert!(told.done().starts_with("made 1 table: 2 rows, "), "{told:?}");
    assert_eq!(fs::read(&table).unwrap(), sound);
    let told = &repo.run("rebuild", &["--json"]).json()[0];
    assert_eq!(*told, json!({"tables": 1, "rows": 2, "bytes": sound.len()}));
}

#[test]
fn the_parts_are_counted_beside_a_writer() {
    let repo = Repo::new();
    fill(&repo, 8);
    repo.run("compact", &[]).done();
    fill(&repo, 2);
    let _lock = repo.lock();
    let stat = &repo.run("stat", &["--json"]).json()[0];
    let len = |path: &str| fs::metadata(repo.log_dir().join(path)).unwrap().len();
    let [live, history, table] = ["refs.arrow", "history/1-8.parquet", "tables/1-8.arrow"].map(len);
    let all = live + history + table;
    let expected = json!({
        "object_format": "sha1", "durable_seq": 10, "sealed_seq": 8,
        "live": {"transactions": 2, "rows": 2, "bytes": stat["live"]["bytes"], "file_bytes": live},
        "history": [{"first_seq": 1, "last_seq": 8, "rows": 8, "bytes": history, "form": "full"}],
        "tables": [{"first_seq": 1, "last_seq": 8, "live_rows": 2, "gone_rows": 0, "bytes": table}],
        "damaged_tables": [], "rows": 10, "directory_bytes": all, "bytes_per_row": all as f64 / 10.0,
    });
    assert_eq!(*stat, expected);
    let told = repo.run("stat", &[]);
    for line in [
        "durable    up to transaction 10\n",
        "sealed     up to transaction 8\n",
        "live       2 transactions, 2 moves, ",
        "history    1 to 8: 8 moves, ",
        "table      1 to 8: 2 rows, 0 gone, ",
        "directory  ",
        "elsewhere  syncs, lock waits and compactions are counted by the process that writes",
    ] {
        assert!(told.done().contains(line), "{told:?}");
    }
}

#[test]
fn an_empty_log_is_counted_too() {
    let stat = &Repo::new().run("stat", &["--json"]).json()[0];
    assert_eq!((&stat["durable_seq"], &stat["bytes_per_row"]), (&json!(0), &json!(null)));
    run(["stat", "/none"]).failed(3, "there is no such directory");
}

// Breaks: counting a table that is gone as none, without a word.
#[test]
fn a_table_that_does_not_open_is_told() {
    let repo = Repo::new();
    fill(&repo, 2);
    repo.run("compact", &[]).done();
    fs::remove_file(repo.log_dir().join("tables/1-2.arrow")).unwrap();
    let told = repo.run("stat", &[]);
    assert!(told.done().contains("history    1 to 2"), "{told:?}");
    assert!(told.stderr.contains("1-2.arrow") && told.stderr.contains("`refstone rebuild`"));
    let stat = &repo.run("stat", &["--json"]).json()[0];
    assert_eq!(stat["damaged_tables"].as_array().unwrap().len(), 1);
}

// Breaks: ending well although files could not be merged; not sealing because of that.
#[test]
fn files_that_cannot_be_merged_are_told_and_transactions_are_sealed() {
    let repo = Repo::new();
    fill(&repo, 6);
    repo.run("compact", &[]).done();
    fill(&repo, 2);
    flip(&repo.log_dir().join("history/1-6.parquet"));
    let told = repo.run("compact", &["--all"]);
    told.failed(1, "sealed up to transaction 8, but the files were not merged: ");
    told.failed(1, "1-6.parquet");
    told.failed(1, "\nhint: `refstone verify` tells all that is damaged");
    assert_eq!(repo.run("stat", &["--json"]).json()[0]["sealed_seq"], 8);
    assert_eq!(files(&repo, "history"), ["1-6.parquet", "7-8.parquet"]);
}

// Breaks: verifying the live log alone.
#[test]
fn verify_checks_what_was_sealed() {
    let repo = Repo::new();
    fill(&repo, 6);
    repo.run("compact", &[]).done();
    fill(&repo, 1);
    let told = repo.run("verify", &[]);
    let first = "sound: 7 moves, the newest of transaction 7\nlive log: 1 transaction (7 to 7), ";
    assert!(told.done().starts_with(first), "{told:?}");
    assert!(told.done().contains("\nhistory: 1 file, 6 moves, "), "{told:?}");
    assert!(told.done().contains("\ntables: 1 file, 2 rows, "), "{told:?}");

    let table = repo.log_dir().join("tables/1-6.arrow");
    let kept = fs::read(&table).unwrap();
    flip(&table);
    let told = repo.run("verify", &[]);
    told.failed(1, "1-6.arrow");
    told.failed(1, "\nhint: a table is a cache");
    assert!(told.stdout.starts_with(b"sound: "), "{told:?}");
    let json: serde_json::Value =
        serde_json::from_slice(&repo.run("verify", &["--json"]).stdout).unwrap();
    assert_eq!((&json["ok"], &json["damage"]), (&json!(false), &json!(null)));
    assert_eq!(json["damaged_tables"].as_array().unwrap().len(), 1);
    fs::write(&table, kept).unwrap();

    flip(&repo.log_dir().join("history/1-6.parquet"));
    let told = repo.run("verify", &[]);
    told.failed(1, "1-6.parquet");
    assert!(told.stdout.starts_with(b"sound apart from the damage: "), "{told:?}");
    let json: serde_json::Value =
        serde_json::from_slice(&repo.run("verify", &["--json"]).stdout).unwrap();
    assert!(json["damage"]["text"].as_str().unwrap().contains("1-6.parquet"));
}

// Breaks: ending at a file that does not open; telling no other.
#[test]
fn what_is_sound_is_told_beside_a_history_file_that_does_not_open() {
    let repo = Repo::new();
    for _ in 0..3 {
        fill(&repo, 2);
        repo.run("compact", &[]).done();
    }
    fill(&repo, 1);
    let file = repo.log_dir().join("history/3-4.parquet");
    let mut bytes = fs::read(&file).unwrap();
    let footer = bytes.len() - 40;
    bytes[footer] ^= 1;
    fs::write(&file, bytes).unwrap();

    let shown = repo.run("log", &[]);
    shown.failed(1, "3-4.parquet");
    shown.failed(1, "\nhint: `refstone verify` tells all that is damaged");
    let text = String::from_utf8(shown.stdout).unwrap();
    let seqs: Vec<&str> = text.lines().map(|line| line.split('\t').next().unwrap()).collect();
    assert_eq!(seqs, ["7", "6", "5", "2", "1"]);
    assert_eq!(repo.run("log", &["-3"]).done().lines().count(), 3, "it is not needed for these");
    let told = repo.run("tail", &[]);
    told.failed(1, "3-4.parquet");
    assert!(told.stdout.starts_with(b"1\t"), "{told:?}");

    let told = repo.run("verify", &[]);
    told.failed(1, "3-4.parquet");
    let text = String::from_utf8(told.stdout).unwrap();
    assert!(
        text.starts_with("sound apart from the damage: 5 moves, the newest of transaction 7\n")
    );
    assert!(text.contains("of the transactions 1 to 2, 5 to 6\n"), "{text}");
    let json = repo.run("verify", &["--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["sound_history"], json!([[1, 2], [5, 6]]));
    assert_eq!(json["all_damage"].as_array().unwrap().len(), 1);
}

fn flip(file: &std::path::Path) {
    let mut bytes = fs::read(file).unwrap();
    let middle = bytes.len() / 3;
    bytes[middle] ^= 1;
    fs::write(file, bytes).unwrap();
}

// Breaks: listing the refs that the tables have, and not those of the time.
#[test]
fn refs_are_told_as_they_were() {
    let repo = Repo::new();
    let [one, two] = ['1', '2'].map(oid);
    repo.update(&format!("create refs/heads/a {one}\n"));
    repo.update(&format!("update refs/heads/a {two}\ncreate refs/heads/b {two}\n"));
    let time = repo.run("log", &["-1", "--json"]).json()[0]["at"].as_str().unwrap().to_owned();
    repo.run("compact", &[]).done();
    repo.update("delete refs/heads/a\n");
    let first = format!("{one} refs/heads/a\n");
    let second = format!("{two} refs/heads/a\n{two} refs/heads/b\n");
    assert_eq!(repo.run("refs", &["--at", "0"]).done(), "");
    assert_eq!(repo.run("refs", &["--at", "1"]).done(), first);
    assert_eq!(repo.run("refs", &["--at", "2"]).done(), second);
    assert_eq!(repo.run("refs", &["--at", &time]).done(), second);
    assert_eq!(repo.run("refs", &["--at", "@1"]).done(), "");
    let now = format!("{two} refs/heads/b\n");
    repo.run("refs", &["--at", "9"]).failed(1, "transaction 9 is not there yet, the newest is 3");
    assert_eq!(repo.run("refs", &["--at", "2100-01-01T00:00:00Z"]).done(), now);
    repo.run("refs", &["--at", "yesterday"]).failed(2, "expected a sequence such as 42");
}
