//! The refs a client gets to see: those of a view, resolved, in the order of their raw bytes.

use refstone::{ObjectId, RefName, Target, View};

const BELOW_REFS: &[u8] = b"refs/";
const BRANCHES: &[u8] = b"refs/heads/";

/// A ref that resolves to an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed<'a> {
    pub(crate) name: &'a RefName,
    pub(crate) oid: ObjectId,
    /// The name a symbolic ref ends at.
    pub(crate) symref_target: Option<RefName>,
}

impl Listed<'_> {
    /// Whether the ref may point to an annotated tag. Branches hold commits, so they are never
    /// asked about.
    pub(crate) fn may_peel(&self) -> bool {
        !self.name.as_bytes().starts_with(BRANCHES)
    }
}

/// The refs below `refs/` whose names begin with `prefix`. Symbolic refs that lead nowhere are left
/// out, as git does.
pub(crate) fn below_refs<'a>(
    view: &'a View,
    prefix: &[u8],
) -> impl Iterator<Item = Listed<'a>> + use<'a> {
    view.iter_prefix(prefix)
        .filter(|(name, _)| name.as_bytes().starts_with(BELOW_REFS))
        .filter_map(|(name, target)| list(view, name, target))
}

fn list<'a>(view: &View, name: &'a RefName, target: &Target) -> Option<Listed<'a>> {
    if let Target::Object(oid) = target {
        return Some(Listed { name, oid: *oid, symref_target: None });
    }
    let end = view.resolve(name).ok()?;
    Some(Listed { name, oid: end.oid?, symref_target: Some(end.name) })
}

/// What `HEAD` is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Head {
    /// It points to an object by itself.
    Detached(ObjectId),
    /// It points to a branch, which points to an object unless it is yet to be born.
    Branch { target: RefName, oid: Option<ObjectId> },
    /// It cannot be resolved.
    Broken,
}

impl Head {
    pub(crate) fn of(view: &View) -> Self {
        let head = RefName::head();
        match view.resolve(&head) {
            Err(_) => Self::Broken,
            Ok(end) if end.name != head => Self::Branch { target: end.name, oid: end.oid },
            Ok(end) => end.oid.map_or(Self::Broken, Self::Detached),
        }
    }

    /// The branch it points to.
    pub(crate) fn branch(&self) -> Option<&RefName> {
        match self {
            Self::Branch { target, .. } => Some(target),
            Self::Detached(_) | Self::Broken => None,
        }
    }
}
