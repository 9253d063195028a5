//! The verdict on each command of a push, in the words of `git receive-pack`.
//!
//! What is still open at the end goes to the store, which has the last word: it compares the old
//! values again, under its lock.

use std::collections::HashMap;
use std::io;

use refstone::{
    NameError, ObjectId, ReadError, Reason, RefName, Refusal, ResolveError, Target, View,
};

use crate::heal;
use crate::listing::Head;
use crate::settings::{DeleteCurrent, Settings};
use crate::text;
use crate::wire::commands::{Command, PushRequest};
use crate::wire::report::RefReport;

use super::Speaker;
use super::apply::Outcome;
use super::objects::{Kind, Objects, Tips};
use super::ruling::{Ruling, Tally};

/// The rulings on a push.
#[derive(Debug)]
pub(super) struct Judge<'a> {
    pub(super) speaker: &'a Speaker,
    pub(super) rulings: Vec<Ruling<'a>>,
    /// Why references cannot be read, if so, for the operator.
    pub(super) unreadable: Option<ReadError>,
    view: View,
}

impl<'a> Judge<'a> {
    pub(super) fn new(request: &'a PushRequest, view: View, speaker: &'a Speaker) -> Self {
        let rulings = request.commands.iter().map(Ruling::open).collect();
        Self { speaker, rulings, unreadable: None, view }
    }

    pub(super) fn any_open(&self) -> bool {
        self.rulings.iter().any(Ruling::is_open)
    }

    pub(super) fn refuse_open(&mut self, reason: &'static str) -> Outcome {
        for ruling in self.rulings.iter_mut().filter(|ruling| ruling.is_open()) {
            ruling.refuse(reason);
        }
        Outcome::Decided
    }

