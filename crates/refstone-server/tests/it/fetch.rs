//! What clients get to see.

use refstone::{Edit, ObjectFormat, ObjectId, RefName, Transaction};

use crate::support::{Client, TestServer, git_in, store};

fn name(name: &str) -> RefName {
    RefName::new(name).unwrap()
}

#[test]
fn a_single_branch_clone_gets_its_annotated_tag() {
    let server = TestServer::start();
    let client = Client::new();
    client.commit("a");
    client.git(["tag", "-a", "-m", "x", "v1"]);
    client.commit("b");
    client.git(["push", "--tags", &server.url("r"), "main"]);
    for version in ["protocol.version=2", "protocol.version=0"] {
        let clone = Client::clone(&server.url("r"), ["-c", version, "--single-branch"]);
        assert_eq!(clone.git(["tag"]), "v1", "{version}");
        clone.fsck();
    }
}

#[test]
fn a_tag_that_was_just_pushed_follows_its_commit() {
    let server = TestServer::start();
    let client = Client::new();
    client.commit("a");
    client.git(["push", &server.url("r"), "main"]);
    Client::clone(&server.url("r"), ["--single-branch"]);
    client.commit("b");
    client.git(["tag", "-a", "-m", "x", "v2"]);
    client.git(["push", &server.url("r"), "main", "v2"]);
    let clone = Client::clone(&server.url("r"), ["--single-branch"]);
    assert_eq!(clone.git(["tag"]), "v2");
}

// Break: serving from what is no longer there, until the next push.
#[test]
fn the_projections_may_be_deleted_under_a_server() {
    let server = TestServer::start();
    let client = Client::new();
    client.commit("a");
    client.git(["push", &server.url("r"), "main"]);
    Client::clone(&server.url("r"), []);
    std::fs::remove_dir_all(server.path("r").join("refstone-projections")).unwrap();
    Client::clone(&server.url("r"), []).fsck();
}

#[test]
fn an_empty_clone_starts_on_the_branch_of_head() {
    let server = TestServer::start();
    let path = server.path("r");
    let options = refstone_server::InitOptions {
        initial_branch: name("refs/heads/trunk"),
        ..refstone_server::InitOptions::default()
    };
    refstone_server::init_repository(&path, &options).unwrap();
    let clone = Client::clone(&server.url("r"), []);
    assert_eq!(clone.git(["symbolic-ref", "HEAD"]), "refs/heads/trunk");
    Client::clone(&server.url("r"), ["-c", "protocol.version=0"]);
}

#[test]
fn sha256_repositories_are_pushed_to_and_cloned() {
    let server = TestServer::start();
    server.init("r", ObjectFormat::Sha256);
    let client = Client::with_format("sha256");
    let tip = client.commit("a");
    client.git(["tag", "-a", "-m", "x", "v1"]);
    client.git(["push", "--tags", &server.url("r"), "main"]);
    assert_eq!(tip.len(), 64);
    for version in ["protocol.version=2", "protocol.version=0"] {
        let clone = Client::clone(&server.url("r"), ["-c", version]);
        assert_eq!(clone.head(), tip);
        clone.fsck();
    }
    let sha1 = Client::new();
    sha1.commit("a");
    let complaint = sha1.git_fails(["push", &server.url("r"), "main"]);
    assert!(complaint.contains("hash algorithm"), "{complaint}");
}

#[test]
fn a_detached_head_is_served() {
    let server = TestServer::start();
    let client = Client::new();
    let first = client.commit("a");
    client.commit("b");
    client.git(["push", &server.url("r"), "main"]);
    let server = server.restart_after(|data| {
        let store = store(&data.join("r.git"));
        let oid = ObjectId::from_hex(first.as_bytes()).unwrap();
        let detach = Edit::set(RefName::head(), oid).no_deref();
        store.commit(&Transaction::new("test").with(detach)).unwrap();
        store.close().unwrap();
    });
    for version in ["protocol.version=2", "protocol.version=0"] {
        let clone = Client::clone(&server.url("r"), ["-c", version]);
        assert_eq!(clone.head(), first, "{version}");
        assert_eq!(clone.git(["branch", "--show-current"]), "");
    }
}

