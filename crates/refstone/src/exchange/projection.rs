//! The refs of a view as files that stock git and its libraries read.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bstr::ByteSlice;
use refstone_log::{Env, OsEnv};

use super::{ExchangeError, Steps, Tell, git};
use crate::error::ReadError;
use crate::name::RefName;
use crate::new_file::NewFile;
use crate::oid::ObjectId;
use crate::view::{ResolveError, View};

/// A ref that resolves to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectedRef {
    /// The ref.
    pub name: RefName,
    /// The object it comes to.
    pub oid: ObjectId,
    /// The ref a symbolic one ends at.
    pub symref_target: Option<RefName>,
}

/// Writes `packed-refs`, and a file for each symbolic ref, which `packed-refs` cannot hold.
///
/// `peeled` has the object at the end of each annotated tag. With it the header promises that a ref
/// without a `^` line is no tag, and git trusts that; without it git looks itself.
///
/// A symbolic ref whose name is too long for the file system is left out: no client that keeps refs
/// in files could store it either.
///
/// # Errors
///
/// As the operating system says.
pub fn write_projected(
    packed: impl Write,
    refs: impl Iterator<Item = io::Result<ProjectedRef>>,
    peeled: Option<&HashMap<ObjectId, ObjectId>>,
    symref: &mut dyn FnMut(&RefName, &RefName) -> io::Result<()>,
) -> io::Result<()> {
    let mut packed = BufWriter::new(packed);
    packed.write_all(match peeled {
        Some(_) => b"# pack-refs with: peeled fully-peeled sorted \n",
        None => b"# pack-refs with: sorted \n",
    })?;
    for listed in refs {
        let listed = listed?;
        match &listed.symref_target {
            None => write_packed(&mut packed, &listed, peeled)?,
            Some(target) => match symref(&listed.name, target) {
                Err(error) if error.kind() == io::ErrorKind::InvalidFilename => {}
                other => other?,
            },
        }
    }
    packed.flush()
}

fn write_packed(
    out: &mut impl Write,
    listed: &ProjectedRef,
    peeled: Option<&HashMap<ObjectId, ObjectId>>,
) -> io::Result<()> {
    write!(out, "{} ", listed.oid)?;
    out.write_all(listed.name.as_bytes())?;
    match peeled.and_then(|peeled| peeled.get(&listed.oid)) {
        Some(end) => write!(out, "\n^{end}\n"),
        None => out.write_all(b"\n"),
    }
}

/// The content of the file `HEAD`. One that cannot be resolved leads to a name that is not legal.
///
/// # Errors
///
/// If a ref of the view cannot be read.
pub fn head_file(view: &View) -> Result<Vec<u8>, ReadError> {
    let head = RefName::head();
    Ok(match view.resolve(&head) {
        Ok(end) if end.name != head => [b"ref: ", end.name.as_bytes(), b"\n"].concat(),
        Ok(end) => end.oid.map_or_else(|| BROKEN_HEAD.to_vec(), |id| format!("{id}\n").into()),
        Err(ResolveError::Read(error)) => return Err(error),
        Err(_) => BROKEN_HEAD.to_vec(),
    })
}

const BROKEN_HEAD: &[u8] = b"ref: refs/heads/.invalid\n";

/// Writes the refs of a view into the directory of the repository itself, so that whatever reads
/// directories finds them: `packed-refs`, `HEAD`, and symbolic refs below `refs/`.
///
/// It is as fresh as its last run, and durable then. Each file is replaced by a rename, direct refs
/// all at once; who reads meanwhile finds the old refs or the new. What is below `refs/` and is no
/// symbolic ref of the view is removed, being of an earlier run. Several runs wait for each other.
///
/// Returns how many refs were written, `HEAD` not counted.
///
/// # Errors
///
/// If a file cannot be written, or `tell` says to stop; that is asked until the first file is replaced.
pub fn project(repository: &Path, view: &View, mut tell: Tell<'_>) -> Result<usize, ExchangeError> {
    let mut steps = Steps::new("reading", None, &mut tell);
    let refs = repository.join("refs");
    fs::create_dir_all(&refs).map_err(ExchangeError::io(&refs, "create it"))?;
    let lock = File::open(&refs).and_then(|refs| refs.lock().map(|()| refs));
    let _lock = lock.map_err(ExchangeError::io(&refs, "lock it"))?;
    let listed: Vec<_> = listed(view, &mut steps)?;
    let head = head_file(view)?;
    let count = listed.len();
    let peeled = peeled(repository, &listed)?;
    steps.tell()?;
    let mut symrefs = Vec::new();
    let packed = repository.join("packed-refs");
    replace(&packed, |file| {
        write_projected(file, listed.into_iter().map(Ok), peeled.as_ref(), &mut |name, target| {
            symrefs.push((name.clone(), target.clone()));
            Ok(())
        })
    })?;
    let written = write_symrefs(repository, &symrefs)?;
    replace(&repository.join("HEAD"), |file| file.write_all(&head))?;
    remove_others(&refs, &written)?;
    OsEnv.sync_dir(repository).map_err(ExchangeError::io(repository, "sync it"))?;
    Ok(count)
}

