//! Pushes that go through.

use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use refstone_server::UserPolicy;

use crate::logs::logged;
use crate::support::{Client, TestServer, empty_pack, git_in, names_in, post_request, wait_until};

#[test]
fn the_first_push_creates_the_repository_and_survives_a_restart() {
    let server = TestServer::start();
    let client = Client::new();
    let tip = client.commit("a");
    client.git(["push", &server.url("new"), "main"]);
    assert_eq!(server.oid("new", "refs/heads/main"), tip);
    server.assert_tidy("new");

    let server = server.restart_after(|_| {});
    for version in ["protocol.version=2", "protocol.version=0"] {
        let clone = Client::clone(&server.url("new"), ["-c", version]);
        assert_eq!(clone.head(), tip);
        clone.fsck();
    }
}

#[test]
fn the_branch_that_is_pushed_first_becomes_head() {
    let server = TestServer::start();
    let client = Client::new();
    let tip = client.commit("a");
    client.git(["push", &server.url("new"), "main:refs/heads/trunk"]);
    assert_eq!(server.oid("new", "HEAD"), tip);
    assert_eq!(Client::clone(&server.url("new"), []).head(), tip);
}

#[test]
fn asking_creates_nothing() {
    let server = TestServer::start();
    let client = Client::new();
    client.commit("a");
    client.git(["push", "--dry-run", &server.url("new"), "main"]);
    assert!(!server.path("new").exists());
}

#[test]
fn concurrent_creators_all_get_through() {
    let server = TestServer::start();
    let clients: Vec<_> = (0..4).map(|_| Client::new()).collect();
    std::thread::scope(|scope| {
        for (index, client) in clients.iter().enumerate() {
            let url = server.url("new");
            scope.spawn(move || {
                client.commit(&format!("file{index}"));
                client.git(["push", &url, &format!("main:refs/heads/b{index}")]);
            });
        }
    });
    for (index, client) in clients.iter().enumerate() {
        let branch = format!("refs/heads/b{index}");
        assert_eq!(server.oid("new", &branch), client.head());
    }
    server.assert_tidy("new");
}

#[test]
fn a_large_push_is_probed_and_chunked() {
    let server = TestServer::start();
    let client = Client::new();
    let noise: Vec<u8> = (0..400_000_u64).flat_map(scrambled).collect();
    std::fs::write(client.directory.path().join("noise"), noise).unwrap();
    client.git(["add", "noise"]);
    let tip = client.commit("a");
    let traced = Command::new("git")
        .current_dir(client.directory.path())
        .args(["-c", "http.postBuffer=65536", "push", &server.url("big"), "main"])
        .env("GIT_CURL_VERBOSE", "1")
        .env("no_proxy", "*")
        .output()
        .unwrap();
    let trace = String::from_utf8_lossy(&traced.stderr).to_ascii_lowercase();
    assert!(traced.status.success(), "{trace}");
    assert!(trace.contains("content-length: 4"), "no probe: {trace}");
    assert!(trace.contains("transfer-encoding: chunked"), "{trace}");
    assert_eq!(server.oid("big", "refs/heads/main"), tip);
    Client::clone(&server.url("big"), []).fsck();
}

/// Eight bytes that compress badly.
fn scrambled(number: u64) -> [u8; 8] {
    let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 31)).wrapping_mul(0xBF58_476D_1CE4_E5B9).to_le_bytes()
}

#[test]
fn many_refs_move_in_one_push_and_are_cloned_with_a_compressed_request() {
    let server = TestServer::start();
    let client = Client::new();
    for index in 0..60 {
        client.commit(&format!("file{index}"));
        client.git(["tag", &format!("light{index}")]);
        client.git(["tag", "-a", "-m", "annotated", &format!("tag{index}")]);
    }
    client.git(["push", "--quiet", "--tags", &server.url("many"), "main"]);
    assert_eq!(server.refs("many").seq().get(), 1, "one push is one frame");

    let clone = Client::new();
    let fetched = Command::new("git")
        .current_dir(clone.directory.path())
        .args(["fetch", &server.url("many"), "+refs/*:refs/*", "--update-head-ok"])
        .env("GIT_CURL_VERBOSE", "1")
        .env("no_proxy", "*")
        .output()
        .unwrap();
    let trace = String::from_utf8_lossy(&fetched.stderr).to_ascii_lowercase();
    assert!(fetched.status.success(), "{trace}");
    assert!(trace.contains("content-encoding: gzip"), "{trace}");
    clone.fsck();
    let listed = |client: &Client| client.git(["for-each-ref"]);
    assert_eq!(listed(&clone), listed(&client));
}

