//! Pushes that are refused: the reasons, and that they leave no trace.

use std::fs;

use crate::logs::logged;
use crate::support::{Client, TestServer, empty_pack, pack};

const ZERO: &str = "0000000000000000000000000000000000000000";
const UNKNOWN: &str = "1111111111111111111111111111111111111111";

/// A repository `r` with one commit on `main`.
fn seeded() -> (TestServer, Client, String) {
    let server = TestServer::start();
    let client = Client::new();
    let tip = client.commit("seed");
    client.git(["push", &server.url("r"), "main"]);
    (server, client, tip)
}

#[test]
fn an_outdated_old_value_is_refused_in_gits_words() {
    let (server, client, tip) = seeded();
    let other = client.commit("other");
    let pack = pack(&client, &client.git(["rev-list", "--objects", "HEAD"]));
    let packs = server.pack_count("r");
    let command = format!("{other} {other} refs/heads/main");
    let reply = server.push_raw("r", &[command.as_bytes()], &pack);
    reply.expect(200, "ng refs/heads/main incorrect old value provided");
    let text = format!("cannot lock ref 'refs/heads/main': is at {tip} but expected {other}");
    reply.expect(200, &format!("error: {text}"));
    let command = format!("{ZERO} {other} refs/heads/main");
    let reply = server.push_raw("r", &[command.as_bytes()], &pack);
    reply.expect(200, "ng refs/heads/main reference already exists");
    assert_eq!(server.oid("r", "refs/heads/main"), tip);
    assert_eq!(server.pack_count("r"), packs);
    server.assert_tidy("r");
}

#[test]
fn a_stale_clone_is_refused_until_it_forces() {
    let (server, client, _) = seeded();
    let stale = Client::clone(&server.url("r"), []);
    let theirs = client.commit("theirs");
    client.git(["push", &server.url("r"), "main"]);
    let mine = stale.commit("mine");
    let complaint = stale.git_fails(["push", "origin", "main"]);
    assert!(complaint.contains("fetch first"), "{complaint}");
    let complaint = stale.git_fails(["push", "--force-with-lease", "origin", "main"]);
    assert!(complaint.contains("stale info"), "{complaint}");
    assert_eq!(server.oid("r", "refs/heads/main"), theirs);
    stale.git(["push", "--force", "origin", "main"]);
    assert_eq!(server.oid("r", "refs/heads/main"), mine);
}

#[test]
fn in_an_atomic_push_one_bad_ref_fails_all() {
    let (server, client, tip) = seeded();
    client.commit("more");
    let url = &server.url("r");
    let complaint = client.git_fails([
        "push",
        "--atomic",
        url,
        "main:refs/heads/good",
        "main:refs/heads/main/below",
    ]);
    assert!(complaint.contains("'refs/heads/main' exists; cannot create"), "{complaint}");
    assert!(complaint.contains("good (atomic push failure)"), "{complaint}");
    assert!(complaint.contains("below (refname conflict)"), "{complaint}");
    assert_eq!(server.oid("r", "refs/heads/good"), "");
    assert_eq!(server.refs("r").seq().get(), 1);

    let complaint =
        client.git_fails(["push", url, "main:refs/heads/good", "main:refs/heads/main/b"]);
    assert!(complaint.contains("refname conflict"), "{complaint}");
    assert_eq!(server.oid("r", "refs/heads/good"), client.head());
    assert_eq!(server.oid("r", "refs/heads/main"), tip);
    server.assert_tidy("r");
}

#[test]
fn an_atomic_push_with_missing_objects_moves_nothing() {
    let (server, client, tip) = seeded();
    let good = format!("{ZERO} {tip} refs/heads/good\0 report-status atomic");
    let bad = format!("{ZERO} {UNKNOWN} refs/heads/bad");
    let mut body = Vec::new();
    for line in [good.as_bytes(), bad.as_bytes()] {
        refstone_server::wire::pkt::encode(&mut body, &[line]).unwrap();
    }
    body.extend_from_slice(b"0000");
    body.extend_from_slice(&empty_pack());
    let reply = server.post("r", "git-receive-pack", "", &body);
    reply.expect(200, "ng refs/heads/good atomic push failure");
    reply.expect(200, "ng refs/heads/bad missing necessary objects");
    assert_eq!(server.refs("r").seq().get(), 1);
    drop(client);
}

