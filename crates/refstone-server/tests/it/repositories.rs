//! Repositories as directories: locked, damaged, replaced, left over.

use std::fs;

use refstone_server::CreateOnPush;

use crate::support::{Client, TestServer, git_in, store};

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
