//! A new repository.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use refstone::{CreateOptions, ObjectFormat, OpenError, RefName, RefStore};

use crate::aside::{Aside, io_error};
use crate::git::GitEnv;
use crate::repository::LOG_DIRECTORY;
use crate::text;

/// What makes a new repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitOptions {
    /// The hash that names objects.
    pub object_format: ObjectFormat,
    /// The full name of the branch `HEAD` points to at first; it need not exist.
    pub initial_branch: RefName,
}

impl Default for InitOptions {
    /// SHA-1 and `refs/heads/main`.
    fn default() -> Self {
        let CreateOptions { object_format, head } = CreateOptions::default();
        Self { object_format, initial_branch: head }
    }
}

/// Why there is no new repository.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InitError {
    /// There is one already.
    #[error("{path} exists already, and nothing of it was changed; choose another name")]
    AlreadyExists {
        /// Where it is.
        path: PathBuf,
    },
    /// There is something else.
    #[error(
        "{path} exists, but it has no {LOG_DIRECTORY}/ directory: it is no refstone repository; \
         move it away, or choose another name"
    )]
    Occupied {
        /// Where it is.
        path: PathBuf,
    },
    /// The path ends in no name.
    #[error(
        "{path} does not end in the name of a directory; name the directory that is to be made"
    )]
    NoName {
        /// The path as given.
        path: PathBuf,
    },
    /// git could not make its part.
    #[error("git could not make a repository in {path}: {said}")]
    Git {
        /// Where it tried.
        path: PathBuf,
        /// The errors it names, on one line.
        said: String,
    },
    /// The log could not be made.
    #[error("the reference log of {path} could not be created")]
    Log {
        /// The repository.
        path: PathBuf,
        /// Why.
        #[source]
        source: OpenError,
    },
    /// The operating system says no.
    #[error("{path}: cannot {operation}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        operation: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

/// Creates a repository at `path`: a bare git repository for the objects, with a refstone log for
/// the references in `refstone/`. It is on stable storage when this returns. Directories above it
/// that are missing are made, and so durably.
///
/// It is built [aside](Aside), so `path` is either absent or complete, whenever the power fails. Of
/// several processes that create the same path, one succeeds.
///
/// git itself is kept away from the references: `HEAD` leads nowhere, a hook refuses every update, and
/// `extensions.preciousObjects` keeps `prune` and `repack -d` from deleting objects that no git ref
/// names; `gc` ends well and deletes none. Each push adds a pack; `git multi-pack-index write`, then
/// `repack` and `expire`, or `git maintenance run --task=incremental-repack`, merge them beside a running
/// server and lose nothing.
///
/// # Errors
///
/// [`InitError::AlreadyExists`] for the losers of such a race, and [`InitError`] for all else.
///
/// # Example
///
/// ```
/// use refstone_server::{InitOptions, init_repository};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let data = tempfile::tempdir()?;
/// let path = data.path().join("project.git");
/// init_repository(&path, &InitOptions::default())?;
/// assert!(path.join("refstone").is_dir());
/// assert!(init_repository(&path, &InitOptions::default()).is_err());
/// # Ok(())
/// # }
/// ```
pub fn init_repository(path: &Path, options: &InitOptions) -> Result<(), InitError> {
    init(Aside::begin(path)?, options)
}

/// The same in a directory that must be there, for an absolute `path`. A server whose data
/// directory vanished must not make another one under a push.
pub(crate) fn init_in_parent(path: &Path, options: &InitOptions) -> Result<(), InitError> {
    init(Aside::in_parent(path)?, options)
}

fn init(aside: Aside, options: &InitOptions) -> Result<(), InitError> {
    aside.init_objects(options)?;
    build_log(aside.path(), aside.target(), options)?;
    aside.publish()
}

pub(crate) fn build_objects(aside: &Path, options: &InitOptions) -> Result<(), InitError> {
    let env = GitEnv::repository(aside);
    let format = format!("--object-format={}", options.object_format.name());
    let init = ["init", "--quiet", "--bare", "--template=", &format];
    run_git(env.std_command(init), aside)?;
    for (key, value) in CONFIG {
        run_git(env.std_command(["config", key, value]), aside)?;
    }
    write(&aside.join("HEAD"), HEAD, 0o644)?;
    let hooks = aside.join("hooks");
    fs::create_dir_all(&hooks).map_err(io_error(&hooks, "create it"))?;
    write(&hooks.join("reference-transaction"), HOOK, 0o755)
}

/// `gc.auto` and `receive.autogc`, so that nothing starts a `gc` by itself; the extension, so that
/// one that is started does no harm; `gc.packRefs`, so that it does not end at the hook, for there is
/// nothing to pack.
const CONFIG: [(&str, &str); 5] = [
    ("core.repositoryformatversion", "1"),
    ("extensions.preciousObjects", "true"),
    ("gc.auto", "0"),
    ("gc.packRefs", "false"),
    ("receive.autogc", "false"),
];

/// The name is not legal, so no git command can create the branch; repositories with `reftable`
/// have the same line, for the same reason.
const HEAD: &str = "ref: refs/heads/.invalid\n";

const HOOK: &str = "\
#!/bin/sh
# This is a repository of refstone, a git server: its references live in refstone/, not in git's own
# store. An update made by git itself would be seen by nobody, so it is refused.
if test \"$1\" = prepared
then
	cat >&2 <<-'END'
	error: this is a repository of refstone, and its references live in refstone/:
	error: git itself can neither move them nor pack them, and nothing was changed.
	hint: to move one, push to `refstone serve`, or run `refstone update-ref` while no server runs;
	hint: to remove garbage, see docs/operations.md of refstone, \"Garbage\" (`refstone objects --help`)
	END
	exit 1
