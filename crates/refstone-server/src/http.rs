//! Routes, headers and status codes.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use refstone::{ObjectFormat, View};
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

use crate::auth::{NameRequired, UserPolicy};
use crate::body::{BodyError, RequestBody};
use crate::create::{self, CreateOnPush};
use crate::heal;
use crate::init::InitError;
use crate::listing;
use crate::receive::{self, Outcome, Push, Speaker};
use crate::refs::NoPush;
use crate::repository::{Repositories, Repository, RepositoryError, RepositoryName};
use crate::stream::{self, ChunkWriter, StreamError};
use crate::text;
use crate::upload::{self, Protocol, UploadError};
use crate::wire::advertise::{self, ReceivePack};
use crate::wire::commands::{CommandError, Limits, PushRequest, RequestReader};

/// What the server calls itself.
const AGENT: &str = concat!("refstone/", env!("CARGO_PKG_VERSION"));

/// What every request works with.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) repositories: Repositories,
    pub(crate) create_on_push: CreateOnPush,
    pub(crate) user: UserPolicy,
    pub(crate) limits: Limits,
    /// Pushes go on when their client is gone; shutting down waits for them.
    pub(crate) pushes: TaskTracker,
}

/// The two services of smart HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    UploadPack,
    ReceivePack,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::UploadPack => "git-upload-pack",
            Self::ReceivePack => "git-receive-pack",
        }
    }

    fn content_type(self, part: &str) -> String {
        format!("application/x-{}-{part}", self.name())
    }

    /// Reads the query of `info/refs`.
    fn from_query(query: Option<&str>) -> Result<Self, Problem> {
        let mut pairs = query.unwrap_or_default().split('&');
        match pairs.find_map(|pair| pair.strip_prefix("service=")) {
            Some("git-upload-pack") => Ok(Self::UploadPack),
            Some("git-receive-pack") => Ok(Self::ReceivePack),
            Some(_) => Err(Problem::UnknownService),
            None => Err(Problem::DumbClient),
        }
    }
}

