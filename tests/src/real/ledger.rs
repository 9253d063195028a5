//! What writers staged and what was acknowledged; the judge of what is found.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::Verdict;
use super::child::Event;
use super::label::Label;

/// All that is known of one log.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// What must be in the log: acknowledged, or found by a recovery.
    certain: BTreeMap<u64, Label>,
    /// How many transactions each thread of each round has staged.
    staged: HashMap<(u64, u64), u64>,
    /// What was answered as not committed.
    refused: HashSet<Label>,
    /// All up to here was published durably: no power cut unpublishes it.
    published: u64,
    /// Whether the log was created, as the writer saw it.
    pub created: bool,
    /// How many acknowledgements there were.
    pub acknowledged: u64,
    /// How many transactions were answered as of unknown outcome.
    pub unknown: u64,
    /// How many rewrites were finished.
    pub rewritten: u64,
    contradiction: Option<String>,
    /// When the power was cut.
    cut: Option<u64>,
}

impl Ledger {
    /// Takes down what a writer said at a time, in nanoseconds since the Unix epoch.
    ///
    /// What it said after the power was cut is hearsay, but for what it may have written.
    pub fn note(&mut self, at: u64, event: &Event) {
        if self.cut.is_some_and(|cut| at >= cut) && !matches!(event, Event::Staged(_)) {
            return;
        }
        match *event {
            Event::Created => self.created = true,
            Event::Staged(label) => {
                self.staged.insert((label.round, label.thread), label.n + 1);
            }
            Event::Acknowledged(seq, label) => {
                self.acknowledged += 1;
                let before = self.certain.insert(seq, label);
                if let Some(other) = before.filter(|other| *other != label) {
                    let text = format!("sequence {seq} was {other}, and is {label}");
                    self.contradiction.get_or_insert(text);
                }
            }
            Event::Refused(_, true) => self.unknown += 1,
            Event::Refused(label, false) => {
                self.refused.insert(label);
            }
            // Recovery makes its own publishing durable.
            Event::Opened(seq) => {
                self.created = true;
                self.published = self.published.max(seq);
            }
            Event::Rewritten => self.rewritten += 1,
            Event::Rewriting | Event::Failed(_) => {}
        }
    }

    /// Tells when the power was cut; `None` when it is back.
    pub fn set_cut(&mut self, cut: Option<u64>) {
        self.cut = cut;
    }

    /// The newest sequence that must be there.
    #[must_use]
    pub fn newest(&self) -> u64 {
        self.certain.keys().next_back().copied().unwrap_or(0)
    }

    /// How many transactions were answered as not committed.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.len() as u64
    }

    /// Up to here every transaction is known.
    #[must_use]
    pub fn known(&self) -> u64 {
        (1..).zip(self.certain.keys()).take_while(|(seq, known)| seq == *known).count() as u64
    }

    /// The newest sequence that was published durably.
    #[must_use]
    pub fn published(&self) -> u64 {
        self.published
    }

    /// Judges the transactions from 1 on that a log and its archive have, in order.
    ///
    /// At least those up to `owed` must be there.
    ///
    /// # Errors
    /// If something is lost, invented, changed, twice there, or out of order.
    pub fn judge(&self, found: &[Label], owed: u64) -> Verdict {
        if let Some(contradiction) = &self.contradiction {
            return Err(contradiction.clone());
        }
        if (found.len() as u64) < owed {
            return Err(format!("{owed} transactions were durable, and {} are there", found.len()));
        }
        for (seq, certain) in self.certain.range(..=found.len() as u64) {
            let at = usize::try_from(seq - 1).map_err(|error| error.to_string())?;
            if found[at] != *certain {
                return Err(format!("sequence {seq} was {certain}, and {} is there", found[at]));
            }
        }
        self.judge_origin(found)
    }

    /// Each was staged, was not refused, and each thread's are in the order in which it staged them.
    fn judge_origin(&self, found: &[Label]) -> Verdict {
        let mut next: HashMap<(u64, u64), u64> = HashMap::new();
        for (index, label) in found.iter().enumerate() {
            let seq = index + 1;
            let thread = (label.round, label.thread);
            if label.n >= self.staged.get(&thread).copied().unwrap_or(0) {
                return Err(format!("sequence {seq} is {label}, which nobody staged"));
            }
            if self.refused.contains(label) {
                return Err(format!("sequence {seq} is {label}, which was refused"));
            }
            let expected = next.entry(thread).or_default();
            while self.refused.contains(&Label { n: *expected, ..*label }) {
                *expected += 1;
            }
            if label.n != *expected {
                return Err(format!("sequence {seq} is {label}, after {expected} of its thread"));
            }
            *expected += 1;
        }
        Ok(())
    }

    /// Takes what a recovery found for certain.
    pub fn settle(&mut self, found: &[Label]) {
        self.certain = (1..).zip(found.iter().copied()).collect();
        self.published = found.len() as u64;
    }
}