#[test]
fn objects_that_nobody_has_are_refused_and_the_rest_goes_through() {
    let (server, _, tip) = seeded();
    let bad = format!("{ZERO} {UNKNOWN} refs/heads/bad");
    let good = format!("{ZERO} {tip} refs/heads/good");
    let reply = server.push_raw("r", &[bad.as_bytes(), good.as_bytes()], &empty_pack());
    reply.expect(200, "unpack ok");
    reply.expect(200, "ng refs/heads/bad missing necessary objects");
    reply.expect(200, "ok refs/heads/good");
    assert_eq!(server.oid("r", "refs/heads/good"), tip);
    assert_eq!(server.oid("r", "refs/heads/bad"), "");
    server.assert_tidy("r");
}

/// Two commits arrive complete and one without its tree.
#[test]
fn an_incomplete_commit_does_not_stop_complete_ones() {
    let (server, client, tip) = seeded();
    let good = client.commit("good");
    let text = format!(
        "tree {UNKNOWN}\nparent {tip}\nauthor A <a> 1 +0000\ncommitter A <a> 1 +0000\n\nx\n"
    );
    fs::write(client.directory.path().join("text"), text).unwrap();
    let bad = client.git(["hash-object", "-w", "-t", "commit", "--literally", "text"]);
    let objects = format!("{bad}\n{}\n", client.git(["rev-list", "--objects", "HEAD"]));
    let pack = pack(&client, &objects);
    let commands = [
        format!("{ZERO} {bad} refs/heads/bad"),
        format!("{tip} {good} refs/heads/main"),
        format!("{ZERO} {good} refs/heads/good"),
    ];
    let commands: Vec<_> = commands.iter().map(String::as_bytes).collect();
    let reply = server.push_raw("r", &commands, &pack);
    reply.expect(200, "ng refs/heads/bad missing necessary objects");
    reply.expect(200, "ok refs/heads/main");
    reply.expect(200, "ok refs/heads/good");
    assert_eq!(server.oid("r", "refs/heads/bad"), "");
    assert_eq!(server.oid("r", "refs/heads/main"), good);
    server.assert_tidy("r");
}

#[test]
fn damaged_packs_are_reported_and_leave_nothing() {
    let (server, client, tip) = seeded();
    let next = client.commit("next");
    let objects = client.git(["rev-list", "--objects", "HEAD"]);
    let whole = pack(&client, &objects);
    let command = format!("{tip} {next} refs/heads/main");
    let packs = server.pack_count("r");
    let mut flipped = whole.clone();
    flipped[20] ^= 0xff;
    for (bad, unpack) in [
        (&b""[..], "unpack eof before pack header was fully read"),
        (b"PACK", "unpack eof before pack header was fully read"),
        (b"garbage garbage", "unpack protocol error (pack signature mismatch detected)"),
        (&whole[..whole.len() - 30], "unpack index-pack abnormal exit"),
        (&flipped, "unpack index-pack abnormal exit"),
    ] {
        let reply = server.push_raw("r", &[command.as_bytes()], bad);
        reply.expect(200, unpack);
        reply.expect(200, "ng refs/heads/main unpacker error");
        server.assert_tidy("r");
    }
    assert_eq!(server.pack_count("r"), packs);
    let reply = server.push_raw("r", &[command.as_bytes()], &whole);
    reply.expect(200, "ok refs/heads/main");
}

