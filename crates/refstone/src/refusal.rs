//! Why an edit was refused, in git's words where git has some.

use std::fmt;

use bstr::BString;
use refstone_log::ObjectFormat;

use crate::edit::Target;
use crate::error::ReadError;
use crate::name::RefName;
use crate::oid::ObjectId;
use crate::symref::{NoEnd, SYMREF_READS_MAX};

/// An edit was refused: nothing of it happened.
///
/// `Display` is the text of `git update-ref`, which scripts parse; [`Reason::short`] is the text
/// git puts into the report of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The ref as the edit named it.
    pub name: RefName,
    /// What stood against it.
    pub reason: Reason,
}

/// What stood against an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The ref has another value than expected.
    Conflict {
        /// What was expected.
        expected: Target,
        /// What is there: the object the name resolves to if an object was expected, else what the
        /// name itself holds. `None` is a symbolic ref whose target is missing.
        actual: Option<Target>,
    },
    /// The ref was expected to be absent.
    AlreadyExists {
        /// What it holds.
        actual: Target,
    },
    /// The ref was expected to be there.
    Missing {
        /// The missing name: that of the edit, or the end of its symbolic chain.
        missing: RefName,
    },
    /// A directory of the new name is a ref, or the new name is a directory of one.
    DirectoryFile {
        /// The name that would be created.
        wanted: RefName,
        /// The ref that exists.
        in_the_way: RefName,
    },
    /// Two names of one transaction stand in each other's way.
    SameTime {
        /// The name of this edit.
        wanted: RefName,
        /// The name of the other.
        other: RefName,
    },
    /// Another edit of the same transaction reaches the same ref.
    Duplicate {
        /// The ref that both reach.
        shared: RefName,
        /// The symbolic ref over which one of them does; if `shared` is `HEAD`, its branch.
        via: Option<RefName>,
    },
    /// A prepared transaction holds a ref that the edit rests on, or one whose name would be in the
    /// way. Once that transaction is committed or aborted, the edit may pass.
    Locked {
        /// The ref that is held.
        held: RefName,
        /// The actor of the transaction that holds it.
        by: BString,
    },
    /// The chain of symbolic refs is a circle, or too long to be read.
    SymrefDepth,
    /// An id belongs to another object format than the store.
    WrongObjectFormat {
        /// The format of the store.
        expected: ObjectFormat,
        /// The id.
        actual: ObjectId,
    },
    /// The zero id is no value; removing is [`crate::Change::Delete`].
    ZeroValue,
    /// `FETCH_HEAD` and `MERGE_HEAD` are files of git with more than an id in them.
    PseudoRef {
        /// Which of them.
        pseudo: RefName,
    },
    /// Without `HEAD` git takes the repository for none, so it cannot be removed.
    HeadDeletion,
    /// For the same reason `HEAD` must point below `refs/`.
    HeadOutsideRefs {
        /// Where it would point.
        target: RefName,
    },
    /// The refs could not be read, so nothing can be said.
    Unreadable {
        /// What was in the way.
        problem: ReadError,
    },
}

impl Reason {
    /// A few words for a push report, git's own where git has some.
    #[must_use]
    pub fn short(&self) -> &'static str {
        match self {
            Reason::DirectoryFile { .. } | Reason::SameTime { .. } => "refname conflict",
            Reason::AlreadyExists { .. } => "reference already exists",
            Reason::Missing { .. } => "reference does not exist",
            Reason::Conflict { expected, actual } => short_conflict(expected, actual.as_ref()),
            Reason::Duplicate { .. } => "multiple updates for ref not allowed",
            Reason::WrongObjectFormat { .. } | Reason::ZeroValue => "invalid new value provided",
            Reason::Locked { .. } => "failed to lock",
            Reason::SymrefDepth => "symbolic references nested too deep",
            Reason::PseudoRef { .. } => "refusing to update pseudoref",
            Reason::HeadDeletion => "refusing to delete HEAD",
            Reason::HeadOutsideRefs { .. } => "refusing to point HEAD outside of refs/",
            Reason::Unreadable { .. } => "references cannot be read",
        }
    }

    /// The sentence that git starts with `cannot lock ref`.
    fn write_lock_failure(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Conflict { expected, actual } => write_conflict(f, expected, actual.as_ref()),
            Reason::AlreadyExists { .. } => f.write_str("reference already exists"),
            Reason::Missing { missing } => write!(f, "unable to resolve reference '{missing}'"),
            Reason::DirectoryFile { wanted, in_the_way } => {
                write!(f, "'{in_the_way}' exists; cannot create '{wanted}'")
            }
            Reason::SameTime { wanted, other } => {
                write!(f, "cannot process '{wanted}' and '{other}' at the same time")
            }
            Reason::Unreadable { problem } => write!(f, "{problem}"),
            Reason::Locked { held, by } => {
                write!(f, "a prepared transaction of '{by}' holds '{held}'")
            }
            Reason::SymrefDepth => {
                write!(f, "more than {SYMREF_READS_MAX} references to read, or a circle")
            }
            other => f.write_str(other.short()),
        }
    }
}

