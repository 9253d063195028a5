//! The names of history files: written and parsed here and nowhere else.

use std::cmp::Reverse;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use refstone_log::{Env, Seq};

use super::error::SealedError;

const SUFFIX: &str = ".parquet";

/// A history file, as its name tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// The first transaction in it.
    pub(crate) first: Seq,
    /// The last one.
    pub(crate) last: Seq,
    pub(crate) path: PathBuf,
}

/// The history files of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listing {
    /// By range, ascending.
    pub(crate) live: Vec<Named>,
    /// Those whose range lies inside another's: merged into it, and not removed yet.
    pub(crate) dead: Vec<Named>,
}

/// The path of the file of a range of transactions.
pub(crate) fn path(dir: &Path, first: Seq, last: Seq) -> PathBuf {
    dir.join(format!("{first}-{last}{SUFFIX}"))
}

/// The range that a name tells, if it is one that [`path`] gives.
pub(super) fn parse(name: &OsStr) -> Option<(Seq, Seq)> {
    let (first, last) = name.to_str()?.strip_suffix(SUFFIX)?.split_once('-')?;
    let range = (parse_seq(first)?, parse_seq(last)?);
    (Seq::ZERO < range.0 && range.0 <= range.1).then_some(range)
}

fn parse_seq(digits: &str) -> Option<Seq> {
    let number: u64 = digits.parse().ok()?;
    // Other spellings of a number are no names of ours.
    (number.to_string() == digits).then_some(Seq::new(number))
}

/// The history files in a directory; temporary and foreign names are ignored, and a directory that
/// does not exist has none.
///
/// Whether the ranges join is for the caller to say.
pub(crate) fn list(env: &dyn Env, dir: &Path) -> Result<Listing, SealedError> {
    let names = match env.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Listing::default()),
        names => names.map_err(SealedError::io(dir, "list"))?,
    };
    let named = |name: &std::ffi::OsString| {
        let (first, last) = parse(name)?;
        Some(Named { first, last, path: dir.join(name) })
    };
    Ok(sort(names.iter().filter_map(named).collect()))
}

fn sort(mut named: Vec<Named>) -> Listing {
    // Of two that start together the longer one comes first.
    named.sort_by_key(|file| (file.first, Reverse(file.last)));
    let mut listing = Listing::default();
    let mut reached = Seq::ZERO;
    for file in named {
        if file.last > reached {
            reached = file.last;
            listing.live.push(file);
        } else {
            listing.dead.push(file);
        }
    }
    listing
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(named: &[Named]) -> Vec<(u64, u64)> {
        named.iter().map(|file| (file.first.get(), file.last.get())).collect()
    }

    #[test]
    fn a_name_is_read_back() {
        let path = path(Path::new("d"), Seq::new(1), Seq::new(65_536));
        assert_eq!(path, Path::new("d/1-65536.parquet"));
        assert_eq!(parse(path.file_name().unwrap()), Some((Seq::new(1), Seq::new(65_536))));
    }

    #[test]
    fn other_names_are_foreign() {
        for name in [
            "1-2.parquet.tmp",
            "01-2.parquet",
            "+1-2.parquet",
            "2-1.parquet",
            "0-1.parquet",
            "1-2",
            "a-b.parquet",
            "1.parquet",
            "-.parquet",
            "1-2-3.parquet",
            "1-99999999999999999999.parquet",
        ] {
            assert_eq!(parse(OsStr::new(name)), None, "{name}");
        }
    }

    // Breaks: comparing with the file before alone, which keeps 3-4 beside 1-9; sorting by name,
    // which puts 10 before 2.
    #[test]
    fn a_range_inside_another_is_dead() {
        let dir = tempfile::tempdir().unwrap();
        for (first, last) in [(10, 12), (1, 2), (3, 4), (1, 9), (5, 6), (13, 13)] {
            std::fs::write(path(dir.path(), Seq::new(first), Seq::new(last)), b"").unwrap();
        }
        std::fs::write(dir.path().join("14-15.parquet.tmp"), b"").unwrap();
        let listing = list(&refstone_log::OsEnv, dir.path()).unwrap();
        assert_eq!(ranges(&listing.live), [(1, 9), (10, 12), (13, 13)]);
        assert_eq!(ranges(&listing.dead), [(1, 2), (3, 4), (5, 6)]);
    }

    #[test]
    fn no_directory_has_no_files() {
        let dir = tempfile::tempdir().unwrap();
        let listing = list(&refstone_log::OsEnv, &dir.path().join("history")).unwrap();
        assert_eq!(listing, Listing::default());
    }
}
