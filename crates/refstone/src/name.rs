//! Ref names: which are legal, and which a push may touch.
//!
//! A name is bytes. The rules are those of `git check-ref-format`, checked by `gix-validate`, plus
//! the line git calls a *safe* name: it lies below `refs/`, or it is one level of capitals and
//! underscores such as `HEAD` or `ORIG_HEAD`. (`git update-ref foo` also works, and writes a file
//! `.git/foo` beside `.git/config`. That is an accident of keeping refs in files.)

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::LazyLock;

use bstr::{BStr, BString, ByteSlice};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::short_bytes::ShortBytes;

/// The longest name in bytes.
///
/// The log would hold far more. But every name must fit one line of git's wire (65,516 bytes, and
/// the line of a symbolic ref carries two names), or a single ref would make the whole repository
/// unreadable; and no git client can keep a name longer than its file system's paths, 4,096 bytes.
pub const NAME_LEN_MAX: usize = 4096;

const REFS: &[u8] = b"refs/";

/// A full, legal ref name such as `refs/heads/main` or `HEAD`.
///
/// Names are bytes, not text: everything above `0x7f` is legal, valid UTF-8 or not. They compare
/// and sort as unsigned bytes. A clone does not allocate: a short name is kept in place, the bytes
/// of a longer one are shared.
///
/// ```
/// use refstone::RefName;
/// let name = RefName::new("refs/heads/main")?;
/// assert_eq!(name.as_bytes(), b"refs/heads/main");
/// assert!(RefName::new("refs/heads/a..b").is_err());
/// # Ok::<(), refstone::NameError>(())
/// ```
#[derive(Clone)]
pub struct RefName(ShortBytes);

/// What a push does to a ref, as far as names are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushChange {
    /// It gives the ref a value, new or not.
    Store,
    /// It removes the ref.
    Delete,
}

/// A name is not legal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid ref name '{name}': {problem}")]
pub struct NameError {
    name: BString,
    problem: NameProblem,
}

/// What is wrong with a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameProblem {
    /// It breaks a rule of `git check-ref-format`; the text says which.
    #[error("{0}")]
    Format(String),
    /// It is neither below `refs/` nor one level of capitals and underscores.
    #[error("expected a name below refs/, or one like HEAD")]
    Outside,
    /// It is longer than [`NAME_LEN_MAX`].
    #[error("it has {found} bytes, and at most {NAME_LEN_MAX} are possible")]
    TooLong {
        /// Bytes found.
        found: usize,
    },
    /// A push may only touch what lies below `refs/`.
    #[error("a push may only touch names below refs/")]
    PushOutsideRefs,
    /// A push may delete `refs/x`, but not give it a value.
    #[error("a push may only store names with two levels below refs/, such as refs/heads/x")]
    PushOneLevel,
}

impl RefName {
    /// The name with these bytes, if it is legal.
    ///
    /// # Errors
    ///
    /// [`NameError`] with the name and the rule it breaks.
    pub fn new(name: impl AsRef<[u8]>) -> Result<RefName, NameError> {
        let name = name.as_ref();
        match check(name.as_bstr()) {
            Ok(()) => Ok(RefName::from_proven(name)),
            Err(problem) => Err(NameError { name: name.into(), problem }),
        }
    }

    /// The name with these bytes, which a checksum proves to be those of a name that was checked
    /// when it was written. Checking again would cost more than reading the row it is in.
    #[inline]
    pub(crate) fn from_proven(name: &[u8]) -> RefName {
        RefName(name.into())
    }

    /// `HEAD`.
    #[must_use]
    pub fn head() -> RefName {
        RefName::from_proven(b"HEAD")
    }

