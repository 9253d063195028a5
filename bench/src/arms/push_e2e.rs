//! Real pushes over HTTP: how many, and where their time goes.
//!
//! The server is the crate's own, in a process of its own; clients are stock `git push`. Where the
//! time of a push goes is watched from outside, without slowing it: the kernel tells when the
//! server's quarantine appears (the request has come), when the log is written, and when its
//! length word is stored (the sync is over).

use std::fs;
use std::io::Write as _;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use refstone::{ObjectId, RefName, Target, read_view};
use refstone_server::{InitOptions, init_repository};

use super::timed_ms;
use crate::arm::{Arm, Bench, Scale};
use crate::child::ServerProcess;
use crate::git;
use crate::measure::drive::{Length, Run, closed_loop};
use crate::measure::row::Row;
use crate::measure::stats::{Latencies, median};
use crate::verdict::{Verdict, all_there};

pub(super) const ARM: Arm = Arm { id: "refstone.push_e2e", writes, run };

const CLIENTS: [usize; 2] = [1, 8];
const REPOSITORY: &str = "bench.git";

fn writes(scale: Scale) -> u64 {
    scale.pick(512 << 20, 64 << 20)
}

/// A clone with commits to be pushed one after the other.
struct Client {
    dir: PathBuf,
    branch: String,
    commits: Vec<String>,
    pushed: usize,
}

fn run(bench: &Bench<'_>) -> Result<(Row, Verdict)> {
    let mut row =
        Row::new("durable, git push over HTTP", 1, "one commit that adds a file of 1 KiB");
    let length = Length::millis(bench.scale.pick(4_000, 700));
    let chain = bench.scale.pick(600, 80);
    let repositories = (0..CLIENTS[1])
        .map(|number| Client::create(&bench.dir.join(format!("client-{number}")), number, chain))
        .collect::<Result<Vec<_>>>()?;

    let mut lost = 0;
    let mut runs: [Vec<Run>; 2] = Default::default();
    for index in [0, 1, 1, 0] {
        let (run, missing) = push_run(bench, &repositories[..CLIENTS[index]], length)?;
        runs[index].push(run);
        lost += missing;
    }
    for (clients, runs) in CLIENTS.into_iter().zip(&runs) {
        let rates: Vec<f64> = runs.iter().map(Run::per_sec).collect();
        let latency = Latencies::pooled(runs.iter().map(|run| &run.latency));
        row.put(format!("push_per_sec_{clients}"), median(&rates));
        row.put(format!("push_p50_ms_{clients}"), latency.percentile_us(0.5) / 1e3);
        row.put(format!("push_p99_ms_{clients}"), latency.percentile_us(0.99) / 1e3);
    }
    let push_ms = shares(bench, &repositories[0], &mut row)?;
    process_starts(bench, &repositories[0], push_ms, &mut row)?;
    Ok((row, all_there("branches away from their last push", 0, lost)))
}

/// A fresh repository behind a fresh server.
fn serve(dir: &Path, path: Option<&str>) -> Result<ServerProcess> {
    init_repository(&dir.join(REPOSITORY), &InitOptions::default())?;
    ServerProcess::start(dir, path)
}

fn push_run(bench: &Bench<'_>, clients: &[Client], length: Length) -> Result<(Run, u64)> {
    let data = tempfile::tempdir_in(bench.dir)?;
    let server = serve(data.path(), None)?;
    let url = server.url(REPOSITORY);
    let clients = clients.iter().map(Client::fresh).collect();
    let never = AtomicBool::new(false);
    let (run, clients) = closed_loop(clients, length, &never, |client| {
        client.push(&url)?;
        Ok(Duration::ZERO)
    })?;
    let view = read_view(&data.path().join(REPOSITORY).join("refstone"))?;
    let mut lost = 0;
    for client in &clients {
        let found = view.get(&RefName::new(client.branch.as_str())?)?;
        let found = found.as_ref().and_then(Target::object);
        let last = client.pushed.checked_sub(1).map(|last| client.commits[last].as_str());
        lost += u64::from(found.as_ref().map(ObjectId::to_hex).as_deref() != last);
    }
    Ok((run, lost))
}

