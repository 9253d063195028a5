//! The refs a client gets to see: those of a view, resolved, in the order of their raw bytes.

use refstone::{ObjectId, ReadError, RefName, ResolveError, Target, View};

const BELOW_REFS: &[u8] = b"refs/";
const BRANCHES: &[u8] = b"refs/heads/";

/// A ref that resolves to an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) name: RefName,
    pub(crate) oid: ObjectId,
    /// The name a symbolic ref ends at.
    pub(crate) symref_target: Option<RefName>,
}

impl Listed {
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
) -> impl Iterator<Item = Result<Listed, ReadError>> + use<'a> {
    let below = |item: &Result<(RefName, Target), _>| {
        item.as_ref().map_or(true, |(name, _)| name.as_bytes().starts_with(BELOW_REFS))
    };
    let refs = view.iter_prefix(prefix).filter(below);
    refs.filter_map(|item| item.and_then(|(name, target)| list(view, name, &target)).transpose())
}

fn list(view: &View, name: RefName, target: &Target) -> Result<Option<Listed>, ReadError> {
    if let Target::Object(oid) = target {
        return Ok(Some(Listed { name, oid: *oid, symref_target: None }));
    }
    match view.resolve(&name) {
        Ok(end) => Ok(end.oid.map(|oid| Listed { name, oid, symref_target: Some(end.name) })),
        Err(ResolveError::Read(error)) => Err(error),
        Err(_) => Ok(None),
    }
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
    pub(crate) fn of(view: &View) -> Result<Self, ReadError> {
        let head = RefName::head();
        match view.resolve(&head) {
            Err(ResolveError::Read(error)) => Err(error),
            Err(_) => Ok(Self::Broken),
            Ok(end) if end.name != head => Ok(Self::Branch { target: end.name, oid: end.oid }),
            Ok(end) => Ok(end.oid.map_or(Self::Broken, Self::Detached)),
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