/// Symbolic refs that lead nowhere are left out, as git does.
fn listed(view: &View, steps: &mut Steps<'_, '_>) -> Result<Vec<ProjectedRef>, ExchangeError> {
    let mut listed = Vec::new();
    for item in view.iter_prefix(b"refs/") {
        steps.step()?;
        let (name, target) = item?;
        if let Some(oid) = target.object() {
            listed.push(ProjectedRef { name, oid, symref_target: None });
            continue;
        }
        match view.resolve(&name) {
            Ok(end) => listed.extend(end.oid.map(|oid| {
                let symref_target = Some(end.name);
                ProjectedRef { name, oid, symref_target }
            })),
            Err(ResolveError::Read(error)) => return Err(error.into()),
            Err(_) => {}
        }
    }
    Ok(listed)
}

/// The annotated tags among the objects of refs; `None` if some object is not there.
pub(super) fn peeled(
    repository: &Path,
    listed: &[ProjectedRef],
) -> Result<Option<HashMap<ObjectId, ObjectId>>, ExchangeError> {
    let oids: BTreeSet<ObjectId> = listed.iter().map(|listed| listed.oid).collect();
    let oids: Vec<ObjectId> = oids.into_iter().collect();
    git::peel(repository, &oids)
}

/// Gives a file new content by a rename, so that nobody reads half of it.
fn replace(
    path: &Path,
    write: impl FnOnce(&mut NewFile<'_>) -> io::Result<()>,
) -> Result<(), ExchangeError> {
    let replaced = NewFile::create(&OsEnv, path).and_then(|mut file| {
        write(&mut file)?;
        file.publish()
    });
    replaced.map_err(ExchangeError::io(path, "write it"))
}

fn write_symrefs(
    repository: &Path,
    symrefs: &[(RefName, RefName)],
) -> Result<BTreeSet<PathBuf>, ExchangeError> {
    let mut written = BTreeSet::new();
    for (name, target) in symrefs {
        let path = repository.join(OsStr::from_bytes(name.as_bytes()));
        let directory = path.parent().unwrap_or(repository).to_owned();
        // A name too long for the file system is left out, as write_projected says.
        match fs::create_dir_all(&directory) {
            Err(error) if error.kind() == io::ErrorKind::InvalidFilename => continue,
            other => other.map_err(ExchangeError::io(&directory, "create it"))?,
        }
        if name.as_bytes().rsplit_str("/").next().is_some_and(|last| last.len() > 250) {
            continue;
        }
        let content = [b"ref: ", target.as_bytes(), b"\n"].concat();
        replace(&path, |file| file.write_all(&content))?;
        OsEnv.sync_dir(&directory).map_err(ExchangeError::io(&directory, "sync it"))?;
        written.insert(path);
    }
    Ok(written)
}

/// Removes what an earlier run wrote. Git itself moves no ref here.
fn remove_others(directory: &Path, written: &BTreeSet<PathBuf>) -> Result<(), ExchangeError> {
    let entries = fs::read_dir(directory)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>());
    for path in entries.map_err(ExchangeError::io(directory, "list it"))? {
        if path.is_dir() {
            remove_others(&path, written)?;
            // Not empty is as good: then something of this run is in it.
            let _ = fs::remove_dir(&path);
        } else if !written.contains(&path) {
            fs::remove_file(&path).map_err(ExchangeError::io(&path, "remove it"))?;
        }
    }
    OsEnv.sync_dir(directory).map_err(ExchangeError::io(directory, "sync it"))
}
