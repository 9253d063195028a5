//! Parts of an arm that need a process of their own: this program starts itself again.
//!
//! A cold open in a fresh process has nothing warm but the kernel, and its memory is its own. A
//! server in a process of its own is what clients meet.

use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use refstone::{CreateOptions, RefName, RefStore, history_newest_first};
use refstone_server::{Server, ServerOptions};
use serde::{Deserialize, Serialize};

use crate::arms::{create_refs, open_by_hand};
use crate::measure::host;

const TASK_VARIABLE: &str = "REFSTONE_BENCH_CHILD";

/// What a child is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Child {
    /// Create a store, commit so many refs in one transaction, and open it again.
    Create { dir: PathBuf, refs: usize },
    /// Open a store and look one ref up.
    Open { dir: PathBuf, name: String },
    /// Read the newest moves, of one ref or of all, and then the same once more.
    History { dir: PathBuf, name: Option<String>, most: usize },
    /// Serve a data directory until standard input ends; prints its address first.
    Serve { data: PathBuf },
}

/// What a child that reads has measured.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Reading {
    pub open_ms: f64,
    /// From the open store to the answer; for a history, all of it; for a new store, the commit.
    pub answer_us: f64,
    /// Refs that had a value, or moves that were found.
    pub found: u64,
    /// The length of the log, where it was made.
    #[serde(default)]
    pub log_bytes: u64,
    pub memory_mb: f64,
    pub read_mb: f64,
    /// All that was read for it, from the disk or not.
    #[serde(default)]
    pub asked_kib: f64,
    /// The same answer once more, when nothing is cold any more.
    #[serde(default)]
    pub again_us: f64,
}

/// The task that this process was started for, if it is a child.
pub fn requested() -> Option<Child> {
    let task = env::var(TASK_VARIABLE).ok()?;
    serde_json::from_str(&task).ok()
}

impl Child {
    /// Runs the task in this process.
    ///
    /// # Errors
    /// Whatever went wrong; the parent sees the exit code and standard error.
    pub fn run(&self) -> Result<()> {
        match self {
            Child::Create { dir, refs } => print(create(dir, *refs)?),
            Child::Open { dir, name } => print(open(dir, name)?),
            Child::History { dir, name, most } => print(read_history(dir, name.as_deref(), *most)?),
            Child::Serve { data } => serve(data),
        }
    }

    /// This program again, to do the task.
    ///
    /// # Errors
    /// If the program's own file is not known.
    pub fn command(&self) -> Result<Command> {
        let mut command = Command::new(env::current_exe().context("find this program's file")?);
        command.env(TASK_VARIABLE, serde_json::to_string(self)?);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        Ok(command)
    }

    /// Has a child read, and returns what it measured.
    ///
    /// # Errors
    /// If the child fails.
    pub fn read(&self) -> Result<Reading> {
        let output = self.command()?.stderr(Stdio::inherit()).output()?;
        if !output.status.success() {
            bail!("{self:?} failed");
        }
        serde_json::from_slice(&output.stdout).context("understand the child's answer")
    }
}

fn print(reading: Reading) -> Result<()> {
    println!("{}", serde_json::to_string(&reading)?);
    Ok(())
}

fn create(dir: &Path, refs: usize) -> Result<Reading> {
    RefStore::create(dir, &CreateOptions::default())?;
    let store = open_by_hand(dir)?;
    let start = Instant::now();
    create_refs(&store, 0, refs)?;
    let answer_us = start.elapsed().as_secs_f64() * 1e6;
    let memory_mb = host::peak_memory_mb();
    let log_bytes = store.log().live_bytes();
    store.close()?;
    drop(store);
    let start = Instant::now();
    let reopened = RefStore::open(dir)?;
    let open_ms = start.elapsed().as_secs_f64() * 1e3;
    let view = reopened.view();
    let refs = view.iter_prefix(b"refs/").try_fold(0, |count, item| item.map(|_| count + 1))?;
    Ok(Reading { open_ms, answer_us, found: refs, log_bytes, memory_mb, ..Reading::default() })
}

fn open(dir: &Path, name: &str) -> Result<Reading> {
    let read_before = host::bytes_read_from_disk()?;
    let start = Instant::now();
    let store = RefStore::open(dir)?;
    let open_ms = start.elapsed().as_secs_f64() * 1e3;
    let start = Instant::now();
    let found = store.view().get(&RefName::new(name)?)?.is_some();
    let answer_us = start.elapsed().as_secs_f64() * 1e6;
    Ok(Reading {
        open_ms,
        answer_us,
        found: u64::from(found),
        memory_mb: host::peak_memory_mb(),
        read_mb: mib(host::bytes_read_from_disk()? - read_before),
        ..Reading::default()
    })
}

fn read_history(dir: &Path, name: Option<&str>, most: usize) -> Result<Reading> {
    let name = name.map(RefName::new).transpose()?;
    let (disk, asked) = (host::bytes_read_from_disk()?, host::bytes_read()?);
    let (answer_us, found) = newest(dir, name.as_ref(), most)?;
    let read_mb = mib(host::bytes_read_from_disk()? - disk);
    let asked_kib = (host::bytes_read()? - asked) as f64 / 1024.0;
    let (again_us, _) = newest(dir, name.as_ref(), most)?;
    let memory_mb = host::peak_memory_mb();
    Ok(Reading { answer_us, again_us, found, memory_mb, read_mb, asked_kib, ..Reading::default() })
}

/// How long it took, and how many there are.
fn newest(dir: &Path, name: Option<&RefName>, most: usize) -> Result<(f64, u64)> {
    let start = Instant::now();
    let mut found = 0;
    for moved in history_newest_first(dir, name)?.take(most) {
        moved?;
        found += 1;
    }
    Ok((start.elapsed().as_secs_f64() * 1e6, found))
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn serve(data: &Path) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let options = ServerOptions { data: data.to_owned(), ..ServerOptions::default() };
        let server = Server::new(options)?;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        io::stdout().flush()?;
        let end_of_input = tokio::task::spawn_blocking(|| {
            // Whatever ends the input ends the server.
            let _ = io::stdin().read_to_end(&mut Vec::new());
        });
        server.serve(listener, async { drop(end_of_input.await) }).await?;
        Ok(())
    })
}

/// A server in a child process; dropping it stops it.
#[derive(Debug)]
pub struct ServerProcess {
    child: std::process::Child,
    address: String,
}

impl ServerProcess {
    /// Starts a server over a data directory; `path` replaces the search path of its children.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start(data: &Path, path: Option<&str>) -> Result<ServerProcess> {
        let mut command = Child::Serve { data: data.to_owned() }.command()?;
        if let Some(path) = path {
            command.env("PATH", path);
        }
        let mut child = command.stdin(Stdio::piped()).spawn().context("start the server")?;
        let mut address = String::new();
        let output = child.stdout.take().context("the server's output")?;
        BufReader::new(output).read_line(&mut address)?;
        let mut server = ServerProcess { child, address: address.trim().to_owned() };
        if server.address.is_empty() {
            bail!("the server ended: {}", server.child.wait()?);
        }
        Ok(server)
    }

    pub fn url(&self, repository: &str) -> String {
        format!("http://{}/{repository}", self.address)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
