//! A server on a free port, a git client without configuration, and raw requests.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use refstone::{ObjectFormat, RefName, RefStore, View};
use refstone_server::wire::pkt;
use refstone_server::{CreateOnPush, InitOptions, Server, ServerOptions, init_repository};
use tempfile::TempDir;
use tokio::sync::oneshot;

/// No request of a test takes this long unless something hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that stops when this value is dropped.
pub(crate) struct TestServer {
    pub(crate) data: TempDir,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl TestServer {
    /// Creates repositories on push, and asks nobody for a name.
    pub(crate) fn start() -> Self {
        Self::on(TempDir::new().unwrap())
    }

    /// The same on data that is there already.
    pub(crate) fn on(data: TempDir) -> Self {
        Self::with(data, |_| ())
    }

    /// The same with other options.
    pub(crate) fn with_options(adjust: impl FnOnce(&mut ServerOptions)) -> Self {
        Self::with(TempDir::new().unwrap(), adjust)
    }

    fn with(data: TempDir, adjust: impl FnOnce(&mut ServerOptions)) -> Self {
        let mut options = ServerOptions {
            data: data.path().to_owned(),
            create_on_push: CreateOnPush::Allowed,
            ..ServerOptions::default()
        };
        adjust(&mut options);
        crate::logs::keep();
        let (stop, stopped) = oneshot::channel::<()>();
        let (started, address) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let server = Server::new(options).unwrap();
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                started.send(listener.local_addr().unwrap()).unwrap();
                let shutdown = async { drop(stopped.await) };
                server.serve(listener, shutdown).await.unwrap();
            });
        });
        Self {
            data,
            address: address.recv_timeout(PATIENCE).unwrap(),
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Stops, does something to the data, and starts again.
    pub(crate) fn restart_after(self, work: impl FnOnce(&Path)) -> Self {
        let data = self.stop();
        work(data.path());
        Self::on(data)
    }

    /// Stops and leaves the data.
    pub(crate) fn stop(mut self) -> TempDir {
        self.halt();
        std::mem::replace(&mut self.data, TempDir::new().unwrap())
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("http://{}/{name}.git", self.address)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.data.path().join(format!("{name}.git"))
    }

    /// Makes a repository before anything is pushed.
    pub(crate) fn init(&self, name: &str, object_format: ObjectFormat) {
        let options = InitOptions { object_format, ..InitOptions::default() };
        init_repository(&self.path(name), &options).unwrap();
    }

    /// Sets a variable in the repository's config.
    pub(crate) fn configure(&self, name: &str, key: &str, value: &str) {
        let path = self.path(name);
        git_in(&path, ["--git-dir=.", "config", key, value]).succeeds();
    }

    /// The durable refs, read beside the running server.
    pub(crate) fn refs(&self, name: &str) -> View {
        refstone::read_view(&self.path(name).join("refstone")).unwrap()
    }

    /// The object id of a ref, or an empty text.
    pub(crate) fn oid(&self, name: &str, refname: &str) -> String {
        let resolved = self.refs(name).resolve(&RefName::new(refname).unwrap());
        resolved.unwrap().oid.map_or(String::new(), |oid| oid.to_hex())
    }

    /// Nothing of a push is left in quarantine, and no pack is held.
    pub(crate) fn assert_tidy(&self, name: &str) {
        let objects = self.path(name).join("objects");
        let mut names: Vec<_> = names_in(&objects);
        names.retain(|name| name.contains("tmp") || name.contains("incoming"));
        assert!(names.is_empty(), "{names:?}");
        let mut names = names_in(&objects.join("pack"));
        names.retain(|name| !name.starts_with("pack-") || name.ends_with(".keep"));
        assert!(names.is_empty(), "{names:?}");
    }

    pub(crate) fn pack_count(&self, name: &str) -> usize {
        let names = names_in(&self.path(name).join("objects/pack"));
        names.iter().filter(|name| name.ends_with(".pack")).count()
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends bytes as they are, and returns everything that comes back.
    pub(crate) fn raw(&self, request: &[u8]) -> Reply {
        let mut stream = self.connect();
        stream.write_all(request).unwrap();
        let mut bytes = Vec::new();
        // A reset after the answer is no failure.
        drop(stream.read_to_end(&mut bytes));
        Reply::parse(&bytes)
    }

    /// Sends bytes, then closes the connection.
    pub(crate) fn hang_up_after(&self, request: &[u8]) {
        let mut stream = self.connect();
        stream.write_all(request).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        drop(stream.read_to_end(&mut Vec::new()));
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.raw(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())
    }

    pub(crate) fn post(&self, name: &str, service: &str, headers: &str, body: &[u8]) -> Reply {
        self.raw(&post_request(name, service, headers, body))
    }

    /// A push with hand-made commands.
    pub(crate) fn push_raw(&self, name: &str, commands: &[&[u8]], pack: &[u8]) -> Reply {
        let mut body = Vec::new();
        for (index, command) in commands.iter().enumerate() {
            let capabilities: &[u8] = match index {
                0 => b"\0report-status side-band-64k",
                _ => b"",
            };
            pkt::encode(&mut body, &[command, capabilities]).unwrap();
        }
        body.extend_from_slice(pkt::FLUSH);
        body.extend_from_slice(pack);
        self.post(name, "git-receive-pack", "", &body)
    }

    fn halt(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.halt();
        }
    }
}

