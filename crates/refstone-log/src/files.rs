//! The names of a log's files: each is written and parsed here and nowhere else.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::seq::Seq;

/// The directory of a log, wherever the current one will be: files are opened later on, too.
pub(crate) fn settled(dir: &Path) -> PathBuf {
    std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned())
}

/// The live log.
pub(crate) fn live(dir: &Path) -> PathBuf {
    dir.join("refs.arrow")
}

/// The live log while it is being made.
pub(crate) fn live_temporary(dir: &Path) -> PathBuf {
    dir.join("refs.arrow.tmp")
}

/// Says that a sync of the live log has failed.
pub(crate) fn doubted(dir: &Path) -> PathBuf {
    dir.join("refs.arrow.doubted")
}

/// The secrets.
pub(crate) fn secrets(dir: &Path) -> PathBuf {
    dir.join("secrets.arrow")
}

/// The secrets while they are being written anew.
pub(crate) fn secrets_temporary(dir: &Path) -> PathBuf {
    dir.join("secrets.arrow.tmp")
}

/// The lock of the writer. It is never renamed or removed.
pub(crate) fn lock(dir: &Path) -> PathBuf {
    dir.join("LOCK")
}

const CUT: &str = "refs.arrow.cut-";

/// Torn bytes that recovery took off the live log, the `number`-th time.
pub(crate) fn cut(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("{CUT}{number}"))
}

/// The number of a file that [`cut`] named.
pub(crate) fn parse_cut(name: &OsStr) -> Option<u32> {
    name.to_str()?.strip_prefix(CUT)?.parse().ok()
}

const DAMAGED: &str = "refs.arrow.damaged-";

/// A damaged live log that a repair has replaced, the `number`-th.
pub(crate) fn damaged(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("{DAMAGED}{number}"))
}

/// The number of a file that [`damaged`] named.
pub(crate) fn parse_damaged(name: &OsStr) -> Option<u32> {
    name.to_str()?.strip_prefix(DAMAGED)?.parse().ok()
}

/// Sealed history, whose files whoever seals names `<first>-<last>.<extension>`.
pub(crate) fn history(dir: &Path) -> PathBuf {
    dir.join("history")
}

/// The transactions that a file of sealed history holds, by its name.
pub(crate) fn parse_sealed(name: &OsStr) -> Option<(Seq, Seq)> {
    let (range, _extension) = name.to_str()?.split_once('.')?;
    let (first, last) = range.split_once('-')?;
    Some((Seq::new(first.parse().ok()?), Seq::new(last.parse().ok()?)))
}

/// What a name in the directory of a log says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Live,
    /// Left over from a crash, or the lock: says nothing.
    Neutral,
    /// There was, or is, a log here.
    Witness,
    Foreign,
}

impl Entry {
    pub(crate) fn of(name: &OsStr) -> Entry {
        match name.to_str() {
            Some("refs.arrow") => Entry::Live,
            Some("LOCK" | "refs.arrow.tmp") => Entry::Neutral,
            Some("history" | "tables" | "refs.arrow.doubted") => Entry::Witness,
            _ if parse_cut(name).or(parse_damaged(name)).is_some() => Entry::Witness,
            _ => Entry::Foreign,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_numbered_file_name_is_read_back() {
        let path = cut(Path::new("d"), 12);
        assert_eq!(parse_cut(path.file_name().unwrap()), Some(12));
        assert_eq!(parse_damaged(path.file_name().unwrap()), None);
        let path = damaged(Path::new("d"), 3);
        assert_eq!(parse_damaged(path.file_name().unwrap()), Some(3));
        assert_eq!(parse_cut(OsStr::new("refs.arrow")), None);
        let sealed = parse_sealed(OsStr::new("3-12.parquet"));
        assert_eq!(sealed, Some((Seq::new(3), Seq::new(12))));
    }
}
