//! Disks that are full or read-only: pushes are refused and say why, fetches go on.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use refstone_log::{LogReader, OsEnv};
use refstone_tests::process::{Server, git_fails, git_ok, refstone, run};
use refstone_tests::tmpfs::Tmpfs;
use tempfile::TempDir;

use crate::histories::commit;

/// A repository with one commit, on an ordinary disk.
struct Work {
    root: TempDir,
    source: PathBuf,
}

impl Work {
    fn new() -> Work {
        let root = TempDir::new().unwrap();
        let source = root.path().join("source");
        fs::create_dir(&source).unwrap();
        git_ok(&source, &["init", "--quiet", "--initial-branch", "trunk"]);
        commit(&source, "first", "1");
        Work { root, source }
    }

    fn push(&self, url: &str) {
        git_ok(&self.source, &["push", "--quiet", url, "trunk"]);
    }

    fn push_fails(&self, url: &str, words: &str) {
        let said = git_fails(&self.source, &["push", url, "trunk"]);
        assert!(said.contains(words), "{said}");
    }

    /// Clones, and gives the commit that is there.
    fn clone(&self, url: &str, name: &str) -> String {
        git_ok(self.root.path(), &["clone", "--quiet", url, name]);
        head(&self.root.path().join(name))
    }
}

fn head(dir: &Path) -> String {
    git_ok(dir, &["rev-parse", "HEAD"])
}

fn command(arguments: &[&str], repository: &Path) -> Output {
    run(Command::new(refstone()).args(arguments).arg(repository).env("LOGNAME", "tester"))
}

fn assert_reads(repository: &Path) {
    for arguments in [&["refs"][..], &["log"], &["verify"]] {
        let output = command(arguments, repository);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        assert!(!output.stdout.is_empty(), "{arguments:?}");
    }
}

/// Nobody writes; the command says why and ends as for any hindrance of the environment.
fn assert_not_written(repository: &Path, words: &[&str]) {
    let output = command(&["update-ref", "--stdin"], repository);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    for part in words {
        assert!(said.contains(part), "{part} in {said}");
    }
}