impl Client {
    fn create(dir: &Path, number: usize, commits: usize) -> Result<Client> {
        git::output(git::command(Path::new(".")).args(["init", "--quiet"]).arg(dir))?;
        let mut import = git::command(dir)
            .args(["fast-import", "--quiet"])
            .stdin(Stdio::piped())
            .spawn()
            .context("start git fast-import")?;
        let mut input = import.stdin.take().context("its input")?;
        input.write_all(&history(number, commits))?;
        drop(input);
        ensure!(import.wait()?.success(), "git fast-import failed");
        let list = git::output(git::command(dir).args(["rev-list", "--reverse", "work"]))?;
        let commits = list.lines().map(str::to_owned).collect();
        Ok(Client {
            dir: dir.to_owned(),
            branch: format!("refs/heads/c{number}"),
            commits,
            pushed: 0,
        })
    }

    /// The same, to push from the first commit on to another server.
    fn fresh(&self) -> Client {
        let Client { dir, branch, commits, .. } = self;
        Client { dir: dir.clone(), branch: branch.clone(), commits: commits.clone(), pushed: 0 }
    }

    fn push(&mut self, url: &str) -> Result<()> {
        self.push_with(url, |_| ())
    }

    fn push_with(&mut self, url: &str, set: impl FnOnce(&mut std::process::Command)) -> Result<()> {
        let commit = self.commits.get(self.pushed).context("no commit is left to push")?;
        let mut command = git::command(&self.dir);
        command.args(["push", "--quiet", url]).arg(format!("{commit}:{}", self.branch));
        set(&mut command);
        git::output(&mut command)?;
        self.pushed += 1;
        Ok(())
    }
}

/// A chain of commits for `git fast-import`, each with a file of its own that does not compress.
fn history(seed: usize, commits: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed as u64);
    let mut stream = Vec::new();
    for number in 0..commits {
        let text: String = (0..1024).map(|_| random.alphanumeric()).collect();
        let commit = format!(
            "commit refs/heads/work\ncommitter alice <alice@example.org> {} +0000\ndata 4\nwork\n\
             M 100644 inline dir-{}/file-{number}\ndata {}\n{text}\n",
            1_700_000_000 + number,
            number % 16,
            text.len(),
        );
        stream.extend_from_slice(commit.as_bytes());
    }
    stream
}

/// What the kernel tells about the server's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// Something appeared among the objects: the request is there.
    Objects,
    /// The log was written.
    Log,
}

/// The parts of one push, in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Parts {
    /// git starts, asks for the refs, packs, and sends; until the server makes its quarantine.
    client: f64,
    /// The server checks, stores and syncs the objects; until the log is written.
    objects: f64,
    /// The log's sync; until its length word is stored.
    barrier: f64,
    /// The answer travels, git ends.
    answer: f64,
}

/// Puts the shares of a push; returns its median time in milliseconds.
fn shares(bench: &Bench<'_>, client: &Client, row: &mut Row) -> Result<f64> {
    let data = tempfile::tempdir_in(bench.dir)?;
    let server = serve(data.path(), None)?;
    let url = server.url(REPOSITORY);
    let mut client = client.fresh();
    client.push(&url)?;

    let watch = Watch::start(&data.path().join(REPOSITORY))?;
    let mut pushes = Vec::new();
    for _ in 0..bench.scale.pick(40, 4) {
        let begun = Instant::now();
        client.push(&url)?;
        pushes.push((begun, Instant::now()));
    }
    let events = watch.stop()?;
    let parts: Vec<Parts> =
        pushes.iter().filter_map(|(begun, ended)| parts(*begun, *ended, &events)).collect();
    row.put("watched_pushes", parts.len() as f64);
    if parts.len() * 2 < pushes.len() {
        row.note("push_e2e: too few events for the shares of a push");
        return Ok(0.0);
    }
    let of = |part: fn(&Parts) -> f64| median(&parts.iter().map(part).collect::<Vec<_>>());
    let means = [
        ("client", of(|p| p.client)),
        ("objects", of(|p| p.objects)),
        ("barrier", of(|p| p.barrier)),
        ("answer", of(|p| p.answer)),
    ];
    let whole: f64 = means.iter().map(|(_, ms)| ms).sum();
    for (part, ms) in means {
        row.put(format!("{part}_ms"), ms);
        row.put(format!("{part}_pct"), 100.0 * ms / whole);
    }
    Ok(whole)
}

fn parts(begun: Instant, ended: Instant, events: &[(Instant, Seen)]) -> Option<Parts> {
    let during = || events.iter().filter(|(at, _)| (begun..ended).contains(at));
    let seen = |what| during().filter(move |(_, seen)| *seen == what).map(|(at, _)| *at);
    let request = seen(Seen::Objects).next()?;
    let (written, published) = (seen(Seen::Log).next()?, seen(Seen::Log).next_back()?);
    (request <= written && written < published).then(|| {
        let ms = |from: Instant, to: Instant| to.duration_since(from).as_secs_f64() * 1e3;
        Parts {
            client: ms(begun, request),
            objects: ms(request, written),
            barrier: ms(written, published),
            answer: ms(published, ended),
        }
    })
}

