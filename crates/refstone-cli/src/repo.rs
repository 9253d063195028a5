//! Finds the reference log of a repository, and makes it fit to be read.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use refstone::{ErrorKind, OsEnv, Recovery, RefName, RefStore, Seq};
use refstone_log::LogReader;

use crate::exit::{Failure, note};
use crate::text;

/// The directory with the reference log of the repository at `path`.
///
/// `path` is `<name>.git`, `<name>`, or the directory itself.
pub(crate) fn log_directory(path: &Path) -> Result<PathBuf, Failure> {
    let mut named = path.as_os_str().to_owned();
    named.push(".git");
    let path = if path.exists() || !Path::new(&named).is_dir() { path } else { named.as_ref() };
    let below = path.join("refstone");
    if below.is_dir() {
        return Ok(below);
    }
    let is_itself = path.join("refs.arrow").exists() || path.ends_with("refstone");
    if path.is_dir() && is_itself {
        return Ok(path.to_owned());
    }
    Err(missing(path))
}

/// The objects beside a log, by their absolute path, if it is that of a repository.
pub(crate) fn objects(log: &Path) -> Option<PathBuf> {
    let objects = log.canonicalize().ok()?.parent()?.join("objects");
    objects.is_dir().then_some(objects)
}

/// The full name of a reference, as given.
pub(crate) fn full_name(name: &OsString) -> Result<RefName, Failure> {
    RefName::new(name.clone().into_vec()).map_err(|error| {
        let hint = "a full name is needed, such as refs/heads/main or HEAD";
        Failure::usage(error.to_string()).with_hint(hint)
    })
}

fn missing(path: &Path) -> Failure {
    let shown = path.display();
    let failure = Failure::environment(match (path.is_dir(), path.exists()) {
        (true, _) => format!("{shown}: there is no directory `refstone` in it"),
        (false, true) => format!("{shown}: this is no directory"),
        (false, false) => format!("{shown}: there is no such directory"),
    });
    failure.with_hint(match repository_in(path) {
        Some(repository) => {
            format!("name one of the repositories in it, such as {}", text::path(&repository))
        }
        None => "name a repository made by `refstone init` or `refstone serve`, or its refstone/"
            .to_owned(),
    })
}

/// A repository in a directory of several, as `refstone serve` takes it.
fn repository_in(data: &Path) -> Option<PathBuf> {
    let mut paths = fs::read_dir(data).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    paths.find(|path| path.join("refstone").is_dir())
}

/// Takes up what a crash left behind the published end of the log, if there is anything.
///
/// Reading shows what is published. After a crash an acknowledged transaction may lie behind that
/// end, and only recovery, which needs the lock, may judge it. If somebody holds the lock, what
/// lies there is in flight and not acknowledged yet.
pub(crate) fn settle(dir: &Path) -> Result<(), Failure> {
    if !has_unpublished_tail(dir)? {
        return Ok(());
    }
    match RefStore::open(dir) {
        Ok(store) => {
            tell_recovery(store.recovery());
            Ok(store.close()?)
        }
        Err(error) => match error.kind() {
            ErrorKind::Locked => Ok(()),
            ErrorKind::ReadOnly | ErrorKind::Permission | ErrorKind::NoSpace => {
                note(&format!(
                    "a crash left transactions behind the published end of the log, and they \
                     cannot be recovered ({error}); this shows the published part"
                ));
                Ok(())
            }
            // Whoever reads next meets the damage, after what is sound.
            ErrorKind::Corrupt => Ok(()),
            _ => Err(error.into()),
        },
    }
}

fn has_unpublished_tail(dir: &Path) -> Result<bool, Failure> {
    // Whoever reads next meets damage at the same place, after what is sound.
    let mut reader = match LogReader::open(&OsEnv, dir) {
        Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(false),
        reader => reader?,
    };
    reader.approach(Seq::MAX, Seq::ZERO)?;
    loop {
        match reader.next() {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(reader.has_unpublished_tail()?),
            Err(_) => return Ok(false),
        }
    }
}

/// Says what opening a log for writing had to repair.
pub(crate) fn tell_recovery(recovery: &Recovery) {
    if recovery.proved > 0 {
        note(&format!(
            "recovered {} that a crash had left behind the published end",
            text::count(recovery.proved, "transaction")
        ));
    }
    if let Some(torn) = &recovery.torn {
        note(&format!(
            "a crash had cut a write short: bytes {} to {} of the log were taken off and are kept \
             in {}",
            torn.range.start,
            torn.range.end,
            torn.kept.display()
        ));
    }
}