impl From<ReadError> for Reason {
    fn from(problem: ReadError) -> Reason {
        Reason::Unreadable { problem }
    }
}

impl From<NoEnd> for Reason {
    fn from(no_end: NoEnd) -> Reason {
        match no_end {
            NoEnd::TooDeep => Reason::SymrefDepth,
            NoEnd::Unreadable(problem) => problem.into(),
        }
    }
}

fn short_conflict(expected: &Target, actual: Option<&Target>) -> &'static str {
    match (expected, actual) {
        (Target::Symbolic(_), Some(Target::Object(_))) => "expected symref but found regular ref",
        _ => "incorrect old value provided",
    }
}

fn write_conflict(
    f: &mut fmt::Formatter<'_>,
    expected: &Target,
    actual: Option<&Target>,
) -> fmt::Result {
    match (expected, actual) {
        (Target::Symbolic(expected), Some(Target::Object(_))) => {
            write!(f, "expected symref with target '{expected}': but is a regular ref")
        }
        (expected, None) => write!(f, "reference is missing but expected {expected}"),
        (expected, Some(actual)) => write!(f, "is at {actual} but expected {expected}"),
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Object(id) => id.fmt(f),
            Target::Symbolic(name) => name.fmt(f),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match &self.reason {
            Reason::Conflict {
                expected: Target::Symbolic(expected),
                actual: Some(Target::Symbolic(actual)),
            } => {
                write!(
                    f,
                    "verifying symref target: '{name}': is at {actual} but expected {expected}"
                )
            }
            Reason::Duplicate { shared, via: None } => {
                write!(f, "multiple updates for ref '{shared}' not allowed")
            }
            Reason::Duplicate { shared, via: Some(via) } => {
                let way = if shared.is_head() { "its referent" } else { "symref" };
                write!(
                    f,
                    "multiple updates for '{shared}' (including one via {way} '{via}') are not allowed"
                )
            }
            Reason::PseudoRef { pseudo } => write!(f, "refusing to update pseudoref '{pseudo}'"),
            Reason::HeadOutsideRefs { target } => {
                write!(f, "refusing to point HEAD outside of refs/: '{target}'")
            }
            Reason::HeadDeletion => f.write_str("refusing to delete HEAD"),
            Reason::WrongObjectFormat { expected, actual } => {
                write!(f, "'{name}': expected an object id of {expected}, found {actual}")
            }
            Reason::ZeroValue => write!(f, "'{name}': the zero object id is no value"),
            reason => {
                write!(f, "cannot lock ref '{name}': ")?;
                reason.write_lock_failure(f)
            }
        }
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> RefName {
        RefName::new(name).unwrap()
    }

    fn object(byte: u8) -> Target {
        Target::Object(ObjectId::from_bytes(&[byte; 20]).unwrap())
    }

    fn text(reason: Reason) -> String {
        let name = name("HEAD");
        Refusal { name, reason }.to_string()
    }

    // The differential test compares more of these with a real git; here stand the ones that
    // scripts are known to parse.
    #[test]
    fn texts_are_those_of_git() {
        let main = || name("refs/heads/main");
        let conflict = |expected, actual| text(Reason::Conflict { expected, actual });
        let hex = |digits: &str| digits.repeat(20);
        assert_eq!(
            conflict(object(1), Some(object(2))),
            format!("cannot lock ref 'HEAD': is at {} but expected {}", hex("02"), hex("01"))
        );
        assert_eq!(
            conflict(main().into(), Some(name("refs/heads/x").into())),
            "verifying symref target: 'HEAD': is at refs/heads/x but expected refs/heads/main"
        );
        assert_eq!(
            conflict(main().into(), Some(object(1))),
            "cannot lock ref 'HEAD': expected symref with target 'refs/heads/main': but is a regular ref"
        );
        assert_eq!(
            text(Reason::Missing { missing: main() }),
            "cannot lock ref 'HEAD': unable to resolve reference 'refs/heads/main'"
        );
        assert_eq!(
            text(Reason::Duplicate { shared: main(), via: Some(name("HEAD")) }),
            "multiple updates for 'refs/heads/main' (including one via symref 'HEAD') are not allowed"
        );
    }
}
