//! Following symbolic refs, the same way for readers and for edits.

use crate::edit::Target;
use crate::error::ReadError;
use crate::name::RefName;

/// How many refs are read to resolve a name, the first included: git's limit.
///
/// Git's file backend *writes* through a chain of any length, and then cannot read it back. Here
/// both stop at the same place.
pub const SYMREF_READS_MAX: usize = 5;

/// Why a chain of symbolic refs has no end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoEnd {
    /// It goes on after [`SYMREF_READS_MAX`] reads, maybe in a circle.
    TooDeep,
    /// A ref could not be read.
    Unreadable(ReadError),
}

/// Where a chain of symbolic refs ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChainEnd {
    /// The symbolic refs on the way, the first name included; empty if that was no symbolic ref.
    pub(crate) through: Vec<RefName>,
    /// The last name.
    pub(crate) name: RefName,
    /// What it holds: nothing, or an object.
    pub(crate) target: Option<Target>,
}

/// Follows `name` to its end, reading refs through `read`.
pub(crate) fn follow(
    name: &RefName,
    read: impl Fn(&RefName) -> Result<Option<Target>, ReadError>,
) -> Result<ChainEnd, NoEnd> {
    let mut through = Vec::new();
    let mut name = name.clone();
    for _ in 0..SYMREF_READS_MAX {
        match read(&name)? {
            Some(Target::Symbolic(next)) => through.push(std::mem::replace(&mut name, next)),
            target => return Ok(ChainEnd { through, name, target }),
        }
    }
    Err(NoEnd::TooDeep)
}

impl From<ReadError> for NoEnd {
    fn from(error: ReadError) -> NoEnd {
        NoEnd::Unreadable(error)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::oid::ObjectId;

    fn name(number: usize) -> RefName {
        RefName::new(format!("refs/heads/c{number}")).unwrap()
    }

    /// `c0` points to `c1`, and so on up to `c<links>`.
    fn chain(links: usize) -> BTreeMap<RefName, Target> {
        (0..links).map(|i| (name(i), Target::Symbolic(name(i + 1)))).collect()
    }

    // Breaks: counting hops instead of reads (one more link is accepted).
    #[test]
    fn five_reads_are_enough_for_four_links_and_no_more() {
        let refs = chain(4);
        let start = name(0);
        let end = follow(&start, |name| Ok(refs.get(name).cloned())).unwrap();
        assert_eq!((end.name, end.target), (name(4), None));
        assert_eq!(end.through.len(), 4);
        let refs = chain(5);
        assert_eq!(follow(&start, |name| Ok(refs.get(name).cloned())), Err(NoEnd::TooDeep));
    }

    #[test]
    fn a_circle_ends() {
        let mut refs = chain(1);
        refs.insert(name(1), Target::Symbolic(name(0)));
        assert_eq!(follow(&name(0), |name| Ok(refs.get(name).cloned())), Err(NoEnd::TooDeep));
    }

    #[test]
    fn a_direct_ref_goes_through_nothing() {
        let id = ObjectId::from_bytes(&[1; 20]).unwrap();
        let refs = BTreeMap::from([(name(0), Target::Object(id))]);
        let start = name(0);
        let end = follow(&start, |name| Ok(refs.get(name).cloned())).unwrap();
        assert_eq!((end.through.len(), end.name), (0, start));
    }
}
