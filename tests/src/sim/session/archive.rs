//! Rewrites, and the archive that takes what leaves the log.

use std::error::Error;

use refstone_log::{Leaving, Log, Sealer, Seq};

use super::{Session, index};
use crate::sim::model::{Tx, Verdict};

impl Session {
    pub(super) fn rewrite(&mut self, log: &Log, keep: usize) -> Verdict {
        let through = index(log.durable_seq()).saturating_sub(keep);
        let mut archive = Archive { session: self, wrong: None };
        let result = log.rewrite(Seq::new(through as u64), &mut archive);
        if let Some(wrong) = archive.wrong {
            return Err(wrong);
        }
        result.map(|_| ()).or_else(|error| self.excuse("rewrite", &error))
    }
}

/// Keeps what it is given, so durably that no crash takes it: what it accepted may leave the log.
struct Archive<'s> {
    session: &'s mut Session,
    wrong: Option<String>,
}

impl Archive<'_> {
    fn take(&mut self, tx: &Tx) -> Verdict {
        match self.session.expect.txs.get(tx.seq - 1) {
            Some(expected) if **expected == *tx && tx.seq <= self.session.expect.must => Ok(()),
            _ => Err(format!("the sealer was given what is not durable: {tx:?}")),
        }
    }
}

impl Sealer for Archive<'_> {
    fn seal(&mut self, leaving: &mut Leaving<'_>) -> Result<(), Box<dyn Error + Send + Sync>> {
        let mut newest = 0;
        while let Some(frame) = leaving.next()? {
            let tx = Tx::from(&frame);
            newest = tx.seq;
            if let Err(wrong) = self.take(&tx) {
                self.wrong.get_or_insert(wrong);
            }
        }
        let expect = &mut self.session.expect;
        expect.sealed = expect.sealed.max(newest);
        self.session.note();
        Ok(())
    }
}
