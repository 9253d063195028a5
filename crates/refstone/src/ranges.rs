//! Files that hold a range of transactions: their names, and which of them count.

use std::cmp::Reverse;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use refstone_log::{Env, Seq};

/// The transactions `first..=last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SeqRange {
    pub(crate) first: Seq,
    pub(crate) last: Seq,
}

/// The directory of a store, wherever the current one will be: files are opened later on, too.
pub(crate) fn settled(store: &Path) -> PathBuf {
    std::path::absolute(store).unwrap_or_else(|_| store.to_owned())
}

/// A directory of files that are named `<first>-<last>.<extension>`.
#[derive(Clone, Debug)]
pub(crate) struct Shelf {
    dir: PathBuf,
    extension: &'static str,
}

impl Shelf {
    /// Sealed history.
    pub(crate) fn history(store: &Path) -> Shelf {
        Shelf { dir: store.join("history"), extension: "parquet" }
    }

    /// Tables of the refs' state.
    pub(crate) fn tables(store: &Path) -> Shelf {
        Shelf { dir: store.join("tables"), extension: "arrow" }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn path(&self, range: SeqRange) -> PathBuf {
        self.dir.join(format!("{}-{}.{}", range.first, range.last, self.extension))
    }

    /// The ranges of all files there, in no particular order; other names are passed over.
    pub(crate) fn list(&self, env: &dyn Env) -> io::Result<Vec<SeqRange>> {
        let names = match env.list(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            names => names?,
        };
        Ok(names.iter().filter_map(|name| self.parse(name)).collect())
    }

    fn parse(&self, name: &OsStr) -> Option<SeqRange> {
        let stem = name.to_str()?.strip_suffix(self.extension)?.strip_suffix('.')?;
        let (first, last) = stem.split_once('-')?;
        let number = |digits: &str| digits.parse::<u64>().ok().map(Seq::new);
        let range = SeqRange { first: number(first)?, last: number(last)? };
        (range.first <= range.last && self.path(range).ends_with(name)).then_some(range)
    }
}

/// The ranges that join, from transaction 1 to `through`; `None` if they do not reach it.
///
/// Of two that start together the longer one counts: the other was merged into it. What ends behind
/// `through` was left by a crash, and the live log still has its transactions.
pub(crate) fn chain(ranges: &[SeqRange], through: Seq) -> Option<Vec<SeqRange>> {
    pieces(ranges, through).into_iter().collect::<Result<_, _>>().ok()
}

/// The same, and as errors the ranges that are in none of them.
pub(crate) fn pieces(ranges: &[SeqRange], through: Seq) -> Vec<Result<SeqRange, SeqRange>> {
    let mut pieces = Vec::new();
    let mut reached = Seq::ZERO;
    while reached < through {
        let first = reached.next();
        let fitting = ranges.iter().filter(|range| range.first >= first && range.last <= through);
        let next = fitting.min_by_key(|range| (range.first, Reverse(range.last)));
        let missing = next.map_or(through.next(), |range| range.first);
        if first < missing {
            let last = Seq::new(missing.get() - 1);
            pieces.push(Err(SeqRange { first, last }));
        }
        pieces.extend(next.copied().map(Ok));
        reached = next.map_or(through, |range| range.last);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u64, last: u64) -> SeqRange {
        SeqRange { first: Seq::new(first), last: Seq::new(last) }
    }

    #[test]
    fn a_name_is_read_back_and_others_are_not() {
        let shelf = Shelf::history(Path::new("s"));
        let parse = |name: &str| shelf.parse(OsStr::new(name));
        let path = shelf.path(range(1, 16));
        assert_eq!(shelf.parse(path.file_name().unwrap()), Some(range(1, 16)));
        for foreign in
            ["1-16.arrow", "1-16.parquet.tmp", "01-16.parquet", "16-1.parquet", "1.parquet"]
        {
            assert_eq!(parse(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_chain_joins_prefers_merged_files_and_leaves_out_what_is_too_new() {
        let all =
            [range(1, 4), range(5, 8), range(1, 8), range(9, 12), range(9, 20), range(30, 40)];
        assert_eq!(chain(&all, Seq::new(12)), Some(vec![range(1, 8), range(9, 12)]));
        assert_eq!(chain(&all, Seq::new(20)), Some(vec![range(1, 8), range(9, 20)]));
        assert_eq!(chain(&all, Seq::ZERO), Some(vec![]));
        assert_eq!(chain(&all, Seq::new(13)), None);
        assert_eq!(chain(&all, Seq::new(40)), None);
    }

    // Breaks: ending at the first file that is missing.
    #[test]
    fn what_is_missing_stands_between_the_pieces() {
        let all = [range(3, 4), range(3, 8), range(5, 8), range(12, 12), range(30, 40)];
        let expected = [
            Err(range(1, 2)),
            Ok(range(3, 8)),
            Err(range(9, 11)),
            Ok(range(12, 12)),
            Err(range(13, 20)),
        ];
        assert_eq!(pieces(&all, Seq::new(20)), expected);
        assert_eq!(pieces(&[], Seq::new(2)), [Err(range(1, 2))]);
    }
}