/// Both protocols, and git itself on a repository with the same refs, list the same.
#[test]
fn listings_are_those_of_git() {
    let server = TestServer::start();
    let client = Client::new();
    client.commit("a");
    client.git(["tag", "light"]);
    client.git(["tag", "-a", "-m", "x", "v1"]);
    client.git(["tag", "-a", "-m", "x", "v1-of-v1", "v1"]);
    client.git(["branch", "a-b"]);
    client.git(["branch", "a/b"]);
    client.git(["update-ref", "refs/pull/1/head", "HEAD"]);
    client.git(["update-ref", "refs/pull/1/tag", "v1"]);
    client.git(["push", "--mirror", &server.url("r")]);
    let server = server.restart_after(|data| {
        let store = store(&data.join("r.git"));
        let (alias, dangling) = (name("refs/heads/z-alias"), name("refs/heads/z-dangling"));
        let tx = Transaction::new("test")
            .with(Edit::set(alias, name("refs/heads/a/b")).no_deref())
            .with(Edit::set(dangling, name("refs/heads/nowhere")).no_deref());
        store.commit(&tx).unwrap();
        store.close().unwrap();
    });
    client.git(["symbolic-ref", "refs/heads/z-alias", "refs/heads/a/b"]);
    client.git(["symbolic-ref", "refs/heads/z-dangling", "refs/heads/nowhere"]);

    let path = format!("file://{}", client.directory.path().display());
    for version in ["protocol.version=2", "protocol.version=0"] {
        for arguments in [
            vec!["ls-remote", "--symref"],
            vec!["ls-remote", "--heads"],
            vec!["ls-remote", "--tags"],
            vec!["ls-remote", "--refs"],
        ] {
            let list = |url: &str| {
                let arguments = ["-c", version].into_iter().chain(arguments.clone());
                git_in(client.directory.path(), arguments.chain([url])).succeeds()
            };
            let listed = list(&server.url("r"));
            assert!(listed.contains("refs/"));
            assert_eq!(listed, list(&path), "{version} {arguments:?}");
        }
    }
    let pattern = client.git(["ls-remote", &server.url("r"), "refs/heads/a*"]);
    assert_eq!(pattern, client.git(["ls-remote", &path, "refs/heads/a*"]));
}

#[test]
fn fetching_goes_on_from_what_is_there() {
    let server = TestServer::start();
    let client = Client::new();
    client.commit("a");
    client.git(["push", &server.url("r"), "main"]);
    for version in ["protocol.version=2", "protocol.version=0"] {
        let clone = Client::clone(&server.url("r"), ["-c", version]);
        clone.commit(&format!("local-{}", &version[17..]));
        for round in 0..3 {
            let tip = client.commit(&format!("remote-{round}-{}", &version[17..]));
            client.git(["push", &server.url("r"), "main"]);
            clone.git(["fetch", "--quiet"]);
            assert_eq!(clone.git(["rev-parse", "origin/main"]), tip);
        }
        clone.fsck();
    }
}

#[test]
fn superseded_projections_are_removed() {
    let server = TestServer::start();
    let client = Client::new();
    for file in ["a", "b", "c"] {
        client.commit(file);
        client.git(["push", &server.url("r"), "main"]);
        Client::clone(&server.url("r"), []);
    }
    let projections = server.path("r").join("refstone-projections");
    assert_eq!(crate::support::names_in(&projections).len(), 1);
}

/// An object that no ref names any more is still there to be asked for, by id.
#[test]
fn an_unnamed_object_can_be_fetched_by_id() {
    let server = TestServer::start();
    let client = Client::new();
    client.commit("a");
    let lost = client.commit("b");
    client.git(["push", &server.url("r"), "main:refs/heads/topic", "main~1:refs/heads/main"]);
    client.git(["push", &server.url("r"), ":refs/heads/topic"]);
    for version in ["protocol.version=2", "protocol.version=0"] {
        let clone = Client::clone(&server.url("r"), ["-c", version]);
        clone.git(["-c", version, "fetch", "--quiet", "origin", &lost]);
        assert_eq!(clone.git(["rev-parse", "FETCH_HEAD"]), lost);
    }
}