fi
exit 0
";

/// One block of a usual file system: less might fit where git's file did not.
const PROBE_BYTES: usize = 4 << 10;

fn run_git(mut command: Command, aside: &Path) -> Result<(), InitError> {
    let output = command.output().map_err(io_error(aside, "run git"))?;
    if output.status.success() {
        return Ok(());
    }
    // On a full disk git may say no more than `failed to write new configuration file`. A write of
    // our own tells whether it is that.
    let probed = fs::write(aside.join("probe"), [0; PROBE_BYTES]);
    probed.map_err(io_error(aside, "write in it"))?;
    Err(InitError::Git { path: aside.to_owned(), said: text::complaint(&output.stderr) })
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), InitError> {
    fs::write(path, text)
        .and_then(|()| fs::set_permissions(path, Permissions::from_mode(mode)))
        .map_err(io_error(path, "write it"))
}

fn build_log(aside: &Path, path: &Path, options: &InitOptions) -> Result<(), InitError> {
    let create = CreateOptions {
        object_format: options.object_format,
        head: options.initial_branch.clone(),
    };
    RefStore::create(&aside.join(LOG_DIRECTORY), &create)
        .map_err(|source| InitError::Log { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn git(path: &Path, arguments: &[&str]) -> std::process::Output {
        let env = GitEnv::repository(path);
        env.std_command(arguments).output().unwrap()
    }

    #[test]
    fn of_many_creators_one_succeeds_and_nothing_is_left_over() {
        let data = tempfile::tempdir().unwrap();
        let path = data.path().join("a.git");
        let results: Vec<_> = std::thread::scope(|scope| {
            let create = || init_repository(&path, &InitOptions::default());
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(create)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
        for error in results.into_iter().filter_map(Result::err) {
            assert!(matches!(error, InitError::AlreadyExists { .. }), "{error:?}");
        }
        assert_eq!(names(data.path()), ["a.git"]);
        assert!(RefStore::open(&path.join(LOG_DIRECTORY)).is_ok());
    }

    /// Red when all that git says goes into one error, newlines and all; and when a place that
    /// cannot be written to is blamed on git.
    #[test]
    fn what_git_says_is_one_line_unless_the_system_says_more() {
        let place = tempfile::tempdir().unwrap();
        let fail = || failing(place.path()).to_string();
        let said = format!("git could not make a repository in {}:", place.path().display());
        assert_eq!(fail(), format!("{said} error: b; fatal: c"));
        fs::remove_dir_all(place.path()).unwrap();
        assert_eq!(fail(), format!("{}: cannot write in it", place.path().display()));
    }

    fn failing(place: &Path) -> InitError {
        let mut command = Command::new("sh");
        command.args(["-c", "printf 'hint: a\\nerror: b\\nfatal: c\\n\\n' >&2; exit 1"]);
        run_git(command, place).unwrap_err()
    }

    #[test]
    fn what_is_there_is_left_alone() {
        let data = tempfile::tempdir().unwrap();
        let directory = data.path().join("dir.git");
        let file = data.path().join("file.git");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("precious"), "").unwrap();
        fs::write(&file, "").unwrap();
        for path in [&directory, &file] {
            let error = init_repository(path, &InitOptions::default()).unwrap_err();
            assert!(matches!(error, InitError::Occupied { .. }), "{error:?}");
        }
        assert_eq!(names(&directory), ["precious"]);
        assert_eq!(names(data.path()), ["dir.git", "file.git"]);
    }

    #[test]
    fn an_empty_directory_is_used() {
        let data = tempfile::tempdir().unwrap();
        init_repository(data.path(), &InitOptions::default()).unwrap();
        assert!(data.path().join("objects").is_dir());
    }

    #[test]
    fn git_moves_no_ref_and_removes_no_object() {
        let data = tempfile::tempdir().unwrap();
        let path = data.path().join("a.git");
        init_repository(&path, &InitOptions::default()).unwrap();
        let source = data.path().join("source");
        fs::write(&source, "text").unwrap();
        let hashed = git(&path, &["hash-object", "-w", source.to_str().unwrap()]);
        let oid = String::from_utf8(hashed.stdout).unwrap();
        let oid = oid.trim();

        let update = git(&path, &["update-ref", "refs/tags/x", oid]);
        assert!(!update.status.success());
        let said = String::from_utf8(update.stderr).unwrap();
        for part in ["live in refstone/", "`refstone update-ref`", "docs/operations.md"] {
            assert!(said.contains(part), "{said}");
        }

        // Red without `gc.packRefs`, which ends it at the hook.
        let collected = git(&path, &["gc", "--prune=now", "--quiet"]);
        assert!(collected.status.success(), "{collected:?}");
        git(&path, &["prune", "--expire=now"]);
        assert!(git(&path, &["cat-file", "-e", oid]).status.success());
    }

    #[test]
    fn sha256_repositories_agree_with_their_log() {
        let data = tempfile::tempdir().unwrap();
        let path = data.path().join("a.git");
        let options = InitOptions { object_format: ObjectFormat::Sha256, ..InitOptions::default() };
        init_repository(&path, &options).unwrap();
        let format = git(&path, &["rev-parse", "--show-object-format"]);
        assert_eq!(format.stdout, b"sha256\n");
        let store = RefStore::open(&path.join(LOG_DIRECTORY)).unwrap();
        assert_eq!(store.object_format(), ObjectFormat::Sha256);
    }
}
