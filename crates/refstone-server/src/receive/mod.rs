//! A push, from its first byte to the report.
//!
//! The order is the point: the pack goes into quarantine; what it claims is checked; the objects
//! are moved and synced; one frame moves the refs; when it is durable the client is told. A push
//! that fails at any step leaves the refs alone and the objects of others untouched.
//!
//! Reading order: [`unpack`] fills the quarantine, [`objects`] asks git about it, [`rules`] makes a
//! [`ruling`] on each command, [`apply`] moves the refs, [`speaker`] answers.

mod apply;
mod objects;
mod rules;
mod ruling;
mod speaker;
mod unpack;

use std::io;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use bstr::BString;
use bytes::Bytes;
use refstone::Seq;
use tokio::sync::oneshot;

use crate::body::RequestBody;
use crate::heal;
use crate::quarantine::Kept;
use crate::repository::Repository;
use crate::text;
use crate::wire::commands::PushRequest;
use crate::wire::report::RefReport;

use objects::Objects;
use rules::Judge;
use ruling::Tally;
use unpack::{Unpacked, Unpacking};

pub(crate) use apply::Outcome;
pub(crate) use speaker::Speaker;

/// A push whose commands are read and whose pack is still to come.
#[derive(Debug)]
pub(crate) struct Push {
    pub(crate) repository: Arc<Repository>,
    pub(crate) request: PushRequest,
    pub(crate) actor: BString,
    /// The beginning of the pack, read along with the commands.
    pub(crate) pack: Bytes,
}

impl Push {
    /// Runs the push and answers through `speaker`.
    ///
    /// `read` is told when the request has been read, as far as it can be. No answer starts before,
    /// because a client need not read while it writes.
    pub(crate) async fn run(
        self,
        mut body: RequestBody,
        speaker: Speaker,
        read: oneshot::Sender<()>,
    ) -> Outcome {
        let start = Instant::now();
        let unpacking = Unpacking::feed(&self, &mut body, &speaker).await;
        // The client may be gone by now; a push that was read goes on without it.
        let _ = read.send(());
        self.answer(unpacking, &speaker, start).await
    }

    async fn answer(&self, unpacking: Unpacking, speaker: &Speaker, start: Instant) -> Outcome {
        let unpacked = unpacking.finish().await;
        let view = self.repository.view();
        let mut judge = Judge::new(&self.request, view, speaker);
        let outcome = match &unpacked {
            Ok(unpacked) => self.decide(unpacked, &mut judge).await,
            Err(_) => Ok(judge.refuse_open("unpacker error")),
        };
        let outcome = outcome.unwrap_or_else(|error| {
            let (repository, problem) = (self.repository.name(), text::chain(&error));
            tracing::error!(%repository, %problem, "a push failed");
            match heal::unreadable(&error) {
                Some(problem) => {
                    speaker.error(format_args!("{}", heal::told(problem)));
                    judge.unreadable.get_or_insert_with(|| problem.clone());
                }
                None => speaker.error(format_args!("the server failed; its log has the reason")),
            }
            judge.refuse_open("internal server error")
        });
        // The quarantine goes first: whoever reads the report finds no trace of it.
        let unpacked = unpacked.map(drop);
        let unpacked = unpacked.as_ref().map(|&()| ()).map_err(String::as_str);
        let repository = self.repository.name();
        judge.log(repository);
        judge.unreadable.iter().for_each(|problem| self.repository.note_unreadable(problem));
        log(repository, &self.actor, judge.tally(), unpacked.err(), start);
        speaker.report(unpacked, judge.reports());
        outcome
    }

    async fn decide(&self, unpacked: &Unpacked, judge: &mut Judge<'_>) -> io::Result<Outcome> {
        judge.names();
        judge.aliases();
        if let Some(quarantine) = &unpacked.quarantine {
            let objects = Objects::new(&self.repository, quarantine, &self.request);
            judge.objects(&objects).await?;
            judge.fast_forwards(&unpacked.settings, &objects).await?;
        }
        judge.deletions(&unpacked.settings);
        judge.expectations();
        if self.request.capabilities.atomic {
            judge.all_or_nothing();
        }
        if !judge.any_open() {
            return Ok(Outcome::Decided);
        }
        match self.migrate(unpacked).await {
            Ok(kept) => Ok(apply::apply(self, judge, kept).await),
            Err(error) => {
                let (repository, problem) = (self.repository.name(), text::chain(&error));
                tracing::error!(%repository, %problem, "the objects of a push could not be kept");
                judge.speaker.error(format_args!("{error}"));
                Ok(judge.refuse_open("unable to migrate objects to permanent storage"))
            }
        }
    }

    /// An empty pack stays behind: it would only be one more file for every reader to open.
    async fn migrate(&self, unpacked: &Unpacked) -> io::Result<Option<Kept>> {
        let Some(quarantine) = unpacked.quarantine.clone().filter(|_| unpacked.objects > 0) else {
            return Ok(None);
        };
        let repository = Arc::clone(&self.repository);
        let migrate = move || quarantine.migrate(repository.objects(), repository.keeps());
        let migrated = tokio::task::spawn_blocking(migrate).await;
        migrated.map_err(io::Error::other)?.map(Some)
    }
}

/// Refuses a push for which there is no repository and there will be none. Its commands have been
/// read, so the client waits for a report: of a bare HTTP status it would tell nothing but the
/// number, and then that everything is up to date.
pub(crate) async fn refuse(
    repository: &str,
    actor: &BString,
    request: &PushRequest,
    mut body: RequestBody,
    reason: &str,
) -> Body {
    let start = Instant::now();
    // As in `Push::run`, the request is read to its end. If it breaks, there is nobody to tell.
    drop(body.drain().await);
    let (speaker, answer) = Speaker::new(request.capabilities);
    speaker.error(format_args!("{reason}"));
    // Without a pack, unpacking did not fail.
    let unpacked = if request.expects_pack() { Err(reason) } else { Ok(()) };
    let refs = request.commands.iter().map(|command| &command.name);
    speaker.report(unpacked, refs.map(|name| RefReport { name, refusal: Some(reason) }));
    let tally = Tally { refused: request.commands.len(), ..Tally::default() };
    log(repository, actor, tally, Some(reason), start);
    answer.into_body()
}

/// The one line of a push in the server's log, however many refs it moves.
fn log(repository: &str, actor: &BString, tally: Tally, problem: Option<&str>, start: Instant) {
    let Tally { moved, refused, seq } = tally;
    let (seq, actor) = (seq.map(Seq::get), text::one_line(&actor.to_string()));
    let problem = problem.map(text::one_line);
    let elapsed_ms = start.elapsed().as_millis();
    tracing::info!(%repository, %actor, moved, refused, seq, problem, elapsed_ms, "push");
}
