use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use refstone_log::{LogReader, OsEnv};
use serde_json::json;

use crate::command::{Repo, Run, binary, feed, oid, run};

fn create(repo: &Repo, name: &[u8]) {
    let input = [b"create ", name, b"\0", oid('1').as_bytes(), b"\0"].concat();
    repo.run_with("update-ref", &["--stdin", "-z"], &input).done();
}

// Breaks: sorting names as text, or a directory's refs before the names beside it; writing names
// lossily.
#[test]
fn names_are_raw_bytes_in_unsigned_order() {
    let repo = Repo::new();
    let sorted: [&[u8]; 5] = [
        b"refs/heads/A",
        b"refs/heads/a-b",
        b"refs/heads/a/b",
        "refs/heads/a\u{e4}".as_bytes(),
        b"refs/heads/a\xff",
    ];
    sorted.iter().rev().for_each(|name| create(&repo, name));
    let listed = repo.run("refs", &[]);
    let lines = sorted.map(|name| [oid('1').as_bytes(), b" ", name, b"\n"].concat());
    assert_eq!((listed.code, listed.stdout), (0, lines.concat()));
}

#[test]
fn a_prefix_is_bytes_and_no_pattern() {
    let repo = Repo::new();
    for name in [&b"refs/heads/a"[..], b"refs/heads/ab", b"refs/tags/a"] {
        create(&repo, name);
    }
    let listed = repo.run("refs", &["refs/heads/a"]);
    assert_eq!(listed.done().lines().count(), 2);
    assert_eq!(repo.run("refs", &["refs/heads/ab"]).done().lines().count(), 1);
    assert_eq!(repo.run("refs", &["refs/heads/*"]).done(), "");
}

// Breaks: counting what is not shown; a page that begins with the name it is to be behind.
#[test]
fn a_listing_is_paged_and_narrowed() {
    let repo = Repo::new();
    for name in [&b"refs/heads/a"[..], b"refs/heads/b", b"refs/heads/tmp/x", b"refs/tags/a"] {
        create(&repo, name);
    }
    repo.update("symref-create refs/heads/aa refs/heads/a\n");
    let listed = |options: &[&str]| {
        let run = repo.run("refs", options);
        let names = run.done().lines().map(|line| line.split_once(' ').unwrap().1.to_owned());
        names.collect::<Vec<_>>()
    };
    let first = listed(&["refs/heads/", "--limit", "2"]);
    assert_eq!(first, ["refs/heads/a", "refs/heads/b"]);
    assert_eq!(listed(&["refs/heads/", "--after", &first[1]]), ["refs/heads/tmp/x"]);
    let narrowed = ["--exclude", "refs/heads/tmp/", "--exclude", "refs/tags/"];
    assert_eq!(listed(&narrowed), first);
    assert_eq!(listed(&["--limit", "0"]), [""; 0]);

    repo.update(&format!("update refs/heads/b {}\n", oid('2')));
    let at = ["--points-at", &oid('1')];
    assert_eq!(listed(&at), ["refs/heads/a", "refs/heads/tmp/x", "refs/tags/a"]);
    assert_eq!(listed(&[&at[..], &["refs/heads/"], &narrowed].concat()), ["refs/heads/a"]);
    assert_eq!(listed(&[&at[..], &["--limit", "1"]].concat()), ["refs/heads/a"]);
    assert_eq!(listed(&[&at[..], &["--at", "2"]].concat()), ["refs/heads/a", "refs/heads/b"]);
    repo.run("compact", &[]).done();
    assert_eq!(listed(&at), ["refs/heads/a", "refs/heads/tmp/x", "refs/tags/a"]);
    repo.run("refs", &["--points-at", "1234"]).failed(2, "an object id has 20 or 32 bytes");
}

#[test]
fn a_short_name_finds_nothing_and_is_explained() {
    let repo = Repo::new();
    create(&repo, b"refs/heads/main");
    let told = repo.run("refs", &["main"]);
    let hint = "hint: no full name starts with 'main'; try refs/heads/main\n";
    assert_eq!((told.done(), told.stderr.as_str()), ("", hint));
    for silent in [&["refs/none/"][..], &["--after", "z", "main"], &["refs/heads/main"]] {
        assert_eq!(repo.run("refs", silent).stderr, "");
    }
}

#[test]
fn head_and_symbolic_refs_are_shown_when_asked_for() {
    let repo = Repo::new();
    let one = oid('1');
    repo.update(&format!(
        "create refs/heads/main {one}\nsymref-create refs/remotes/o/HEAD refs/remotes/o/main\n"
    ));
    assert_eq!(repo.run("refs", &[]).done(), format!("{one} refs/heads/main\n"));
    let expected = format!(
        "ref: refs/heads/main HEAD\n{one} refs/heads/main\n\
         ref: refs/remotes/o/main refs/remotes/o/HEAD\n"
    );
    assert_eq!(repo.run("refs", &["--symbolic"]).done(), expected);

    repo.update(&format!("option no-deref\nupdate HEAD {one}\n"));
    assert_eq!(repo.run("refs", &[]).done(), format!("{one} refs/heads/main\n"), "detached");
    assert!(repo.run("refs", &["--symbolic"]).done().starts_with(&format!("{one} HEAD\n")));
}

