//! Repositories as directories: locked, damaged, replaced, left over.

use std::fs;
use std::io::{Read, Write};

use refstone_server::CreateOnPush;

use crate::logs::logged;
use crate::support::{Client, TestServer, empty_pack, git_in, names_in, post_request, store};

#[test]
fn a_server_that_may_not_create_says_what_is_missing() {
    let server = TestServer::with_options(|options| options.create_on_push = CreateOnPush::Never);
    let client = Client::new();
    client.commit("a");
    let complaint = client.git_fails(["push", &server.url("r"), "main"]);
    assert!(complaint.contains("there is no repository 'r.git'"), "{complaint}");
    let request =
        server.push_raw("r", &[format!("{0} {0} refs/heads/x", "0".repeat(40)).as_bytes()], b"");
    request.expect(404, "no repository");
    assert!(!server.path("r").exists());
}

#[test]
fn a_log_that_another_process_holds_is_unavailable_for_now() {
    let server = TestServer::start();
    server.init("r", refstone::ObjectFormat::Sha1);
    let holder = store(&server.path("r"));
    let reply = server.get("/r.git/info/refs?service=git-upload-pack");
    reply.expect(503, "the reference log of r.git cannot be opened");
    holder.close().unwrap();
    drop(holder);
    let reply = server.get("/r.git/info/refs?service=git-upload-pack");
    reply.expect(200, "capabilities^{}");
}

/// Red when a client is told to run `refstone init`, or where the server keeps its data; and when
/// the operator is not.
#[test]
fn a_log_that_is_gone_is_explained_to_the_operator_only() {
    let server = TestServer::start();
    let client = Client::new();
    client.commit("a");
    client.git(["push", &server.url("gone"), "main"]);
    let server = server.restart_after(|data| {
        fs::remove_file(data.join("gone.git/refstone/refs.arrow")).unwrap();
    });
    let told = "the reference log of gone.git cannot be opened; the server's log has the reason\n";
    for page in ["info/refs?service=git-upload-pack", "info/refs?service=git-receive-pack"] {
        let reply = server.get(&format!("/gone.git/{page}"));
        assert_eq!((reply.status, reply.text().as_str()), (500, told));
    }
    let path = server.path("gone").display().to_string();
    let lines = logged(&["ERROR", "the reference log of gone.git cannot be opened", &path]);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines.iter().all(|line| !line.contains('\n')), "{lines:?}");
}

/// Red when a push that fails after its commands were read is answered with a bare HTTP status: git
/// then says `RPC failed` and `Everything up-to-date`.
#[test]
fn a_push_that_cannot_create_its_repository_gets_a_report() {
    let server = TestServer::start();
    // Absent for whoever follows it, and in the way of a rename.
    std::os::unix::fs::symlink("nowhere", server.path("taken")).unwrap();
    let client = Client::new();
    let tip = client.commit("a");
    let reason = "cannot create the repository: its name is taken; the server's log has more";
    let complaint = client.git_fails(["push", &server.url("taken"), "main"]);
    for part in [
        format!("remote: error: {reason}"),
        format!("error: remote unpack failed: {reason}"),
        format!("main -> main ({reason})"),
    ] {
        assert!(complaint.contains(&part), "{part} in {complaint}");
    }
    assert!(!complaint.contains("Everything up-to-date"), "{complaint}");
    assert_eq!(names_in(server.data.path()), ["taken.git"]);

    let zero = "0".repeat(40);
    let commands = ["a", "b"].map(|branch| format!("{zero} {tip} refs/heads/{branch}"));
    let mut body = Vec::new();
    for (command, capabilities) in commands.iter().zip(["\0report-status", ""]) {
        let line = [command.as_bytes(), capabilities.as_bytes()];
        refstone_server::wire::pkt::encode(&mut body, &line).unwrap();
    }
    body.extend_from_slice(b"0000");
    body.extend_from_slice(&empty_pack());
    let reply = server.post("taken", "git-receive-pack", "", &body);
    reply.expect(200, &format!("unpack {reason}\n"));
    for branch in ["a", "b"] {
        reply.expect(200, &format!("ng refs/heads/{branch} {reason}\n"));
    }
    assert!(reply.body.ends_with(b"\n0000"), "{}", reply.text());

    let path = server.path("taken").display().to_string();
    let lines = logged(&["ERROR", "repository=taken.git", &path]);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(logged(&["INFO", "repository=taken.git", "refused=2"]).len(), 1);
}