    pub(super) fn reports(&self) -> impl Iterator<Item = RefReport<'_>> {
        self.rulings.iter().map(Ruling::report)
    }

    /// What is wrong with the repository, once; the refs one by one, for whoever wants to know so much.
    pub(super) fn log(&self, repository: &str) {
        if let Some(problem) = &self.unreadable {
            let problem = text::chain(problem);
            tracing::error!(%repository, %problem, "a push met references that cannot be read");
        }
        for ruling in &self.rulings {
            let Command { old, new, name } = ruling.command;
            let verdict = ruling.verdict();
            let name = || text::one_line(&name.to_string());
            tracing::debug!(%repository, name = name(), %old, %new, %verdict, "push of a ref");
        }
    }

    pub(super) fn tally(&self) -> Tally {
        self.rulings.iter().fold(Tally::default(), |tally, ruling| tally.with(ruling))
    }

    /// If one command failed, all do.
    pub(super) fn all_or_nothing(&mut self) {
        if self.rulings.iter().any(Ruling::is_refused) {
            self.refuse_open("atomic push failure");
        }
    }

    /// Names that no push may touch.
    pub(super) fn names(&mut self) {
        for ruling in &mut self.rulings {
            match push_name(ruling) {
                Ok(name) => ruling.name = Some(name),
                Err(problem) => {
                    let name = &ruling.command.name;
                    let problem = problem.problem();
                    self.speaker.error(format_args!(
                        "refusing to update funny ref '{name}' remotely: {problem}"
                    ));
                    ruling.refuse("funny refname");
                }
            }
        }
    }

    /// Symbolic refs stand for what they point to. Pushing both, each its own way, has no meaning.
    pub(super) fn aliases(&mut self) {
        for ruling in &mut self.rulings {
            let Some(name) = &ruling.name else { continue };
            match self.view.resolve(name) {
                Ok(end) => ruling.target = Some(end.name),
                Err(ResolveError::Read(error)) => {
                    self.speaker.error(format_args!("{}", heal::told(&error)));
                    ruling.refuse("references cannot be read");
                    self.unreadable.get_or_insert(error);
                }
                Err(_) => {
                    let text = format_args!("refusing update to broken symref '{name}'");
                    self.speaker.error(text);
                    ruling.refuse("broken symref");
                }
            }
        }
        for (alias, target) in self.aliased() {
            self.alias(alias, target);
        }
    }

    /// Pairs of a command on a symbolic ref and one on the ref it points to.
    fn aliased(&self) -> Vec<(usize, usize)> {
        let symbolic = |ruling: &Ruling<'_>| ruling.is_open() && ruling.target != ruling.name;
        let aliases = self.rulings.iter().enumerate();
        let aliases: Vec<_> = aliases.filter(|(_, ruling)| symbolic(ruling)).collect();
        if aliases.is_empty() {
            return Vec::new();
        }
        let by_name: HashMap<_, _> = self.rulings.iter().map(|r| &r.name).zip(0..).collect();
        let pairs = aliases.into_iter();
        pairs.filter_map(|(alias, ruling)| Some((alias, *by_name.get(&ruling.target)?))).collect()
    }

    fn alias(&mut self, alias: usize, target: usize) {
        let (left, right) = (self.rulings[alias].command, self.rulings[target].command);
        if (left.old, left.new) == (right.old, right.new) {
            self.rulings[alias].settle();
            return;
        }
        self.speaker.error(format_args!(
            "refusing inconsistent update between symref '{}' ({}..{}) and its target '{}' ({}..{})",
            left.name, left.old, left.new, right.name, right.old, right.new
        ));
        for index in [alias, target] {
            self.rulings[index].refuse("inconsistent aliased update");
        }
    }

    /// Whether what the commands name is there, complete, and of the right kind.
    pub(super) async fn objects(&mut self, objects: &Objects) -> io::Result<()> {
        let kinds = objects.kinds(&self.new_oids()).await?;
        for ruling in self.rulings.iter_mut().filter(|ruling| ruling.stores()) {
            let (name, new) = (&ruling.command.name, ruling.command.new);
            match kinds.get(&new) {
                None => {
                    let text = format_args!("the pack for '{name}' lacks {new}");
                    self.speaker.error(text);
                    ruling.refuse("missing necessary objects");
                }
                Some(Kind::Other) if ruling.is_branch() => {
                    self.speaker.error(format_args!(
                        "cannot update ref '{name}': trying to write non-commit object {new} \
                         to branch '{name}'"
                    ));
                    ruling.refuse("invalid new value provided");
                }
                Some(_) => {}
            }
        }
        self.connectivity(objects).await
    }

    fn new_oids(&self) -> Vec<ObjectId> {
        let storing = self.rulings.iter().filter(|ruling| ruling.stores());
        let mut oids: Vec<_> = storing.map(|ruling| ruling.command.new).collect();
        oids.sort_unstable();
        oids.dedup();
        oids
    }

    /// Most pushes are complete, and one check for all of them tells. If it fails, halves are
    /// checked, down to the commands that are at fault: good ones still go through.
    async fn connectivity(&mut self, objects: &Objects) -> io::Result<()> {
        let tips = Tips::of(self.view.clone()).await?;
        let unchecked = self.new_oids();
        let unchecked: Vec<_> = unchecked.into_iter().filter(|oid| !tips.contains(oid)).collect();
        let mut speaker = Some(self.speaker);
        let mut parts = vec![unchecked.as_slice()];
        while let Some(part) = parts.pop() {
            if part.is_empty() || objects.are_connected(part, &tips, speaker.take()).await? {
                continue;
            }
            if let &[oid] = part {
                self.disconnected(oid, objects, &tips).await?;
                continue;
            }
            let (left, right) = part.split_at(part.len() / 2);
            parts.extend([right, left]);
        }
        Ok(())
    }

    async fn disconnected(
        &mut self,
        oid: ObjectId,
        objects: &Objects,
        tips: &Tips,
    ) -> io::Result<()> {
        let shallow = objects.is_shallow(oid, tips).await?;
        let reason = match shallow {
            true => "shallow update not allowed",
            false => "missing necessary objects",
        };
        let at_fault = |ruling: &&mut Ruling<'_>| ruling.stores() && ruling.command.new == oid;
        for ruling in self.rulings.iter_mut().filter(at_fault) {
            ruling.refuse(reason);
        }
        Ok(())
    }

    /// `receive.denyNonFastForwards`.
    pub(super) async fn fast_forwards(
        &mut self,
        settings: &Settings,
        objects: &Objects,
    ) -> io::Result<()> {
        if !settings.deny_non_fast_forwards {
            return Ok(());
        }
        for ruling in self.rulings.iter_mut().filter(|ruling| ruling.stores()) {
            let Command { old, new, name } = ruling.command;
            if old.is_zero() || !ruling.is_branch() {
                continue;
            }
            match objects.is_ancestor(*old, *new).await? {
                Some(true) => {}
                Some(false) => {
                    self.speaker.error(format_args!(
                        "denying non-fast-forward {name} (you should pull first)"
                    ));
                    ruling.refuse("non-fast-forward");
                }
                None => ruling.refuse("bad ref"),
            }
        }
        Ok(())
    }

    /// `receive.denyDeletes` and `receive.denyDeleteCurrent`; and refs that are gone already.
    pub(super) fn deletions(&mut self, settings: &Settings) {
        // What cannot be read is said when the names are resolved, and nothing is left to delete.
        let head = Head::of(&self.view).unwrap_or(Head::Broken);
        for ruling in self.rulings.iter_mut().filter(|ruling| ruling.deletes()) {
            let name = &ruling.command.name;
            if current(&self.view, ruling).is_none() && ruling.command.old.is_zero() {
                self.speaker.warning(format_args!("deleting a non-existent ref"));
                ruling.settle();
            } else if settings.deny_deletes && ruling.is_branch() {
                self.speaker.error(format_args!("denying ref deletion for {name}"));
                ruling.refuse("deletion prohibited");
            } else if head.branch().is_some() && head.branch() == ruling.target.as_ref() {
                delete_current(settings.deny_delete_current, ruling, self.speaker);
            }
        }
    }

    /// Old values that are outdated already. The store would find them too, but by then the
    /// objects would have left quarantine, and nothing would ever need them.
    pub(super) fn expectations(&mut self) {
        for ruling in self.rulings.iter_mut().filter(|ruling| ruling.is_open()) {
            if let Some(refusal) = outdated(&self.view, ruling) {
                self.speaker.error(format_args!("{refusal}"));
                ruling.refuse(refusal.reason.short());
            }
        }
    }
}