pub(crate) fn post_request(name: &str, service: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST /{name}.git/{service} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
         Content-Type: application/x-{service}-request\r\nContent-Length: {}\r\n{headers}\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

pub(crate) fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

/// An HTTP answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        let end =
            end.unwrap_or_else(|| panic!("no answer: {:?}", bytes.escape_ascii().to_string()));
        let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let rest = &bytes[end + 4..];
        let body = match head.contains("transfer-encoding: chunked") {
            true => dechunk(rest),
            false => rest.to_vec(),
        };
        Self { status, head, body }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Asserts the status and a part of the text.
    pub(crate) fn expect(&self, status: u16, part: &str) {
        let text = self.text();
        assert_eq!(self.status, status, "{text}");
        assert!(text.contains(part), "expected {part:?} in {text:?}");
    }
}

fn dechunk(mut bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some(end) = bytes.windows(2).position(|window| window == b"\r\n") {
        let length = std::str::from_utf8(&bytes[..end]).unwrap();
        let length = usize::from_str_radix(length, 16).unwrap();
        out.extend_from_slice(&bytes[end + 2..end + 2 + length]);
        bytes = &bytes[end + 4 + length..];
    }
    out
}

/// A working tree with a client that knows no configuration but ours.
pub(crate) struct Client {
    pub(crate) directory: TempDir,
}

impl Client {
    /// A repository with branch `main` and no commit.
    pub(crate) fn new() -> Self {
        Self::with_format("sha1")
    }

    pub(crate) fn with_format(format: &str) -> Self {
        let client = Self { directory: TempDir::new().unwrap() };
        let format = format!("--object-format={format}");
        client.git(["init", "--quiet", "-b", "main", &format]);
        client
    }

    /// Clones with further arguments.
    pub(crate) fn clone<const N: usize>(url: &str, arguments: [&str; N]) -> Self {
        let client = Self { directory: TempDir::new().unwrap() };
        let mut all = vec!["clone", "--quiet"];
        all.extend(arguments);
        all.extend([url, "."]);
        client.git(all);
        client
    }

    /// Runs git, which must succeed; returns its output without the last newline.
    pub(crate) fn git<I>(&self, arguments: I) -> String
    where
        I: IntoIterator,
        I::Item: AsRef<OsStr>,
    {
        git_in(self.directory.path(), arguments).succeeds()
    }

    /// Runs git, which must fail; returns what it complains about.
    pub(crate) fn git_fails<I>(&self, arguments: I) -> String
    where
        I: IntoIterator,
        I::Item: AsRef<OsStr>,
    {
        git_in(self.directory.path(), arguments).fails()
    }

    /// Commits a file of that name and content, and returns the commit.
    pub(crate) fn commit(&self, name: &str) -> String {
        fs::write(self.directory.path().join(name), name).unwrap();
        self.git(["add", name]);
        self.git(["commit", "--quiet", "-m", name]);
        self.head()
    }

    pub(crate) fn head(&self) -> String {
        self.git(["rev-parse", "HEAD"])
    }

    pub(crate) fn fsck(&self) {
        self.git(["fsck", "--strict", "--no-dangling"]);
    }
}

/// What a command left.
pub(crate) struct Ran(Output);

pub(crate) fn git_in<I>(directory: &Path, arguments: I) -> Ran
where
    I: IntoIterator,
    I::Item: AsRef<OsStr>,
{
    let mut command = Command::new("git");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("GIT_") {
            command.env_remove(name);
        }
    }
    let output = command
        .args(["-c", "protocol.version=2", "-c", "gc.auto=0"])
        .args(arguments)
        .current_dir(directory)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("LC_ALL", "C")
        .env("no_proxy", "*")
        .env("GIT_AUTHOR_NAME", "A U Thor")
        .env("GIT_AUTHOR_EMAIL", "author@example.com")
        .env("GIT_COMMITTER_NAME", "C O Mitter")
        .env("GIT_COMMITTER_EMAIL", "committer@example.com")
        .output()
        .unwrap();
    Ran(output)
}

impl Ran {
    pub(crate) fn succeeds(&self) -> String {
        assert!(self.0.status.success(), "{}", self.complaint());
        String::from_utf8_lossy(&self.0.stdout).trim_end().to_owned()
    }

    pub(crate) fn fails(&self) -> String {
        assert!(!self.0.status.success(), "{}", self.complaint());
        self.complaint()
    }

    pub(crate) fn complaint(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }
}

pub(crate) fn wait_until(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Opens the store of a repository that no server serves.
pub(crate) fn store(path: &Path) -> RefStore {
    RefStore::open(&path.join("refstone")).unwrap()
}

/// A pack without objects.
pub(crate) fn empty_pack() -> Vec<u8> {
    // The header, and its SHA-1.
    let sum = "029d08823bd8a8eab510ad6ac75c823cfd3ed31e";
    let sum = (0..20).map(|i| u8::from_str_radix(&sum[2 * i..2 * i + 2], 16).unwrap());
    b"PACK\0\0\0\x02\0\0\0\0".iter().copied().chain(sum).collect()
}

/// A pack with these objects, one on each line.
pub(crate) fn pack(client: &Client, objects: &str) -> Vec<u8> {
    let mut child = Command::new("git")
        .args(["pack-objects", "--stdout", "-q"])
        .current_dir(client.directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let objects: String = objects.lines().map(|line| format!("{line}\n")).collect();
    child.stdin.take().unwrap().write_all(objects.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    output.stdout
}