/// Red when the failure of the operating system is not told, and when a push makes a data
/// directory: what was unmounted or moved away would be served empty.
#[test]
fn a_data_directory_that_vanished_is_not_made_again() {
    let server = TestServer::start();
    let client = Client::new();
    let tip = client.commit("a");
    fs::remove_dir(server.data.path()).unwrap();
    let command = format!("{} {tip} refs/heads/main", "0".repeat(40));
    let reply = server.push_raw("r", &[command.as_bytes()], &empty_pack());
    reply.expect(200, "ng refs/heads/main cannot create the repository: entity not found");
    let complaint = client.git_fails(["push", &server.url("r"), "main"]);
    assert!(complaint.contains("entity not found"), "{complaint}");
    assert!(!server.data.path().exists());
}

/// A large push is not answered before it is read. Red when the connection is closed under it.
#[test]
fn a_large_push_that_cannot_create_its_repository_reads_the_report() {
    let server = TestServer::start();
    std::os::unix::fs::symlink("nowhere", server.path("taken")).unwrap();
    let tip = "1".repeat(40);
    let command = format!("{} {tip} refs/heads/main\0report-status", "0".repeat(40));
    let mut body = format!("{:04x}{command}0000", command.len() + 4).into_bytes();
    body.resize(8 << 20, b'x');
    let reply = server.raw(&post_request("taken", "git-receive-pack", "", &body));
    reply.expect(200, "ng refs/heads/main cannot create the repository");
}

/// Red when the answer is a bare 404.
#[test]
fn a_deletion_in_an_absent_repository_gets_a_report() {
    let server = TestServer::start();
    let command = format!("{} {} refs/heads/x", "1".repeat(40), "0".repeat(40));
    let reply = server.push_raw("absent", &[command.as_bytes()], b"");
    let reason = "there is no repository 'absent.git' on this server";
    reply.expect(200, "unpack ok\n");
    reply.expect(200, &format!("ng refs/heads/x {reason}\n"));
    reply.expect(200, &format!("error: {reason}\n"));
    assert!(!server.path("absent").exists());
}

/// As `git init` does. Red when the parents are not made.
#[test]
fn init_makes_the_directories_above() {
    let data = tempfile::tempdir().unwrap();
    let options = refstone_server::InitOptions::default();
    let paths = ["x/y/a.git", "x/y/b.git", "x/z/c.git"].map(|path| data.path().join(path));
    std::thread::scope(|scope| {
        let create = |path| refstone_server::init_repository(path, &options).unwrap();
        paths.iter().for_each(|path| drop(scope.spawn(move || create(path))));
    });
    for path in &paths {
        store(path).close().unwrap();
    }
    fs::write(data.path().join("file"), "").unwrap();
    let below = data.path().join("file/x/d.git");
    let error = refstone_server::init_repository(&below, &options).unwrap_err();
    let place = data.path().join("file");
    assert!(error.to_string().contains(&place.display().to_string()), "{error}");
}

#[test]
fn a_plain_git_repository_is_not_served() {
    let server = TestServer::start();
    let path = server.path("r");
    fs::create_dir(&path).unwrap();
    git_in(&path, ["init", "--bare", "--quiet"]).succeeds();
    let reply = server.get("/r.git/info/refs?service=git-upload-pack");
    reply.expect(500, "the reference log of r.git cannot be opened");
}

#[test]
fn a_repository_that_is_removed_or_replaced_is_noticed() {
    let server = TestServer::start();
    let client = Client::new();
    let tip = client.commit("a");
    client.git(["push", &server.url("r"), "main"]);
    fs::remove_dir_all(server.path("r")).unwrap();
    let reply = server.get("/r.git/info/refs?service=git-upload-pack");
    reply.expect(404, "no repository");
    client.git(["push", &server.url("r"), "main"]);
    assert_eq!(server.oid("r", "refs/heads/main"), tip);
}

