//! The verbs, what ends a word, and what is wrong with words that mean nothing.

use super::fields::first;

/// The input is not what the grammar says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GrammarError {
    pub(super) text: String,
    pub(super) hint: Option<&'static str>,
}

impl GrammarError {
    pub(super) fn new(text: impl Into<String>) -> GrammarError {
        GrammarError { text: text.into(), hint: None }
    }
}

/// The first word of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Update,
    Create,
    Delete,
    Verify,
    SymrefUpdate,
    SymrefCreate,
    SymrefDelete,
    SymrefVerify,
    Option,
    Start,
    Prepare,
    Abort,
    Commit,
}

impl Verb {
    const ALL: [Verb; 13] = [
        Verb::Update,
        Verb::Create,
        Verb::Delete,
        Verb::Verify,
        Verb::SymrefUpdate,
        Verb::SymrefCreate,
        Verb::SymrefDelete,
        Verb::SymrefVerify,
        Verb::Option,
        Verb::Start,
        Verb::Prepare,
        Verb::Abort,
        Verb::Commit,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Verb::Update => "update",
            Verb::Create => "create",
            Verb::Delete => "delete",
            Verb::Verify => "verify",
            Verb::SymrefUpdate => "symref-update",
            Verb::SymrefCreate => "symref-create",
            Verb::SymrefDelete => "symref-delete",
            Verb::SymrefVerify => "symref-verify",
            Verb::Option => "option",
            Verb::Start => "start",
            Verb::Prepare => "prepare",
            Verb::Abort => "abort",
            Verb::Commit => "commit",
        }
    }

    /// How many arguments it has at most, each with a NUL of its own under `-z`.
    pub(super) fn arguments(self) -> usize {
        match self {
            Verb::SymrefUpdate => 4,
            Verb::Update => 3,
            Verb::Option => 1,
            Verb::Start | Verb::Prepare | Verb::Abort | Verb::Commit => 0,
            _ => 2,
        }
    }

    /// The verb a command starts with, and where its arguments start.
    pub(super) fn of(command: &[u8], end: End) -> Option<(Verb, usize)> {
        Verb::ALL.into_iter().find_map(|verb| {
            let rest = command.strip_prefix(verb.name().as_bytes())?;
            let takes_some = verb.arguments() > 0;
            let follows = if takes_some { b' ' } else { end.byte() };
            let starts = verb.name().len() + usize::from(takes_some);
            (first(rest) == follows).then_some((verb, starts))
        })
    }
}

/// What ends a command, or an argument of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Newline,
    /// `-z`: nothing is quoted, and each argument has its own end.
    Nul,
}

impl End {
    pub(super) fn byte(self) -> u8 {
        match self {
            End::Newline => b'\n',
            End::Nul => 0,
        }
    }
}
