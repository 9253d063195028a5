//! Python scripts that answer one line with one line.

use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A running script.
#[derive(Debug)]
pub(super) struct Script {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Script {
    pub(super) fn start(python: &Path, text: &str, arguments: &[&str]) -> io::Result<Script> {
        let mut child = Command::new(python)
            .args(["-c", text])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let questions = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let answers = BufReader::new(child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?);
        Ok(Script { child, questions, answers })
    }

    pub(super) fn ask(&mut self, question: impl Display) -> io::Result<String> {
        writeln!(self.questions, "{question}")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        if answer.is_empty() {
            return Err(io::Error::other(format!("no answer to `{question}`")));
        }
        Ok(answer.trim_end().to_owned())
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// System calls that the standard library does not have, in a process of their own.
#[derive(Debug)]
pub struct Cutter(Script);

impl Cutter {
    /// Starts the process.
    ///
    /// # Errors
    /// If there is no `python3`.
    pub fn start() -> io::Result<Cutter> {
        Script::start(Path::new("python3"), include_str!("kernel.py"), &[]).map(Cutter)
    }

    /// Shuts down the file system that is mounted there; its journal is flushed first, or not.
    ///
    /// Returns the time just before, in nanoseconds since the Unix epoch.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn cut(&mut self, mounted: &Path, flush_journal: bool) -> io::Result<u64> {
        self.command(&format!("cut {} {}", mounted.display(), if flush_journal { 1 } else { 2 }))
    }

    /// Has a range of a file written to its disk, without any barrier.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn flush(&mut self, file: &Path, offset: u64, len: u64) -> io::Result<()> {
        self.command(&format!("flush {} {offset} {len}", file.display())).map(drop)
    }

    /// Maps a file and keeps its pages in memory until this is dropped.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn map(&mut self, file: &Path) -> io::Result<()> {
        self.command(&format!("map {}", file.display())).map(drop)
    }

    fn command(&mut self, command: &str) -> io::Result<u64> {
        let answer = self.0.ask(command)?;
        let number = answer.strip_prefix("ok ").and_then(|number| number.parse().ok());
        number.ok_or_else(|| io::Error::other(format!("{command}: {answer}")))
    }
}
