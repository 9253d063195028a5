//! Requests that no git client sends, or only a broken one.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use refstone_server::UserPolicy;
use refstone_server::wire::commands::Limits;

use crate::support::{Client, TestServer, git_in, names_in, pack, post_request, wait_until};

fn seeded() -> TestServer {
    let server = TestServer::start();
    let client = Client::new();
    client.commit("a");
    client.git(["push", &server.url("r"), "main"]);
    server
}

/// The server still works, and nothing is left of what came before.
fn assert_sound(server: &TestServer) {
    server.assert_tidy("r");
    let client = Client::clone(&server.url("r"), []);
    client.commit("sound");
    client.git(["push", "origin", "HEAD:refs/heads/sound"]);
    client.git(["push", "origin", ":refs/heads/sound"]);
}

#[test]
fn answers_are_not_cached_and_have_their_type() {
    let server = seeded();
    for (path, kind) in [
        ("git-upload-pack", "application/x-git-upload-pack-advertisement"),
        ("git-receive-pack", "application/x-git-receive-pack-advertisement"),
    ] {
        let reply = server.get(&format!("/r.git/info/refs?service={path}"));
        assert_eq!(reply.status, 200);
        assert!(reply.head.contains(&format!("content-type: {kind}\r\n")), "{}", reply.head);
        assert!(reply.head.contains("cache-control: no-cache"), "{}", reply.head);
        assert!(
            reply.text().starts_with(&format!("{:04x}# service={path}\n0000", path.len() + 15))
        );
    }
}

#[test]
fn the_advertisement_of_a_push_has_neither_head_nor_peeled_lines() {
    let server = seeded();
    let client = Client::clone(&server.url("r"), []);
    client.git(["tag", "-a", "-m", "x", "v1"]);
    client.git(["push", "origin", "v1"]);
    let reply = server.get("/r.git/info/refs?service=git-receive-pack");
    let text = reply.text();
    assert!(!text.contains("HEAD") && !text.contains("^{}"), "{text}");
    assert!(text.contains("refs/tags/v1\n"), "{text}");
    for capability in [
        "report-status ",
        "report-status-v2 ",
        "delete-refs ",
        "side-band-64k ",
        "quiet ",
        "atomic ",
        "ofs-delta ",
        "object-format=sha1 ",
        "agent=refstone/",
    ] {
        assert!(text.contains(capability), "{capability} in {text}");
    }
}

#[test]
fn pages_that_do_not_exist_say_so() {
    let server = seeded();
    for (path, status, part) in [
        ("/", 404, "nothing here"),
        ("/r.git", 404, "nothing here"),
        ("/r.git/objects/info/packs", 404, "nothing here"),
        (
            "/nope.git/info/refs?service=git-upload-pack",
            404,
            "no repository 'nope.git' on this server\n",
        ),
        ("/..%2fr.git/info/refs?service=git-upload-pack", 404, "no repository"),
        ("/.git/info/refs?service=git-receive-pack", 404, "no repository"),
        ("/-x.git/info/refs?service=git-receive-pack", 404, "no repository"),
        ("/r.git/info/refs", 403, "smart HTTP only"),
        ("/r.git/info/refs?service=git-shell", 403, "expected service="),
        ("/r.git/git-upload-pack", 405, ""),
    ] {
        server.get(path).expect(status, part);
    }
    let wrong = post_request("r", "git-upload-pack", "", b"0000");
    let wrong = String::from_utf8(wrong).unwrap().replace("x-git-upload", "x-git-down");
    server.raw(wrong.as_bytes()).expect(415, "expected a POST with Content-Type");
}

