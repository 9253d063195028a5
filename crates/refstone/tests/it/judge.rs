//! A repository of git and a store that get the same scripts.

use std::collections::BTreeSet;

use bstr::{BString, ByteSlice};

use crate::common::Scratch;
use crate::reflog::{self, Entry, Logs};
use crate::update_ref::{Backend, Git, Objects, Refs, refs_of, run};

pub(crate) struct Pair<'o> {
    pub(crate) objects: &'o Objects,
    pub(crate) git: Git,
    pub(crate) ours: Scratch,
    backend: Backend,
    /// The refs whose logs in git have moves that our history has for another ref alone.
    moved_through: BTreeSet<BString>,
}

impl Pair<'_> {
    pub(crate) fn new(objects: &Objects, backend: Backend) -> Pair<'_> {
        let (git, ours) = (Git::new(objects, backend), Scratch::of(objects.format));
        Pair { objects, git, ours, backend, moved_through: BTreeSet::new() }
    }

    /// Runs a script on both: verdict, words, refs and logs must be the same.
    pub(crate) fn agree(&mut self, case: &str, script: &str) {
        let at = format!("in {case} ({:?}), at:\n{script}\n", self.backend);
        let before = self.ours.store.log().durable_seq();
        let [verdict, of_git] = self.verdicts(script);
        assert_eq!(verdict, of_git, "{at}");
        let [refs, of_git] = self.refs();
        assert_eq!(refs, of_git, "{at}");
        let [logs, of_git] = self.logs();
        assert_eq!(logs, of_git, "{at}");
        let after = self.ours.store.log().durable_seq();
        assert!(verdict.is_ok() || before == after, "a refusal left a trace {at}");
    }

    /// What the store and git say of a script.
    pub(crate) fn verdicts(&self, script: &str) -> [Result<(), String>; 2] {
        let script = self.objects.spelled(script);
        let script = script.as_bstr();
        let words = |verdict: Result<(), String>| verdict.map_err(|text| self.comparable(text));
        [run(&self.ours.store, script), self.git.run(script)].map(words)
    }

    pub(crate) fn refs(&mut self) -> [Refs; 2] {
        let refs = refs_of(&self.ours.store);
        let through = refs.keys().filter(|&name| is_moved_through(&refs, name)).cloned();
        self.moved_through.extend(through);
        [refs, self.git.refs()]
    }

    /// The logs of both, without what git logs and the store does not, on purpose.
    pub(crate) fn logs(&self) -> [Logs; 2] {
        let mut of_git = self.git.logs();
        of_git.values_mut().for_each(|entries| entries.retain(has_a_message));
        [reflog::told_by(&self.ours, self.backend), of_git].map(|mut logs| {
            logs.entry("HEAD".into()).or_default().retain(|entry| entry.old != entry.new);
            logs.retain(|name, entries| !entries.is_empty() && !self.moved_through.contains(name));
            logs
        })
    }

    /// Where names are in each other's way, reftable does not say for which ref it takes a lock.
    fn comparable(&self, text: String) -> String {
        let crowded = ["; cannot create '", "at the same time"];
        let crowded = crowded.iter().any(|words| text.contains(words));
        match text.split_once("': ") {
            Some((_, rest)) if crowded && self.backend == Backend::Reftable => rest.to_owned(),
            _ => text,
        }
    }
}

/// Git logs a check through a symbolic ref as a move to nowhere, without a message. (What is set
/// through `HEAD` to the value it has is logged too, with one.)
fn has_a_message(entry: &Entry) -> bool {
    !entry.message.is_empty()
}

/// A move made through a symbolic ref is recorded for the ref that moved alone. Only what moved
/// through `HEAD` can be told, if that points to the branch itself.
fn is_moved_through(refs: &Refs, name: &BString) -> bool {
    let is_symbolic = |name| refs.get(name).is_some_and(|value| !is_object(value));
    is_symbolic(name) && (name != "HEAD" || is_symbolic(&refs[name]))
}

fn is_object(value: &BString) -> bool {
    value.len() >= 40 && value.iter().all(u8::is_ascii_hexdigit)
}
