//! Stock git, asked what only it knows, and a clean environment to ask in.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::{BufWriter, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use bstr::ByteSlice;
use refstone_log::ObjectFormat;

use super::ExchangeError;
use crate::oid::ObjectId;

/// Which of git's two ref stores a repository has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefFormat {
    /// Loose files and `packed-refs`.
    Files,
    /// Tables.
    Reftable,
}

/// A git repository, and how it keeps its refs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitRepository {
    /// Its directory: of a linked work tree, that of the main one.
    pub dir: PathBuf,
    /// The hash that names objects.
    pub object_format: ObjectFormat,
    /// The ref store.
    pub ref_format: RefFormat,
}

impl GitRepository {
    /// Finds the repository at `path`, which may be its directory or the top of a work tree.
    ///
    /// # Errors
    ///
    /// If git says that there is none, or if it is a repository whose refs are in a store.
    pub fn find(path: &Path) -> Result<GitRepository, ExchangeError> {
        let path = path.canonicalize().map_err(ExchangeError::io(path, "find it"))?;
        if is_store(&path) || is_store(&path.join("refstone")) {
            return Err(ExchangeError::Own { path });
        }
        let mut ask = git();
        ask.arg("-C").arg(&path).args(["rev-parse", "--path-format=absolute", "--git-common-dir"]);
        ask.args(["--show-object-format", "--show-ref-format"]);
        // Only this path: not a repository that it happens to lie in.
        ask.env("GIT_CEILING_DIRECTORIES", path.parent().unwrap_or(&path));
        let said = run(ask, &path, "rev-parse")?;
        let mut lines = said.lines();
        let [Some(dir), Some(objects), Some(refs)] = [lines.next(), lines.next(), lines.next()]
        else {
            let said = "it did not tell the formats of objects and refs".to_owned();
            return Err(ExchangeError::Git { path, asked: "rev-parse".to_owned(), said });
        };
        let unknown = |asked: &str, said: &[u8]| ExchangeError::Git {
            path: path.clone(),
            asked: asked.to_owned(),
            said: format!("'{}' is not known here", said.as_bstr()),
        };
        let object_format = objects.to_str().ok().and_then(|name| name.parse().ok());
        Ok(GitRepository {
            dir: OsString::from_vec(dir.to_vec()).into(),
            object_format: object_format.ok_or_else(|| unknown("object format", objects))?,
            ref_format: RefFormat::of_name(refs).ok_or_else(|| unknown("ref format", refs))?,
        })
    }

    /// Makes an empty bare repository in a directory.
    ///
    /// # Errors
    ///
    /// As git says.
    pub fn init(
        dir: &Path,
        object_format: ObjectFormat,
        ref_format: RefFormat,
    ) -> Result<GitRepository, ExchangeError> {
        let mut init = git();
        init.args(["init", "--quiet", "--bare", "--template="]);
        init.arg(format!("--object-format={object_format}"));
        init.arg(format!("--ref-format={}", ref_format.name())).arg(dir);
        run(init, dir, "init")?;
        Ok(GitRepository { dir: dir.to_owned(), object_format, ref_format })
    }
}

impl RefFormat {
    /// The name that git has for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RefFormat::Files => "files",
            RefFormat::Reftable => "reftable",
        }
    }

    fn of_name(name: &[u8]) -> Option<RefFormat> {
        [RefFormat::Files, RefFormat::Reftable].into_iter().find(|f| f.name().as_bytes() == name)
    }
}

/// Whether a directory holds a store of refs, if perhaps one whose live log is lost.
fn is_store(path: &Path) -> bool {
    path.join("refs.arrow").is_file()
        || path.join("history").is_dir() && path.join("LOCK").is_file()
}

/// Rewrites all tables of a stack as one, with the indexes that they want.
pub(super) fn compact(dir: &Path) -> Result<(), ExchangeError> {
    let mut pack = git();
    pack.env("GIT_DIR", dir).args(["pack-refs", "--all"]);
    run(pack, dir, "pack-refs").map(drop)
}

/// The annotated tags among some objects, each with the object at the end of its chain; `None` if
/// the repository lacks one of them, and so nobody can tell.
pub(super) fn peel(
    dir: &Path,
    oids: &[ObjectId],
) -> Result<Option<HashMap<ObjectId, ObjectId>>, ExchangeError> {
    let mut ask = git();
    ask.env("GIT_DIR", dir).args(["cat-file", "--buffer", "--batch-check=%(objectname)"]);
    let broken = ExchangeError::io(dir, "run git cat-file in it");
    let mut child = match ask.stdin(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(error) => return Err(broken(error)),
    };
    let stdin = child.stdin.take();
    let output = thread::scope(|scope| {
        // It answers while it reads, so the questions come from another thread.
        scope.spawn(move || {
            let mut questions = BufWriter::new(stdin?);
            oids.iter().try_for_each(|oid| writeln!(questions, "{oid}^{{}}")).ok()
        });
        child.wait_with_output()
    });
    let output = output.map_err(broken)?;
    let answers = output.stdout.lines().map(|line| ObjectId::from_hex(line).ok());
    let answers: Option<Vec<ObjectId>> = answers.collect();
    let Some(answers) = answers.filter(|answers| answers.len() == oids.len()) else {
        return Ok(None);
    };
    let pairs = oids.iter().copied().zip(answers);
    Ok(Some(pairs.filter(|(oid, end)| oid != end).collect()))
}

/// Nothing of the user's, the machine's or the caller's git configuration changes an answer.
fn git() -> Command {
    let mut git = Command::new("git");
    let ours = |name: &OsStr| name.as_bytes().starts_with(b"GIT_");
    std::env::vars_os().filter(|(name, _)| ours(name)).for_each(|(name, _)| {
        git.env_remove(name);
    });
    git.envs([
        ("LC_ALL", "C"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_NO_REPLACE_OBJECTS", "1"),
        ("GIT_NO_LAZY_FETCH", "1"),
        ("GIT_CONFIG_COUNT", "1"),
        ("GIT_CONFIG_KEY_0", "safe.directory"),
        ("GIT_CONFIG_VALUE_0", "*"),
    ]);
    git.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // An interrupt from the terminal is for the caller, who ends in order; git would die of it.
    git.process_group(0);
    git
}

fn run(mut command: Command, path: &Path, asked: &str) -> Result<Vec<u8>, ExchangeError> {
    let output = command.output().map_err(ExchangeError::io(path, "run git in it"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = output.stderr.lines().map(<[u8]>::to_str_lossy).collect::<Vec<_>>().join("; ");
    Err(ExchangeError::Git { path: path.to_owned(), asked: asked.to_owned(), said })
}
