//! The refs of a view as a small git directory, for stock `upload-pack` to read.
//!
//! `upload-pack` needs refs for what only git can do: to send annotated tags along with what they
//! point to (`include-tag`), to leave out history (`deepen-not`), and to advertise in protocol v0.
//! A projection holds `HEAD`, `packed-refs` and a `config`; the objects stay where they are.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use refstone::exchange::{ProjectedRef, head_file, write_projected};
use refstone::{ObjectFormat, Seq, View};
use tempfile::TempDir;
use tokio::sync::Mutex;

use crate::git::GitEnv;
use crate::listing::{self, Listed};
use crate::peel::Peeled;
use crate::repository::Repository;

/// Where projections lie, below the repository. A server that died may leave some behind; the next
/// one removes the directory.
pub(crate) const DIRECTORY: &str = "refstone-projections";

/// The refs of one view.
#[derive(Debug)]
pub(crate) struct Projection {
    directory: TempDir,
    seq: Seq,
}

/// The newest projection of a repository. Older ones vanish with the last request that uses them.
#[derive(Debug, Default)]
pub(crate) struct Projections {
    newest: Mutex<Option<Arc<Projection>>>,
}

impl Projection {
    /// How children read the projected refs and the repository's objects.
    pub(crate) fn env(&self, repository: &Repository) -> GitEnv {
        GitEnv::projection(self.path(), repository.objects())
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Projections {
    /// A projection that is at least as new as the view every client has seen by now. The lock is
    /// held while it is made, so that many fetches after a push make one.
    pub(crate) async fn current(&self, repository: &Repository) -> io::Result<Arc<Projection>> {
        let mut newest = self.newest.lock().await;
        let view = repository.view();
        // Somebody may have tidied the directory away.
        let serves = |made: &&Arc<Projection>| made.seq == view.seq() && made.path().is_dir();
        if let Some(projection) = newest.as_ref().filter(serves) {
            return Ok(Arc::clone(projection));
        }
        let peeled = repository.peel_below(&view, vec![Vec::new()]).await?;
        let (path, format) = (repository.path().to_owned(), repository.format());
        let make = move || make_somewhere(&path, format, &view, &peeled);
        let made = tokio::task::spawn_blocking(make).await;
        let made = Arc::new(made.map_err(io::Error::other)??);
        *newest = Some(Arc::clone(&made));
        Ok(made)
    }
}

/// A full or read-only file system stops pushes; it must not stop fetches. Then the system's
/// temporary directory, which is often on another one, has to do.
fn make_somewhere(
    repository: &Path,
    format: ObjectFormat,
    view: &View,
    peeled: &Peeled,
) -> io::Result<Projection> {
    let usual = repository.join(DIRECTORY);
    let made =
        fs::create_dir_all(&usual).and_then(|()| make(&usual, repository, format, view, peeled));
    match made {
        Err(error) if takes_nothing(&error) => {
            make(&std::env::temp_dir(), repository, format, view, peeled)
        }
        made => made,
    }
}

fn takes_nothing(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(error.kind(), PermissionDenied | QuotaExceeded | ReadOnlyFilesystem | StorageFull)
}

fn make(
    parent: &Path,
    repository: &Path,
    format: ObjectFormat,
    view: &View,
    peeled: &Peeled,
) -> io::Result<Projection> {
    let prefix = format!("refstone-{}-", view.seq());
    let directory = tempfile::Builder::new().prefix(&prefix).tempdir_in(parent)?;
    let root = directory.path();
    fs::create_dir(root.join("refs"))?;
    fs::write(root.join("config"), config(repository, format))?;
    fs::write(root.join("HEAD"), head_file(view).map_err(io::Error::other)?)?;
    write_refs(root, view, peeled)?;
    Ok(Projection { directory, seq: view.seq() })
}

/// The repository's own config comes first, so that its `pack.*` and `uploadpack.*` settings hold.
///
/// `allowAnySHA1InWant`, because in protocol v0 a ref may move between the advertisement and the
/// request, and because this is what protocol v2 does anyway: a client that knows an id may have
/// the object, so hiding a ref never was a way to keep a secret.
fn config(repository: &Path, format: ObjectFormat) -> Vec<u8> {
    let mut config = b"[include]\n\tpath = \"".to_vec();
    let path = repository.join("config");
    for &byte in path.as_os_str().as_bytes() {
        if matches!(byte, b'"' | b'\\') {
            config.push(b'\\');
        }
        config.push(byte);
    }
    config.extend_from_slice(b"\"\n");
    config.extend_from_slice(own_config(format).as_bytes());
    config
}

fn own_config(format: ObjectFormat) -> String {
    format!(
        "[core]\n\trepositoryformatversion = 1\n\tbare = true\n\
         [extensions]\n\tobjectformat = {}\n\
         [uploadpack]\n\tallowAnySHA1InWant = true\n\tallowFilter = true\n",
        format.name()
    )
}

fn write_refs(root: &Path, view: &View, peeled: &Peeled) -> io::Result<()> {
    let packed = fs::File::create(root.join("packed-refs"))?;
    let refs = listing::below_refs(view, b"").map(|listed| {
        let Listed { name, oid, symref_target } = listed.map_err(io::Error::other)?;
        Ok(ProjectedRef { name, oid, symref_target })
    });
    write_projected(packed, refs, Some(peeled), &mut |name, target| {
        let file = root.join(OsStr::from_bytes(name.as_bytes()));
        file.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(&file, [b"ref: ", target.as_bytes(), b"\n"].concat())
    })
}
