//! The server: what it is told, how it starts and how it stops.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::serve::ListenerExt;
use refstone::{MinFree, Stats};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

use crate::auth::UserPolicy;
use crate::create::CreateOnPush;
use crate::git::GitEnv;
use crate::http::{self, Service};
use crate::repository::{self, Repositories};
use crate::wire::commands::Limits;

/// How long requests in flight may take once the server shuts down.
const GRACE: Duration = Duration::from_secs(10);

/// The oldest git whose children this server understands: `GIT_CONFIG_GLOBAL` and
/// `GIT_CONFIG_COUNT` keep the configuration of the machine away from them.
const GIT_OLDEST: (u32, u32) = (2, 32);

/// What the server is told.
#[derive(Debug, Clone, Default)]
pub struct ServerOptions {
    /// The directory with the repositories; each `<name>.git` in it is served at `/<name>.git`.
    pub data: PathBuf,
    /// Whether a push creates what it is pushed to.
    pub create_on_push: CreateOnPush,
    /// Whether a push needs a user name.
    pub user: UserPolicy,
    /// How much one push may ask for.
    pub limits: Limits,
    /// How much of the file system stays free: below it pushes are refused, and fetches go on.
    pub min_free: MinFree,
}

/// A git server over smart HTTP.
///
/// # Example
///
/// ```no_run
/// use refstone_server::{Server, ServerOptions};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::new(ServerOptions {
///     data: "/srv/git".into(),
///     ..ServerOptions::default()
/// })?;
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
/// server.serve(listener, std::future::pending()).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Server {
    service: Arc<Service>,
    /// Held as long as it serves.
    _lock: File,
}

/// Why the server cannot start, or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The data directory cannot be used.
    #[error("the data directory {path} cannot be used")]
    Data {
        /// The directory as given.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Another server has the data directory.
    #[error("the data directory {path} is served by another process")]
    Served {
        /// The directory.
        path: PathBuf,
    },
    /// git cannot be run.
    #[error("git cannot be run: the server needs it to handle objects")]
    Git(#[source] io::Error),
    /// git is too old.
    #[error("git is too old: expected {}.{} or newer, found '{found}'", GIT_OLDEST.0, GIT_OLDEST.1)]
    GitVersion {
        /// What `git version` says.
        found: String,
    },
    /// The listening socket failed.
    #[error("the listening socket failed")]
    Serve(#[source] io::Error),
}

impl Server {
    /// Checks what the server needs, and takes the data directory, which no other server has then;
    /// opens no repository.
    ///
    /// # Errors
    ///
    /// [`ServerError`] if the data directory is none or is served already, or if git is missing or too
    /// old.
    pub fn new(options: ServerOptions) -> Result<Self, ServerError> {
        // Children get absolute paths, and a later change of directory must not move the data.
        let data = options.data.canonicalize().and_then(|data| {
            std::fs::read_dir(&data)?;
            Ok(data)
        });
        let data = data.map_err(|source| ServerError::Data { path: options.data, source })?;
        check_git()?;
        let lock = lock(&data)?;
        Ok(Self {
            service: Arc::new(Service {
                repositories: Repositories::new(data, options.min_free),
                create_on_push: options.create_on_push,
                user: options.user,
                limits: options.limits,
                pushes: TaskTracker::new(),
            }),
            _lock: lock,
        })
    }

    /// A way to ask the server what it does while it serves.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        Monitor { service: Arc::clone(&self.service) }
    }

    /// Serves until `shutdown` completes. Then it accepts no more connections, gives requests in
    /// flight ten seconds, and closes every log.
    ///
    /// # Errors
    ///
    /// [`ServerError::Serve`] if the listener fails; the logs are closed then, too.
    pub async fn serve(
        self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), ServerError> {
        // Answers are written in few pieces; waiting for more only adds latency.
        let listener = listener.tap_io(|stream| {
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "TCP_NODELAY");
            }
        });
        let (stopping, stopped) = oneshot::channel();
        let router = http::router(Arc::clone(&self.service));
        let serving = axum::serve(listener, router).with_graceful_shutdown(async {
            shutdown.await;
            drop(stopping);
        });
        let finished = async {
            let served = serving.await;
            self.service.pushes.close();
            self.service.pushes.wait().await;
            served
        };
        let served = tokio::select! {
            served = finished => served,
            () = deadline(stopped) => {
                tracing::warn!("requests in flight are cut off");
                Ok(())
            }
        };
        self.service.repositories.close_all().await;
        served.map_err(ServerError::Serve)
    }
}

/// Takes the lock of the data directory, of the directory itself: nothing is written for it, and it dies
/// with the process. Repositories have locks of their own, which are taken when they are first used; so
/// without this a second server would start, and then fail at each push.
fn lock(data: &Path) -> Result<File, ServerError> {
    let path = data.to_owned();
    let directory = match File::open(data) {
        Ok(directory) => directory,
        Err(source) => return Err(ServerError::Data { path, source }),
    };
    match directory.try_lock() {
        Ok(()) => Ok(directory),
        Err(TryLockError::WouldBlock) => Err(ServerError::Served { path }),
        Err(TryLockError::Error(source)) => Err(ServerError::Data { path, source }),
    }
}

/// Tells what a server does.
#[derive(Debug, Clone)]
pub struct Monitor {
    service: Arc<Service>,
}

impl Monitor {
    /// What each open repository's store did since it was opened, by the names of their
    /// directories, sorted. One that is being opened is waited for.
    pub async fn stats(&self) -> Vec<(String, Stats)> {
        self.service.repositories.stats().await
    }

    /// Logs the same, one event for each repository, at level `INFO`.
    pub async fn log_stats(&self) {
        for (name, stats) in self.stats().await {
            repository::log_stats(&name, &stats);
        }
    }
}

async fn deadline(stopped: oneshot::Receiver<()>) {
    drop(stopped.await);
    tokio::time::sleep(GRACE).await;
}

fn check_git() -> Result<(), ServerError> {
    let env = GitEnv::repository("/nonexistent".as_ref());
    let output = env.std_command(["version"]).output();
    let output = output.map_err(ServerError::Git)?;
    let found = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match parse_version(&found) {
        Some(version) if version >= GIT_OLDEST => Ok(()),
        _ => Err(ServerError::GitVersion { found }),
    }
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.strip_prefix("git version ")?.split('.');
    let major = numbers.next()?.parse().ok()?;
    let minor = numbers.next()?.parse().ok()?;
    Some((major, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_every_vendor_are_read() {
        for (text, expected) in [
            ("git version 2.47.3", Some((2, 47))),
            ("git version 2.39.5 (Apple Git-154)", Some((2, 39))),
            ("git version 2.50.0.rc1", Some((2, 50))),
            ("jj 0.30", None),
        ] {
            assert_eq!(parse_version(text), expected);
        }
    }

    #[test]
    fn a_data_directory_has_one_server_at_a_time() {
        let data = tempfile::tempdir().unwrap();
        let start =
            || Server::new(ServerOptions { data: data.path().into(), ..ServerOptions::default() });
        let first = start().unwrap();
        assert!(matches!(start(), Err(ServerError::Served { .. })));
        drop(first);
        start().unwrap();
    }

    #[test]
    fn a_missing_data_directory_is_named() {
        let options =
            ServerOptions { data: "/nonexistent/data".into(), ..ServerOptions::default() };
        let error = Server::new(options).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/data"));
    }
}