#[test]
fn json_names_are_text_and_their_bytes_are_there_when_they_are_not() {
    let repo = Repo::new();
    create(&repo, b"refs/heads/a\xff");
    let expected = [
        json!({"name": "HEAD", "oid": null, "symref": "refs/heads/main"}),
        json!({
            "name": "refs/heads/a\\xff", "name_hex": "726566732f68656164732f61ff",
            "oid": oid('1'), "symref": null,
        }),
    ];
    assert_eq!(repo.run("refs", &["--json", "--symbolic"]).json(), expected);
}

#[test]
fn a_repository_is_named_by_its_path_or_by_that_of_its_log() {
    let repo = Repo::new();
    create(&repo, b"refs/heads/a");
    let by_log = run(["refs".as_ref(), repo.log_dir().as_os_str()]);
    assert_eq!(by_log.done(), repo.run("refs", &[]).done());
}

#[test]
fn a_missing_repository_is_told_with_what_to_do() {
    let repo = Repo::new();
    let scratch = repo.scratch.path().to_str().unwrap();
    for command in ["refs", "log", "verify"] {
        let told = run([command, &format!("{scratch}/none.git")]);
        told.failed(3, "none.git: there is no such directory\nhint: ");
        let told = run([command, scratch]);
        told.failed(
            3,
            "there is no directory `refstone` in it\nhint: name one of the repositories",
        );
        told.failed(3, &format!("such as {}\n", repo.path().display()));
        run([command, repo.live().to_str().unwrap()])
            .failed(3, "this is no directory\nhint: name a");
    }
}

/// A repository with one published transaction and one that a crash left unpublished.
fn crashed() -> Repo {
    let repo = Repo::new();
    create(&repo, b"refs/heads/published");
    create(&repo, b"refs/heads/left");
    repo.unpublish_newest();
    repo
}

fn names(run: &Run) -> Vec<&str> {
    run.done().lines().map(|line| line.rsplit_once('/').unwrap().1).collect()
}

// Break: listing without a look behind the published end. `left` may have been acknowledged.
#[test]
fn what_a_crash_left_unpublished_is_recovered_first() {
    for command in ["refs", "log"] {
        let repo = crashed();
        let told = repo.run(command, &[]);
        assert!(told.done().contains("refs/heads/left"), "{told:?}");
        assert!(told.stderr.contains("recovered 1 transaction"), "{told:?}");
        let mut reader = LogReader::open(&OsEnv, &repo.log_dir()).unwrap();
        while reader.next().unwrap().is_some() {}
        assert_eq!((reader.seq().get(), reader.has_unpublished_tail().unwrap()), (2, false));
        assert_eq!(repo.run(command, &[]).stderr, "", "there is nothing left to recover");
    }
}

// Break: opening the store for every listing, which fails beside a writer; or showing what the
// writer has not made durable.
#[test]
fn beside_a_writer_the_unpublished_part_is_in_flight_and_not_shown() {
    let repo = crashed();
    let before = fs::read(repo.live()).unwrap();
    let _lock = repo.lock();
    let told = repo.run("refs", &[]);
    assert_eq!((names(&told), told.stderr.as_str()), (vec!["published"], ""));
    assert_eq!(repo.run("log", &[]).done().lines().count(), 1);
    assert_eq!(fs::read(repo.live()).unwrap(), before, "nothing was touched");
}

#[test]
fn where_nothing_may_be_written_the_published_part_is_shown_and_said_to_be_it() {
    let repo = crashed();
    let before = fs::read(repo.live()).unwrap();
    let told = run_without_rights(&repo);
    assert_eq!(names(&told), ["published"]);
    assert!(told.stderr.contains("this shows the published part"), "{told:?}");
    assert_eq!(fs::read(repo.live()).unwrap(), before);
}

/// Lists refs as somebody who may read the repository and not write it.
fn run_without_rights(repo: &Repo) -> Run {
    const NOBODY: u32 = 65534;
    let chmod = |path: &std::path::Path, mode| {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    // The build directory may be closed to others.
    let copy = repo.scratch.path().join("refstone-copy");
    fs::copy(binary(), &copy).unwrap();
    chmod(repo.scratch.path(), 0o755);
    chmod(&copy, 0o755);
    for entry in fs::read_dir(repo.log_dir()).unwrap() {
        chmod(&entry.unwrap().path(), 0o444);
    }
    chmod(&repo.log_dir(), 0o555);
    let mut command = std::process::Command::new(&copy);
    command.arg("refs").arg(repo.path());
    let is_root =
        fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0);
    if is_root {
        command.uid(NOBODY).gid(NOBODY);
    }
    let told = feed(command, b"");
    chmod(&repo.log_dir(), 0o755);
    told
}
