//! From the client into quarantine: the pack streams into `git index-pack`, never into memory.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use bstr::ByteSlice;
use bytes::{Bytes, BytesMut};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin};
use tokio::task::JoinHandle;

use crate::body::{BodyError, RequestBody};
use crate::git::GitEnv;
use crate::quarantine::Quarantine;
use crate::repository::Repository;
use crate::settings::Settings;
use crate::text;
use crate::wire::commands::PushRequest;
use crate::wire::pack::{self, PackHeader};

use super::{Push, Speaker};

/// The file with the commits whose parents the client does not have.
pub(super) const SHALLOW_FILE: &str = "shallow";

/// A request that has been read, and a pack that may still be worked on.
#[derive(Debug)]
pub(super) enum Unpacking {
    /// There is no pack.
    Nothing(Settings),
    /// `index-pack` has all its input.
    Running(Box<Running>),
    /// It failed early; the text is for the report.
    Failed(String),
}

#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    relay: JoinHandle<()>,
    unpacked: Unpacked,
}

/// A pack in quarantine.
#[derive(Debug, Default)]
pub(super) struct Unpacked {
    /// None for a push without a pack.
    pub(super) quarantine: Option<Arc<Quarantine>>,
    /// How many objects the pack holds.
    pub(super) objects: u32,
    pub(super) settings: Settings,
}

impl Unpacking {
    /// Reads the request to its end. All that can fail is part of the report: once its commands
    /// are read, a client understands nothing else.
    pub(super) async fn feed(push: &Push, body: &mut RequestBody, speaker: &Speaker) -> Self {
        match Self::read(push, body, speaker).await {
            Ok(unpacking) => unpacking,
            Err(error) => {
                // Of a body that cannot be inflated the rest still comes; otherwise nothing does.
                if matches!(error, BodyError::Gzip(_)) {
                    drop(body.drain().await);
                }
                Self::Failed(error.to_string())
            }
        }
    }

    async fn read(
        push: &Push,
        body: &mut RequestBody,
        speaker: &Speaker,
    ) -> Result<Self, BodyError> {
        let settings = match push.repository.settings().await {
            Ok(settings) => settings,
            Err(error) => {
                return fail(body, failed(push, "cannot read the settings", &error)).await;
            }
        };
        if !push.request.expects_pack() {
            body.drain().await?;
            return Ok(Self::Nothing(settings));
        }
        let (first, header) = read_header(push.pack.clone(), body).await?;
        let header = match header {
            Ok(header) => header,
            Err(error) => return fail(body, error.to_string()).await,
        };
        match start(push, speaker, settings, header) {
            Ok(running) => running.pump(first, body).await.map(Self::Running),
            Err(text) => fail(body, text).await,
        }
    }

    /// Waits for `index-pack`. The error is the text for the report, as git has it.
    pub(super) async fn finish(self) -> Result<Unpacked, String> {
        match self {
            Self::Failed(text) => Err(text),
            Self::Running(running) => running.finish().await,
            Self::Nothing(settings) => Ok(Unpacked { settings, ..Unpacked::default() }),
        }
    }
}

/// The rest of the request is still read: a client whose connection breaks while it writes never
/// reads the report.
async fn fail(body: &mut RequestBody, text: String) -> Result<Unpacking, BodyError> {
    body.drain().await?;
    Ok(Unpacking::Failed(text))
}

async fn read_header(
    first: Bytes,
    body: &mut RequestBody,
) -> Result<(Bytes, Result<PackHeader, pack::PackHeaderError>), BodyError> {
    let mut first = BytesMut::from(first);
    while first.len() < pack::HEADER_BYTES {
        match body.chunk().await? {
            Some(bytes) => first.extend_from_slice(&bytes),
            None => break,
        }
    }
    let header = PackHeader::parse(&first);
    Ok((first.freeze(), header))
}

