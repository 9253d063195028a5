//! Stock git, undisturbed by the machine's configuration.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// `git -C <dir>`, in a clean environment.
pub fn command(dir: &Path) -> Command {
    let mut command = Command::new("git");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("GIT_") {
            command.env_remove(name);
        }
    }
    command
        .arg("-C")
        .arg(dir)
        .env("LC_ALL", "C")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0")
        .envs(["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"].map(|name| (name, "alice")))
        .envs(["GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"].map(|name| (name, "alice@example.org")))
        .envs(["GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"].map(|name| (name, "1700000000 +0000")))
        .stdin(Stdio::null());
    command
}

/// Runs git to its end, and gives what it printed.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.output().context("start git")?;
    if !output.status.success() {
        bail!("git failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

pub fn version() -> Result<String> {
    output(command(Path::new(".")).arg("version"))
}

/// A commit of the empty tree with this message; returns its id.
pub fn commit_empty_tree(dir: &Path, message: &str) -> Result<String> {
    let tree = output(command(dir).args(["hash-object", "-w", "-t", "tree", "/dev/null"]))?;
    output(command(dir).args(["commit-tree", &tree, "-m", message]))
}
