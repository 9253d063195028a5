use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use refstone_log::{LogReader, OsEnv};
use tempfile::TempDir;

use crate::command::{Run, oid, refstone, run, run_with};
use crate::git::{self, Work};

/// A running `refstone serve`, killed when dropped.
struct Server {
    child: Child,
    url: String,
    scratch: TempDir,
}

impl Server {
    fn start(options: &[&str]) -> Server {
        Server::start_on("127.0.0.1:0", options)
    }

    fn start_on(address: &str, options: &[&str]) -> Server {
        let scratch = TempDir::new().unwrap();
        let mut command = refstone();
        command.arg("serve").arg(scratch.path().join("data"));
        command.args(["--listen", address, "--json"]).args(options);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
        let ready: serde_json::Value = serde_json::from_str(&ready).expect("it gets ready");
        assert_eq!(ready["pid"], child.id());
        let data: PathBuf = ready["data"].as_str().unwrap().into();
        assert_eq!(data, scratch.path().canonicalize().unwrap().join("data"));
        Server { url: ready["url"].as_str().unwrap().to_owned(), child, scratch }
    }

    fn repo(&self, name: &str) -> PathBuf {
        self.scratch.path().join("data").join(name)
    }

    fn push(&self, work: &Work, to: &str, arguments: &[&str]) -> std::process::Output {
        let mut git = git::git(work.path());
        git.arg("push").arg(format!("{}{to}", self.url)).args(arguments);
        git.output().unwrap()
    }

