//! One change to one ref, and what must hold before it.

use crate::name::RefName;
use crate::oid::ObjectId;

/// What a ref holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// An object.
    Object(ObjectId),
    /// Another ref, which need not exist.
    Symbolic(RefName),
}

/// What must hold before an edit.
///
/// An object id is compared with what the name *resolves* to; a symbolic target with what the name
/// itself holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Nothing.
    Any,
    /// The name resolves to no object: the ref is missing, or symbolic and its target is missing.
    Absent,
    /// The ref is there.
    Exists,
    /// The ref has this value. The zero id stands for [`Expected::Absent`], as it does in git.
    Value(Target),
}

/// What an edit does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Gives the ref a value. A ref that holds it already does not move.
    Set(Target),
    /// Removes the ref. A missing ref does not move.
    Delete,
    /// Only checks what is expected.
    Verify,
}

/// Which ref an edit of a symbolic ref means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deref {
    /// The ref at the end of the chain, whether it exists or not.
    Follow,
    /// The named ref itself.
    NoFollow,
}

/// One change to one ref.
///
/// The constructors follow symbolic refs, as `git update-ref` does; see [`Edit::no_deref`].
///
/// ```
/// use refstone::{Edit, ObjectId, RefName};
/// let id: ObjectId = "d670460b4b4aece5915caf5c68d12f560a9fe3e4".parse()?;
/// let edit = Edit::create(RefName::new("refs/heads/main")?, id);
/// let detach = Edit::set(RefName::head(), id).no_deref();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The ref.
    pub name: RefName,
    /// What must hold before.
    pub expected: Expected,
    /// What happens then.
    pub change: Change,
    /// Whether `name` is followed if it is symbolic.
    pub deref: Deref,
}

impl Edit {
    /// Gives the ref a value if it has none.
    #[must_use]
    pub fn create(name: RefName, new: impl Into<Target>) -> Edit {
        Edit::new(name, Expected::Absent, Change::Set(new.into()))
    }

    /// Gives the ref a new value if it has the old one.
    #[must_use]
    pub fn update(name: RefName, new: impl Into<Target>, old: impl Into<Target>) -> Edit {
        Edit::new(name, Expected::Value(old.into()), Change::Set(new.into()))
    }

    /// Gives the ref a value, whatever it had.
    #[must_use]
    pub fn set(name: RefName, new: impl Into<Target>) -> Edit {
        Edit::new(name, Expected::Any, Change::Set(new.into()))
    }

    /// Removes the ref, whatever it had. A missing ref is no error, as in git.
    #[must_use]
    pub fn delete(name: RefName) -> Edit {
        Edit::new(name, Expected::Any, Change::Delete)
    }

    /// Removes the ref if it has the old value.
    #[must_use]
    pub fn delete_if(name: RefName, old: impl Into<Target>) -> Edit {
        Edit::new(name, Expected::Value(old.into()), Change::Delete)
    }

    /// Only checks what the ref has.
    #[must_use]
    pub fn verify(name: RefName, expected: Expected) -> Edit {
        Edit::new(name, expected, Change::Verify)
    }

    /// The edit that git's wire writes as `<old> <new> <name>`, where a zero id stands for "no ref".
    ///
    /// Removing with a zero `old` removes whatever is there, as `git receive-pack` does.
    #[must_use]
    pub fn from_wire(name: RefName, old: ObjectId, new: ObjectId) -> Edit {
        match (old.is_zero(), new.is_zero()) {
            (true, true) => Edit::delete(name),
            (false, true) => Edit::delete_if(name, old),
            (true, false) => Edit::create(name, new),
            (false, false) => Edit::update(name, new, old),
        }
    }

    /// The same edit, of the named ref itself even if it is symbolic.
    #[must_use]
    pub fn no_deref(self) -> Edit {
        Edit { deref: Deref::NoFollow, ..self }
    }

    fn new(name: RefName, expected: Expected, change: Change) -> Edit {
        Edit { name, expected, change, deref: Deref::Follow }
    }
}

impl Target {
    /// The object, unless the target is symbolic.
    #[must_use]
    pub fn object(&self) -> Option<ObjectId> {
        match self {
            Target::Object(id) => Some(*id),
            Target::Symbolic(_) => None,
        }
    }

    /// The ref pointed to, if the target is symbolic.
    #[must_use]
    pub fn symbolic(&self) -> Option<&RefName> {
        match self {
            Target::Object(_) => None,
            Target::Symbolic(name) => Some(name),
        }
    }
}

impl From<ObjectId> for Target {
    fn from(id: ObjectId) -> Target {
        Target::Object(id)
    }
}

impl From<RefName> for Target {
    fn from(name: RefName) -> Target {
        Target::Symbolic(name)
    }
}

#[cfg(test)]
mod tests {
    use refstone_log::ObjectFormat;

    use super::*;

    #[test]
    fn zero_means_absent_on_the_wire() {
        let name = RefName::new("refs/heads/x").unwrap();
        let zero = ObjectId::zero(ObjectFormat::Sha1);
        let [a, b] = [1, 2].map(|byte| ObjectId::from_bytes(&[byte; 20]).unwrap());
        let wire = |old, new| Edit::from_wire(name.clone(), old, new);
        assert_eq!(wire(zero, a), Edit::create(name.clone(), a));
        assert_eq!(wire(a, b), Edit::update(name.clone(), b, a));
        assert_eq!(wire(a, zero), Edit::delete_if(name.clone(), a));
        assert_eq!(wire(zero, zero), Edit::delete(name.clone()));
    }
}
