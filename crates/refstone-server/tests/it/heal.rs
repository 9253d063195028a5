//! Tables that turn out to be damaged or missing under a running server.

use std::fs;
use std::path::Path;

use refstone::{CompactOptions, Edit, ObjectId, RefName, Transaction};

use crate::logs::logged;
use crate::support::{Client, TestServer, git_in, store, wait_until};

const REFS: usize = 3000;

/// A server of a repository with a table of several blocks, and a client that has its commit. What is
/// done to its files is done before the server opens it again.
fn served(work: impl FnOnce(&Path)) -> (TestServer, Client) {
    let (server, client) = (TestServer::start(), Client::new());
    let tip: ObjectId = client.commit("a").parse().unwrap();
    client.git(["push", &server.url("r"), "main"]);
    let server = server.restart_after(|data| {
        let store = store(&data.join("r.git"));
        let name = |n| RefName::new(format!("refs/heads/b{n:04}")).unwrap();
        let edits = (1..REFS).map(|n| Edit::create(name(n), tip));
        store.commit(&edits.fold(Transaction::new("x"), Transaction::with)).unwrap();
        store.compact(CompactOptions::default(), &mut |_| ()).unwrap();
        store.close().unwrap();
        work(&data.join("r.git/refstone"));
    });
    (server, client)
}

fn flip_middle(file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(file, bytes).unwrap();
}

/// Waits until requests are answered, which all need the table, and checks the store.
fn expect_healed(server: &TestServer, client: &Client) {
    let list = ["ls-remote", &server.url("r"), "refs/heads/*"];
    wait_until(|| git_in(server.path("r").as_path(), list).complaint().is_empty());
    assert_eq!(client.git(list).lines().count(), REFS);
    client.git(["push", &server.url("r"), "main:new"]);
    let report = refstone::verify(&server.path("r").join("refstone"), &mut |_| ()).unwrap();
    assert!(report.is_sound() && report.missing_tables.is_empty(), "{report:?}");
}

// Breaks: leaving it to somebody who reads the server's log; serving the old tables on.
#[test]
fn a_table_with_a_damaged_block_is_made_anew_when_it_is_met() {
    for page in ["git-upload-pack", "git-receive-pack"] {
        let (server, client) = served(|log| flip_middle(&log.join("tables/1-2.arrow")));
        // Where it is met. An answer that has begun is cut off.
        if page == "git-upload-pack" {
            client.git_fails(["ls-remote", &server.url("r")]);
        } else {
            client.git_fails(["push", &server.url("r"), "main:new"]);
        }
        expect_healed(&server, &client);
    }
}

#[test]
fn tables_that_are_taken_from_an_open_repository_are_made_anew_when_they_are_missed() {
    let (server, client) = served(|_| ());
    // Opened, and nothing read of it.
    let hello = "GET /r.git/info/refs?service=git-upload-pack HTTP/1.1\r\nHost: x\r\n\
                 Connection: close\r\nGit-Protocol: version=2\r\n\r\n";
    server.raw(hello.as_bytes()).expect(200, "version 2");
    fs::remove_dir_all(server.path("r").join("refstone/tables")).unwrap();
    client.git_fails(["push", &server.url("r"), "main:new"]);
    expect_healed(&server, &client);
}

// Breaks: trying again with each request; not saying why it did not help.
#[test]
fn tables_whose_history_is_damaged_are_tried_once_and_told() {
    let (server, client) = served(|log| {
        flip_middle(&log.join("tables/1-2.arrow"));
        flip_middle(&log.join("history/1-2.parquet"));
    });
    let failures =
        || logged(&["ERROR", "the tables were not made anew", "history/1-2.parquet"]).len();
    for _ in 0..3 {
        client.git_fails(["ls-remote", &server.url("r")]);
        wait_until(|| failures() >= 1);
    }
    // Waits for what is under way.
    let data = server.stop();
    assert_eq!(failures(), 1);
    assert!(data.path().join("r.git/refstone/tables/1-2.arrow").exists(), "what there is stays");
}
