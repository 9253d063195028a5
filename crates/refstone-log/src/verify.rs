//! Checks every byte of a log without changing anything.

use std::path::Path;
use std::sync::Arc;

use crate::env::{Env, EnvFile};
use crate::error::{DamageKind, ErrorKind, OpenError};
use crate::files;
use crate::recover::{explain_open, refuse_empty};
use crate::seq::Seq;
use crate::walk::{Step, Walk};

/// What [`verify`] found.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Published, hence durable, transactions.
    pub transactions: u64,
    /// Their rows.
    pub rows: u64,
    /// The first sequence of the live log; zero if it has none.
    pub first_seq: Seq,
    /// The newest published sequence.
    pub last_seq: Seq,
    /// Bytes from the start of the file to the end of the last published frame.
    pub bytes: u64,
    /// Whole transactions behind the published end: commits in flight, or what a crash left for
    /// the next open to take up.
    pub unpublished: u64,
    /// Bytes behind them that are no transaction: a write in flight, or a torn tail that the next
    /// open takes off.
    pub unfinished_bytes: u64,
    /// The sequences that repairs have recorded as lost, as inclusive ranges.
    pub gaps: Vec<(Seq, Seq)>,
    /// The damage at which the check had to stop, if any.
    pub damage: Option<OpenError>,
}

/// Checks schema, checksums, chain, sequences and structure of the whole live log.
///
/// Takes no lock and works beside a running writer; then what is in flight is counted as
/// unpublished or unfinished.
///
/// # Errors
/// If there is no log to check. Damage is no error but a finding.
pub fn verify(env: &dyn Env, dir: &Path) -> Result<VerifyReport, OpenError> {
    let path = files::live(dir);
    let mut report = check(env, dir, &path)?;
    // Beside a writer, a slot may be read before its group is published and the groups behind it
    // after: that looks like damage, and is past when it is looked at again.
    while let Some(OpenError::Corrupt { damage, .. }) = &report.damage {
        let before = damage.clone();
        report = check(env, dir, &path)?;
        match &report.damage {
            Some(OpenError::Corrupt { damage, .. }) if *damage != before => {}
            _ => break,
        }
    }
    Ok(report)
}

/// Checks the file once.
fn check(env: &dyn Env, dir: &Path, path: &Path) -> Result<VerifyReport, OpenError> {
    let mut report = VerifyReport::default();
    let file = env.open_read(path).map_err(|error| explain_open(env, dir, error));
    let file = match file.and_then(|file| refuse_empty(env, dir, &*file).map(|()| file)) {
        Ok(file) => Arc::<dyn EnvFile>::from(file),
        // A log that was lost is damage too; where there never was one, there is none to check.
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            report.damage = Some(error);
            return Ok(report);
        }
        Err(error) => return Err(error),
    };
    match Walk::start(file, path) {
        Ok(mut walk) => report.damage = report.check(&mut walk).err(),
        Err(error) => report.damage = Some(error),
    }
    Ok(report)
}

impl VerifyReport {
    fn check(&mut self, walk: &mut Walk) -> Result<(), OpenError> {
        self.last_seq = walk.tail.seq;
        self.bytes = walk.tail.offset;
        self.gaps = walk.identity.gaps.ranges().to_vec();
        loop {
            match walk.step_fresh()? {
                Step::Frame { proven: true, .. } => self.count(walk),
                Step::Frame { .. } => self.unpublished += 1,
                Step::End { problem } => return self.check_tail(walk, &problem),
            }
        }
    }

    fn count(&mut self, walk: &Walk) {
        let frame = walk.frame();
        if self.transactions == 0 {
            self.first_seq = frame.seq();
        }
        self.transactions += 1;
        self.rows += frame.row_count() as u64;
        self.last_seq = frame.seq();
        self.bytes = walk.tail.offset;
    }

    fn check_tail(
        &mut self,
        walk: &mut Walk,
        problem: &crate::FrameError,
    ) -> Result<(), OpenError> {
        let slot = walk.tail.offset;
        if walk.tail_is_clean()? {
            return Ok(());
        }
        let end = walk.last_nonzero(slot)?.unwrap_or(slot);
        if let Some((witness_offset, durable)) = walk.later_witness()? {
            let torn = problem.clone();
            return Err(walk.damage(DamageKind::NotTorn { torn, witness_offset, durable }));
        }
        self.unfinished_bytes = end - slot;
        Ok(())
    }
}
