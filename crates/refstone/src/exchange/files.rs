//! Git's files: loose refs, `packed-refs`, and the reflogs below `logs/`.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bstr::ByteSlice;
use refstone_log::ObjectFormat;

use super::{
    ExchangeError, GitRefs, GitRepository, ProjectedRef, ReflogEntry, Steps, Tell, projection,
    write_projected,
};
use crate::edit::Target;
use crate::name::RefName;
use crate::oid::ObjectId;

/// Refs at the top whose names do not end in `_HEAD`.
const ROOT_REFS: [&str; 6] = [
    "HEAD",
    "AUTO_MERGE",
    "BISECT_EXPECTED_REV",
    "MERGE_AUTOSTASH",
    "NOTES_MERGE_PARTIAL",
    "NOTES_MERGE_REF",
];

/// Files of these names look like refs and are none.
const NO_REFS: [&[u8]; 2] = [b"FETCH_HEAD", b"MERGE_HEAD"];

pub(super) fn read(source: &GitRepository, mut tell: Tell<'_>) -> Result<GitRefs, ExchangeError> {
    let mut read = Reader {
        dir: &source.dir,
        format: source.object_format,
        found: GitRefs::new(source.object_format),
        steps: Steps::new("reading", None, &mut tell),
    };
    // A ref that git packs meanwhile is loose first and packed then, never neither.
    read.root_refs()?;
    read.walk("refs", &mut |read, name, path| read.loose(name, path))?;
    read.packed()?;
    read.walk("logs", &mut |read, name, path| read.reflog(name, path))?;
    Ok(read.found)
}

struct Reader<'a, 't, 's> {
    dir: &'a Path,
    format: ObjectFormat,
    found: GitRefs,
    steps: Steps<'t, 's>,
}

/// What is done with a file: its name as that of a ref, and where it is.
type Visit<'v, 'a, 't, 's> =
    &'v mut dyn FnMut(&mut Reader<'a, 't, 's>, &[u8], &Path) -> Result<(), ExchangeError>;

impl<'a, 't, 's> Reader<'a, 't, 's> {
    fn root_refs(&mut self) -> Result<(), ExchangeError> {
        let entries = fs::read_dir(self.dir).map_err(ExchangeError::io(self.dir, "list it"))?;
        for entry in entries {
            let entry = entry.map_err(ExchangeError::io(self.dir, "list it"))?;
            let name = entry.file_name();
            if is_root_ref(name.as_bytes()) {
                self.loose(name.as_bytes(), &entry.path())?;
            }
        }
        Ok(())
    }

    /// Visits every file below a directory at the top. Names below `logs` start behind it.
    fn walk(&mut self, top: &str, visit: Visit<'_, 'a, 't, 's>) -> Result<(), ExchangeError> {
        let mut directories = vec![self.dir.join(top)];
        let base = if top == "logs" { self.dir.join(top) } else { self.dir.to_owned() };
        while let Some(directory) = directories.pop() {
            for path in list(&directory)? {
                let name = path.strip_prefix(&base).unwrap_or(&path).as_os_str().as_bytes();
                if path.is_dir() {
                    directories.push(path);
                } else if !name.ends_with(b".lock") {
                    visit(self, name, &path)?;
                }
            }
        }
        Ok(())
    }

    fn loose(&mut self, name: &[u8], path: &Path) -> Result<(), ExchangeError> {
        self.steps.step()?;
        let Some(name) = self.name(name, path) else { return Ok(()) };
        let Some(content) = content(path)? else { return Ok(()) };
        match loose_target(&content, self.format) {
            Some(target) => drop(self.found.refs.insert(name, target)),
            None => self.leave_out(path, "it is no reference"),
        }
        Ok(())
    }

    fn packed(&mut self) -> Result<(), ExchangeError> {
        let path = self.dir.join("packed-refs");
        let Some(content) = content(&path)? else { return Ok(()) };
        for line in content.lines_with_terminator() {
            self.steps.step()?;
            let Some(line) = line.strip_suffix(b"\n") else {
                self.leave_out(&path, &format!("cut within a line: '{}'", line.as_bstr()));
                continue;
            };
            if line.starts_with_str("#") || line.starts_with_str("^") {
                continue;
            }
            let hex = self.format.len() * 2;
            let split = line.split_at_checked(hex);
            let pair = split.and_then(|(id, name)| {
                Some((ObjectId::from_hex(id).ok()?, name.strip_prefix(b" ")?))
            });
            let Some((id, name)) = pair else {
                self.leave_out(&path, &format!("no reference: '{}'", line.as_bstr()));
                continue;
            };
            if let Some(name) = self.name(name, &path) {
                self.found.refs.entry(name).or_insert(id.into());
            }
        }
        Ok(())
    }

    fn reflog(&mut self, name: &[u8], path: &Path) -> Result<(), ExchangeError> {
        let Some(name) = self.name(name, path) else { return Ok(()) };
        let Some(content) = content(path)? else { return Ok(()) };
        let mut entries = Vec::new();
        for line in content.lines_with_terminator() {
            self.steps.step()?;
            let entry = line.strip_suffix(b"\n");
            match entry.and_then(|line| ReflogEntry::parse(line, self.format)) {
                Some(entry) => entries.push(entry),
                None => self.leave_out(path, &format!("no entry: '{}'", line.trim().as_bstr())),
            }
        }
        self.found.reflogs.insert(name, entries);
        Ok(())
    }