/// Red when an illegal name is called absent without the rule, or when bytes of the path drive the
/// reader's terminal. Names that are legal and absent are another message.
#[test]
fn a_name_that_cannot_be_is_told_the_rule() {
    let server = TestServer::start();
    let rule = "a name is ASCII letters, digits, '.', '_' and '-', starts with neither a dot nor \
                a dash, ends in '.git', and has at most 128 bytes";
    let long = "a".repeat(300);
    let cut = format!("{}...", "a".repeat(200));
    for (path, shown) in [
        ("nogit", "nogit"),
        ("x/y.git", "x/y.git"),
        (".hidden.git", ".hidden.git"),
        ("-x.git", "-x.git"),
        ("%C3%BCn%C3%AF.git", r"\xc3\xbcn\xc3\xaf.git"),
        ("a%1b%5b31m%00b%0a.git", r"a\x1b[31m\x00b\n.git"),
        ("%ff.git", "%ff.git"),
        (&long, &cut),
    ] {
        for page in ["info/refs?service=git-upload-pack", "info/refs?service=git-receive-pack"] {
            let reply = server.get(&format!("/{path}/{page}"));
            reply.expect(404, rule);
            assert!(reply.text().contains(shown), "{} in {}", shown, reply.text());
            let plain = |byte: &u8| matches!(byte, b' '..=b'~' | b'\n');
            assert!(reply.body.iter().all(plain), "{}", reply.text());
            assert_eq!(reply.text().lines().count(), 1);
        }
        let page = "git-receive-pack";
        let request = String::from_utf8(post_request("r", page, "", b"0000")).unwrap();
        let request = request.replace("/r.git/", &format!("/{path}/"));
        server.raw(request.as_bytes()).expect(404, rule);
    }
    let client = Client::new();
    client.commit("a");
    let url = server.url("r").replace("/r.git", "/nogit");
    let complaint = client.git_fails(["push", &url, "main"]);
    assert!(complaint.contains("remote: there is no repository 'nogit'"), "{complaint}");
}

#[test]
fn a_lone_flush_is_answered_with_nothing() {
    let server = seeded();
    for name in ["r", "absent"] {
        let reply = server.post(name, "git-receive-pack", "", b"0000");
        assert_eq!((reply.status, reply.body.as_slice()), (200, b"".as_slice()));
        assert!(reply.head.contains("application/x-git-receive-pack-result"));
    }
    assert!(!server.path("absent").exists());
}

#[test]
fn garbage_is_refused_with_a_reason() {
    let server = seeded();
    let zero = "0".repeat(40);
    let options = format!("{zero} {zero} refs/heads/x\0report-status push-options");
    let mut with_options = format!("{:04x}{options}", options.len() + 4).into_bytes();
    with_options.extend_from_slice(b"0000");
    for (service, headers, body, status, part) in [
        ("git-receive-pack", "", &b"zzzz"[..], 400, "bad pkt-line length at byte 0"),
        ("git-receive-pack", "", b"", 400, "ended after 0 command lines"),
        ("git-receive-pack", "", b"0009hello0000", 400, "command line 1"),
        ("git-receive-pack", "", &with_options, 400, "push options are not supported"),
        ("git-receive-pack", "Content-Encoding: gzip\r\n", b"0000", 400, "no valid gzip"),
        ("git-receive-pack", "Content-Encoding: br\r\n", b"0000", 415, "expected gzip"),
        ("git-upload-pack", "Git-Protocol: version=2\r\n", b"zzzz", 400, "bad pkt-line"),
        (
            "git-upload-pack",
            "Git-Protocol: version=2\r\n",
            b"0014command=ls-refs\n",
            400,
            "ended before",
        ),
        (
            "git-upload-pack",
            "Git-Protocol: version=2\r\n",
            b"0012command=nope\n0000",
            400,
            "unexpected command",
        ),
        (
            "git-upload-pack",
            "Git-Protocol: version=2\r\nContent-Encoding: gzip\r\n",
            b"garbage",
            400,
            "no valid gzip",
        ),
        ("git-upload-pack", "Content-Encoding: gzip\r\n", b"garbage", 400, "no valid gzip"),
    ] {
        server.post("r", service, headers, body).expect(status, part);
    }
    assert_sound(&server);
}

#[test]
fn a_compressed_push_with_a_damaged_end_is_refused() {
    let server = seeded();
    let (zero, one) = ("0".repeat(40), "1".repeat(40));
    let command = format!("{zero} {one} refs/heads/x\0report-status");
    let mut body = format!("{:04x}{command}0000", command.len() + 4).into_bytes();
    body.extend_from_slice(&crate::support::empty_pack());
    let encoding = "Content-Encoding: gzip\r\n";
    let push = |body: &[u8]| server.post("r", "git-receive-pack", encoding, body);
    push(&gzip(&body)).expect(200, "ng refs/heads/x missing necessary objects");
    push(&damaged(gzip(&body))).expect(400, "no valid gzip");
    assert_sound(&server);
}

