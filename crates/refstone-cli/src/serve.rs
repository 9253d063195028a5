//! `refstone serve`.

use std::fs;
use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process;

use clap::{ArgAction, Args};
use refstone::MinFree;
use refstone_server::{CreateOnPush, Server, ServerError, ServerOptions, UserPolicy};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::filter::LevelFilter;

use crate::exit::{self, CODES, Failure, note};
use crate::output::Output;
use crate::{holder, text};

/// Serve repositories to git over HTTP
///
/// Serves each `<name>.git` in DATA at `/<name>.git`. A push is acknowledged when its objects and
/// its reference transaction are on stable storage. DATA is created if it is absent; and while the
/// server listens on loopback, and only then, a push to a new name creates that repository.
///
/// The user name of a push is recorded as its actor, and no password is checked: a server that must
/// not believe its clients stands behind a proxy that does.
///
/// DATA has one server at a time: a second one does not start.
///
/// When the server is ready, standard output gets its URL and a line to push with; with --json one
/// object: `url`, `data`, `pid`. The first SIGINT or SIGTERM stops it: it takes no more requests,
/// finishes those in flight, closes every log, and ends with exit code 0. The second one ends it at
/// once, which loses nothing that was acknowledged.
///
/// On SIGUSR1, and when it stops, it logs for each repository that it has open what it did since it
/// was opened: transactions, syncs and how long they took, how many transactions shared one, and
/// what compactions did.
#[derive(Debug, Args)]
#[command(after_long_help = CODES)]
pub(crate) struct Serve {
    /// The directory with the repositories
    data: PathBuf,
    /// Where to listen; port 0 takes a free one, which is printed
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8417")]
    listen: String,
    /// Refuse pushes that give no user name, so that git asks for one
    #[arg(long)]
    require_user: bool,
    /// How much of the file system stays free: below it pushes are refused, and fetches go on.
    /// `auto` (64M), a size such as 2G, or 0 for no floor
    #[arg(long, value_name = "SIZE", default_value = "auto")]
    min_free: MinFree,
    /// Print one JSON object when ready
    #[arg(long)]
    json: bool,
    /// Log errors only
    #[arg(long, short, conflicts_with = "verbose")]
    quiet: bool,
    /// Log more; twice for all there is
    #[arg(long, short, action = ArgAction::Count)]
    verbose: u8,
}

#[derive(Serialize)]
struct Ready<'a> {
    url: &'a str,
    data: &'a str,
    pid: u32,
}

impl Serve {
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.log_to_stderr();
        let shown = text::path(&self.data);
        refuse_repository(&self.data)?;
        fs::create_dir_all(&self.data).map_err(|error| {
            Failure::of_io(&error, format!("{shown}: cannot create the directory: {error}"))
        })?;
        // Whoever is told the path may stand in another directory.
        let data = self.data.canonicalize().unwrap_or_else(|_| self.data.clone());
        let shown = text::path(&data);
        let runtime = tokio::runtime::Runtime::new()
            .map_err(|error| Failure::environment(format!("cannot start threads: {error}")))?;
        runtime.block_on(self.serve(&shown))
    }

    async fn serve(&self, data: &str) -> Result<(), Failure> {
        // From here on a signal stops the server in order, however early it comes.
        let signals = Signals::new()?;
        let mut asked = listen(SignalKind::user_defined1())?;
        let listener = self.bind().await?;
        let address = listener.local_addr().map_err(|error| cannot_listen(&self.listen, &error))?;
        let server = Server::new(self.options(address)).map_err(|error| explain(&error))?;
        match self.announce(address, data) {
            // Nobody needs to read the line for the server to be of use.
            Ok(()) | Err(Failure::OutputClosed) => {}
            Err(failure) => return Err(failure),
        }
        let monitor = server.monitor();
        tokio::spawn(async move {
            while asked.recv().await.is_some() {
                monitor.log_stats().await;
            }
        });
        let served = server.serve(listener, signals.first_then_watch()).await;
        served.map_err(|error| explain(&error))
    }

    fn options(&self, address: SocketAddr) -> ServerOptions {
        let create_on_push = match address.ip().is_loopback() {
            true => CreateOnPush::Allowed,
            false => CreateOnPush::Never,
        };
        let user = if self.require_user { UserPolicy::Required } else { UserPolicy::Optional };
        ServerOptions {
            data: self.data.clone(),
            create_on_push,
            user,
            min_free: self.min_free,
            ..ServerOptions::default()
        }
    }

    async fn bind(&self) -> Result<TcpListener, Failure> {
        TcpListener::bind(&self.listen).await.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => {
                Failure::usage(format!("--listen {}: {error}", self.listen))
                    .with_hint("give an address and a port, such as 127.0.0.1:8417 or [::1]:0")
            }
            _ => cannot_listen(&self.listen, &error),
        })
    }

    fn announce(&self, address: SocketAddr, data: &str) -> Result<(), Failure> {
        let url = format!("http://{address}/");
        let mut output = Output::new();
        if self.json {
            output.json(&Ready { url: &url, data, pid: process::id() })?;
            return output.finish();
        }
        output.line(&[format!("serving {data} at {url}").as_bytes()])?;
        if !address.ip().is_loopback() {
            let line = format!("to create a repository:  refstone init {data}/project.git");
            output.line(&[line.as_bytes()])?;
        }
        let user = if self.require_user { "\"$USER\"@" } else { "" };
        let line = format!("to push:  git push http://{user}{address}/project.git HEAD");
        output.line(&[line.as_bytes()])?;
        output.finish()
    }

    fn log_to_stderr(&self) {
        let level = match (self.quiet, self.verbose) {
            (true, _) => LevelFilter::ERROR,
            (false, 0) => LevelFilter::INFO,
            (false, 1) => LevelFilter::DEBUG,
            (false, _) => LevelFilter::TRACE,
        };
        tracing_subscriber::fmt()
            .with_max_level(level)
            .with_writer(io::stderr)
            .with_ansi(io::stderr().is_terminal())
            .init();
    }
}