fn start(
    push: &Push,
    speaker: &Speaker,
    settings: Settings,
    header: PackHeader,
) -> Result<Box<Running>, String> {
    let quarantine = prepare(&push.repository, &push.request)
        .map_err(|error| failed(push, "unable to create temporary object directory", &error))?;
    let mut child = index_pack(push, speaker, &settings, quarantine.path())
        .map_err(|error| failed(push, "index-pack fork failed", &error))?;
    let stderr = child.stderr.take().expect("piped when it was started");
    Ok(Box::new(Running {
        child,
        relay: tokio::spawn(speaker.clone().relay(stderr)),
        unpacked: Unpacked {
            quarantine: Some(Arc::new(quarantine)),
            objects: header.objects,
            settings,
        },
    }))
}

/// What the report says of a failure of the server itself. Where its files are is for the operator.
fn failed(push: &Push, what: &str, error: &io::Error) -> String {
    let (repository, problem) = (push.repository.name(), text::chain(error));
    tracing::error!(%repository, %problem, "{what}");
    match error.kind() {
        io::ErrorKind::Other => format!("{what}; the server's log has the reason"),
        kind => format!("{what}: {kind}"),
    }
}

fn prepare(repository: &Repository, request: &PushRequest) -> io::Result<Quarantine> {
    let quarantine = Quarantine::create(repository.objects())?;
    if !request.shallow.is_empty() {
        let lines: String = request.shallow.iter().map(|oid| format!("{oid}\n")).collect();
        std::fs::write(quarantine.path().join(SHALLOW_FILE), lines)?;
    }
    Ok(quarantine)
}

/// A pack from a shallow clone may lack the parents of its oldest commits. With the client's
/// shallow file `--strict` does not call that an error; whether the history is complete on this
/// side is for the connectivity check to say, which does without the file.
fn index_pack(
    push: &Push,
    speaker: &Speaker,
    settings: &Settings,
    quarantine: &Path,
) -> io::Result<Child> {
    let repository = &push.repository;
    let env = GitEnv::quarantine(repository.path(), repository.objects(), quarantine);
    let mut arguments = Vec::new();
    if !push.request.shallow.is_empty() {
        arguments.push("--shallow-file".into());
        arguments.push(quarantine.join(SHALLOW_FILE).into_os_string());
    }
    arguments.extend(["index-pack", "--stdin", "--fix-thin"].map(Into::into));
    if speaker.shows_progress() {
        arguments.push("--show-resolving-progress".into());
    }
    for argument in &settings.index_pack_arguments {
        arguments.push(argument.to_os_str_lossy().into_owned());
    }
    let mut command = env.command(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    command.spawn()
}

impl Running {
    async fn pump(
        mut self: Box<Self>,
        first: Bytes,
        body: &mut RequestBody,
    ) -> Result<Box<Self>, BodyError> {
        let stdin = self.child.stdin.take().expect("piped when it was started");
        match pump(stdin, first, body).await {
            Ok(()) => Ok(self),
            Err(error) => {
                self.abandon().await;
                Err(error)
            }
        }
    }

    /// The quarantine is removed only after the child is gone: it might make another file in it.
    async fn abandon(mut self: Box<Self>) {
        if let Err(error) = self.child.kill().await {
            tracing::warn!(%error, "index-pack could not be killed");
        }
    }

    async fn finish(mut self: Box<Self>) -> Result<Unpacked, String> {
        let status = self.child.wait().await;
        // What the child said belongs before what the server says about it.
        drop(self.relay.await);
        match status {
            Ok(status) if status.success() => Ok(self.unpacked),
            Ok(_) => Err("index-pack abnormal exit".to_owned()),
            Err(error) => Err(format!("index-pack cannot be waited for: {error}")),
        }
    }
}

/// A child that closes its input early has failed, and says why when it is waited for.
async fn pump(
    mut stdin: ChildStdin,
    first: Bytes,
    body: &mut RequestBody,
) -> Result<(), BodyError> {
    let mut next = Some(first);
    while let Some(bytes) = next {
        if stdin.write_all(&bytes).await.is_err() {
            return body.drain().await;
        }
        next = body.chunk().await?;
    }
    Ok(())
}