    fn address(&self) -> &str {
        self.url.strip_prefix("http://").unwrap().trim_end_matches('/')
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// Waits for the end, and gives the exit code.
    fn code(&mut self) -> Option<i32> {
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("the server does not end");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn has_clean_tail(repo: &Path) -> bool {
    let mut reader = LogReader::open(&OsEnv, &repo.join("refstone")).unwrap();
    while reader.next().unwrap().is_some() {}
    !reader.has_unpublished_tail().unwrap()
}

#[test]
fn a_push_creates_its_repository_and_reading_works_beside_the_server() {
    let (server, work) = (Server::start(&[]), Work::new());
    let pushed = server.push(&work, "new.git", &["HEAD:refs/heads/main", "HEAD:refs/heads/b"]);
    assert!(pushed.status.success(), "{}", git::errors(&pushed));

    let repo = server.repo("new.git");
    let path = repo.to_str().unwrap();
    let [_, head] = &work.commits;
    let expected = format!("{head} refs/heads/b\n{head} refs/heads/main\n");
    assert_eq!(run(["refs", path]).done(), expected);
    assert_eq!(run(["log", path]).done().lines().count(), 2);
    assert!(run(["verify", path]).done().starts_with("sound: 1 transaction"));
    run(["update-ref", path, "--stdin"]).failed(3, "another writer holds this lock");

    let listed = git::run(work.path(), &["ls-remote", &format!("{}new.git", server.url)]);
    assert_eq!(listed.lines().count(), 3, "{listed}");
}

// Break: exiting from the signal handler. The client would not learn what became of its push.
#[test]
fn the_first_signal_lets_a_push_in_flight_finish() {
    for signal in ["TERM", "INT"] {
        let (mut server, work) = (Server::start(&[]), Work::new());
        let both = ["HEAD:refs/heads/main", "HEAD:refs/heads/b"];
        assert!(server.push(&work, "r.git", &both).status.success());
        let mut stderr = BufReader::new(server.child.stderr.take().unwrap());
        let request = deletion(&work.commits[1], "refs/heads/b");
        let (begin, rest) = request.split_at(request.len() - 10);
        let mut client = TcpStream::connect(server.address()).unwrap();
        client.write_all(begin.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        server.signal(signal);
        wait_for(&mut stderr, "finishing what is in flight");
        client.write_all(rest.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("ok refs/heads/b"), "{answer}");
        assert_eq!(server.code(), Some(0), "{signal}");
        let repo = server.repo("r.git");
        assert_eq!(run(["refs", repo.to_str().unwrap()]).done().lines().count(), 1);
    }
}

/// A push that deletes a ref, as a whole request.
fn deletion(old: &str, name: &str) -> String {
    let command = format!("{old} {} {name}\0report-status object-format=sha1", oid('0'));
    let body = format!("{:04x}{command}0000", command.len() + 4);
    format!(
        "POST /r.git/git-receive-pack HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
         Content-Type: application/x-git-receive-pack-request\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[test]
fn a_server_that_was_stopped_leaves_a_clean_log_and_no_lock() {
    let (mut server, work) = (Server::start(&[]), Work::new());
    assert!(server.push(&work, "r.git", &["HEAD:refs/heads/main"]).status.success());
    server.signal("TERM");
    assert_eq!(server.code(), Some(0));
    let repo = server.repo("r.git");
    assert!(has_clean_tail(&repo));
    let script = format!("create refs/heads/x {}\n", oid('1'));
    let told = run_with(["update-ref", repo.to_str().unwrap(), "--stdin"], script.as_bytes());
    assert_eq!((told.done(), told.stderr.as_str()), ("", ""), "there is nothing to repair");
}

/// Reads standard error until a line has these words.
fn wait_for(stderr: &mut BufReader<ChildStderr>, words: &str) -> String {
    let mut line = String::new();
    while !line.contains(words) {
        line.clear();
        assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "it ends without {words:?}");
    }
    line
}

// Breaks: SIGUSR1 without a handler, which ends the process; counting from somewhere else than the
// opening.
#[test]
fn a_server_tells_what_it_does() {
    let (mut server, work) = (Server::start(&[]), Work::new());
    let mut stderr = BufReader::new(server.child.stderr.take().unwrap());
    for branch in ["HEAD:refs/heads/a", "HEAD:refs/heads/b", "HEAD:refs/heads/c"] {
        assert!(server.push(&work, "r.git", &[branch]).status.success());
    }
    let told = "repository=\"r.git\" durable_seq=3 sealed_seq=0";
    let counts = [
        "transactions=3 ",
        "syncs=3 ",
        "sync_ms_mean=",
        "group_size_mean=1.0",
        "lock_waits=0 lock_wait_ms=0.0",
    ];
    for signal in ["USR1", "USR1", "TERM"] {
        server.signal(signal);
        let line = wait_for(&mut stderr, told);
        assert!(counts.iter().all(|count| line.contains(count)), "{line}");
    }
    assert_eq!(server.code(), Some(0));
}

// Break: a handler that is gone after the first signal: the server would wait for the client.
#[test]
fn the_second_signal_ends_the_server_at_once() {
    let (mut server, work) = (Server::start(&[]), Work::new());
    assert!(server.push(&work, "r.git", &["HEAD:refs/heads/main"]).status.success());
    let mut stderr = BufReader::new(server.child.stderr.take().unwrap());
    // A request that is never finished keeps the server waiting.
    let mut client = TcpStream::connect(server.address()).unwrap();
    let head = "POST /r.git/git-receive-pack HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\
                Content-Type: application/x-git-receive-pack-request\r\n\r\n0000";
    client.write_all(head.as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    server.signal("TERM");
    wait_for(&mut stderr, "a second signal ends the server at once");
    std::thread::sleep(Duration::from_millis(200));
    assert!(server.child.try_wait().unwrap().is_none(), "it waits for the request");
    let sent = Instant::now();
    server.signal("TERM");
    assert_eq!(server.code(), Some(128 + 15));
    assert!(sent.elapsed() < Duration::from_secs(5));
    let listed = run(["refs", server.repo("r.git").to_str().unwrap()]);
    assert!(listed.done().contains("refs/heads/main"), "what was acknowledged is there");
}

#[test]
fn only_on_loopback_does_a_push_create() {
    let (server, work) = (Server::start_on("0.0.0.0:0", &[]), Work::new());
    let refused = server.push(&work, "new.git", &["HEAD:refs/heads/main"]);
    assert!(!refused.status.success());
    assert!(!server.repo("new.git").exists());
    run(["init", server.repo("new.git").to_str().unwrap()]).done();
    let pushed = server.push(&work, "new.git", &["HEAD:refs/heads/main"]);
    assert!(pushed.status.success(), "{}", git::errors(&pushed));
}

#[test]
fn a_user_may_be_required() {
    let (server, work) = (Server::start(&["--require-user"]), Work::new());
    assert!(!server.push(&work, "r.git", &["HEAD:refs/heads/main"]).status.success());
    let url = format!("http://alice:any@{}/r.git", server.address());
    git::run(work.path(), &["push", &url, "HEAD:refs/heads/main"]);
    let shown = run(["log", server.repo("r.git").to_str().unwrap(), "--json"]);
    assert_eq!(shown.json()[0]["actor"], "alice");
}

#[test]
fn people_are_told_the_url_and_a_line_to_push_with() {
    let scratch = TempDir::new().unwrap();
    let mut command = refstone();
    command.arg("serve").arg(scratch.path()).args(["--listen", "127.0.0.1:0", "--quiet"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let url = lines.next().unwrap().unwrap();
    let line = lines.next().unwrap().unwrap();
    let (_, line) = line.split_once(":  ").unwrap();
    assert!(url.contains(" at http://127.0.0.1:"), "{url}");
    let work = Work::new();
    let mut pushed = git::git(work.path());
    let words: Vec<&str> = line.split(' ').skip(1).collect();
    assert!(pushed.args(words).output().unwrap().status.success(), "{line}");
    child.kill().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    child.wait().unwrap();
    assert_eq!(said, "", "--quiet");
}

#[test]
fn an_address_that_cannot_be_listened_on_is_told() {
    let server = Server::start(&[]);
    let data = server.scratch.path().to_str().unwrap();
    let taken: Run = run(["serve", data, "--listen", server.address()]);
    taken.failed(3, "\nhint: --listen takes another address");
    run(["serve", data, "--listen", "nonsense"]).failed(2, "\nhint: give an address and a port");
    let file = server.scratch.path().join("file");
    std::fs::write(&file, "").unwrap();
    run(["serve", file.to_str().unwrap(), "--listen", "127.0.0.1:0"]).failed(3, "cannot create");
}

// Breaks: starting all the same, and failing at each push; not telling who is in the way.
#[test]
fn a_data_directory_has_one_server() {
    let (mut first, work) = (Server::start(&[]), Work::new());
    let data = first.scratch.path().join("data");
    // What it says first: that it is ready, or why it is not.
    let second = || {
        let mut command = refstone();
        command.args(["serve", data.to_str().unwrap(), "--listen", "127.0.0.1:0", "--quiet"]);
        let (reader, writer) = std::io::pipe().unwrap();
        let mut child = command.stdout(writer.try_clone().unwrap()).stderr(writer).spawn().unwrap();
        drop(command);
        let mut line = String::new();
        BufReader::new(reader).read_line(&mut line).unwrap();
        let _ = child.kill();
        child.wait().unwrap();
        line
    };
    let said = second();
    assert!(said.starts_with("error: ") && said.contains("served by another process"), "{said}");
    // Where the kernel tells who it is.
    assert!(
        said.contains(&format!("(process {}: ", first.child.id())) || no_locks_told(),
        "{said}"
    );
    let repo = first.repo("a.git");
    assert!(first.push(&work, "a.git", &["HEAD:refs/heads/a"]).status.success());
    for command in ["update-ref", "compact"] {
        let stdin = ["--stdin"].iter().filter(|_| command == "update-ref").copied();
        let told = run([command, repo.to_str().unwrap()].into_iter().chain(stdin));
        let holder = format!("(process {}: ", first.child.id());
        told.failed(3, if no_locks_told() { "another writer" } else { &holder });
    }
    first.signal("KILL");
    assert_eq!(first.code(), None);
    let said = second();
    assert!(said.starts_with("serving "), "the lock dies with its process: {said}");
}

/// Some kernels do not tell who holds a lock.
fn no_locks_told() -> bool {
    !std::fs::read_to_string("/proc/locks").is_ok_and(|locks| locks.contains("FLOCK"))
}

// Breaks: taking any directory for one with repositories; looking at the directory alone, and not where
// it is; taking a directory for a log because of its name.
#[test]
fn a_repository_itself_is_not_served() {
    let scratch = TempDir::new().unwrap();
    let parent = scratch.path().canonicalize().unwrap();
    let [ours, bare] = ["ours.git", "bare.git"].map(|name| parent.join(name));
    run(["init", ours.to_str().unwrap()]).done();
    git::run(&parent, &["init", "--quiet", "--bare", "bare.git"]);
    for data in [&ours, &bare] {
        // An address that does not exist ends a server that would start all the same.
        let told = run(["serve", data.to_str().unwrap(), "--listen", "nowhere"]);
        told.failed(2, "this is a repository itself");
        told.failed(2, &format!("refstone serve {}", parent.display()));
    }
    for inside in ["refstone", "objects", "refstone/history", "new"] {
        let told = run(["serve", ours.join(inside).to_str().unwrap(), "--listen", "nowhere"]);
        told.failed(2, &format!("this is inside of the repository {}\nhint: ", ours.display()));
        told.failed(2, &format!("refstone serve {}", parent.display()));
    }
    assert!(!ours.join("new").exists());
    // What only has such a name is none.
    std::fs::create_dir_all(parent.join("src/refstone")).unwrap();
    for data in ["src", "src/data"] {
        let told = run(["serve", parent.join(data).to_str().unwrap(), "--listen", "nowhere"]);
        told.failed(2, "\nhint: give an address and a port");
    }
}
