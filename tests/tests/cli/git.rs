//! Real git, kept away from the configuration of the machine.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// `git` in a directory.
pub(crate) fn git(dir: &Path) -> Command {
    let mut git = Command::new("git");
    git.current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_AUTHOR_NAME", "t")
        .env("GIT_AUTHOR_EMAIL", "t@example.org")
        .env("GIT_COMMITTER_NAME", "t")
        .env("GIT_COMMITTER_EMAIL", "t@example.org")
        .env("LC_ALL", "C");
    git
}

/// Runs git; what it prints if all went well.
pub(crate) fn run(dir: &Path, arguments: &[&str]) -> String {
    let output = git(dir).args(arguments).output().expect("this test needs git");
    assert!(output.status.success(), "git {arguments:?}: {}", errors(&output));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

pub(crate) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A working tree with two commits.
#[derive(Debug)]
pub(crate) struct Work {
    dir: TempDir,
    /// Their ids, older first.
    pub(crate) commits: [String; 2],
}

impl Work {
    pub(crate) fn new() -> Work {
        let dir = TempDir::new().unwrap();
        run(dir.path(), &["init", "-q", "-b", "main"]);
        let commits = ["one", "two"].map(|message| {
            run(dir.path(), &["commit", "-q", "--allow-empty", "-m", message]);
            run(dir.path(), &["rev-parse", "HEAD"])
        });
        Work { dir, commits }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn objects(&self) -> PathBuf {
        self.dir.path().join(".git/objects")
    }
}

impl Work {
    /// The same for all cases of a property.
    pub(crate) fn shared() -> &'static Work {
        static SHARED: std::sync::OnceLock<Work> = std::sync::OnceLock::new();
        SHARED.get_or_init(Work::new)
    }
}