#[test]
fn branches_hold_commits() {
    let (server, client, _) = seeded();
    let url = &server.url("r");
    let complaint = client.git_fails(["push", url, "HEAD^{tree}:refs/heads/tree"]);
    assert!(complaint.contains("trying to write non-commit object"), "{complaint}");
    assert!(complaint.contains("(invalid new value provided)"), "{complaint}");
    client.git(["push", url, "HEAD^{tree}:refs/tags/tree"]);
    client.git(["tag", "-a", "-m", "x", "v1"]);
    let complaint = client.git_fails(["push", url, "v1:refs/heads/v1"]);
    assert!(complaint.contains("trying to write non-commit object"), "{complaint}");
}

#[test]
fn funny_names_are_refused_one_by_one() {
    let (server, _, tip) = seeded();
    let names: [&[u8]; 7] = [
        b"refs/x",
        b"HEAD",
        b"refs/heads/a..b",
        b"refs/heads/a b",
        b"refs/heads/.a",
        b"refs/heads/x.lock",
        b"../../etc/passwd",
    ];
    let commands: Vec<_> =
        names.iter().map(|name| [format!("{ZERO} {tip} ").as_bytes(), name].concat()).collect();
    let mut commands: Vec<&[u8]> = commands.iter().map(Vec::as_slice).collect();
    let good = format!("{ZERO} {tip} refs/heads/good");
    commands.push(good.as_bytes());
    let reply = server.push_raw("r", &commands, &empty_pack());
    for name in names {
        let name = String::from_utf8_lossy(name);
        reply.expect(200, &format!("ng {name} funny refname"));
        reply.expect(200, &format!("refusing to update funny ref '{name}' remotely"));
    }
    reply.expect(200, "ok refs/heads/good");
}

#[test]
fn the_same_ref_twice_is_refused_both_times() {
    let (server, client, tip) = seeded();
    let next = client.commit("next");
    client.git(["push", &server.url("r"), "main:refs/heads/next"]);
    let commands =
        [format!("{ZERO} {tip} refs/heads/foo"), format!("{ZERO} {next} refs/heads/foo")];
    let commands: Vec<_> = commands.iter().map(String::as_bytes).collect();
    let reply = server.push_raw("r", &commands, &empty_pack());
    let refused = "ng refs/heads/foo multiple updates for ref not allowed";
    assert_eq!(reply.text().matches(refused).count(), 2, "{}", reply.text());
    assert_eq!(server.oid("r", "refs/heads/foo"), "");
}

#[test]
fn the_current_branch_is_not_deleted_unless_configured() {
    let (server, client, tip) = seeded();
    let url = &server.url("r");
    let complaint = client.git_fails(["push", url, ":refs/heads/main"]);
    assert!(complaint.contains("deletion of the current branch prohibited"), "{complaint}");
    assert!(complaint.contains("receive.denyDeleteCurrent"), "{complaint}");
    assert_eq!(server.oid("r", "refs/heads/main"), tip);
    server.configure("r", "receive.denyDeleteCurrent", "warn");
    client.git(["push", url, ":refs/heads/main"]);
    assert_eq!(server.oid("r", "refs/heads/main"), "");
}

#[test]
fn deleting_what_is_not_there_warns_and_passes() {
    let (server, _, tip) = seeded();
    let command = format!("{ZERO} {ZERO} refs/heads/nope");
    let reply = server.push_raw("r", &[command.as_bytes()], b"");
    reply.expect(200, "warning: deleting a non-existent ref");
    reply.expect(200, "ok refs/heads/nope");
    let command = format!("{tip} {ZERO} refs/heads/nope");
    let reply = server.push_raw("r", &[command.as_bytes()], b"");
    reply.expect(200, "ng refs/heads/nope reference does not exist");
}