    /// The raw bytes.
    #[must_use]
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_slice()
    }

    /// The raw bytes as a string type that prints.
    #[must_use]
    pub fn as_bstr(&self) -> &BStr {
        self.as_bytes().as_bstr()
    }

    /// Whether this is `HEAD`.
    #[must_use]
    pub fn is_head(&self) -> bool {
        self.as_bytes() == b"HEAD"
    }

    /// Whether the name lies below `refs/`.
    #[must_use]
    pub fn is_below_refs(&self) -> bool {
        self.as_bytes().starts_with(REFS)
    }

    /// Checks the rules git's receiving side adds for a push.
    ///
    /// They are those of `git receive-pack`: the name lies below `refs/`, and what follows is
    /// itself a legal name, of two levels unless the push deletes the ref.
    ///
    /// ```
    /// use refstone::{PushChange, RefName};
    /// let odd = RefName::new("refs/x")?;
    /// assert!(odd.check_push(PushChange::Store).is_err());
    /// assert!(odd.check_push(PushChange::Delete).is_ok());
    /// # Ok::<(), refstone::NameError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`NameError`] with the rule that is broken.
    pub fn check_push(&self, change: PushChange) -> Result<(), NameError> {
        push_problem(self.as_bytes(), change).map_or(Ok(()), |problem| {
            let name = self.as_bstr().to_owned();
            Err(NameError { name, problem })
        })
    }

    /// The names of the directories this name lies in, outermost first, `refs` left out.
    ///
    /// `refs` itself is no legal name, so it cannot be in the way of anything.
    pub(crate) fn directories(&self) -> impl Iterator<Item = &[u8]> {
        self.directories_beside(b"")
    }

    /// The directories that another name does not lie in.
    pub(crate) fn directories_beside(&self, other: &[u8]) -> impl Iterator<Item = &[u8]> {
        let name = self.as_bytes();
        let shared = name.iter().zip(other).take_while(|(byte, other)| byte == other).count();
        let ends = shared.max(REFS.len())..name.len();
        ends.filter(|&end| name[end] == b'/').map(|end| &name[..end])
    }
}

/// Hashes names for maps in memory: with a seed of this process, so that nobody can choose names
/// that collide. Several times as fast as the standard library's way, which a transaction of many
/// refs would spend a good part of its time with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NameHashing;

#[derive(Debug)]
pub(crate) struct NameHasher(u64);

impl BuildHasher for NameHashing {
    type Hasher = NameHasher;

    fn build_hasher(&self) -> NameHasher {
        static SEED: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(()));
        NameHasher(*SEED)
    }
}

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }

    /// A length stands before the bytes of a name, and says nothing that they do not.
    fn write_usize(&mut self, _len: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

fn check(name: &BStr) -> Result<(), NameProblem> {
    if name.len() > NAME_LEN_MAX {
        return Err(NameProblem::TooLong { found: name.len() });
    }
    if is_plain(name) {
        return Ok(());
    }
    match gix_validate::reference::name(name) {
        Err(gix_validate::reference::name::Error::SomeLowercase) => Err(NameProblem::Outside),
        Err(error) => Err(NameProblem::Format(error.to_string())),
        Ok(name) if name.contains(&b'/') && !name.starts_with(REFS) => Err(NameProblem::Outside),
        Ok(_) => Ok(()),
    }
}

/// Whether a name is so plain that no rule need be asked. Most names are, and this costs a fifth of
/// asking.
fn is_plain(name: &[u8]) -> bool {
    let Some(below) = name.strip_prefix(REFS) else { return false };
    let (mut last, mut dots) = (b'/', false);
    for &byte in below {
        let is_plain = is_word(byte) || is_word(last) && matches!(byte, b'/' | b'.');
        if !is_plain {
            return false;
        }
        dots |= byte == b'.';
        last = byte;
    }
    is_word(last) && !(dots && below.contains_str(".lock"))
}

fn is_word(byte: u8) -> bool {
    const WORD: [bool; 256] = {
        let mut word = [false; 256];
        let mut byte = 0_u8;
        loop {
            word[byte as usize] =
                matches!(byte, b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'_' | 0x80..);
            match byte.checked_add(1) {
                Some(next) => byte = next,
                None => break word,
            }
        }
    };
    WORD[usize::from(byte)]
}

fn push_problem(name: &[u8], change: PushChange) -> Option<NameProblem> {
    let Some(below) = name.strip_prefix(REFS) else {
        return Some(NameProblem::PushOutsideRefs);
    };
    if change == PushChange::Store && !below.contains(&b'/') {
        return Some(NameProblem::PushOneLevel);
    }
    // Of all rules for a whole name this is the only one that `refs/` can hide.
    (below == b"@").then(|| NameProblem::Format("'@' alone stands for HEAD".to_owned()))
}

impl NameError {
    /// The name that was refused.
    #[must_use]
    pub fn name(&self) -> &BStr {
        self.name.as_bstr()
    }

    /// What is wrong with it.
    #[must_use]
    pub fn problem(&self) -> &NameProblem {
        &self.problem
    }
}

impl fmt::Display for RefName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bstr().fmt(f)
    }
}

impl fmt::Debug for RefName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RefName({:?})", self.as_bstr())
    }
}

