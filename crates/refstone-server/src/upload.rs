//! Fetches: references are listed from the store, packs are made by stock `upload-pack`.

use std::io;
use std::process::Stdio;
use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use refstone::{ObjectId, RefName, View};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio::task::JoinHandle;

use crate::body::{BodyError, RequestBody};
use crate::listing::{self, Head, Listed};
use crate::peel::Peeled;
use crate::projection::Projection;
use crate::repository::Repository;
use crate::stream::{self as chunks, ChunkWriter, StreamError};
use crate::text;
use crate::wire::advertise;
use crate::wire::pkt::{self, PktError};
use crate::wire::v2::{self, HeadReader, LsRefs, RefLine, RequestError, Verb};

/// Most bytes of an `ls-refs` request: 65,535 prefixes of a generous length.
const LS_REFS_BYTES_MAX: usize = 16 << 20;

/// How much of what `upload-pack` complains about is kept for the log.
const COMPLAINT_BYTES_MAX: u64 = 4 << 10;

/// Bytes read from `upload-pack` at once: one side-band packet.
const READ_BYTES: usize = 64 << 10;

/// Why a fetch has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UploadError {
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Pkt(#[from] PktError),
    #[error("git upload-pack: {0}")]
    Io(#[from] io::Error),
}

/// Which protocol the client asked for. Version 1 is version 0 with one more line, which a server
/// may leave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    V0,
    V2,
}

impl Protocol {
    /// Reads the `Git-Protocol` header: a list of keys separated by colons.
    pub(crate) fn parse(header: &[u8]) -> Self {
        let mut keys = header.split(|&byte| byte == b':');
        match keys.any(|key| key == b"version=2") {
            true => Self::V2,
            false => Self::V0,
        }
    }
}

/// The capability advertisement of protocol v2.
pub(crate) fn advertise_v2(repository: &Repository, agent: &str) -> Result<Body, UploadError> {
    let mut out = Vec::new();
    v2::capability_advertisement(&mut out, repository.format(), agent)?;
    Ok(out.into())
}

/// The advertisement of protocol v0, made by git from the refs of the store.
pub(crate) async fn advertise_v0(repository: &Repository) -> Result<Body, UploadError> {
    let mut header = Vec::new();
    advertise::service_header(&mut header, "git-upload-pack")?;
    let projection = repository.projections().current(repository).await?;
    let (mut running, _) = start(repository, projection, Protocol::V0, &["--advertise-refs"])?;
    let first = running.read().await?;
    if first.is_empty() {
        running.end().await?;
    }
    header.extend_from_slice(&first);
    Ok(running.into_body(header.into()))
}

/// Answers one request of protocol v0.
pub(crate) async fn answer_v0(
    repository: &Repository,
    body: RequestBody,
) -> Result<Body, UploadError> {
    upload_pack(repository, Protocol::V0, Bytes::new(), body).await
}

/// Answers one request of protocol v2.
pub(crate) async fn answer_v2(
    repository: &Repository,
    mut body: RequestBody,
) -> Result<Body, UploadError> {
    let mut reader = HeadReader::new(repository.format());
    let head = loop {
        let bytes = body.chunk().await?.ok_or(RequestError::Eof)?;
        if let Some(head) = reader.feed(&bytes)? {
            break head;
        }
    };
    let raw = reader.into_raw();
    match head.verb {
        Some(Verb::Fetch) => upload_pack(repository, Protocol::V2, raw, body).await,
        Some(Verb::LsRefs) => {
            let request = body.collect(raw, LS_REFS_BYTES_MAX).await?;
            ls_refs(repository, LsRefs::parse(&request)?).await
        }
        None => Ok(Body::empty()),
    }
}

async fn ls_refs(repository: &Repository, request: LsRefs) -> Result<Body, UploadError> {
    let view = repository.view();
    let peeled = if request.peel {
        let prefixes = request.scans().iter().map(|scan| scan.to_vec()).collect();
        repository.peel_below(&view, prefixes).await?
    } else {
        Peeled::new()
    };
    Ok(chunks::produce(move |out| list(&view, &request, &peeled, out)))
}

fn list(
    view: &View,
    request: &LsRefs,
    peeled: &Peeled,
    out: &mut ChunkWriter,
) -> Result<(), StreamError> {
    if request.wants(b"HEAD") {
        list_head(view, request, &mut out.buffer)?;
    }
    for prefix in request.scans() {
        for listed in listing::below_refs(view, prefix) {
            let listed = listed?;
            list_ref(&listed, request, peeled, &mut out.buffer)?;
            out.send_full()?;
        }
    }
    out.buffer.extend_from_slice(pkt::FLUSH);
    Ok(())
}

/// An unborn `HEAD` is told to clients that ask for it, so that a clone of an empty repository
/// starts on the right branch.
fn list_head(view: &View, request: &LsRefs, out: &mut Vec<u8>) -> Result<(), StreamError> {
    let head = Head::of(view)?;
    let oid = match &head {
        Head::Broken => return Ok(()),
        Head::Detached(oid) => Some(*oid),
        Head::Branch { oid, .. } => *oid,
    };
    if oid.is_none() && !(request.unborn && request.symrefs) {
        return Ok(());
    }
    let target = head.branch().filter(|_| request.symrefs);
    line(oid, b"HEAD", target, None).encode(out)?;
    Ok(())
}