#[test]
fn the_repositorys_config_denies_rewinds_and_deletes() {
    let (server, client, first) = seeded();
    let second = client.commit("second");
    let url = &server.url("r");
    client.git(["push", url, "main", "main:refs/heads/topic", "main:refs/tags/t"]);
    server.configure("r", "receive.denyNonFastForwards", "true");
    server.configure("r", "receive.denyDeletes", "true");

    let rewind = format!("+{first}:refs/heads/main");
    let complaint = client.git_fails(["push", url, &rewind]);
    assert!(complaint.contains("denying non-fast-forward refs/heads/main"), "{complaint}");
    assert!(complaint.contains("(non-fast-forward)"), "{complaint}");
    let complaint = client.git_fails(["push", url, ":refs/heads/topic"]);
    assert!(complaint.contains("(deletion prohibited)"), "{complaint}");
    assert_eq!(server.oid("r", "refs/heads/main"), second);

    client.git(["push", url, ":refs/tags/t"]);
    let third = client.commit("third");
    client.git(["push", url, "main"]);
    assert_eq!(server.oid("r", "refs/heads/main"), third);
}

#[test]
fn fsck_is_as_strict_as_configured() {
    let (server, client, tip) = seeded();
    let text = format!(
        "tree {}\nparent {tip}\nauthor A <a> 1 +0000\ncommitter no date\n\nx\n",
        client.git(["rev-parse", "HEAD^{tree}"])
    );
    fs::write(client.directory.path().join("text"), text).unwrap();
    let bad = client.git(["hash-object", "-w", "-t", "commit", "--literally", "text"]);
    let spec = format!("{bad}:refs/heads/bad");
    server.configure("r", "receive.fsckObjects", "true");
    let complaint = client.git_fails(["push", &server.url("r"), &spec]);
    assert!(complaint.contains("missingEmail"), "{complaint}");
    assert!(complaint.contains("(unpacker error)"), "{complaint}");
    server.configure("r", "receive.fsck.missingEmail", "ignore");
    client.git(["push", &server.url("r"), &spec]);
    server.assert_tidy("r");
}

#[test]
fn a_symbolic_ref_and_its_target_must_agree() {
    use refstone::{Edit, RefName, Transaction};
    let (server, client, tip) = seeded();
    let next = client.commit("next");
    client.git(["push", &server.url("r"), "main:refs/heads/next"]);
    // The store has one writer, so the alias is made while the server is down.
    let server = server.restart_after(|data| {
        let store = crate::support::store(&data.join("r.git"));
        let names = ["refs/heads/alias", "refs/heads/main"];
        let [alias, main] = names.map(|name| RefName::new(name).unwrap());
        let alias = Edit::set(alias, main).no_deref();
        store.commit(&Transaction::new("test").with(alias)).unwrap();
        store.close().unwrap();
    });
    let commands =
        [format!("{tip} {next} refs/heads/alias"), format!("{tip} {tip} refs/heads/main")];
    let commands: Vec<_> = commands.iter().map(String::as_bytes).collect();
    let reply = server.push_raw("r", &commands, &empty_pack());
    reply.expect(200, "ng refs/heads/alias inconsistent aliased update");
    reply.expect(200, "ng refs/heads/main inconsistent aliased update");

    let commands =
        [format!("{tip} {next} refs/heads/alias"), format!("{tip} {next} refs/heads/main")];
    let commands: Vec<_> = commands.iter().map(String::as_bytes).collect();
    let reply = server.push_raw("r", &commands, &empty_pack());
    reply.expect(200, "ok refs/heads/alias");
    reply.expect(200, "ok refs/heads/main");
    assert_eq!(server.oid("r", "refs/heads/alias"), next);
}

// Breaks: giving the client the system's words, which say where the server keeps its files; no word to the
// operator.
#[test]
fn a_pack_for_which_there_is_no_place_is_refused_without_the_servers_paths() {
    let (server, client) = (TestServer::start(), Client::new());
    let tip = client.commit("a");
    client.git(["push", &server.url("no-place"), "main"]);
    fs::remove_dir_all(server.path("no-place").join("objects")).unwrap();
    let command = format!("{tip} {tip} refs/heads/main");
    let reply = server.push_raw("no-place", &[command.as_bytes()], &empty_pack());
    reply.expect(200, "unpack unable to create temporary object directory");
    assert!(!reply.text().contains("no-place.git"), "{reply:?}");
    let line = ["ERROR", "unable to create temporary object directory", "no-place.git/objects"];
    assert_eq!(logged(&line).len(), 1);
}
