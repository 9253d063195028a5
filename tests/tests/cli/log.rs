use serde_json::json;

use crate::command::{Repo, oid};

/// Three transactions, the second of which moves two refs.
fn repo_with_history() -> Repo {
    let repo = Repo::new();
    let [one, two] = ['1', '2'].map(oid);
    repo.update(&format!(
        "start\ncreate refs/heads/a {one}\ncommit\n\
         start\nupdate refs/heads/a {two} {one}\ncreate refs/heads/b {one}\ncommit\n\
         start\ndelete refs/heads/a\ncommit\n"
    ));
    repo
}

fn columns(text: &str, wanted: &[usize]) -> Vec<String> {
    let of_line = |line: &str| {
        let fields: Vec<_> = line.split('\t').collect();
        wanted.iter().map(|&index| fields[index]).collect::<Vec<_>>().join(" ")
    };
    text.lines().map(of_line).collect()
}

#[test]
fn the_newest_move_comes_first_and_a_transaction_shares_its_sequence() {
    let repo = repo_with_history();
    let [one, two] = ['1', '2'].map(oid);
    let shown = repo.run("log", &[]);
    let expected = [
        format!("3 tester refs/heads/a {two} -"),
        format!("2 tester refs/heads/b - {one}"),
        format!("2 tester refs/heads/a {one} {two}"),
        format!("1 tester refs/heads/a - {one}"),
    ];
    assert_eq!(columns(shown.done(), &[0, 2, 3, 4, 5]), expected);
    assert_eq!(shown.stderr, "");
}

#[test]
fn times_are_rfc_3339_in_utc_with_microseconds_and_rise() {
    let shown = repo_with_history().run("log", &[]);
    let times = columns(shown.done(), &[1]);
    assert!(times.iter().rev().is_sorted());
    for time in times {
        let shape: String =
            time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(shape, "0000-00-00T00:00:00.000000Z");
    }
}

#[test]
fn the_history_of_a_ref_outlives_it() {
    let repo = repo_with_history();
    assert!(!repo.run("refs", &[]).done().contains("refs/heads/a"));
    let shown = repo.run("log", &["refs/heads/a"]);
    assert_eq!(
        columns(shown.done(), &[0, 3]),
        ["3 refs/heads/a", "2 refs/heads/a", "1 refs/heads/a"]
    );
}

#[test]
fn only_so_many_are_shown_as_were_asked_for() {
    let repo = repo_with_history();
    let shown = repo.run("log", &["-n", "2"]);
    assert_eq!(columns(shown.done(), &[0]), ["3", "2"]);
    assert_eq!(shown.stderr, "");
    assert_eq!(repo.run("log", &["-n", "4"]).stderr, "");
    assert_eq!(repo.run("log", &["-2"]).stdout, shown.stdout, "as git has it");
    repo.run("log", &["-n", "2", "--all"]).failed(2, "cannot be used with");
}

#[test]
fn two_hundred_are_shown_unless_all_are_asked_for() {
    let repo = Repo::new();
    let one = oid('1');
    let script: String = (0..201).map(|n| format!("create refs/heads/b{n} {one}\n")).collect();
    repo.update(&script);
    let shown = repo.run("log", &[]);
    assert_eq!(shown.done().lines().count(), 200);
    assert_eq!(shown.stderr, "note: older moves are not shown; --all shows them\n");
    let all = repo.run("log", &["--all"]);
    assert_eq!((all.done().lines().count(), all.stderr.as_str()), (201, ""));
}

// Breaks: reading the live log alone; ending at its beginning.
#[test]
fn the_live_log_and_history_are_one() {
    let repo = repo_with_history();
    let before = repo.run("log", &["--all"]).done().to_owned();
    repo.run("compact", &[]).done();
    repo.update(&format!("create refs/heads/c {}\n", oid('3')));
    let after = repo.run("log", &["--all"]);
    assert_eq!(after.done().split_once('\n').unwrap().1, before);
    assert_eq!(columns(repo.run("log", &["-2"]).done(), &[0]), ["4", "3"]);
    assert_eq!(columns(repo.run("log", &["refs/heads/a"]).done(), &[0]), ["3", "2", "1"]);
    assert_eq!(columns(repo.run("log", &["refs/heads/a", "-1"]).done(), &[0]), ["3"]);
    let range = repo.run("log", &["--from", "2", "--to", "3"]);
    assert_eq!(columns(range.done(), &[0]), ["3", "2", "2"]);
    assert_eq!(range.stderr, "");
}