/// A repository that was read-only is looked at again every few seconds.
fn push_once_it_is_writable(work: &Work, url: &str) {
    let patience = Instant::now() + Duration::from_secs(20);
    while Instant::now() < patience {
        let push = run(Command::new("git").current_dir(&work.source).args(["push", url, "trunk"]));
        if push.status.success() {
            return;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    panic!("the server never noticed that it may write again");
}

// Breaks: no floor for the server; a pack that is received and then refused; a refusal that needs a
// restart.
#[test]
fn a_server_short_of_space_refuses_pushes_and_goes_on_when_there_is_some() {
    let Some(disk) = Tmpfs::mount(24) else { return };
    let server = Server::start_with(&disk.path().join("data"), &["--min-free", "8M"]);
    let (work, url) = (Work::new(), server.url("r"));
    work.push(&url);
    let before = head(&work.source);
    disk.fill_but(7 << 10);
    commit(&work.source, "second", "2");
    work.push_fails(&url, "the server is short of disk space and takes no pushes at the moment");
    assert_eq!(work.clone(&url, "meanwhile"), before);
    let packs = fs::read_dir(disk.path().join("data/r.git/objects/pack")).unwrap();
    let packs = packs.filter(|entry| {
        entry.as_ref().is_ok_and(|e| e.path().extension().is_some_and(|end| end == "pack"))
    });
    assert_eq!(packs.count(), 1, "the refused pack was received");
    disk.empty();
    work.push(&url);
    assert_eq!(work.clone(&url, "after"), head(&work.source));
    server.finish();
}

// Break: a command that opens the store with another floor than it was told.
#[test]
fn the_command_keeps_the_floor_it_is_told() {
    let Some(disk) = Tmpfs::mount(24) else { return };
    let repository = disk.path().join("r.git");
    assert!(command(&["init"], &repository).status.success());
    let create = |floor: &str, name: &str| {
        let script = disk.path().join("script");
        let line = format!("create refs/heads/{name} {}\n", "1".repeat(40));
        fs::write(&script, line).unwrap();
        let mut update = Command::new(refstone());
        update.args(["update-ref", "--stdin", "--min-free", floor]).arg(&repository);
        run(update.env("LOGNAME", "tester").stdin(fs::File::open(script).unwrap()))
    };
    let refused = create("auto", "a");
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    for part in ["are free on this file system", "less than 64.0 MiB", "--min-free"] {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert!(create("4M", "a").status.success());
    assert!(create("0", "b").status.success());
    assert_eq!(create("lots", "c").status.code(), Some(2));
    let listed = command(&["refs"], &repository).stdout;
    assert_eq!(String::from_utf8(listed).unwrap().lines().count(), 2);
}

// Breaks: a full disk that is told as any failure to seal; a log that is changed by it.
#[test]
fn a_compaction_on_a_full_disk_says_so_and_is_done_when_there_is_space() {
    let Some(disk) = Tmpfs::mount(24) else { return };
    let repository = disk.path().join("r.git");
    assert!(command(&["init"], &repository).status.success());
    let script = disk.path().join("script");
    let line = |n| format!("create refs/heads/{n} {n:040x}\n");
    fs::write(&script, (1..=20_000).map(line).collect::<String>()).unwrap();
    let mut update = Command::new(refstone());
    update.args(["update-ref", "--stdin", "--min-free", "0"]).arg(&repository);
    let updated = run(update.env("LOGNAME", "tester").stdin(fs::File::open(script).unwrap()));
    assert!(updated.status.success(), "{updated:?}");
    disk.fill_but(64);
    let full = command(&["compact"], &repository);
    assert_eq!(full.status.code(), Some(3), "{full:?}");
    let said = String::from_utf8_lossy(&full.stderr).into_owned();
    for part in ["No space left on device", "hint: no transaction is lost by it", "free some space"]
    {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert_reads(&repository);
    disk.empty();
    assert!(command(&["compact"], &repository).status.success());
    assert_reads(&repository);
}

// Breaks: a server that answers nothing of a repository it cannot write; one that has to be
// restarted when it can.
#[test]
fn a_read_only_file_system_is_served_to_fetches() {
    let Some(disk) = Tmpfs::mount(24) else { return };
    let data = disk.path().join("data");
    let start = || Server::start_with(&data, &["--min-free", "1M"]);
    let (work, server) = (Work::new(), start());
    work.push(&server.url("r"));
    server.finish();
    disk.set_read_only(true);
    let repository = data.join("r.git");
    assert_not_written(&repository, &["can be read, but not written", "LOCK", "hint: `refs`"]);
    assert_reads(&repository);
    let server = start();
    let url = server.url("r");
    assert_eq!(work.clone(&url, "meanwhile"), head(&work.source));
    commit(&work.source, "second", "2");
    work.push_fails(&url, "this repository is read-only at the moment");
    disk.set_read_only(false);
    push_once_it_is_writable(&work, &url);
    assert_eq!(work.clone(&url, "after"), head(&work.source));
    server.finish();
}

// Breaks: a torn end, and a disk too full to save it, that make a repository unreadable; torn bytes
// cleared although they were not saved.
#[test]
fn a_torn_log_on_a_full_disk_is_served_to_fetches() {
    let Some(disk) = Tmpfs::mount(24) else { return };
    let data = disk.path().join("data");
    let start = || Server::start_with(&data, &["--min-free", "1M"]);
    let (work, server) = (Work::new(), start());
    work.push(&server.url("r"));
    server.finish();
    let repository = data.join("r.git");
    let live = repository.join("refstone/refs.arrow");
    tear(&repository.join("refstone"), &live);
    let torn = fs::read(&live).unwrap();
    disk.fill_but(0);
    let words = ["refs.arrow.cut-1: cannot save torn bytes", "can be read, but not written"];
    assert_not_written(&repository, &words);
    assert_reads(&repository);
    let server = start();
    let url = server.url("r");
    assert_eq!(work.clone(&url, "meanwhile"), head(&work.source));
    commit(&work.source, "second", "2");
    work.push_fails(&url, "this repository is read-only at the moment");
    assert!(fs::read(&live).unwrap() == torn, "the torn bytes are not saved, and are changed");
    disk.empty();
    push_once_it_is_writable(&work, &url);
    assert!(repository.join("refstone/refs.arrow.cut-1").exists());
    server.finish();
}

/// Leaves bytes of a write behind the end, as a crash does.
fn tear(log: &Path, live: &Path) {
    let mut reader = LogReader::open(&OsEnv, log).unwrap();
    while reader.next().unwrap().is_some() {}
    let file = fs::File::options().write(true).open(live).unwrap();
    file.write_all_at(&[7; 9000], reader.offset() + 8).unwrap();
}