/// Watches the files of a repository from a thread of its own.
struct Watch {
    stop: std::sync::Arc<AtomicBool>,
    thread: thread::JoinHandle<Result<Vec<(Instant, Seen)>>>,
}

impl Watch {
    fn start(repository: &Path) -> Result<Watch> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        inotify.add_watch(&repository.join("objects"), AddWatchFlags::IN_CREATE)?;
        let log = repository.join("refstone/refs.arrow");
        let log = inotify.add_watch(&log, AddWatchFlags::IN_MODIFY)?;
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::spawn(move || {
            let mut events = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let mut fds = [PollFd::new(inotify.as_fd(), PollFlags::POLLIN)];
                poll(&mut fds, 50_u16)?;
                let now = Instant::now();
                match inotify.read_events() {
                    Ok(read) => events.extend(read.iter().map(|event| {
                        (now, if event.wd == log { Seen::Log } else { Seen::Objects })
                    })),
                    Err(Errno::EAGAIN) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(events)
        });
        Ok(Watch { stop, thread })
    }

    fn stop(self) -> Result<Vec<(Instant, Seen)>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the watcher panicked")
    }
}

/// How many processes a push starts, and what starting so many costs: a `git version` each, which
/// starts, links, reads its configuration, prints, and ends. This time lies inside the other parts.
fn process_starts(bench: &Bench<'_>, client: &Client, push_ms: f64, row: &mut Row) -> Result<()> {
    let data = tempfile::tempdir_in(bench.dir)?;
    let shim = Shim::create(&bench.dir.join("shim"))?;
    let server = serve(data.path(), Some(&shim.path()?))?;
    let url = server.url(REPOSITORY);
    let mut client = client.fresh();
    // The first push reads the repository's settings, which later ones find cached.
    client.push(&url)?;
    let before = shim.calls();
    let traces = bench.dir.join("traces");
    fs::create_dir(&traces)?;
    client.push_with(&url, |command| {
        command.env("GIT_TRACE2_EVENT", &traces);
    })?;
    let of_server = (shim.calls() - before) as f64;
    // One file per git process.
    let of_client = fs::read_dir(&traces)?.count() as f64;
    let mut times = Vec::new();
    for _ in 0..20 {
        times.push(timed_ms(git::version)?.0);
    }
    let start_ms = median(&times);
    row.put("processes_client", of_client);
    row.put("processes_server", of_server);
    row.put("process_start_ms", start_ms);
    if push_ms > 0.0 {
        row.put("process_starts_pct", 100.0 * (of_client + of_server) * start_ms / push_ms);
    }
    Ok(())
}

/// A `git` that counts its calls and becomes the real one.
struct Shim {
    dir: PathBuf,
}

impl Shim {
    fn create(dir: &Path) -> Result<Shim> {
        fs::create_dir(dir)?;
        let calls = dir.join("calls");
        fs::write(&calls, "")?;
        let path = std::env::var("PATH").unwrap_or_default();
        let script =
            format!("#!/bin/sh\necho >> '{}'\nPATH='{path}'\nexec git \"$@\"\n", calls.display());
        fs::write(dir.join("git"), script)?;
        fs::set_permissions(dir.join("git"), fs::Permissions::from_mode(0o755))?;
        Ok(Shim { dir: dir.to_owned() })
    }

    fn path(&self) -> Result<String> {
        let path = std::env::var("PATH").context("PATH")?;
        Ok(format!("{}:{path}", self.dir.display()))
    }

    fn calls(&self) -> usize {
        fs::read(self.dir.join("calls")).map_or(0, |calls| calls.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_push_add_up() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let events = [
            (at(5), Seen::Log),
            (at(20), Seen::Objects),
            (at(40), Seen::Log),
            (at(44), Seen::Log),
            (at(90), Seen::Objects),
        ];
        let parts = parts(at(10), at(50), &events).unwrap();
        assert_eq!((parts.client, parts.objects), (10.0, 20.0));
        assert_eq!((parts.barrier, parts.answer), (4.0, 6.0));
        assert!(super::parts(at(60), at(95), &events).is_none(), "no log was written");
    }
}