impl PartialEq for RefName {
    #[inline]
    fn eq(&self, other: &RefName) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for RefName {}

impl Ord for RefName {
    #[inline]
    fn cmp(&self, other: &RefName) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl PartialOrd for RefName {
    #[inline]
    fn partial_cmp(&self, other: &RefName) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

// As the bytes do, since a name is borrowed as its bytes.
impl Hash for RefName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl Borrow<[u8]> for RefName {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl AsRef<[u8]> for RefName {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(name: &str) -> NameProblem {
        RefName::new(name).unwrap_err().problem().clone()
    }

    #[test]
    fn one_level_names_are_capitals_and_underscores() {
        for name in ["HEAD", "ORIG_HEAD", "_"] {
            assert!(RefName::new(name).is_ok(), "{name}");
        }
        for name in ["head", "HEAD1", "A-B", "refs"] {
            assert_eq!(problem(name), NameProblem::Outside, "{name}");
        }
    }

    #[test]
    fn names_with_levels_lie_below_refs() {
        assert!(RefName::new("refs/x").is_ok());
        for name in ["heads/x", "HEAD/x", "Refs/heads/x", "worktrees/a/HEAD"] {
            assert_eq!(problem(name), NameProblem::Outside, "{name}");
        }
    }

    #[test]
    fn the_limit_counts_bytes_and_is_named() {
        let longest = format!("refs/{}", "a".repeat(NAME_LEN_MAX - 5));
        assert!(RefName::new(longest.as_str()).is_ok());
        let expected = NameProblem::TooLong { found: 4097 };
        assert_eq!(problem(&(longest + "a")), expected);
    }

    #[test]
    fn an_error_names_what_and_why() {
        let error = RefName::new("refs/heads/a..b").unwrap_err();
        let text =
            "invalid ref name 'refs/heads/a..b': Reference name cannot contain repeated dots";
        assert_eq!(error.to_string(), text);
    }

    // Breaks: `chars` order, or sorting a directory's entries before the names beside it.
    #[test]
    fn names_sort_as_unsigned_bytes() {
        let raw: [&[u8]; 4] = [b"refs/a-b", b"refs/a/b", b"refs/ab", b"refs/a\xff"];
        let names: Vec<_> = raw.iter().map(|&raw| RefName::new(raw).unwrap()).collect();
        assert!(names.is_sorted());
    }

    // Breaks: a dot behind a slash; a dot at the end; not looking for `.lock`.
    #[test]
    fn a_plain_name_is_legal() {
        let parts = ["a", ".", "/", "@", "{", ".lock", "-", "\u{e4}", "*"];
        let mut names = vec!["refs/".to_owned()];
        let mut plain = 0;
        for _ in 0..5 {
            let longer = names.iter().flat_map(|name| parts.map(|part| format!("{name}{part}")));
            names = longer.collect();
            for name in names.iter().filter(|name| is_plain(name.as_bytes())) {
                assert!(gix_validate::reference::name(name.as_bytes().into()).is_ok(), "{name}");
                plain += 1;
            }
        }
        assert!(plain > 500 && is_plain(b"refs/tags/v1.0") && !is_plain(b"refs/"));
    }

    #[test]
    fn a_directory_that_another_name_lies_in_is_left_out() {
        let name = RefName::new("refs/heads/a/b").unwrap();
        let beside = |other: &str| name.directories_beside(other.as_bytes()).count();
        assert_eq!(["", "refs/heads", "refs/heads/b", "refs/heads/a"].map(beside), [2, 2, 1, 1]);
        assert_eq!(["refs/heads/a-b", "refs/heads/a/", "refs/heads/a/c"].map(beside), [1, 0, 0]);
    }

    #[test]
    fn directories_start_below_refs() {
        let name = RefName::new("refs/heads/a/b").unwrap();
        let directories: Vec<_> = name.directories().collect();
        assert_eq!(directories, [&b"refs/heads"[..], b"refs/heads/a"]);
        assert_eq!(RefName::head().directories().count(), 0);
    }

    #[test]
    fn a_push_stores_two_levels_and_deletes_one() {
        let check = |name: &str, change| RefName::new(name).unwrap().check_push(change).is_ok();
        for change in [PushChange::Store, PushChange::Delete] {
            assert!(check("refs/heads/x", change));
            assert!(check("refs/heads/@", change));
            assert!(!check("HEAD", change));
            assert!(!check("refs/@", change));
        }
        assert!(!check("refs/x", PushChange::Store));
        assert!(check("refs/x", PushChange::Delete));
    }
}
