//! `--check-objects`: what git asks of a new value, asked of git.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use refstone::{Change, Deref, Edit, ObjectId, RefName, ResolveError, Target, Transaction, View};

use crate::exit::Failure;

/// The objects of a repository, as stock git sees them.
#[derive(Debug)]
pub(super) struct Objects {
    git_dir: PathBuf,
}

/// A ref that gets a value it does not have yet.
struct NewValue {
    name: RefName,
    id: ObjectId,
}

impl Objects {
    /// Those beside the log in `log_dir`.
    pub(super) fn beside(log_dir: &Path) -> Objects {
        Objects { git_dir: log_dir.join("..") }
    }

    /// Checks that each new value exists, and that branches get commits; the first that does not
    /// pass is told in git's words, behind `label`.
    ///
    /// `view` is what the edits were judged against.
    pub(super) fn check(
        &self,
        label: &str,
        transaction: &Transaction,
        view: &View,
    ) -> Result<(), Failure> {
        let values =
            transaction.edits().iter().filter_map(|edit| new_value(edit, view).transpose());
        let values = values.collect::<Result<Vec<_>, _>>()?;
        if values.is_empty() {
            return Ok(());
        }
        let kinds = self.kinds(&values).map_err(|error| cannot_ask(&error))?;
        let kinds = kinds.lines().map(|line| line.rsplit(' ').next().unwrap_or_default());
        match values.iter().zip(kinds).find_map(|(value, kind)| value.problem(kind)) {
            Some(problem) => Err(Failure::refused(format!("{label}{problem}")).fatal()),
            None => Ok(()),
        }
    }

    /// One line for each: the id, and its kind or `missing`.
    fn kinds(&self, values: &[NewValue]) -> io::Result<String> {
        let mut git = Command::new("git");
        git.args(["cat-file", "--batch-check=%(objectname) %(objecttype)"]);
        git.env("GIT_DIR", &self.git_dir).env("LC_ALL", "C");
        let mut child = git.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let written = ask(&mut child, values);
        let output = child.wait_with_output()?;
        if !output.status.success() {
            return Err(io::Error::other(format!("git cat-file: {}", output.status)));
        }
        // A child that reads all of its input and answers has got it.
        drop(written);
        String::from_utf8(output.stdout).map_err(io::Error::other)
    }
}

/// Writes from a thread of its own, or the two would wait for each other once the pipes are full.
fn ask(child: &mut Child, values: &[NewValue]) -> Option<thread::JoinHandle<io::Result<()>>> {
    let input: String = values.iter().map(|value| format!("{}\n", value.id)).collect();
    let mut stdin = child.stdin.take()?;
    Some(thread::spawn(move || stdin.write_all(input.as_bytes())))
}

/// Git looks at no object of a ref that has the value already.
fn new_value(edit: &Edit, view: &View) -> Result<Option<NewValue>, Failure> {
    let Change::Set(Target::Object(id)) = edit.change else { return Ok(None) };
    let name = match edit.deref {
        Deref::NoFollow => edit.name.clone(),
        Deref::Follow => view.resolve(&edit.name).map_err(unresolved)?.name,
    };
    let has_it = view.get(&name)? == Some(id.into());
    Ok((!has_it).then_some(NewValue { name, id }))
}

impl NewValue {
    fn problem(&self, kind: &str) -> Option<String> {
        let NewValue { name, id } = self;
        let problem = match kind {
            "missing" => format!("trying to write ref '{name}' with nonexistent object {id}"),
            "commit" => return None,
            _ if self.is_branch() => {
                format!("trying to write non-commit object {id} to branch '{name}'")
            }
            _ => return None,
        };
        Some(format!("cannot update ref '{name}': {problem}"))
    }

    fn is_branch(&self) -> bool {
        self.name.is_head() || self.name.as_bytes().starts_with(b"refs/heads/")
    }
}

fn unresolved(error: ResolveError) -> Failure {
    match error {
        ResolveError::Read(error) => error.into(),
        other => Failure::refused(other.to_string()),
    }
}

fn cannot_ask(error: &io::Error) -> Failure {
    Failure::environment(format!("cannot ask git for the new objects: {error}")).fatal()
}
