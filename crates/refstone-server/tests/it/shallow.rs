//! Clones without all history, and pushes from them.

use refstone::ObjectFormat;

use crate::support::{Client, TestServer};

fn seeded() -> (TestServer, Client) {
    let server = TestServer::start();
    let client = Client::new();
    for name in ["a", "b", "c"] {
        client.commit(name);
    }
    client.git(["push", &server.url("r"), "main"]);
    (server, client)
}

#[test]
fn a_shallow_clone_has_one_commit_and_deepens() {
    let (server, client) = seeded();
    for version in ["protocol.version=2", "protocol.version=0"] {
        let clone = Client::clone(&server.url("r"), ["-c", version, "--depth=1"]);
        assert_eq!(clone.git(["rev-list", "--count", "HEAD"]), "1");
        clone.git(["fetch", "--quiet", "--unshallow"]);
        assert_eq!(clone.git(["rev-list", "--count", "HEAD"]), "3");
        clone.fsck();
    }
    drop(client);
}

#[test]
fn a_shallow_clone_pushes_what_it_adds() {
    let (server, _) = seeded();
    for strict in ["false", "true"] {
        server.configure("r", "receive.fsckObjects", strict);
        let clone = Client::clone(&server.url("r"), ["--depth=1"]);
        let tip = clone.commit(&format!("new-{strict}"));
        clone.git(["push", "origin", "main"]);
        assert_eq!(server.oid("r", "refs/heads/main"), tip);
    }
    let whole = Client::clone(&server.url("r"), []);
    assert_eq!(whole.git(["rev-list", "--count", "HEAD"]), "5");
    whole.fsck();
    server.assert_tidy("r");
}

#[test]
fn a_history_that_begins_nowhere_is_refused() {
    let (server, _) = seeded();
    let clone = Client::clone(&server.url("r"), ["--depth=1"]);
    clone.commit("new");
    server.init("empty", ObjectFormat::Sha1);
    let url = server.url("empty");
    for strict in ["false", "true"] {
        server.configure("empty", "receive.fsckObjects", strict);
        let pushed = clone.git_fails(["push", &url, "main", "main:refs/heads/other"]);
        let refused = pushed.matches("(shallow update not allowed)").count();
        assert_eq!(refused, 2, "{pushed}");
        assert_eq!(server.oid("empty", "refs/heads/main"), "");
        server.assert_tidy("empty");
        assert_eq!(server.pack_count("empty"), 0);
    }
}

#[test]
fn a_partial_clone_fetches_blobs_when_it_needs_them() {
    let (server, client) = seeded();
    let clone = Client::clone(&server.url("r"), ["--filter=blob:none", "--no-checkout"]);
    let blob = client.git(["rev-parse", "HEAD:a"]);
    let missing = clone.git(["rev-list", "--objects", "--missing=print", "HEAD"]);
    assert!(missing.contains(&format!("?{blob}")), "{missing}");
    clone.git(["checkout", "--quiet", "main"]);
    assert_eq!(clone.git(["cat-file", "-p", "HEAD:a"]), "a");
    assert_eq!(clone.head(), client.head());
}