fn list_ref(
    listed: &Listed,
    request: &LsRefs,
    peeled: &Peeled,
    out: &mut Vec<u8>,
) -> Result<(), StreamError> {
    let target = listed.symref_target.as_ref().filter(|_| request.symrefs);
    let peeled = peeled.get(&listed.oid).copied();
    line(Some(listed.oid), listed.name.as_bytes(), target, peeled).encode(out)?;
    Ok(())
}

fn line<'a>(
    oid: Option<ObjectId>,
    name: &'a [u8],
    target: Option<&'a RefName>,
    peeled: Option<ObjectId>,
) -> RefLine<'a> {
    RefLine { oid, name, symref_target: target.map(RefName::as_bytes), peeled }
}

/// An `upload-pack` whose answer is being sent.
#[derive(Debug)]
struct Running {
    child: Child,
    stdout: ChildStdout,
    complaint: JoinHandle<String>,
    /// The child reads it.
    _projection: Arc<Projection>,
}

/// The answer starts with the first byte of `upload-pack`. It says nothing before it has read its
/// input, so a request that ends badly is still answered with a status.
async fn upload_pack(
    repository: &Repository,
    protocol: Protocol,
    first: Bytes,
    body: RequestBody,
) -> Result<Body, UploadError> {
    let projection = repository.projections().current(repository).await?;
    let (mut running, stdin) = start(repository, projection, protocol, &[])?;
    let fed = tokio::spawn(feed(stdin, first, body));
    let first = running.first(fed).await?;
    if first.is_empty() {
        running.end().await?;
        return Ok(Body::empty());
    }
    Ok(running.into_body(first))
}

fn start(
    repository: &Repository,
    projection: Arc<Projection>,
    protocol: Protocol,
    options: &[&str],
) -> io::Result<(Running, ChildStdin)> {
    let env = projection.env(repository);
    let mut command = env.command(["upload-pack", "--stateless-rpc"]);
    command.args(options).arg(projection.path());
    if protocol == Protocol::V2 {
        command.env("GIT_PROTOCOL", "version=2");
    }
    let mut child = command.stdin(Stdio::piped()).spawn()?;
    let stdin = child.stdin.take().expect("piped when it was started");
    let stdout = child.stdout.take().expect("piped when it was started");
    let stderr = child.stderr.take().expect("piped when it was started");
    let running = Running {
        child,
        stdout,
        complaint: tokio::spawn(complaint(stderr)),
        _projection: projection,
    };
    Ok((running, stdin))
}

/// A child that closes its input has read enough.
async fn feed(mut stdin: ChildStdin, first: Bytes, mut body: RequestBody) -> Result<(), BodyError> {
    let mut next = Some(first);
    while let Some(bytes) = next {
        if stdin.write_all(&bytes).await.is_err() {
            return body.drain().await;
        }
        next = body.chunk().await?;
    }
    Ok(())
}

/// All of it is read, so that the child never blocks; the beginning is kept.
async fn complaint(mut stderr: ChildStderr) -> String {
    let mut kept = Vec::new();
    let mut head = (&mut stderr).take(COMPLAINT_BYTES_MAX);
    drop(head.read_to_end(&mut kept).await);
    drop(tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await);
    text::one_line(&String::from_utf8_lossy(&kept))
}

impl Running {
    /// The first bytes of the answer; nothing is answered to a request that cannot be read.
    async fn first(
        &mut self,
        mut fed: JoinHandle<Result<(), BodyError>>,
    ) -> Result<Bytes, UploadError> {
        tokio::select! {
            biased;
            heard = &mut fed => heard.map_err(io::Error::other)??,
            first = self.read() => return Ok(first?),
        }
        Ok(self.read().await?)
    }

    /// Empty at the end.
    async fn read(&mut self) -> io::Result<Bytes> {
        let mut buffer = vec![0; READ_BYTES];
        let bytes = self.stdout.read(&mut buffer).await?;
        buffer.truncate(bytes);
        Ok(buffer.into())
    }

    async fn end(&mut self) -> io::Result<()> {
        let status = self.child.wait().await?;
        if status.success() {
            return Ok(());
        }
        let complaint = (&mut self.complaint).await.unwrap_or_default();
        Err(io::Error::other(format!("{status}: {complaint}")))
    }

    /// The rest of the answer behind `first`. The client learns from git itself what goes wrong in
    /// the middle; the server's log is told here.
    fn into_body(self, first: Bytes) -> Body {
        let rest = stream::try_unfold(self, |mut running| async {
            let bytes = running.read().await?;
            if !bytes.is_empty() {
                return Ok(Some((bytes, running)));
            }
            if let Err(error) = running.end().await {
                tracing::warn!(%error, "upload-pack failed");
            }
            Ok::<_, io::Error>(None)
        });
        let first = stream::once(std::future::ready(Ok(first)));
        Body::from_stream(first.chain(rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocol_is_one_key_among_others() {
        for (header, expected) in [
            ("version=2", Protocol::V2),
            ("object-format=sha256:version=2", Protocol::V2),
            ("version=1", Protocol::V0),
            ("version=20", Protocol::V0),
            ("", Protocol::V0),
        ] {
            assert_eq!(Protocol::parse(header.as_bytes()), expected, "{header}");
        }
    }
}
