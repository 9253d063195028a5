//! Import, export and projection by the command, with git as the judge.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::command::{Repo, Run, refstone, run};
use crate::git::{self, Work};

fn arguments<'a>(words: &'a [&'a str], paths: &'a [&'a Path]) -> Vec<&'a std::ffi::OsStr> {
    let words = words.iter().map(AsRef::as_ref);
    words.chain(paths.iter().map(|path| path.as_os_str())).collect()
}

fn import(source: &Path, repo: &Path, options: &[&str]) -> Run {
    let words = [&["import"], options].concat();
    run(arguments(&words, &[source, repo]))
}

/// What git lists in a directory.
fn refs(dir: &Path) -> String {
    git::run(dir, &["for-each-ref"])
}

#[test]
fn a_repository_goes_through_the_command_and_back() {
    let work = Work::new();
    git::run(work.path(), &["tag", "-a", "-m", "tag", "v1"]);
    let scratch = TempDir::new().unwrap();
    let repo = scratch.path().join("r.git");
    let told = import(work.path(), &repo, &["--json"]);
    let report = &told.json()[0];
    // Red when HEAD counts here and not there.
    assert_eq!((&report["refs"], &report["moves"]), (&2.into(), &4.into()));
    assert_eq!(run(arguments(&["refs"], &[&repo])).done().lines().count(), 2);
    assert_eq!(run(arguments(&["project", "--json"], &[&repo])).json()[0]["refs"], 2);
    assert_eq!(report["last_seq"], 5, "HEAD is pointed to its branch again");
    for format in ["files", "reftable"] {
        let target = scratch.path().join(format);
        let options = ["export", "--ref-format", format, "--json"];
        assert_eq!(run(arguments(&options, &[&repo, &target])).json()[0]["refs"], 2);
        assert_eq!(refs(&target), refs(work.path()));
        let log = ["reflog", "--date=raw"];
        assert_eq!(git::run(&target, &log), git::run(work.path(), &log));
        assert_eq!(git::run(&target, &["rev-parse", "--show-ref-format"]), format);
        git::run(&target, &["fsck"]);
    }
    import(work.path(), &repo, &[]).failed(1, "exists already");
    let target = scratch.path().join("files");
    for (target, found) in [
        (&target, "found a git repository"),
        (&repo, "found a refstone repository"),
        (&scratch.path().to_owned(), "found a directory"),
        (&repo.join("config"), "found a file"),
    ] {
        let told = run(arguments(&["export"], &[&repo, target]));
        told.failed(1, found);
        told.failed(1, "\nhint: an export makes something new");
    }
}

// Breaks: not linking the objects.
#[test]
fn what_was_imported_can_be_cloned_from_a_server() {
    let work = Work::new();
    let data = TempDir::new().unwrap();
    import(work.path(), &data.path().join("r.git"), &[]).done();
    let server = refstone_tests::process::Server::start(data.path());
    let clone = data.path().join("clone");
    git::run(data.path(), &["clone", "-q", &server.url("r"), clone.to_str().unwrap()]);
    assert_eq!(git::run(&clone, &["rev-parse", "HEAD"]), work.commits[1]);
}

#[test]
fn a_source_that_is_none_makes_nothing() {
    let scratch = TempDir::new().unwrap();
    let repo = scratch.path().join("r.git");
    let empty = TempDir::new().unwrap();
    import(empty.path(), &repo, &[]).failed(3, "not a git repository");
    let file = empty.path().join("moves");
    fs::write(&file, "no stream").unwrap();
    let run = import(&file, &repo, &[]);
    run.failed(2, "no stream of moves");
    fs::write(&file, b"ARROW1\0\0").unwrap();
    let run = import(&file, &repo, &[]);
    run.failed(2, "it is an Arrow IPC file; write a stream");
    assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
    import(&empty.path().join("absent"), &repo, &[]).failed(3, "cannot open it");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
}

// Breaks: importing the empty refs that git sees there; taking the columns that fit.
#[test]
fn what_is_in_refstone_already_is_not_imported() {
    let repo = Repo::new();
    spans(&repo);
    let target = repo.scratch.path().join("again.git");
    for source in [repo.path(), repo.log_dir()] {
        import(&source, &target, &[]).failed(2, "expected a git repository, found a refstone one");
    }
    import(&repo.live(), &target, &[]).failed(2, "it is the live log of a refstone store");
    let parquet = repo.scratch.path().join("moves.parquet");
    repo.run("export", &["--history", "--format", "parquet", parquet.to_str().unwrap()]).done();
    import(&parquet, &target, &[]).failed(2, "it is a Parquet file");
    assert!(!target.exists());
}

/// A repository whose reflog takes a while.
fn long_source() -> Work {
    let work = Work::new();
    let [old, new] = &work.commits;
    let mut log = fs::File::create(work.path().join(".git/logs/refs/heads/main")).unwrap();
    let lines = (0..60_000).map(|n| format!("{old} {new} A <a> {} +0000\tm\n", 1_700_000_000 + n));
    log.write_all(lines.collect::<String>().as_bytes()).unwrap();
    work
}

fn start(source: &Path, repo: &Path) -> Child {
    let mut command = refstone();
    command.args(arguments(&["import", "--progress"], &[source, repo]));
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until the log being filled holds a few moves.
fn wait_for_moves(scratch: &Path) {
    let started = Instant::now();
    let is_under_way = |path: &PathBuf| {
        fs::metadata(path.join("refstone/refs.arrow")).is_ok_and(|file| file.len() > 1 << 20)
    };
    while !entries(scratch).iter().any(is_under_way) {
        assert!(started.elapsed() < Duration::from_secs(60), "it never came to write");
        sleep(Duration::from_millis(2));
    }
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

// Breaks: building in place; not removing what a killed import left.
#[test]
fn an_import_that_is_interrupted_or_killed_leaves_nothing_and_runs_again() {
    let work = long_source();
    let scratch = TempDir::new().unwrap();
    let repo = scratch.path().join("r.git");
    for signal in ["-INT", "-TERM", "-KILL"] {
        let child = start(work.path(), &repo);
        wait_for_moves(scratch.path());
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status();
        assert!(sent.unwrap().success());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!repo.exists(), "{signal}");
        match signal {
            "-KILL" => assert_eq!(entries(scratch.path()).len(), 1, "it had no time to tidy up"),
            _ => {
                let code = if signal == "-INT" { 130 } else { 143 };
                assert_eq!(output.status.code(), Some(code), "{said}");
                assert!(said.contains("error: interrupted; nothing was made"), "{said}");
                assert!(entries(scratch.path()).is_empty());
            }
        }
        assert!(said.contains("writing: "), "progress was asked for: {said}");
    }
    let told = import(work.path(), &repo, &["--json", "--progress"]);
    assert_eq!(told.json()[0]["moves"], 60_002);
    assert!(told.stderr.contains("\nsealing: "), "{told:?}");
    assert_eq!(entries(scratch.path()), std::slice::from_ref(&repo));
    let verified = &run(arguments(&["verify", "--json"], &[&repo])).json()[0];
    assert_eq!((&verified["ok"], &verified["transactions"]), (&true.into(), &0.into()));
    assert_eq!(verified["history"]["rows"], 60_003, "nothing is left for the next writer to seal");
    for (command, words) in [
        ("verify", "checking rows: 0 of 180009\n"),
        ("rebuild", "making tables, rows: 0 of 120006\n"),
    ] {
        let told = run(arguments(&[command, "--progress"], &[&repo]));
        assert!(told.stderr.contains(words), "{told:?}");
        assert_eq!(run(arguments(&[command], &[&repo])).stderr, "", "nobody asked for it");
    }
    let listed = run(arguments(&["refs"], &[&repo]));
    assert_eq!(listed.done(), format!("{} refs/heads/main\n", work.commits[1]));
}

// Breaks: sweeping away what another import still builds.
#[test]
fn of_two_imports_one_succeeds_and_none_disturbs_the_other() {
    let work = long_source();
    let scratch = TempDir::new().unwrap();
    let repo = scratch.path().join("r.git");
    let first = start(work.path(), &repo);
    wait_for_moves(scratch.path());
    let children = [first, start(work.path(), &repo)];
    let codes = children.map(|child| child.wait_with_output().unwrap().status.code().unwrap());
    assert_eq!(codes.iter().filter(|&&code| code == 0).count(), 1, "{codes:?}");
    assert!(codes.contains(&1), "{codes:?}");
    run(arguments(&["verify"], &[&repo])).done();
    assert_eq!(entries(scratch.path()), [repo]);
}

#[test]
fn a_projection_is_read_by_git_and_as_fresh_as_its_last_run() {
    let work = Work::new();
    let scratch = TempDir::new().unwrap();
    let repo = scratch.path().join("r.git");
    import(work.path(), &repo, &[]).done();
    let before = git::git(&repo).args(["log", "--format=%H"]).output().unwrap();
    assert!(!before.status.success(), "git knows nothing before");
    let told = run(arguments(&["project", "--json"], &[&repo]));
    assert_eq!((&told.json()[0]["refs"], &told.json()[0]["seq"]), (&1.into(), &5.into()));
    let [old, new] = &work.commits;
    assert_eq!(git::run(&repo, &["log", "--format=%H"]), format!("{new}\n{old}"));
    git::run(scratch.path(), &["clone", "-q", "r.git", "clone"]);

    let script = format!("update refs/heads/main {old} {new}\n");
    let repository: &[&Path] = &[&repo];
    let update = arguments(&["update-ref", "--stdin"], repository);
    crate::command::run_with(update, script.as_bytes()).done();
    assert_eq!(git::run(&repo, &["rev-parse", "HEAD"]), *new, "not fresher than its run");
    run(arguments(&["project"], &[&repo])).done();
    assert_eq!(git::run(&repo, &["rev-parse", "HEAD"]), *old);
    let refused = git::git(&repo).args(["update-ref", "refs/heads/x", new]).output().unwrap();
    assert!(!refused.status.success(), "git still moves no ref there");
}

fn spans(repo: &Repo) {
    let [one, two] = ['1', '2'].map(crate::command::oid);
    repo.update(&format!("create refs/heads/a {one}\n"));
    let message = ["--stdin", "-m", "why, \"so\"", "--actor", "bo\\b"];
    let script = format!("update refs/heads/a {two} {one}\ncreate refs/heads/b {one}\n");
    repo.run_with("update-ref", &message, script.as_bytes()).done();
    repo.update("delete refs/heads/b\n");
}

#[test]
fn any_span_of_history_comes_out_as_json_lines_and_csv() {
    let repo = Repo::new();
    spans(&repo);
    let json = repo.run("export", &["--history", "--format", "jsonl"]);
    let mut newest_first = repo.run("log", &["--json", "--all"]).json();
    newest_first.reverse();
    assert_eq!(json.json().len(), 4);
    assert_eq!(json.json().iter().map(|m| &m["seq"]).collect::<Vec<_>>(), [1, 2, 2, 3]);
    assert_eq!(json.json()[0], newest_first[0]);

    let file = repo.scratch.path().join("moves.csv");
    let path = file.to_str().unwrap();
    let span = ["--history", "--format", "csv", "--from", "2", "--to", "2", path];
    let told = repo.run("export", &span);
    assert_eq!(told.done(), format!("exported 2 moves to {path} (csv)\n"));
    let csv = fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = csv.lines().collect();
    let [one, two] = ['1', '2'].map(crate::command::oid);
    let at = json.json()[1]["at"].as_str().unwrap().to_owned();
    let why = "\"why, \"\"so\"\"\"";
    assert_eq!(
        lines,
        [
            "seq,at,actor,refname,old_oid,new_oid,symref,message".to_owned(),
            format!("2,{at},bo\\\\b,refs/heads/a,{one},{two},,{why}"),
            format!("2,{at},bo\\\\b,refs/heads/b,,{one},,{why}"),
        ]
    );
    repo.run("export", &span).failed(1, "expected nothing there yet, found a file");
    let other = repo.scratch.path().join("moves.parquet");
    let other = other.to_str().unwrap();
    let told = repo.run("export", &["--history", "--format", "parquet", "--json", other]);
    let expected = serde_json::json!({"path": other, "format": "parquet", "moves": 4});
    assert_eq!(told.json(), [expected]);
    // Standard output has the moves.
    repo.run("export", &["--history", "--format", "csv", "--json"]).failed(2, "<TARGET>");
    repo.run("export", &["--history"]).failed(2, "--format");
    repo.run("export", &[]).failed(2, "TARGET");
}