fn push_name(ruling: &Ruling<'_>) -> Result<RefName, NameError> {
    let name = RefName::new(ruling.command.name.clone())?;
    name.check_push(ruling.change())?;
    Ok(name)
}

fn current(view: &View, ruling: &Ruling<'_>) -> Option<ObjectId> {
    view.resolve(ruling.name.as_ref()?).ok()?.oid
}

fn outdated(view: &View, ruling: &Ruling<'_>) -> Option<Refusal> {
    let (name, missing) = (ruling.name.clone()?, ruling.target.clone()?);
    let old = ruling.command.old;
    let reason = match (old.is_zero(), current(view, ruling)) {
        (true, Some(actual)) if !ruling.command.is_delete() => {
            Reason::AlreadyExists { actual: actual.into() }
        }
        (false, None) => Reason::Missing { missing },
        (false, Some(actual)) if actual != old => {
            Reason::Conflict { expected: Target::Object(old), actual: Some(Target::Object(actual)) }
        }
        _ => return None,
    };
    Some(Refusal { name, reason })
}

fn delete_current(setting: DeleteCurrent, ruling: &mut Ruling<'_>, speaker: &Speaker) {
    match setting {
        DeleteCurrent::Ignore => {}
        DeleteCurrent::Warn => speaker.warning(format_args!("deleting the current branch")),
        DeleteCurrent::Refuse | DeleteCurrent::Unconfigured => {
            let name = &ruling.command.name;
            if setting == DeleteCurrent::Unconfigured {
                speaker.error(format_args!("{DELETE_CURRENT_ADVICE}"));
            }
            speaker.error(format_args!("refusing to delete the current branch: {name}"));
            ruling.refuse("deletion of the current branch prohibited");
        }
    }
}

const DELETE_CURRENT_ADVICE: &str = "\
By default, deleting the current branch is denied, because the next
'git clone' won't result in any file checked out, causing confusion.

You can set 'receive.denyDeleteCurrent' configuration variable to
'warn' or 'ignore' in the remote repository to allow deleting the
current branch, with or without a warning message.

To squelch this message, you can set it to 'refuse'.";