#[test]
fn what_a_dead_server_left_is_removed_when_the_repository_is_opened() {
    let server = TestServer::start();
    let client = Client::new();
    client.commit("a");
    client.git(["push", &server.url("r"), "main"]);
    let server = server.restart_after(|data| {
        let repository = data.join("r.git");
        fs::create_dir(repository.join("objects/tmp_objdir-incoming-abc")).unwrap();
        fs::create_dir_all(repository.join("refstone-projections/7-abc")).unwrap();
    });
    Client::clone(&server.url("r"), []).fsck();
    server.assert_tidy("r");
    assert!(!server.path("r").join("refstone-projections/7-abc").exists());
}

#[test]
fn git_in_the_repository_neither_moves_refs_nor_drops_objects() {
    let server = TestServer::start();
    let client = Client::new();
    let tip = client.commit("a");
    client.git(["push", &server.url("r"), "main"]);
    let path = server.path("r");
    let local = format!("file://{}", path.display());
    let complaint = client.git_fails(["push", &local, "main:refs/heads/local"]);
    assert!(complaint.contains("live in refstone/"), "{complaint}");
    git_in(&path, ["gc", "--prune=now", "--quiet"]);
    git_in(&path, ["repack", "-a", "-d", "--quiet"]);
    let clone = Client::clone(&server.url("r"), []);
    assert_eq!(clone.head(), tip);
    clone.fsck();
}

#[test]
fn packs_are_merged_beside_the_server_without_losing_objects() {
    let server = TestServer::start();
    let client = Client::new();
    for index in 0..8 {
        client.commit(&format!("file{index}"));
        client.git(["push", &server.url("r"), "main"]);
    }
    assert_eq!(server.pack_count("r"), 8);
    for step in [vec!["write"], vec!["repack", "--batch-size=0"], vec!["expire"]] {
        let arguments = ["multi-pack-index"].into_iter().chain(step);
        git_in(&server.path("r"), arguments).succeeds();
    }
    assert_eq!(server.pack_count("r"), 1);
    client.commit("after");
    client.git(["push", &server.url("r"), "main"]);
    let clone = Client::clone(&server.url("r"), []);
    assert_eq!(clone.head(), client.head());
    clone.fsck();
}

#[test]
fn one_damaged_ref_does_not_stop_pushes_to_others() {
    use refstone::{Edit, ObjectId, RefName, Transaction};
    let server = TestServer::start();
    let client = Client::new();
    client.commit("a");
    client.git(["push", &server.url("r"), "main"]);
    let server = server.restart_after(|data| {
        let store = store(&data.join("r.git"));
        let missing = ObjectId::from_bytes(&[1; 20]).unwrap();
        let damaged = Edit::create(RefName::new("refs/heads/damaged").unwrap(), missing);
        store.commit(&Transaction::new("test").with(damaged)).unwrap();
        store.close().unwrap();
    });
    let tip = client.commit("b");
    client.git(["push", &server.url("r"), "main"]);
    assert_eq!(server.oid("r", "refs/heads/main"), tip);
    client.git(["push", &server.url("r"), ":refs/heads/damaged"]);
    Client::clone(&server.url("r"), []).fsck();
}

/// Red when the log is taken as it is: the first push would mix ids of two hashes.
#[test]
fn a_log_of_another_hash_than_the_objects_is_refused() {
    let server = TestServer::start();
    server.init("r", refstone::ObjectFormat::Sha1);
    server.init("other", refstone::ObjectFormat::Sha256);
    let log = |name| server.path(name).join("refstone");
    fs::remove_dir_all(log("r")).unwrap();
    fs::rename(log("other"), log("r")).unwrap();
    let before = fs::read(log("r").join("refs.arrow")).unwrap();
    let reply = server.get("/r.git/info/refs?service=git-upload-pack");
    reply.expect(500, "the reference log of r.git cannot be opened");
    let lines = logged(&["ERROR", "names sha256 objects", "has sha1 ones"]);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(fs::read(log("r").join("refs.arrow")).unwrap(), before);
}