    fn name(&mut self, name: &[u8], path: &Path) -> Option<RefName> {
        match RefName::new(name) {
            Ok(name) => Some(name),
            Err(error) => {
                self.leave_out(path, &error.to_string());
                None
            }
        }
    }

    fn leave_out(&mut self, path: &Path, why: &str) {
        self.found.left_out.push(format!("{}: {why}", path.display()));
    }
}

fn is_root_ref(name: &[u8]) -> bool {
    let letters = name.iter().all(|byte| byte.is_ascii_uppercase() || *byte == b'_');
    let known = ROOT_REFS.iter().any(|known| known.as_bytes() == name);
    known || (letters && name.ends_with(b"_HEAD") && !NO_REFS.contains(&name))
}

fn list(directory: &Path) -> Result<Vec<PathBuf>, ExchangeError> {
    let paths = fs::read_dir(directory)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>());
    match paths {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other.map_err(ExchangeError::io(directory, "list it")),
    }
}

/// What a file holds; `None` if it is gone. Old git made symbolic refs that are links.
fn content(path: &Path) -> Result<Option<Vec<u8>>, ExchangeError> {
    if let Some(target) = fs::read_link(path).ok().filter(|target| target.starts_with("refs")) {
        return Ok(Some([b"ref: ", target.as_os_str().as_bytes(), b"\n"].concat()));
    }
    match fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(ExchangeError::io(path, "read it")(error)),
    }
}

fn loose_target(content: &[u8], format: ObjectFormat) -> Option<Target> {
    if let Some(target) = content.strip_prefix(b"ref:") {
        return RefName::new(target.trim()).ok().map(Target::Symbolic);
    }
    let (id, rest) = content.split_at_checked(format.len() * 2)?;
    let ended = rest.first().is_none_or(u8::is_ascii_whitespace);
    ObjectId::from_hex(id).ok().filter(|id| ended && !id.is_zero()).map(Target::Object)
}

pub(super) fn write(refs: &GitRefs, dir: &Path, mut tell: Tell<'_>) -> Result<(), ExchangeError> {
    let mut steps = Steps::new("writing", Some(refs.steps()), &mut tell);
    let (packed, loose): (Vec<_>, Vec<_>) =
        refs.refs.iter().partition(|(name, target)| name.is_below_refs() && is_object(target));
    write_packed(&packed, dir, &mut steps)?;
    for (name, target) in loose {
        steps.step()?;
        match target {
            Target::Object(id) => write_file(dir, name, format!("{id}\n").as_bytes())?,
            Target::Symbolic(to) => {
                write_file(dir, name, &[b"ref: ", to.as_bytes(), b"\n"].concat())?;
            }
        }
    }
    for (name, entries) in &refs.reflogs {
        let mut lines = Vec::new();
        for entry in entries {
            steps.step()?;
            lines.extend(entry.line());
        }
        write_file(&dir.join("logs"), name, &lines)?;
    }
    steps.tell()
}

fn is_object(target: &Target) -> bool {
    target.object().is_some()
}

fn write_packed(
    refs: &[(&RefName, &Target)],
    dir: &Path,
    steps: &mut Steps<'_, '_>,
) -> Result<(), ExchangeError> {
    let objects = refs.iter().filter_map(|(name, target)| Some((*name, target.object()?)));
    let mut packed = Vec::new();
    for (name, oid) in objects {
        steps.step()?;
        packed.push(ProjectedRef { name: name.clone(), oid, symref_target: None });
    }
    let peeled = projection::peeled(dir, &packed)?;
    let path = dir.join("packed-refs");
    let file = File::create(&path).map_err(ExchangeError::io(&path, "create it"))?;
    let refs = packed.into_iter().map(Ok);
    write_projected(file, refs, peeled.as_ref(), &mut |_, _| Ok(()))
        .map_err(ExchangeError::io(&path, "write it"))
}

/// Writes a file that is called as the ref is.
fn write_file(top: &Path, name: &RefName, content: &[u8]) -> Result<(), ExchangeError> {
    let path = top.join(OsStr::from_bytes(name.as_bytes()));
    let directory = path.parent().unwrap_or(top);
    fs::create_dir_all(directory).map_err(ExchangeError::io(directory, "create it"))?;
    fs::write(&path, content).map_err(ExchangeError::io(&path, "write it"))
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::super::RefFormat;
    use super::*;

    // Breaks: a last line without its end taken for a reference of a shorter name.
    #[test]
    fn a_cut_packed_refs_is_named() {
        let scratch = tempfile::tempdir().unwrap();
        let source =
            GitRepository::init(scratch.path(), ObjectFormat::Sha1, RefFormat::Files).unwrap();
        let line = format!("{} refs/heads/main\n", "a".repeat(40));
        for len in 1..line.len() {
            fs::write(scratch.path().join("packed-refs"), &line[..len]).unwrap();
            let found = read(&source, &mut |_| ControlFlow::Continue(())).unwrap();
            assert_eq!((found.refs.len(), found.left_out.len()), (1, 1), "HEAD alone, {len}");
        }
    }
}
