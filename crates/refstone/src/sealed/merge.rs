//! One history file of several.

use std::path::Path;

use refstone_log::{Env, Seq};

use super::columns::Form;
use super::error::SealedError;
use super::file::HistoryFile;
use super::identity::Identity;
use super::write::HistoryWriter;
use crate::stop::Stop;

/// Writes one file of several, which stand oldest first and join: each starts where the one before
/// ends, or behind a recorded gap. In bounded memory.
///
/// The file has its name and its content is synced; the caller syncs the directory, and removes
/// the inputs only after that. If it is
/// given up there is no file.
pub(crate) fn merge(
    env: &dyn Env,
    path: &Path,
    inputs: &[HistoryFile],
    form: Form,
    stop: Stop<'_>,
) -> Result<HistoryFile, SealedError> {
    let identity = join(inputs).map_err(|problem| SealedError::invalid(path, problem))?;
    let mut writer = HistoryWriter::create(env, path, identity.object_format, form)?;
    for input in inputs {
        for rows in input.scan(0..input.rows()) {
            stop.check()?;
            rows?.iter().try_for_each(|row| writer.push_stored(&row))?;
        }
    }
    stop.check()?;
    writer.finish(&identity)?;
    HistoryFile::open(env, path)
}

/// The identity of all of them together.
fn join(inputs: &[HistoryFile]) -> Result<Identity, String> {
    let Some((oldest, newer)) = inputs.split_first() else {
        return Err("there is nothing to merge".to_owned());
    };
    let mut joined = oldest.identity().clone();
    for file in newer {
        let next = file.identity();
        if (joined.log_id, joined.object_format) != (next.log_id, next.object_format) {
            return Err(format!("{} is of another log", file.path().display()));
        }
        joined.gaps = union(&joined.gaps, &next.gaps);
        if joined.last.next() != next.first {
            return Err(format!("{} does not follow {}", file.path().display(), joined.last));
        }
        joined = Identity { first: joined.first, gaps: joined.gaps, ..next.clone() };
    }
    Ok(joined)
}

fn union(some: &[(Seq, Seq)], more: &[(Seq, Seq)]) -> Vec<(Seq, Seq)> {
    let mut all = [some, more].concat();
    all.sort_unstable();
    all.dedup();
    all
}