// Breaks: ending a listing that cannot be read as if it were whole, or without a word to the operator;
// refusing a push without one; telling clients where the server's files are.
#[test]
fn a_damaged_block_of_a_table_fails_what_needs_it_and_is_told_to_the_operator() {
    let server = TestServer::start();
    let client = Client::new();
    let tip = client.commit("a");
    client.git(["push", &server.url("damaged-block"), "main"]);
    let mut damaged = Vec::new();
    let (mut table, mut history) = (std::path::PathBuf::new(), std::path::PathBuf::new());
    let mut sound = Vec::new();
    let server = server.restart_after(|data| {
        let repository = data.join("damaged-block.git");
        let store = store(&repository);
        store.compact(refstone::CompactOptions::default(), &mut |_| ()).unwrap();
        store.close().unwrap();
        let tables = repository.join("refstone/tables");
        table = tables.join(&names_in(&tables)[0]);
        damaged = fs::read(&table).unwrap();
        let tip = refstone::ObjectId::from_hex(tip.as_bytes()).unwrap();
        let tip = tip.as_bytes();
        let at = damaged.windows(tip.len()).position(|window| window == tip).unwrap();
        damaged[at] ^= 1;
        fs::write(&table, &damaged).unwrap();
        // Or the server would make the table anew.
        let sealed = repository.join("refstone/history");
        history = sealed.join(&names_in(&sealed)[0]);
        sound = fs::read(&history).unwrap();
        let mut bytes = sound.clone();
        bytes[sound.len() / 3] ^= 1;
        fs::write(&history, bytes).unwrap();
    });
    let url = server.url("damaged-block");
    let errors =
        |words: &str| logged(&["ERROR", "damaged-block.git", "refstone rebuild", words]).len();
    for version in ["protocol.version=2", "protocol.version=0"] {
        let told = client.git_fails(["-c", version, "ls-remote", &url]);
        assert!(!told.contains("/refstone/"), "{told}");
    }
    let reply = server.get("/damaged-block.git/info/refs?service=git-upload-pack");
    reply.expect(500, "references cannot be read");
    assert!(!reply.text().contains("/refstone/"), "{reply:?}");
    let failed = errors("request failed") + errors("an answer was cut off");
    assert!(failed >= 2, "{failed}");
    let request = b"0014command=ls-refs\n0000";
    let version = "Git-Protocol: version=2\r\n";
    let mut stream = server.connect();
    stream.write_all(&post_request("damaged-block", "git-upload-pack", version, request)).unwrap();
    let mut answer = Vec::new();
    // It is cut off, perhaps before its head was sent.
    drop(stream.read_to_end(&mut answer));
    assert!(!answer.ends_with(b"\r\n0\r\n\r\n"), "it looks whole");
    assert_eq!(errors("an answer was cut off"), 1);
    let old = client.head();
    let new = client.commit("b");
    for (new, told) in [(new.as_str(), 1), (&"0".repeat(40), 2)] {
        let command = format!("{old} {new} refs/heads/main");
        let reply = server.push_raw("damaged-block", &[command.as_bytes()], &empty_pack());
        assert!(reply.text().contains("ng refs/heads/main"), "{reply:?}");
        assert!(reply.text().contains("error: references cannot be read"), "{reply:?}");
        assert!(!reply.text().contains("/refstone/"), "{reply:?}");
        assert_eq!(errors("a push met references that cannot be read"), told);
    }
    assert_eq!(fs::read(&table).unwrap(), damaged, "it is made of nothing");
    let server = server.restart_after(|data| {
        fs::write(&history, &sound).unwrap();
        let store = store(&data.join("damaged-block.git"));
        store.rebuild(&mut |_| ()).unwrap();
        store.close().unwrap();
    });
    client.git(["push", &server.url("damaged-block"), "main"]);
    assert_eq!(server.oid("damaged-block", "refs/heads/main"), new);
}
