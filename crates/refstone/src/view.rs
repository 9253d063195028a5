//! Immutable durable snapshots of all refs.

use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;
use refstone_log::Seq;

use crate::edit::Target;
use crate::name::RefName;
use crate::oid::ObjectId;
use crate::symref::{self, SYMREF_READS_MAX};

/// All refs at one sequence, all of it durable.
///
/// A view never changes and holds no lock: a clone is one atomic increment, and a view may be kept
/// as long as one likes. Writers share all but a few nodes of the tree with it.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let dir = &dir.path().join("refstone");
/// use refstone::{CreateOptions, RefName, RefStore};
/// RefStore::create(dir, &CreateOptions::default())?;
/// let view = RefStore::open(dir)?.view();
/// let head = view.resolve(&RefName::head())?;
/// assert_eq!(head.name, RefName::new("refs/heads/main")?);
/// assert_eq!(head.oid, None, "the branch is not born yet");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct View {
    snapshot: Arc<Snapshot>,
}

/// What a name comes to after following symbolic refs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The last name reached: the name itself unless it is symbolic.
    pub name: RefName,
    /// The object; `None` if that name is not there.
    pub oid: Option<ObjectId>,
}

/// A chain of symbolic refs cannot be read to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{name}': more than {SYMREF_READS_MAX} references to read, or a circle")]
pub struct ResolveError {
    /// The name that was to be resolved.
    pub name: RefName,
}

impl View {
    pub(crate) fn new(snapshot: Arc<Snapshot>) -> View {
        View { snapshot }
    }

    /// The sequence of the newest transaction in the view.
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.snapshot.seq
    }

    /// What a ref holds, symbolic refs not followed. Costs O(log n).
    #[must_use]
    pub fn get(&self, name: &RefName) -> Option<&Target> {
        self.get_bytes(name.as_bytes())
    }

    /// The same for a name in raw bytes; one that is not legal is not there.
    #[must_use]
    pub fn get_bytes(&self, name: &[u8]) -> Option<&Target> {
        self.snapshot.refs.get(name)
    }

    /// The object a name comes to, symbolic refs followed as far as git follows them.
    ///
    /// # Errors
    ///
    /// [`ResolveError`] if the chain is longer, or a circle.
    pub fn resolve(&self, name: &RefName) -> Result<Resolved, ResolveError> {
        let end = symref::follow(name, |name| self.get(name));
        let end = end.map_err(|_| ResolveError { name: name.clone() })?;
        Ok(Resolved { name: end.name.clone(), oid: end.target.and_then(Target::object) })
    }

    /// The refs whose names start with `prefix` (bytes, maybe empty), in unsigned byte order.
    ///
    /// `HEAD` is among them under the empty prefix. Costs one seek, then O(1) for each ref.
    pub fn iter_prefix<'a>(
        &'a self,
        prefix: &[u8],
    ) -> impl Iterator<Item = (&'a RefName, &'a Target)> + use<'a> {
        self.iter_prefix_from(prefix, prefix)
    }

    /// The same, starting at the first name that is not less than `start`.
    ///
    /// With the last name seen and a zero byte as `start`, a listing goes on where it stopped.
    pub fn iter_prefix_from<'a>(
        &'a self,
        prefix: &[u8],
        start: &[u8],
    ) -> impl Iterator<Item = (&'a RefName, &'a Target)> + use<'a> {
        let prefix = prefix.to_vec();
        let refs = self.snapshot.refs.from(start.max(&prefix));
        refs.take_while(move |(name, _)| name.as_bytes().starts_with(&prefix))
    }

    /// How many refs there are, `HEAD` included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.snapshot.refs.0.len()
    }

    /// Whether there is no ref, not even `HEAD`.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// All refs, with the sequence they stand at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) seq: Seq,
    pub(crate) refs: Refs,
}

/// A persistent ordered map: a clone is O(1), a change copies one path of the tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refs(OrdMap<RefName, Target>);

impl Refs {
    pub(crate) fn get(&self, name: &[u8]) -> Option<&Target> {
        self.0.get(name)
    }

    /// Gives a ref a value, or removes it.
    pub(crate) fn put(&mut self, name: RefName, target: Option<Target>) {
        match target {
            Some(target) => drop(self.0.insert(name, target)),
            None => drop(self.0.remove(name.as_bytes())),
        }
    }

    /// The refs from the first name on that is not less than `start`.
    pub(crate) fn from(&self, start: &[u8]) -> impl Iterator<Item = (&RefName, &Target)> + use<'_> {
        let range = (Bound::Included(start), Bound::Unbounded);
        self.0.range::<_, [u8]>(range)
    }

    /// The refs whose names start with `directory`.
    pub(crate) fn below(&self, directory: &[u8]) -> impl Iterator<Item = (&RefName, &Target)> {
        let refs = self.from(directory);
        refs.take_while(move |(name, _)| name.as_bytes().starts_with(directory))
    }
}

impl FromIterator<(RefName, Target)> for Refs {
    fn from_iter<I: IntoIterator<Item = (RefName, Target)>>(refs: I) -> Refs {
        Refs(refs.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(names: &[&[u8]]) -> View {
        let target = Target::Object(ObjectId::from_bytes(&[1; 20]).unwrap());
        let pair = |&name: &&[u8]| (RefName::new(name).unwrap(), target.clone());
        let refs = names.iter().map(pair).collect();
        let seq = Seq::ZERO;
        View::new(Arc::new(Snapshot { seq, refs }))
    }

    fn listed<'a>(refs: impl Iterator<Item = (&'a RefName, &'a Target)>) -> Vec<String> {
        refs.map(|(name, _)| name.to_string()).collect()
    }

    #[test]
    fn prefixes_are_listed_in_byte_order() {
        let view = view(&[
            b"refs/tags/v1",
            b"refs/heads/b",
            b"HEAD",
            b"refs/heads/a/b",
            b"refs/heads/a-b",
        ]);
        let heads = ["refs/heads/a-b", "refs/heads/a/b", "refs/heads/b"];
        assert_eq!(listed(view.iter_prefix(b"refs/heads/")), heads);
        assert_eq!(listed(view.iter_prefix(b"")).first().unwrap(), "HEAD");
        assert_eq!(listed(view.iter_prefix(b"refs/heads/b")), ["refs/heads/b"]);
        assert!(listed(view.iter_prefix(b"refs/x")).is_empty());
    }

    #[test]
    fn a_listing_goes_on_after_the_last_name() {
        let view = view(&[
            b"HEAD",
            b"refs/heads/a",
            b"refs/heads/a\x80",
            b"refs/heads/b",
            b"refs/tags/v1",
        ]);
        let mut rest = view.iter_prefix_from(b"refs/heads/", b"refs/heads/a\0");
        assert_eq!(rest.next().unwrap().0.as_bytes(), b"refs/heads/a\x80");
        assert_eq!(listed(rest), ["refs/heads/b"]);
        assert_eq!(listed(view.iter_prefix_from(b"refs/heads/", b"")).len(), 3);
    }
}
