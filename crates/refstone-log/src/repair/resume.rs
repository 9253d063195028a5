//! A new live log behind sealed history, in the place of one that is lost.

use std::io;
use std::path::{Path, PathBuf};

use super::keep_original;
use crate::create;
use crate::env::Env;
use crate::error::OpenError;
use crate::files;
use crate::frame::gaps::Gaps;
use crate::frame::schema::{Anchor, Identity, SCHEMA_MAX};
use crate::kind::{Kind, ObjectFormat};
use crate::rewrite::Successor;
use crate::seq::{Seq, Timestamp};

/// What a log was of which only sealed history is left, as that tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// The identity that the log was created with.
    pub log_id: [u8; 16],
    /// The hash that names the repository's objects.
    pub object_format: ObjectFormat,
    /// The initial symbolic target of `HEAD`, as raw bytes.
    pub head: Vec<u8>,
    /// The last sealed transaction.
    pub anchor: Anchor,
    /// Sequences that earlier repairs recorded as lost, as inclusive ranges.
    pub gaps: Vec<(Seq, Seq)>,
    /// The time.
    pub now: Timestamp,
}

/// Given up for the sake of a clock that was set back by up to an hour, and of what repairs of the lost
/// log have given up: a million sequences each time that its end was cut off, however little time that
/// took. Two of them and a loss within a second must not give a sequence out twice.
const SPARE: u64 = 1 << 32;

impl Sealed {
    /// The sequences behind the last sealed one that a lost live log may have given out since. They
    /// are never given out again.
    ///
    /// They are one for each microsecond, which is more than a log can take: so one that is lost twice
    /// does not give them out twice either, and nothing else may tell of the first loss.
    #[must_use]
    pub fn given_up(&self) -> (Seq, Seq) {
        let us = self.now.as_micros().saturating_sub(self.anchor.at.as_micros());
        let count = u64::try_from(us).unwrap_or(0).saturating_add(SPARE);
        let last = self.anchor.seq.get().saturating_add(count);
        (self.anchor.seq.next(), Seq::new(last.min(Seq::MAX.get() - 1)))
    }

    /// What stands in the schema of a log that goes on behind it.
    pub(super) fn identity(self) -> Identity {
        let Sealed { log_id, object_format, head, anchor, gaps: lost, .. } = self;
        let mut gaps = Gaps::default();
        lost.into_iter().for_each(|(first, last)| gaps.add(first, last));
        Identity { kind: Kind::Refs, log_id, object_format, head, anchor, gaps }
    }
}

/// Makes a live log without transactions that goes on behind sealed history; durable when it
/// returns. What it replaces, if there is something, stays beside it as `refs.arrow.damaged-<n>`,
/// whose path is returned.
///
/// `judge` is asked under the lock. It knows that history is whole up to the anchor, and that a live
/// log that is there has no transaction that history lacks.
///
/// # Errors
/// If a writer has the lock, as `judge` says, if its answer fits into no schema, or as the operating
/// system says. The files are as they were then.
pub fn resume<E: From<OpenError>>(
    env: &dyn Env,
    dir: &Path,
    judge: impl FnOnce() -> Result<Sealed, E>,
) -> Result<Option<PathBuf>, E> {
    let _lock = create::lock(env, dir)?;
    let identity = identity(judge()?)?;
    let mut successor = Successor::start(env, dir, &identity, 0)?;
    let kept = swap(env, dir, &mut successor)?;
    create::sync_names(env, dir)?;
    Ok(kept)
}

fn identity(sealed: Sealed) -> Result<Identity, OpenError> {
    let (first, last) = sealed.given_up();
    let mut identity = sealed.identity();
    identity.gaps.add(first, last);
    match identity.encode().len() > SCHEMA_MAX {
        true => Err(OpenError::Invalid("HEAD or the gaps are too long for a log".to_owned())),
        false => Ok(identity),
    }
}

fn swap(
    env: &dyn Env,
    dir: &Path,
    successor: &mut Successor<'_>,
) -> Result<Option<PathBuf>, OpenError> {
    successor.finish(0)?;
    let live = files::live(dir);
    let kept = match env.open_read(&live) {
        Ok(file) => Some(keep_original(env, dir, &*file)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(OpenError::io(&live, "open")(error)),
    };
    let named = successor.draft.rename(&live);
    named.map_err(OpenError::io(&live, "give the new log its name"))?;
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repair::survey::CUT_OFF;

    // Breaks: a spare of 2^20, which one repair of a file that was cut off uses up.
    #[test]
    fn what_two_repairs_gave_up_within_a_second_is_given_up_again() {
        let anchor = Anchor { seq: Seq::new(7), crc: 0, at: Timestamp::from_micros(1_000_000) };
        let sealed = Sealed {
            log_id: [0; 16],
            object_format: ObjectFormat::Sha1,
            head: Vec::new(),
            anchor,
            gaps: Vec::new(),
            now: Timestamp::from_micros(1_500_000),
        };
        let (first, last) = sealed.given_up();
        assert_eq!(first, Seq::new(8));
        assert!(last.get() > 7 + 2 * (CUT_OFF + 1_000_000), "{last}");
    }
}
