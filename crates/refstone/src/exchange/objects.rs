//! The objects that refs name, brought along file by file.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bstr::ByteSlice;

use super::{ExchangeError, GitRepository, Steps, Tell};

/// Links the objects of a repository into another one, which has none yet; copies them where they
/// cannot be linked.
///
/// Git never changes an object's file, so both may have the same. Alternates are named by absolute
/// paths then. A shallow repository stays one.
///
/// # Errors
///
/// If a file cannot be read or made, or `tell` says to stop.
pub fn link_objects(
    source: &GitRepository,
    target: &Path,
    mut tell: Tell<'_>,
) -> Result<(), ExchangeError> {
    let mut steps = Steps::new("linking", None, &mut tell);
    let (from, to) = (source.dir.join("objects"), target.join("objects"));
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        let (from, to) = (from.join(&directory), to.join(&directory));
        fs::create_dir_all(&to).map_err(ExchangeError::io(&to, "create it"))?;
        let entries = fs::read_dir(&from).map_err(ExchangeError::io(&from, "list it"))?;
        for entry in entries {
            let entry = entry.map_err(ExchangeError::io(&from, "list it"))?;
            steps.step()?;
            let name = entry.file_name();
            if entry.path().is_dir() {
                directories.push(directory.join(name));
            } else if !is_unfinished(name.as_bytes()) {
                link(&entry.path(), &to.join(name))?;
            }
        }
    }
    write_alternates(&from, &to)?;
    let shallow = source.dir.join("shallow");
    if shallow.exists() { copy(&shallow, &target.join("shallow")) } else { Ok(()) }
}

/// What git names files while it writes them; alternates are written anew.
fn is_unfinished(name: &[u8]) -> bool {
    name.starts_with(b"tmp_") || name.ends_with(b".lock") || name == b"alternates"
}

fn link(from: &Path, to: &Path) -> Result<(), ExchangeError> {
    match fs::hard_link(from, to) {
        Ok(()) => Ok(()),
        // Git tidies up now and then; nobody is to move refs meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(_) => copy(from, to),
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), ExchangeError> {
    fs::copy(from, to).map(drop).map_err(ExchangeError::io(to, "copy it"))
}

fn write_alternates(from: &Path, to: &Path) -> Result<(), ExchangeError> {
    let Ok(alternates) = fs::read(from.join("info/alternates")) else { return Ok(()) };
    let mut absolute = Vec::new();
    for line in alternates.lines().filter(|line| !line.is_empty() && line[0] != b'#') {
        let path = from.join(line.to_path_lossy());
        absolute.extend_from_slice(path.as_os_str().as_bytes());
        absolute.push(b'\n');
    }
    let path = to.join("info/alternates");
    fs::create_dir_all(to.join("info"))
        .and_then(|()| fs::write(&path, absolute))
        .map_err(ExchangeError::io(&path, "write it"))
}