#[test]
fn concurrent_pushes_to_one_repository_all_land() {
    let server = TestServer::start();
    let seed = Client::new();
    seed.commit("seed");
    seed.git(["push", &server.url("shared"), "main"]);
    let clients: Vec<_> = (0..6).map(|_| Client::clone(&server.url("shared"), [])).collect();
    std::thread::scope(|scope| {
        for (index, client) in clients.iter().enumerate() {
            scope.spawn(move || {
                client.commit(&format!("file{index}"));
                client.git(["push", "origin", &format!("HEAD:refs/heads/b{index}")]);
            });
        }
    });
    for (index, client) in clients.iter().enumerate() {
        let branch = format!("refs/heads/b{index}");
        assert_eq!(server.oid("shared", &branch), client.head());
    }
    assert_eq!(server.refs("shared").seq().get(), 7);
    server.assert_tidy("shared");
}

#[test]
fn a_forced_push_rewinds() {
    let server = TestServer::start();
    let client = Client::new();
    let first = client.commit("a");
    client.commit("b");
    client.git(["push", &server.url("r"), "main"]);
    client.git(["push", "--force", &server.url("r"), &format!("{first}:refs/heads/main")]);
    assert_eq!(server.oid("r", "refs/heads/main"), first);
}

#[test]
fn a_new_branch_on_known_objects_stores_no_pack() {
    let server = TestServer::start();
    let client = Client::new();
    let tip = client.commit("a");
    client.git(["push", &server.url("r"), "main"]);
    let packs = server.pack_count("r");
    client.git(["push", &server.url("r"), "main:refs/heads/other"]);
    assert_eq!(server.oid("r", "refs/heads/other"), tip);
    assert_eq!(server.pack_count("r"), packs);
}

#[test]
fn refs_are_deleted_and_may_be_replaced_by_names_below_them() {
    let server = TestServer::start();
    let client = Client::new();
    let tip = client.commit("a");
    let url = &server.url("r");
    client.git(["push", url, "main", "main:refs/heads/topic", "main:refs/odd/x"]);
    client.git(["push", url, ":refs/odd/x"]);
    assert_eq!(server.oid("r", "refs/odd/x"), "");
    client.git(["push", url, ":refs/heads/topic", "main:refs/heads/topic/sub"]);
    assert_eq!(server.oid("r", "refs/heads/topic"), "");
    assert_eq!(server.oid("r", "refs/heads/topic/sub"), tip);
}

#[test]
fn a_name_that_is_no_utf8_is_pushed_listed_and_fetched() {
    let server = TestServer::start();
    let client = Client::new();
    client.commit("a");
    let spec = std::ffi::OsStr::from_bytes(b"main:refs/heads/\xff\xfe");
    git_in(client.directory.path(), ["push".as_ref(), server.url("r").as_ref(), spec]).succeeds();
    let url = server.url("r");
    for version in ["protocol.version=2", "protocol.version=0"] {
        let listed = Command::new("git")
            .args(["-c", version, "ls-remote", &url])
            .env("no_proxy", "*")
            .output()
            .unwrap();
        let name = b"refs/heads/\xff\xfe\n";
        assert!(listed.stdout.windows(name.len()).any(|window| window == name));
        Client::clone(&url, ["-c", version]).fsck();
    }
}

#[test]
fn the_actor_is_the_user_name() {
    let server = TestServer::with_options(|options| options.user = UserPolicy::Required);
    let client = Client::new();
    client.commit("a");
    let anonymous = server.url("r");
    let complaint = client.git_fails(["push", &anonymous, "main"]);
    assert!(complaint.contains("could not read Username"), "{complaint}");
    assert!(!server.path("r").exists());

    let alice = anonymous.replace("http://", "http://alice:any@");
    client.git(["push", &alice, "main"]);
    let history = refstone::history(&server.path("r").join("refstone"), None).unwrap();
    let actors: Vec<_> = history.map(|moved| moved.unwrap().actor.to_string()).collect();
    assert_eq!(actors, ["alice"]);
    Client::clone(&anonymous, []).fsck();
}