/// A repository, or what is inside of one, would serve nothing, and a push to it would make a repository
/// inside of a repository.
fn refuse_repository(data: &Path) -> Result<(), Failure> {
    let path = existing(data);
    // The outermost: the log of a repository is inside of it.
    let Some(repository) = path.ancestors().filter(|path| is_repository(path)).last() else {
        return Ok(());
    };
    let this = match data.canonicalize().is_ok_and(|data| data == repository) {
        true => "this is a repository itself".to_owned(),
        false => format!("this is inside of the repository {}", text::path(repository)),
    };
    let failure = Failure::usage(format!("{}: {this}", text::path(data)));
    Err(match repository.parent() {
        Some(parent) => failure.with_hint(format!(
            "name the directory that the repository is in: refstone serve {}",
            text::path(parent)
        )),
        None => failure,
    })
}

/// As much of a path as is there, without links.
fn existing(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let there = absolute.ancestors().find_map(|path| path.canonicalize().ok());
    there.unwrap_or(absolute)
}

/// Git's own directory, or one with a log of references in it.
fn is_repository(path: &Path) -> bool {
    let is_bare = path.join("HEAD").is_file() && path.join("objects").is_dir();
    is_bare
        || ["refs.arrow", "refstone/refs.arrow", "refstone/LOCK"]
            .iter()
            .any(|file| path.join(file).is_file())
}

fn cannot_listen(on: &str, error: &io::Error) -> Failure {
    let failure = Failure::environment(format!("cannot listen on {on}: {error}"));
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            failure.with_hint("--listen takes another address; port 0 takes a free one")
        }
        _ => failure,
    }
}

fn explain(error: &ServerError) -> Failure {
    let text = exit::chain(error);
    match error {
        ServerError::Data { source, .. } => Failure::of_io(source, text),
        ServerError::Served { path } => {
            Failure::environment(text + &holder::shown(path)).with_hint(
                "push to that server, or stop it first (SIGTERM); another directory may have a server of \
                 its own",
            )
        }
        _ => Failure::environment(text),
    }
}

/// Starts to listen; what the signal did before, it does no more.
fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind)
        .map_err(|error| Failure::environment(format!("cannot listen for signals: {error}")))
}

/// The signals that stop a server.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> Result<Signals, Failure> {
        Ok(Signals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// Waits for the first signal; the second one ends the process, from then on.
    async fn first_then_watch(mut self) {
        self.next().await;
        note("finishing what is in flight; a second signal ends the server at once");
        tokio::spawn(async move {
            let number = self.next().await;
            // The code a shell shows for a process that died of the signal.
            process::exit(128 + number);
        });
    }

    /// Waits for a signal, and gives its number.
    async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt().as_raw_value(),
            _ = self.terminate.recv() => SignalKind::terminate().as_raw_value(),
        }
    }
}
