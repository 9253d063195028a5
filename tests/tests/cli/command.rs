//! Runs the command on scratch repositories.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use refstone_log::{LogReader, OsEnv};
use serde_json::Value;
use tempfile::TempDir;

/// The built command, which lies beside the directory of this test's executable.
///
/// Cargo tells the path of a binary only to the tests of its own package.
pub(crate) fn binary() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let binary = profile.join("refstone");
    let missing = "is not built: run `cargo build --workspace` first, as ./test.sh does";
    assert!(binary.is_file(), "{} {missing}", binary.display());
    binary
}

/// The command with the environment that all tests share.
pub(crate) fn refstone() -> Command {
    let mut command = Command::new(binary());
    command.env("LOGNAME", "tester");
    command
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Run {
    pub(crate) fn of(output: Output) -> Run {
        Run {
            code: output.status.code().expect("it ends by itself"),
            stdout: output.stdout,
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Standard output of a command that must have done its work.
    pub(crate) fn done(&self) -> &str {
        assert_eq!(self.code, 0, "{self:?}");
        std::str::from_utf8(&self.stdout).unwrap()
    }

    /// Standard output as JSON lines.
    pub(crate) fn json(&self) -> Vec<Value> {
        self.done().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Checks the exit code, and that standard error has these words.
    pub(crate) fn failed(&self, code: i32, words: &str) {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.stderr.contains(words), "expected {words:?} in {self:?}");
    }
}

/// Runs `refstone` with these arguments, and nothing to read.
pub(crate) fn run<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Run {
    run_with(arguments, b"")
}

/// Runs `refstone` with these arguments and this input.
pub(crate) fn run_with<S: AsRef<OsStr>>(
    arguments: impl IntoIterator<Item = S>,
    input: &[u8],
) -> Run {
    let mut command = refstone();
    command.args(arguments);
    feed(command, input)
}

/// Runs a command with this input.
pub(crate) fn feed(mut command: Command, input: &[u8]) -> Run {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that fails early does not read to the end.
    let _ = child.stdin.take().unwrap().write_all(input);
    Run::of(child.wait_with_output().unwrap())
}

/// A repository that `refstone init` made.
#[derive(Debug)]
pub(crate) struct Repo {
    pub(crate) scratch: TempDir,
}

impl Repo {
    pub(crate) fn new() -> Repo {
        Repo::with(&[])
    }

    pub(crate) fn with(options: &[&str]) -> Repo {
        let repo = Repo { scratch: TempDir::new().unwrap() };
        let path = repo.path();
        let arguments = [OsStr::new("init"), path.as_os_str()].into_iter();
        run(arguments.chain(options.iter().map(OsStr::new))).done();
        repo
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.scratch.path().join("r.git")
    }

    pub(crate) fn log_dir(&self) -> PathBuf {
        self.path().join("refstone")
    }

    pub(crate) fn live(&self) -> PathBuf {
        self.log_dir().join("refs.arrow")
    }

    /// Runs a subcommand on the repository.
    pub(crate) fn run(&self, command: &str, arguments: &[&str]) -> Run {
        self.run_with(command, arguments, b"")
    }

    pub(crate) fn run_with(&self, command: &str, arguments: &[&str], input: &[u8]) -> Run {
        run_with(self.arguments(command, arguments), input)
    }

    /// Moves refs by a script that must be accepted.
    pub(crate) fn update(&self, script: &str) {
        self.run_with("update-ref", &["--stdin"], script.as_bytes()).done();
    }

    pub(crate) fn command(&self, command: &str, arguments: &[&str]) -> Command {
        let mut refstone = refstone();
        refstone.args(self.arguments(command, arguments));
        refstone
    }

    fn arguments<'a>(&self, command: &'a str, rest: &'a [&str]) -> Vec<std::ffi::OsString> {
        let path = self.path().into_os_string();
        let rest = rest.iter().map(std::ffi::OsString::from);
        [command.into(), path].into_iter().chain(rest).collect()
    }

    /// Holds the lock of the log, as a writer does.
    pub(crate) fn lock(&self) -> File {
        let lock = File::open(self.log_dir().join("LOCK")).unwrap();
        lock.try_lock().unwrap();
        lock
    }

    /// Takes the newest transaction out of the published part: its bytes stay, and the length word
    /// before it becomes zero, as after a crash between sync and publication.
    pub(crate) fn unpublish_newest(&self) {
        let (_, slot) = self.newest();
        let file = File::options().write(true).open(self.live()).unwrap();
        file.write_all_at(&[0; 4], slot + 4).unwrap();
    }

    /// Flips a byte inside the newest transaction.
    pub(crate) fn damage_newest(&self) {
        let middle = self.middle_of_newest();
        let mut bytes = fs::read(self.live()).unwrap();
        bytes[middle] ^= 1;
        fs::write(self.live(), bytes).unwrap();
    }

    /// A byte inside the newest transaction.
    pub(crate) fn middle_of_newest(&self) -> usize {
        let (end, slot) = self.newest();
        usize::try_from(u64::midpoint(slot, end)).unwrap()
    }

    /// Where the newest transaction ends, and where it starts.
    fn newest(&self) -> (u64, u64) {
        let mut reader = LogReader::open(&OsEnv, &self.log_dir()).unwrap();
        let mut offsets = vec![reader.offset()];
        while reader.next().unwrap().is_some() {
            offsets.push(reader.offset());
        }
        let [.., start, end] = offsets[..] else { panic!("there is no transaction") };
        (end, start)
    }
}

/// Forty times the same hex digit.
pub(crate) fn oid(digit: char) -> String {
    digit.to_string().repeat(40)
}
