//! Whether the live log is the one that history came from, and goes as far.

use std::cmp::Reverse;
use std::path::Path;

use refstone_log::{Env, ErrorKind, Gaps, LogReader, Seq};

use crate::error::{OpenError, ReadError};
use crate::ranges::{SeqRange, Shelf};
use crate::sealed::HistoryFile;

/// Opens the live log for a reader, which refuses what a writer refuses: a log that is another one
/// than that of history, and an older copy of it.
pub(crate) fn open_live(env: &dyn Env, dir: &Path) -> Result<LogReader, OpenError> {
    let live = LogReader::open(env, dir)?;
    let shelf = Shelf::history(dir);
    let files = shelf.list(env).map_err(|error| ReadError::io(shelf.dir(), "list", &error))?;
    let anchor = live.anchor().seq;
    if let Some(problem) = another_log(env, &shelf, &files, anchor, live.log_id()) {
        return Err(problem.into());
    }
    if let Some(problem) = given_up_history(&shelf, &files, live.gaps()) {
        return Err(problem.into());
    }
    // What was sealed since the file was opened may go further than that file. It never goes further
    // than the one that is there after the list.
    if files.iter().any(|range| range.last > anchor)
        && let Some(newest) = newest_now(env, dir)?
        && let Some(problem) = newer_history(&shelf, &files, newest)
    {
        return Err(problem.into());
    }
    Ok(live)
}

/// The newest transaction in the live file of now, published or not; `None` if the file is damaged:
/// whoever reads it meets that.
fn newest_now(env: &dyn Env, dir: &Path) -> Result<Option<Seq>, refstone_log::OpenError> {
    match newest_in(env, dir) {
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(None),
        newest => newest,
    }
}

fn newest_in(env: &dyn Env, dir: &Path) -> Result<Option<Seq>, refstone_log::OpenError> {
    let mut live = LogReader::open(env, dir)?;
    live.approach(Seq::MAX, Seq::ZERO)?;
    while live.next()?.is_some() {}
    if !live.has_unpublished_tail()? {
        return Ok(Some(live.seq()));
    }
    // After a crash, what was sealed may lie behind the published end.
    let report = refstone_log::verify(env, dir)?;
    let newest = Seq::new(report.last_seq.get() + report.unpublished);
    Ok(report.damage.is_none().then_some(newest))
}

/// What is wrong if history goes on behind a transaction, and is of another log than this one.
///
/// The newest file that opens tells.
pub(crate) fn another_log(
    env: &dyn Env,
    shelf: &Shelf,
    files: &[SeqRange],
    behind: Seq,
    log_id: [u8; 16],
) -> Option<ReadError> {
    let mut newer: Vec<_> = files.iter().filter(|range| range.last > behind).collect();
    newer.sort_by_key(|range| Reverse(range.last));
    let open = |range: &&SeqRange| HistoryFile::open(env, &shelf.path(**range)).ok();
    let newest = newer.iter().find_map(open)?;
    (newest.identity().log_id != log_id).then(|| of_another_log(newest.path()))
}

/// What is wrong with a history file that did not come from the live log.
pub(crate) fn of_another_log(path: &Path) -> ReadError {
    let problem = format!(
        "{}: expected history of the log in refs.arrow, found that of another log. Put back the one \
         that is wrong; where there is no other refs.arrow, move it away, keep it, and let `refstone \
         repair` make one that goes on behind history",
        path.display()
    );
    ReadError::because(ErrorKind::Corrupt, problem).about(path)
}

/// What is wrong if some of these history files go further than the live log, whose newest transaction
/// is given.
///
/// What is sealed was durable in the live log, and leaves it after that. So the live log is an older
/// copy; to go on with it would give sequences out that history has already.
pub(crate) fn newer_history(shelf: &Shelf, files: &[SeqRange], newest: Seq) -> Option<ReadError> {
    let newer = files.iter().max_by_key(|range| range.last).filter(|range| range.last > newest)?;
    let problem = format!(
        "{}: expected the live log to reach transaction {}, as history does, found {newest}: it is an \
         older copy. Take a newer copy of refs.arrow, or let `refstone repair` make one that goes on \
         behind history",
        shelf.path(*newer).display(),
        newer.last,
    );
    Some(ReadError::because(ErrorKind::Corrupt, problem))
}

/// What is wrong if one of these history files has transactions in a gap that the live log records.
///
/// Whoever repaired the log did without them, and went on behind the gap. What is sealed since may start
/// with a gap, but never ends in one.
pub(crate) fn given_up_history(
    shelf: &Shelf,
    files: &[SeqRange],
    gaps: &Gaps,
) -> Option<ReadError> {
    let within = |range: &SeqRange| {
        let gap = |(first, last): &&(Seq, Seq)| {
            (*first..=*last).contains(&range.last) || (*first < range.first && range.first <= *last)
        };
        gaps.ranges().iter().find(gap).map(|gap| (*range, *gap))
    };
    let (range, (first, last)) = files.iter().filter_map(within).min()?;
    let problem = format!(
        "{}: it has transactions of the range {first} to {last}, which a repair of the live log recorded \
         as lost, so the live log does not go on from them. Move the file out of the way and keep it: \
         what it holds is not part of this log any more",
        shelf.path(range).display(),
    );
    Some(ReadError::because(ErrorKind::Corrupt, problem))
}