/// Red when each ref has its INFO line, or when a name with a newline in it makes one up.
#[test]
fn a_push_is_one_line_of_the_log_and_its_refs_are_details() {
    let server = TestServer::start();
    let client = Client::new();
    let tip = client.commit("a");
    let refs: Vec<_> = (0..50).map(|index| format!("main:refs/heads/b{index}")).collect();
    let alice = "http.extraHeader=Authorization: Basic YWxpY2U6";
    let push = ["-c", alice, "push", &server.url("one-line")].map(str::to_owned);
    client.git(push.into_iter().chain(refs));
    let lines = logged(&["INFO", "message=push", "repository=one-line.git"]);
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in ["actor=alice", "moved=50", "refused=0", "seq=1", "elapsed_ms="] {
        assert!(lines[0].contains(part), "{part} in {lines:?}");
    }
    assert_eq!(logged(&["DEBUG", "repository=one-line.git", "verdict=moved in 1"]).len(), 50);

    let zero = "0".repeat(40);
    let forged = format!("{zero} {tip} refs/heads/x\nINFO forged");
    let good = format!("{zero} {tip} refs/heads/good");
    let commands = [forged.as_bytes(), good.as_bytes()];
    server.push_raw("one-line", &commands, &empty_pack()).expect(200, "ok refs/heads/good");
    let lines = logged(&["repository=one-line.git"]);
    assert!(lines.iter().all(|line| !line.contains('\n')), "{lines:?}");
    assert_eq!(logged(&["INFO", "one-line.git", "moved=1 refused=1 seq=2"]).len(), 1, "{lines:?}");
}

#[test]
fn a_large_push_by_a_named_user_passes_the_probe() {
    let server = TestServer::with_options(|options| options.user = UserPolicy::Required);
    let client = Client::new();
    let tip = client.commit("a");
    let url = server.url("r").replace("http://", "http://alice:any@");
    client.git(["-c", "http.postBuffer=64", "push", &url, "main"]);
    assert_eq!(server.oid("r", "refs/heads/main"), tip);
}

#[test]
fn a_push_in_flight_is_finished_before_the_server_stops() {
    let server = TestServer::start();
    let client = Client::new();
    let tip = client.commit("a");
    client.git(["push", &server.url("r"), "main"]);
    let zero = "0".repeat(40);
    let command = format!("{zero} {tip} refs/heads/late\0report-status");
    let mut body = format!("{:04x}{command}0000", command.len() + 4).into_bytes();
    body.extend_from_slice(&empty_pack());
    let request = post_request("r", "git-receive-pack", "", &body);

    let mut stream = server.connect();
    let (first, rest) = request.split_at(request.len() - 10);
    stream.write_all(first).unwrap();
    wait_until(|| is_receiving(&server, "r"));
    let stopping = std::thread::spawn(move || server.stop());
    // The listener is closed while the push is not: a new connection is refused.
    let address = stream.peer_addr().unwrap();
    wait_until(|| std::net::TcpStream::connect(address).is_err());
    stream.write_all(rest).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("ok refs/heads/late"), "{answer}");
    let server = TestServer::on(stopping.join().unwrap());
    assert_eq!(server.oid("r", "refs/heads/late"), tip);
}

/// A child that held the log's lock would keep the next server out.
#[test]
fn children_inherit_no_file_of_the_log() {
    let server = TestServer::start();
    let client = Client::new();
    let tip = client.commit("a");
    client.git(["push", &server.url("r"), "main"]);
    let zero = "0".repeat(40);
    let command = format!("{zero} {tip} refs/heads/late\0report-status");
    let mut body = format!("{:04x}{command}0000", command.len() + 4).into_bytes();
    body.extend_from_slice(&empty_pack());
    let request = post_request("r", "git-receive-pack", "", &body);
    let mut stream = server.connect();
    stream.write_all(&request[..request.len() - 10]).unwrap();

    let objects = server.path("r").join("objects");
    let log = server.path("r").join("refstone");
    let mut files = Vec::new();
    wait_until(|| {
        files = files_of_child(&objects);
        !files.is_empty()
    });
    let inherited: Vec<_> = files.iter().filter(|file| file.starts_with(&log)).collect();
    assert!(inherited.is_empty(), "{inherited:?}");
}

fn is_receiving(server: &TestServer, name: &str) -> bool {
    let names = names_in(&server.path(name).join("objects"));
    names.iter().any(|name| name.contains("incoming"))
}

/// The open files of the process that has one below `objects`: the `index-pack` of this test.
///
/// A child that has not got to its exec yet still runs this program, and has all that it inherited.
fn files_of_child(objects: &Path) -> Vec<PathBuf> {
    let processes = std::fs::read_dir("/proc").unwrap();
    let own = std::env::current_exe().unwrap();
    processes
        .map(|process| process.unwrap())
        .filter(|process| {
            let program = std::fs::read_link(process.path().join("exe"));
            program.is_ok_and(|program| program != own)
        })
        .map(|process| open_files(&process.path().join("fd")))
        .find(|files| files.iter().any(|file| file.starts_with(objects)))
        .unwrap_or_default()
}

fn open_files(descriptors: &Path) -> Vec<PathBuf> {
    let descriptors = std::fs::read_dir(descriptors).into_iter().flatten();
    descriptors.filter_map(|descriptor| std::fs::read_link(descriptor.ok()?.path()).ok()).collect()
}