/// Why a request is not answered as the client wished.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error("there is nothing here; repositories are at /<name>.git")]
    NoSuchPage,
    #[error("there is no repository '{name}' on this server")]
    NoSuchRepository { name: String },
    #[error("there is no repository '{name}' on this server: {}", RepositoryName::RULE)]
    IllegalName { name: String },
    #[error("expected service=git-upload-pack or service=git-receive-pack")]
    UnknownService,
    #[error("this server speaks smart HTTP only: use git 1.6.6 or newer")]
    DumbClient,
    #[error("expected a POST with Content-Type '{expected}', but received '{found}'")]
    ContentType { expected: String, found: String },
    #[error(transparent)]
    NameRequired(#[from] NameRequired),
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    #[error(transparent)]
    NoPush(#[from] NoPush),
    #[error(transparent)]
    Init(#[from] InitError),
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error(transparent)]
    Upload(#[from] UploadError),
    #[error("the server failed while it handled this request")]
    Internal,
}

impl Problem {
    fn status(&self) -> StatusCode {
        match self {
            Self::NoSuchPage | Self::NoSuchRepository { .. } | Self::IllegalName { .. } => {
                StatusCode::NOT_FOUND
            }
            Self::UnknownService | Self::DumbClient => StatusCode::FORBIDDEN,
            Self::ContentType { .. } => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::NameRequired(_) => StatusCode::UNAUTHORIZED,
            Self::Repository(error) if error.is_passing() => StatusCode::SERVICE_UNAVAILABLE,
            Self::Command(CommandError::TooMuch { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Command(_) | Self::Upload(UploadError::Request(_)) => StatusCode::BAD_REQUEST,
            Self::Body(error) | Self::Upload(UploadError::Body(error)) => body_status(error),
            Self::NoPush(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Repository(_) | Self::Init(_) | Self::Upload(_) | Self::Internal => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        }
    }

    /// What the client is told. What is wrong with the server is for the operator, in full.
    fn told(&self) -> String {
        match self {
            Self::Repository(error) => error.told(),
            Self::Init(error) => create::told(error),
            Self::Upload(UploadError::Io(error)) if let Some(problem) = heal::unreadable(error) => {
                heal::told(problem).to_owned()
            }
            other => text::causes(other).join("\ncaused by: "),
        }
    }
}

fn body_status(error: &BodyError) -> StatusCode {
    match error {
        BodyError::Transport(_) | BodyError::Gzip(_) => StatusCode::BAD_REQUEST,
        BodyError::Encoding { .. } => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        BodyError::Idle | BodyError::Endless => StatusCode::REQUEST_TIMEOUT,
        BodyError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.status();
        if status.is_server_error() {
            tracing::error!(%status, problem = %text::chain(&self), "request failed");
        }
        // git prints each line behind `remote: `.
        let mut response = (status, format!("{}\n", self.told())).into_response();
        if status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Basic realm=\"refstone\", charset=\"UTF-8\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

/// Every page of the server.
pub(crate) fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route("/{repository}/info/refs", get(info_refs))
        .route("/{repository}/git-upload-pack", post(upload_pack))
        .route("/{repository}/git-receive-pack", post(receive_pack))
        .fallback(async |uri: Uri| no_such_page(&uri))
        .layer(middleware::from_fn(log_request))
        .layer(middleware::map_response(forbid_caching))
        .with_state(service)
}

async fn log_request(request: Request, next: Next) -> Response {
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let start = std::time::Instant::now();
    let response = next.run(request).await;
    let status = response.status().as_u16();
    let elapsed_ms = start.elapsed().as_millis();
    let uri = text::one_line(&uri.to_string());
    tracing::info!(%method, %uri, status, elapsed_ms, "request");
    response
}

/// Whoever asks for a repository further down than repositories are learns what names they have.
fn no_such_page(uri: &Uri) -> Problem {
    let path = uri.path();
    let pages = ["/info/refs", "/git-upload-pack", "/git-receive-pack"];
    let name = pages.iter().find_map(|page| path.strip_suffix(page));
    let name = name.and_then(|path| path.strip_prefix('/')).filter(|name| name.contains('/'));
    name.map_or(Problem::NoSuchPage, |name| illegal_name(name.as_bytes()))
}

fn illegal_name(name: &[u8]) -> Problem {
    Problem::IllegalName { name: text::echo(name) }
}

/// The first part of the path.
impl<S: Send + Sync> FromRequestParts<S> for RepositoryName {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(name)) => Self::parse(&name).ok_or_else(|| illegal_name(name.as_bytes())),
            // It is no UTF-8, and shown as it came.
            Err(_) => Err(illegal_name(parts.uri.path().as_bytes())),
        }
    }
}

/// References move: whatever was answered is outdated at once.
async fn forbid_caching(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::EXPIRES, "Fri, 01 Jan 1980 00:00:00 GMT"),
        (header::PRAGMA, "no-cache"),
        (header::CACHE_CONTROL, "no-cache, max-age=0, must-revalidate"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn answer(content_type: String, body: Body) -> Response {
    ([(header::CONTENT_TYPE, content_type)], body).into_response()
}

async fn info_refs(
    State(service): State<Arc<Service>>,
    name: RepositoryName,
    request: Request,
) -> Result<Response, Problem> {
    let kind = Kind::from_query(request.uri().query())?;
    let body = match kind {
        Kind::UploadPack => advertise_fetch(&service, &name, request.headers()).await?,
        Kind::ReceivePack => advertise_push(&service, &name, request.headers()).await?,
    };
    Ok(answer(kind.content_type("advertisement"), body))
}

async fn advertise_fetch(
    service: &Service,
    name: &RepositoryName,
    headers: &HeaderMap,
) -> Result<Body, Problem> {
    let repository = service.existing(name).await?;
    match protocol(headers) {
        Protocol::V0 => Ok(upload::advertise_v0(&repository).await?),
        Protocol::V2 => Ok(upload::advertise_v2(&repository, AGENT)?),
    }
}

fn protocol(headers: &HeaderMap) -> Protocol {
    let header = headers.get("git-protocol");
    Protocol::parse(header.map_or(b"", HeaderValue::as_bytes))
}

/// A name that a push may create is advertised as an empty repository; nothing is created before
/// commands arrive.
async fn advertise_push(
    service: &Service,
    name: &RepositoryName,
    headers: &HeaderMap,
) -> Result<Body, Problem> {
    service.user.actor(headers)?;
    let repository = service.for_push(name).await?;
    let view = repository.as_ref().map(|repository| repository.view());
    let format = object_format(repository.as_deref());
    Ok(stream::produce(move |out| {
        let listed = list_for_push(view.as_ref(), format, out);
        if let (Err(StreamError::Read(problem)), Some(repository)) = (&listed, &repository) {
            repository.note_unreadable(problem);
        }
        listed
    }))
}

fn object_format(repository: Option<&Repository>) -> ObjectFormat {
    repository.map_or(ObjectFormat::Sha1, Repository::format)
}

fn list_for_push(
    view: Option<&View>,
    format: ObjectFormat,
    out: &mut ChunkWriter,
) -> Result<(), StreamError> {
    advertise::service_header(&mut out.buffer, Kind::ReceivePack.name())?;
    let capabilities = advertise::receive_pack_capabilities(format, AGENT);
    let mut refs = ReceivePack::new(capabilities);
    for listed in view.into_iter().flat_map(|view| listing::below_refs(view, b"")) {
        let listed = listed?;
        refs.push(&mut out.buffer, listed.oid, listed.name.as_bytes())?;
        out.send_full()?;
    }
    refs.finish(&mut out.buffer, format)?;
    Ok(())
}

async fn upload_pack(
    State(service): State<Arc<Service>>,
    name: RepositoryName,
    request: Request,
) -> Result<Response, Problem> {
    let (headers, body) = open_request(Kind::UploadPack, request)?;
    let repository = service.existing(&name).await?;
    let body = match protocol(&headers) {
        Protocol::V0 => upload::answer_v0(&repository, body).await?,
        Protocol::V2 => upload::answer_v2(&repository, body).await?,
    };
    Ok(answer(Kind::UploadPack.content_type("result"), body))
}

fn open_request(kind: Kind, request: Request) -> Result<(HeaderMap, RequestBody), Problem> {
    let (parts, body) = request.into_parts();
    let expected = kind.content_type("request");
    let found = parts.headers.get(header::CONTENT_TYPE);
    let found = found.map_or(b"".as_slice(), HeaderValue::as_bytes);
    if found != expected.as_bytes() {
        let found = found.escape_ascii().to_string();
        return Err(Problem::ContentType { expected, found });
    }
    let body = RequestBody::new(&parts.headers, body)?;
    Ok((parts.headers, body))
}

async fn receive_pack(
    State(service): State<Arc<Service>>,
    name: RepositoryName,
    request: Request,
) -> Result<Response, Problem> {
    let (headers, mut body) = open_request(Kind::ReceivePack, request)?;
    let actor = service.user.actor(&headers)?;
    let existing = service.for_push(&name).await?;
    let format = object_format(existing.as_deref());
    let (request, pack) = read_commands(&mut body, format, service.limits).await?;
    let body = if request.commands.is_empty() {
        // Before a large push git sends a lone flush, to learn whether it may push at all.
        body.drain().await?;
        Body::empty()
    } else {
        let repository = service.existing_or_new(existing, &name, &request).await;
        let takes_it = repository.and_then(|repository| {
            repository.check_push()?;
            Ok(repository)
        });
        match takes_it {
            Ok(repository) => {
                let push = Push { repository, request, actor, pack };
                service.push(name, push, body).await?
            }
            Err(problem) => {
                let reason = problem.told();
                receive::refuse(name.as_str(), &actor, &request, body, &reason).await
            }
        }
    };
    Ok(answer(Kind::ReceivePack.content_type("result"), body))
}

async fn read_commands(
    body: &mut RequestBody,
    format: ObjectFormat,
    limits: Limits,
) -> Result<(PushRequest, bytes::Bytes), Problem> {
    let mut reader = RequestReader::new(format, limits);
    loop {
        let Some(bytes) = body.chunk().await? else {
            return Err(reader.eof().into());
        };
        match reader.feed(&bytes) {
            Ok(None) => {}
            Ok(Some(read)) => return Ok(read),
            Err(error) => {
                // A client whose connection breaks while it writes never learns the reason.
                body.drain().await?;
                return Err(error.into());
            }
        }
    }
}

impl Service {
    async fn existing(&self, name: &RepositoryName) -> Result<Arc<Repository>, Problem> {
        let found = self.repositories.open(name).await?;
        found.ok_or_else(|| no_such_repository(name))
    }

    /// The repository; none if it may be created.
    async fn for_push(&self, name: &RepositoryName) -> Result<Option<Arc<Repository>>, Problem> {
        let found = self.repositories.open(name).await?;
        if found.is_none() && self.create_on_push == CreateOnPush::Never {
            return Err(no_such_repository(name));
        }
        Ok(found)
    }

    /// The repository of a push. Deletions create none.
    async fn existing_or_new(
        &self,
        existing: Option<Arc<Repository>>,
        name: &RepositoryName,
        request: &PushRequest,
    ) -> Result<Arc<Repository>, Problem> {
        match existing {
            Some(repository) => Ok(repository),
            None if !request.expects_pack() => Err(no_such_repository(name)),
            None => self.create(name, request).await.inspect_err(|problem| {
                let (repository, problem) = (name.as_str(), text::chain(problem));
                tracing::error!(%repository, %problem, "a push could not create its repository");
            }),
        }
    }

    async fn create(
        &self,
        name: &RepositoryName,
        request: &PushRequest,
    ) -> Result<Arc<Repository>, Problem> {
        create::create(self.repositories.path(name), request).await?;
        self.existing(name).await
    }

    /// Starts the push, and answers as soon as it has been read.
    async fn push(
        self: &Arc<Self>,
        name: RepositoryName,
        push: Push,
        body: RequestBody,
    ) -> Result<Body, Problem> {
        let (speaker, answer) = Speaker::new(push.request.capabilities);
        let (read, heard) = oneshot::channel();
        let service = Arc::clone(self);
        self.pushes.spawn(async move {
            let repository = Arc::clone(&push.repository);
            if push.run(body, speaker, read).await == Outcome::Poisoned {
                service.repositories.close(&name, &repository).await;
            }
        });
        heard.await.map_err(|_| Problem::Internal)?;
        Ok(answer.into_body())
    }
}

fn no_such_repository(name: &RepositoryName) -> Problem {
    Problem::NoSuchRepository { name: name.as_str().to_owned() }
}
