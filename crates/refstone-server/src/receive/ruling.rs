//! One command of a push, and what became of it.

use std::borrow::Cow;

use refstone::{Committed, Edit, PushChange, RefName, Seq};

use crate::wire::commands::Command;
use crate::wire::report::RefReport;

const BRANCHES: &[u8] = b"refs/heads/";

/// The verdict on one command. It is open until something speaks against it.
#[derive(Debug)]
pub(super) struct Ruling<'a> {
    pub(super) command: &'a Command,
    /// The name, once it is known to be legal.
    pub(super) name: Option<RefName>,
    /// The ref that moves: another than `name` if that is symbolic.
    pub(super) target: Option<RefName>,
    state: State,
}

#[derive(Debug)]
enum State {
    Open,
    /// Nothing is left to do, and that is no failure.
    Settled,
    Moved(Seq),
    Refused(&'static str),
}

/// What became of the commands of a push.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) moved: usize,
    pub(super) refused: usize,
    /// The transaction that moved the refs: there is one, or none.
    pub(super) seq: Option<Seq>,
}

impl Tally {
    pub(super) fn with(mut self, ruling: &Ruling<'_>) -> Self {
        match ruling.state {
            State::Settled => {}
            State::Open | State::Refused(_) => self.refused += 1,
            State::Moved(seq) => {
                self.moved += 1;
                self.seq = Some(seq);
            }
        }
        self
    }
}

impl<'a> Ruling<'a> {
    pub(super) fn open(command: &'a Command) -> Self {
        Self { command, name: None, target: None, state: State::Open }
    }

    pub(super) fn report(&self) -> RefReport<'_> {
        RefReport { name: &self.command.name, refusal: self.refusal() }
    }
}

impl Ruling<'_> {
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    pub(super) fn is_refused(&self) -> bool {
        matches!(self.state, State::Refused(_))
    }

    /// Whether the command is open and gives its ref a value.
    pub(super) fn stores(&self) -> bool {
        self.is_open() && !self.command.is_delete()
    }

    /// Whether the command is open and deletes its ref.
    pub(super) fn deletes(&self) -> bool {
        self.is_open() && self.command.is_delete()
    }

    pub(super) fn is_branch(&self) -> bool {
        let target = self.target.as_ref();
        target.is_some_and(|target| target.as_bytes().starts_with(BRANCHES))
    }

    pub(super) fn change(&self) -> PushChange {
        match self.command.is_delete() {
            true => PushChange::Delete,
            false => PushChange::Store,
        }
    }

    /// The edit that the store shall make, for an open ruling.
    pub(super) fn edit(&self) -> Option<Edit> {
        let name = self.name.clone().filter(|_| self.is_open())?;
        Some(Edit::from_wire(name, self.command.old, self.command.new))
    }

    pub(super) fn refuse(&mut self, reason: &'static str) {
        self.state = State::Refused(reason);
    }

    pub(super) fn settle(&mut self) {
        self.state = State::Settled;
    }

    /// A ref that had its value already did not move, and that is no failure.
    pub(super) fn committed(&mut self, committed: &Committed) {
        self.state = match committed.moved() {
            true => State::Moved(committed.seq()),
            false => State::Settled,
        };
    }

    /// The reason for the report. A ruling that nobody closed moved nothing.
    fn refusal(&self) -> Option<&'static str> {
        match self.state {
            State::Refused(reason) => Some(reason),
            State::Open => Some("internal server error"),
            State::Settled | State::Moved(_) => None,
        }
    }

    /// The verdict for the server's log.
    pub(super) fn verdict(&self) -> Cow<'static, str> {
        match self.state {
            State::Moved(seq) => format!("moved in {seq}").into(),
            State::Settled => "nothing to do".into(),
            State::Open | State::Refused(_) => self.refusal().unwrap_or_default().into(),
        }
    }
}