/// Red when an error behind the commands is a bare HTTP status, which tells a git client nothing.
#[test]
fn damage_behind_the_commands_of_a_push_is_reported() {
    let server = seeded();
    let client = Client::new();
    // Noise, so that the commands arrive in one piece and the damage in another.
    let next = |last: &u32| Some(last.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
    let noise = std::iter::successors(Some(1), next).take(1 << 16);
    let noise: Vec<u8> = noise.flat_map(u32::to_le_bytes).collect();
    std::fs::write(client.directory.path().join("noise"), noise).unwrap();
    client.git(["add", "noise"]);
    let tip = client.commit("a");
    let command = format!("{} {tip} refs/heads/x\0report-status", "0".repeat(40));
    let mut body = format!("{:04x}{command}0000", command.len() + 4).into_bytes();
    body.extend(pack(&client, &client.git(["rev-list", "--objects", "HEAD"])));
    let encoding = "Content-Encoding: gzip\r\n";
    let push = |body: &[u8]| server.post("r", "git-receive-pack", encoding, body);
    let reply = push(&damaged(gzip(&body)));
    reply.expect(200, "unpack the request body is no valid gzip");
    reply.expect(200, "ng refs/heads/x unpacker error");
    assert_sound(&server);
    push(&gzip(&body)).expect(200, "ok refs/heads/x");
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

/// With a checksum that is wrong.
fn damaged(mut compressed: Vec<u8>) -> Vec<u8> {
    let last = compressed.len() - 5;
    compressed[last] ^= 1;
    compressed
}

#[test]
fn a_client_that_hangs_up_leaves_nothing() {
    let server = seeded();
    let (zero, one) = ("0".repeat(40), "1".repeat(40));
    let command = format!("{zero} {one} refs/heads/x\0report-status");
    let mut body = format!("{:04x}{command}0000", command.len() + 4).into_bytes();
    body.extend_from_slice(&crate::support::empty_pack());
    let whole = post_request("r", "git-receive-pack", "", &body);
    let head = whole.len() - body.len();
    for cut in [head, head + 10, head + body.len() - 32, whole.len() - 1] {
        server.hang_up_after(&whole[..cut]);
    }
    for cut in [head - 2, head + 4] {
        server
            .hang_up_after(&post_request("r", "git-upload-pack", "", b"0032want")[..cut.min(120)]);
    }
    assert_sound_eventually(&server);
}

/// The server notices a hang-up a moment later than the client.
fn assert_sound_eventually(server: &TestServer) {
    let objects = server.path("r").join("objects");
    let incoming = |name: &String| name.contains("incoming");
    wait_until(|| !names_in(&objects).iter().any(incoming));
    assert_sound(server);
}

#[test]
fn expect_100_continue_is_answered_before_the_body() {
    use std::io::Read;
    let server = seeded();
    let request = post_request("r", "git-receive-pack", "Expect: 100-continue\r\n", b"0000");
    let (head, body) = request.split_at(request.len() - 4);
    let mut stream = server.connect();
    stream.write_all(head).unwrap();
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(body).unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.starts_with("HTTP/1.1 200"), "{rest}");
}

#[test]
fn a_name_is_asked_for_before_anything_is_told() {
    let server = TestServer::with_options(|options| options.user = UserPolicy::Required);
    server.init("r", refstone::ObjectFormat::Sha1);
    for reply in [
        server.get("/r.git/info/refs?service=git-receive-pack"),
        server.post("r", "git-receive-pack", "", b"0000"),
    ] {
        reply.expect(401, "give a user name");
        assert!(reply.head.contains("www-authenticate: basic"), "{}", reply.head);
    }
    let named = "Authorization: Basic YWxpY2U6\r\n";
    let reply = server.post("r", "git-receive-pack", named, b"0000");
    assert_eq!(reply.status, 200);
    assert_eq!(server.get("/r.git/info/refs?service=git-upload-pack").status, 200);
}

#[test]
fn a_push_beyond_the_limits_is_told_which() {
    let limits = Limits { lines_max: 2, ..Limits::default() };
    let server = TestServer::with_options(|options| options.limits = limits);
    let client = Client::new();
    client.commit("a");
    let specs: Vec<_> = (0..3).map(|index| format!("main:refs/heads/b{index}")).collect();
    let push = |count: usize| {
        let arguments = ["push".to_owned(), server.url("r")].into_iter();
        git_in(client.directory.path(), arguments.chain(specs[..count].to_vec()))
    };
    let complaint = push(3).fails();
    assert!(complaint.contains("HTTP 413"), "{complaint}");
    assert!(!server.path("r").exists());
    push(2).succeeds();

    let commands = vec![format!("{0} {0} refs/heads/x", "0".repeat(40)); 3];
    let commands: Vec<_> = commands.iter().map(String::as_bytes).collect();
    let reply = server.push_raw("r", &commands, b"");
    reply.expect(413, "more than 2 lines before the pack; split it");
}
