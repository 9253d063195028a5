//! Following symbolic refs, the same way for readers and for edits.

use crate::edit::Target;
use crate::name::RefName;

/// How many refs are read to resolve a name, the first included: git's limit.
///
/// Git's file backend *writes* through a chain of any length, and then cannot read it back. Here
/// both stop at the same place.
pub const SYMREF_READS_MAX: usize = 5;

/// A chain of symbolic refs goes on after [`SYMREF_READS_MAX`] reads, maybe in a circle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooDeep;

/// Where a chain of symbolic refs ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChainEnd<'a> {
    /// The symbolic refs on the way, the first name included; empty if that was no symbolic ref.
    pub(crate) through: Vec<&'a RefName>,
    /// The last name.
    pub(crate) name: &'a RefName,
    /// What it holds: nothing, or an object.
    pub(crate) target: Option<&'a Target>,
}

/// Follows `name` to its end, reading refs through `read`.
pub(crate) fn follow<'a>(
    name: &'a RefName,
    read: impl Fn(&RefName) -> Option<&'a Target>,
) -> Result<ChainEnd<'a>, TooDeep> {
    let mut through = Vec::new();
    let mut name = name;
    for _ in 0..SYMREF_READS_MAX {
        let target = read(name);
        let Some(Target::Symbolic(next)) = target else {
            return Ok(ChainEnd { through, name, target });
        };
        through.push(name);
        name = next;
    }
    Err(TooDeep)
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
        let end = follow(&start, |name| refs.get(name)).unwrap();
        assert_eq!((end.name, end.target), (&name(4), None));
        assert_eq!(end.through.len(), 4);
        let refs = chain(5);
        assert_eq!(follow(&start, |name| refs.get(name)), Err(TooDeep));
    }

    #[test]
    fn a_circle_ends() {
        let mut refs = chain(1);
        refs.insert(name(1), Target::Symbolic(name(0)));
        assert_eq!(follow(&name(0), |name| refs.get(name)), Err(TooDeep));
    }

    #[test]
    fn a_direct_ref_goes_through_nothing() {
        let id = ObjectId::from_bytes(&[1; 20]).unwrap();
        let refs = BTreeMap::from([(name(0), Target::Object(id))]);
        let start = name(0);
        let end = follow(&start, |name| refs.get(name)).unwrap();
        assert_eq!((end.through.len(), end.name), (0, &start));
    }
}
