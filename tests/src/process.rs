//! The built `refstone` command, a server of it, and the `git` client.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// The `refstone` binary of this build.
///
/// # Panics
/// If the workspace was not built before its tests.
#[must_use]
pub fn refstone() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let profile = test.parent().and_then(Path::parent).expect("target/<profile>/deps/<test>");
    let binary = profile.join("refstone");
    assert!(binary.exists(), "{} is missing: run `cargo build` first", binary.display());
    binary
}

/// A running `refstone serve`, killed when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    url: String,
}

impl Server {
    /// Serves `data` on a free port of the loopback interface, and waits until it is ready.
    ///
    /// # Panics
    /// If the server does not become ready.
    #[must_use]
    pub fn start(data: &Path) -> Server {
        Server::start_with(data, &[])
    }

    /// The same with more options.
    ///
    /// # Panics
    /// If the server does not become ready.
    #[must_use]
    pub fn start_with(data: &Path, options: &[&str]) -> Server {
        let mut child = Command::new(refstone())
            .args(["serve", "--json", "--quiet", "--listen", "127.0.0.1:0"])
            .args(options)
            .arg(data)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let stdout = child.stdout.take().expect("piped");
        let mut ready = String::new();
        BufReader::new(stdout).read_line(&mut ready).expect("a line when it is ready");
        let ready: serde_json::Value = serde_json::from_str(&ready).expect("one JSON object");
        let url = ready["url"].as_str().expect("its address").trim_end_matches('/').to_owned();
        Server { child, url }
    }

    /// The address of a repository.
    #[must_use]
    pub fn url(&self, name: &str) -> String {
        format!("{}/{name}.git", self.url)
    }

    /// Ends the server at once, as a crash does.
    ///
    /// # Panics
    /// If it cannot be killed.
    pub fn kill(mut self) {
        self.child.kill().expect("a running server");
        self.child.wait().expect("its end");
    }

    /// Asks the server to finish, and waits until it has.
    ///
    /// # Panics
    /// If it does not end with success.
    pub fn finish(mut self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").arg(&id).status().expect("kill").success());
        let status = self.child.wait().expect("its end");
        assert!(status.success(), "the server ended with {status}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended already unless a test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A `git` command that knows nothing of this user's or this machine's configuration.
#[must_use]
pub fn git(dir: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(dir).env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    for (key, value) in [("NAME", "Alice"), ("EMAIL", "alice@example.org")] {
        command.env(format!("GIT_AUTHOR_{key}"), value);
        command.env(format!("GIT_COMMITTER_{key}"), value);
    }
    command.env("GIT_TERMINAL_PROMPT", "0");
    command
}

/// Runs git and returns what it printed.
///
/// # Panics
/// If it fails.
pub fn git_ok(dir: &Path, arguments: &[&str]) -> String {
    let output = run(git(dir).args(arguments));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {arguments:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

/// Runs git, which must fail, and returns what it said.
///
/// # Panics
/// If it succeeds.
pub fn git_fails(dir: &Path, arguments: &[&str]) -> String {
    let output = run(git(dir).args(arguments));
    assert!(!output.status.success(), "git {arguments:?} succeeded");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a command to its end.
///
/// # Panics
/// If it cannot be started.
pub fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}
