//! Child processes: stock git, which handles the objects.
//!
//! Every child starts from a clean environment. What the operator's shell, `/etc/gitconfig` or
//! `~/.gitconfig` say must not change what a server answers; what the repository's own `config`
//! says may.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

use crate::text;

/// Which repository a child works on, and where it finds and puts objects.
#[derive(Debug, Clone)]
pub(crate) struct GitEnv {
    variables: Vec<(&'static str, OsString)>,
}

/// What a finished child left behind.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

impl GitEnv {
    /// Works on the repository itself.
    pub(crate) fn repository(git_dir: &Path) -> Self {
        Self { variables: vec![("GIT_DIR", git_dir.into())] }
    }

    /// Reads refs from one place and objects from another.
    pub(crate) fn projection(git_dir: &Path, objects: &Path) -> Self {
        Self::repository(git_dir).with("GIT_OBJECT_DIRECTORY", objects.into())
    }

    /// Puts new objects into `quarantine` and still sees those of the repository.
    ///
    /// Both paths must be absolute: git resolves relative ones against another directory.
    pub(crate) fn quarantine(git_dir: &Path, objects: &Path, quarantine: &Path) -> Self {
        debug_assert!(objects.is_absolute() && quarantine.is_absolute());
        Self::projection(git_dir, quarantine)
            .with("GIT_ALTERNATE_OBJECT_DIRECTORIES", quoted(objects))
            .with("GIT_QUARANTINE_PATH", quarantine.into())
    }

    fn with(mut self, name: &'static str, value: OsString) -> Self {
        self.variables.push((name, value));
        self
    }

    /// A child that runs `git <args>`, with piped output and no input.
    pub(crate) fn command<I>(&self, args: I) -> Command
    where
        I: IntoIterator,
        I::Item: AsRef<OsStr>,
    {
        let mut command = Command::from(self.std_command(args));
        command.kill_on_drop(true);
        command
    }

    /// The same for callers outside of the runtime.
    pub(crate) fn std_command<I>(&self, args: I) -> std::process::Command
    where
        I: IntoIterator,
        I::Item: AsRef<OsStr>,
    {
        let mut command = std::process::Command::new("git");
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_git_variable(name)) {
            command.env_remove(name);
        }
        command
            .args(args)
            .envs(CLEAN)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}

/// `safe.directory` only counts from outside of the repository's own config; without it git
/// refuses repositories that belong to another user than the server's.
///
/// `core.fsync=none`, because objects are synced when they leave quarantine, each file once.
const CLEAN: [(&str, &str); 11] = [
    ("LC_ALL", "C"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_CONFIG_COUNT", "2"),
    ("GIT_CONFIG_KEY_0", "safe.directory"),
    ("GIT_CONFIG_VALUE_0", "*"),
    ("GIT_CONFIG_KEY_1", "core.fsync"),
    ("GIT_CONFIG_VALUE_1", "none"),
];

fn is_git_variable(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b"GIT_")
}

/// The variable is a list separated by colons; a path that holds one is written as a C string.
fn quoted(path: &Path) -> OsString {
    let raw = path.as_os_str().as_bytes();
    if !raw.iter().any(|byte| matches!(byte, b':' | b'"')) {
        return path.into();
    }
    let escaped = raw.iter().flat_map(|&byte| match byte {
        b'"' | b'\\' => vec![b'\\', byte],
        byte => vec![byte],
    });
    let quote = std::iter::once(b'"');
    OsString::from_vec(quote.clone().chain(escaped).chain(quote).collect())
}

/// Runs a child to its end, with `input` on its standard input.
///
/// Input and output are pumped at once: a child that answers while it reads would block otherwise.
pub(crate) async fn run(mut command: Command, input: Bytes) -> io::Result<Finished> {
    let mut child = command.stdin(Stdio::piped()).spawn()?;
    let feed = feed(&mut child, input);
    let (fed, output) = tokio::join!(feed, child.wait_with_output());
    fed?;
    let output = output?;
    Ok(Finished { status: output.status, stdout: output.stdout, stderr: output.stderr })
}

fn feed(child: &mut Child, input: Bytes) -> impl Future<Output = io::Result<()>> + use<> {
    let stdin = child.stdin.take();
    async move {
        let Some(mut stdin) = stdin else {
            return Ok(());
        };
        match stdin.write_all(&input).await {
            // The child has seen enough; its exit status tells why.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other,
        }
    }
}

impl Finished {
    /// The output, if the child succeeded.
    pub(crate) fn success(self) -> io::Result<Vec<u8>> {
        if self.status.success() {
            return Ok(self.stdout);
        }
        let text = format!("git failed with {}: {}", self.status, text::complaint(&self.stderr));
        Err(io::Error::other(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_that_need_it_are_quoted() {
        assert_eq!(quoted(Path::new("/srv/git dir")), "/srv/git dir");
        assert_eq!(quoted(Path::new("/a:b\\c")), "\"/a:b\\\\c\"");
        assert_eq!(quoted(Path::new("/a\"b")), "\"/a\\\"b\"");
    }

    #[test]
    fn a_child_sees_no_configuration_from_outside() {
        let env = GitEnv::repository(Path::new("/nonexistent"));
        let output = env.std_command(["config", "--list", "--name-only"]).output();
        let listed = String::from_utf8(output.unwrap().stdout).unwrap();
        assert_eq!(listed, "safe.directory\ncore.fsync\n");
    }
}
