//! Repairs of a damaged log, crashed at every operation.

use std::sync::Arc;

use refstone_log::{ErrorKind, Frame, LogReader, RepairError, RepairOptions, repair};

use super::disk::Disk;
use super::fs::SimFs;
use super::keep::Policy;
use super::lab::Lab;
use super::model::{Found, Tx, Verdict};
use super::observe;

impl Lab {
    /// Repairs a log of which one bit is wrong, and crashes the repair. Whenever that is, the
    /// damaged bytes are not lost, and another repair comes to the same end: a log with all that
    /// was there before, but for one transaction.
    ///
    /// A repair also saves what an opening would cut off: a whole transaction behind a torn one. So
    /// any that is possible may be there.
    pub(super) fn crash_repair(&mut self, damaged: &Disk, before: &Found) -> Verdict {
        self.report.repairs += 1;
        let fs = SimFs::boot(damaged.clone());
        fs.record();
        repair(&*self.sabotage.env(&fs), &observe::log_dir(), &RepairOptions::default())
            .map_err(|error| format!("it cannot be repaired: {error}"))?;
        let moments = fs.take_moments();
        let after = fs.disk().survivor(Policy::Nothing, &mut self.run.rng);
        if self.finish_repair(&after, before)? {
            return Err("a repair has returned and is not durable".to_owned());
        }
        check_original(&after, damaged)?;
        for moment in &moments {
            for policy in [
                Policy::Nothing,
                Policy::Everything,
                Policy::Small,
                Policy::Random { per_mille: 500 },
            ] {
                let survivor = moment.disk.survivor(policy, &mut self.run.rng);
                self.report.states += 1;
                check_original(&survivor, damaged)
                    .and_then(|()| self.finish_repair(&survivor, before))
                    .map_err(|what| {
                        let at = moment.index;
                        format!("repair crashed at operation {at}, {policy:?}: {what}")
                    })?;
            }
        }
        Ok(())
    }

    /// Repairs what a crashed repair left; says whether there was anything to do.
    fn finish_repair(&self, disk: &Disk, before: &Found) -> Verdict<bool> {
        let fs = SimFs::boot(disk.clone());
        let env = self.sabotage.env(&fs);
        let repaired = match repair(&*env, &observe::log_dir(), &RepairOptions::default()) {
            Ok(_) => true,
            Err(RepairError::NotDamaged { .. }) => false,
            Err(error) => return Err(format!("another repair fails: {error}")),
        };
        observe::verified(&fs)?;
        check_saved(&fs, before, &self.run.possible)?;
        Ok(repaired)
    }
}

/// The damaged bytes are in the live file or beside it, and there is always a live file.
fn check_original(disk: &Disk, damaged: &Disk) -> Verdict {
    let live = disk.read(&observe::live_path()).map_err(|_| "there is no live log".to_owned())?;
    let original = damaged.read(&observe::live_path()).map_err(|error| error.to_string())?;
    let kept = observe::kept_as(disk, &observe::log_dir(), ".damaged-");
    let kept = kept.map_err(|error| error.to_string())?;
    if live == original || kept.iter().any(|bytes| bytes == original) {
        return Ok(());
    }
    Err("the damaged log is lost".to_owned())
}

/// The log has what was there before, but for one transaction at most, and nothing that never was.
fn check_saved(fs: &SimFs, before: &Found, possible: &[Arc<Tx>]) -> Verdict {
    let Found::Log { txs: before, .. } = before else { return Ok(()) };
    let mut reader = match LogReader::open(fs, &observe::log_dir()) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Err("no log".to_owned()),
        opened => opened.map_err(|error| format!("the repaired log: {error}"))?,
    };
    let mut saved = 0;
    let read = |frame: Option<Frame<'_>>| frame.map(|frame| Tx::from(&frame));
    while let Some(tx) = reader.next().map(read).map_err(|error| error.to_string())? {
        if before.iter().any(|known| **known == tx) {
            saved += 1;
        } else if !possible.iter().any(|known| **known == tx) {
            return Err(format!("the repaired log has a transaction that never was: {tx:?}"));
        }
    }
    if saved + 1 < before.len() {
        return Err(format!("only {saved} of {} transactions were saved", before.len()));
    }
    Ok(())
}