// Breaks: ending without a word, as if nothing had ever moved.
#[test]
fn what_matches_nothing_is_told_and_what_cannot_match_is_refused() {
    let repo = repo_with_history();
    for (arguments, words) in [
        (&["refs/heads/none"][..], "there is no move of refs/heads/none in this log"),
        (&["refs/heads/b", "--from", "3"], "of refs/heads/b from transaction 3 on"),
        (&["refs/heads/b", "--to", "1"], "of refs/heads/b up to transaction 1"),
        (
            &["--from", "4"],
            "there is no move from transaction 4 on; the log has the transactions 1 to 3",
        ),
    ] {
        assert_eq!(repo.run("log", &[arguments, &["--json"]].concat()).stderr, "");
        let shown = repo.run("log", arguments);
        assert_eq!(shown.done(), "");
        assert_eq!(shown.stderr.lines().count(), 1);
        assert!(shown.stderr.starts_with("note: ") && shown.stderr.contains(words), "{shown:?}");
    }
    let export =
        |span: &[&str]| repo.run("export", &[&["--history", "--format", "jsonl"], span].concat());
    let shown = export(&["--from", "4"]);
    assert_eq!((shown.done(), shown.stderr.lines().count()), ("", 1));
    assert!(shown.stderr.ends_with("; the log has the transactions 1 to 3\n"), "{shown:?}");
    for run in
        [repo.run("log", &["--from", "3", "--to", "2"]), export(&["--from", "3", "--to", "2"])]
    {
        run.failed(2, "expected --to not before --from, found --from 3 --to 2");
    }
    repo.run("export", &["target", "--from", "2"]).failed(2, "are for --history");
}

// Breaks: showing what there is, as if it was all, or as if it was then; another rule in one of them.
#[test]
fn a_transaction_that_is_not_there_yet_is_refused_everywhere() {
    let repo = repo_with_history();
    let export =
        |span: &[&str]| repo.run("export", &[&["--history", "--format", "csv"], span].concat());
    let restore = |at| repo.run("restore", &["refs/heads/a", "--at", at]);
    for state in ["live", "sealed"] {
        for run in [
            repo.run("log", &["--from", "5"]),
            repo.run("log", &["--to", "5"]),
            repo.run("log", &["--from", "2", "--to", "5"]),
            export(&["--from", "5"]),
            export(&["--to", "5"]),
            repo.run("tail", &["--after", "5"]),
            repo.run("refs", &["--at", "5"]),
            restore("5"),
        ] {
            run.failed(1, "transaction 5 is not there yet, the newest is 3\nhint: ");
            assert_eq!(run.stdout, b"", "{state}");
        }
        for run in [
            repo.run("log", &["--from", "4"]),
            export(&["--from", "4"]),
            repo.run("tail", &["--after", "3"]),
            repo.run("refs", &["--at", "3"]),
            repo.run("refs", &["--at", "2999-01-01T00:00:00Z"]),
            repo.run("log", &["--to", "3"]),
        ] {
            run.done();
        }
        repo.run("compact", &[]).done();
    }
}

// Break: writing the actor as it is. The escape sequence would clear the screen of the auditor.
#[test]
fn nothing_in_a_log_drives_the_terminal_of_its_reader() {
    let repo = Repo::new();
    let name = b"refs/heads/\xe2\x80\xaex\xff";
    let input = [b"create ", &name[..], b"\0", oid('1').as_bytes(), b"\0"].concat();
    let options = ["--stdin", "-z", "--actor", "ev\x1b[2Jil\\", "-m", "a\tb\nc\u{9b}2J"];
    repo.run_with("update-ref", &options, &input).done();
    let shown = repo.run("log", &[]);
    let expected = [r"ev\x1b[2Jil\\ refs/heads/\xe2\x80\xaex\xff a\x09b\x0ac\xc2\x9b2J"];
    assert_eq!(columns(shown.done(), &[2, 3, 6]), expected);
}

#[test]
fn json_fields_are_the_columns_of_the_log() {
    let repo = Repo::new();
    let name = b"refs/heads/x\xff";
    let input = [b"create ", &name[..], b"\0", oid('1').as_bytes(), b"\0"].concat();
    let options = ["--stdin", "-z", "--actor", r"a\b", "-m", "why\u{1b}"];
    repo.run_with("update-ref", &options, &input).done();
    repo.update("option no-deref\nsymref-update HEAD refs/heads/y\n");
    let mut shown = repo.run("log", &["--json"]).json();
    let at = shown.iter_mut().map(|line| line.as_object_mut().unwrap().remove("at").unwrap());
    assert!(at.into_iter().all(|at| at.as_str().unwrap().ends_with('Z')));
    let expected = [
        json!({
            "seq": 2, "actor": "tester", "refname": "HEAD", "old_oid": null, "new_oid": null,
            "symref": "refs/heads/y", "message": null,
        }),
        json!({
            "seq": 1, "actor": r"a\\b", "refname": r"refs/heads/x\xff",
            "refname_hex": "726566732f68656164732f78ff", "old_oid": null, "new_oid": oid('1'),
            "symref": null, "message": "why\u{1b}",
        }),
    ];
    assert_eq!(shown, expected);
}

#[test]
fn a_sequence_is_asked_for_as_a_number() {
    let repo = repo_with_history();
    for arguments in [["log", "--from"], ["log", "--to"], ["tail", "--after"]] {
        let told = repo.run(arguments[0], &[arguments[1], "x"]);
        told.failed(2, "expected a sequence such as 42");
    }
}

#[test]
fn a_ref_is_asked_for_by_its_full_name() {
    repo_with_history().run("log", &["main"]).failed(2, "hint: a full name is needed");
}

// Break: stopping at the damage without a word, or before what is sound was shown.
#[test]
fn damage_is_told_after_what_is_sound() {
    let repo = repo_with_history();
    repo.damage_newest();
    let shown = repo.run("log", &[]);
    shown.failed(1, "refs.arrow: byte ");
    let sound = String::from_utf8(shown.stdout).unwrap();
    assert_eq!(columns(&sound, &[0]), ["2", "2", "1"]);
}
