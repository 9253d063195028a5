//! Runs a workload on a simulated machine, and keeps the model of what the log owes.

use std::error::Error;
use std::sync::Arc;

use refstone_log::{Commit, CommitError, ErrorKind, Leaving, Log, Mode, RefRow, Sealer, Seq};

use super::fs::SimFs;
use super::keep::Policy;
use super::kernel::Moment;
use super::model::{Expect, Tx, Verdict};
use super::observe::{self, Opened, Refusal};
use super::rng::Rng;
use super::sabotage::Sabotage;
use super::workload::{Exit, Step};
use crate::logs::Row;

/// A commit that nobody has waited for yet.
#[derive(Debug)]
struct Pending {
    commit: Commit,
    seq: usize,
    generation: usize,
}

/// A user of the log, over the lives of several processes and machines.
#[derive(Debug)]
pub struct Session {
    fs: SimFs,
    sabotage: Sabotage,
    rng: Rng,
    /// How the log is opened next.
    mode: Mode,
    log: Option<Log>,
    pending: Vec<Pending>,
    expect: Expect,
    /// What was expected at each time; moments are noted with an index into this.
    history: Vec<Expect>,
    /// Where the sequence went back to at the end of each generation of this process.
    rollbacks: Vec<usize>,
    /// Faults met before this process opened the log.
    faults_before: usize,
    rows: u64,
    moments: Vec<Moment>,
}

impl Session {
    /// A machine with an empty disk.
    #[must_use]
    pub fn new(sabotage: Sabotage, rng: Rng) -> Session {
        Session::resume(&SimFs::new(), sabotage, rng, Expect::default())
    }

    /// A machine with a past: this is what it owes.
    #[must_use]
    pub fn resume(fs: &SimFs, sabotage: Sabotage, rng: Rng, expect: Expect) -> Session {
        fs.record();
        fs.note(0);
        Session {
            fs: fs.clone(),
            sabotage,
            rng,
            mode: Mode::Durable,
            log: None,
            pending: Vec::new(),
            expect: expect.clone(),
            history: vec![expect],
            rollbacks: Vec::new(),
            faults_before: 0,
            rows: 0,
            moments: Vec::new(),
        }
    }

    /// The machine's file system, as the process that runs now sees it.
    #[must_use]
    pub fn fs(&self) -> &SimFs {
        &self.fs
    }

    /// What is expected now.
    #[must_use]
    pub fn expect(&self) -> &Expect {
        &self.expect
    }

    /// The moments since the last call, each with what was expected then.
    #[must_use]
    pub fn take_moments(&mut self) -> Vec<(Moment, Expect)> {
        self.moments.extend(self.fs.take_moments());
        let moments = std::mem::take(&mut self.moments);
        moments.into_iter().map(|m| (m.clone(), self.history[m.note].clone())).collect()
    }

    /// Does one step.
    ///
    /// # Errors
    /// If the log breaks a promise to this user.
    pub fn step(&mut self, step: Step) -> Verdict {
        match step {
            Step::Fail(plan) => self.fs.plan(plan),
            Step::Heal => self.fs.heal(),
            Step::ClockBack => self.fs.set_clock(self.fs.clock() - 1000),
            Step::Evict(policy) => self.evict(policy),
            Step::Reopen(exit) => return self.reopen(exit),
            step if self.ensure_open()? => self.use_log(step)?,
            _ => {}
        }
        self.note_durable()
    }

    /// What a failed sync lost is read from the disk again, so of what was not durable all that
    /// was acknowledged may be gone.
    fn evict(&mut self, policy: Policy) {
        self.expect.acked = self.expect.must;
        self.fs.evict(policy, &mut self.rng);
    }

    fn use_log(&mut self, step: Step) -> Verdict {
        match step {
            Step::Append { rows, message } => self.append(rows, message),
            Step::Wait(index) => self.wait(index),
            Step::WaitAll { newest_first } => self.wait_all(newest_first),
            Step::Barrier => self.barrier("barrier", Log::barrier),
            Step::Sync => self.barrier("sync", Log::sync),
            Step::Forget(index) => {
                let index = index % self.pending.len().max(1);
                drop(self.pending.drain(index..self.pending.len().min(index + 1)));
                Ok(())
            }
            Step::Rewrite { keep } => self.rewrite(keep),
            _ => Ok(()),
        }
    }

    /// Notes what is expected from here on.
    fn note(&mut self) {
        self.note_as(self.expect.clone());
    }

    fn note_as(&mut self, expect: Expect) {
        self.history.push(expect);
        self.fs.note(self.history.len() - 1);
    }

    /// What the log itself calls durable, it owes.
    fn note_durable(&mut self) -> Verdict {
        let Some(log) = &self.log else { return Ok(()) };
        let durable = index(log.durable_seq());
        if durable > self.expect.txs.len() {
            return Err(format!("{durable} is called durable, and was never staged"));
        }
        self.expect.must = self.expect.must.max(durable);
        self.expect.acked = self.expect.acked.max(durable);
        self.note();
        Ok(())
    }

    /// An error is the log's own fault unless an operation failed in this process.
    fn excuse(&self, what: &str, error: &dyn Error) -> Verdict {
        if self.fs.faults_met() > self.faults_before {
            return Ok(());
        }
        Err(format!("{what} failed though no operation did: {error}"))
    }

    fn row(&mut self, message: usize) -> Row {
        self.rows += 1;
        let letter = b'a' + u8::try_from(self.rows % 26).unwrap_or(0);
        let message = (message > 0).then(|| vec![letter; message]);
        Row { message, ..Row::numbered(self.rows) }
    }

    fn append(&mut self, rows: usize, message: usize) -> Verdict {
        let rows: Vec<Row> = (0..rows).map(|_| self.row(message)).collect();
        let now = self.fs.clock();
        let mut tx = self.tx(self.expect.txs.len() + 1, now, rows);
        // Whatever the log does with it from now on, the transaction may become durable.
        let mut ahead = self.expect.clone();
        ahead.txs.push(Arc::new(tx.clone()));
        self.note_as(ahead);
        let log = self.log.clone().ok_or("no log")?;
        let refs: Vec<RefRow<'_>> = tx.rows.iter().map(Row::as_row).collect();
        let staged = log.append_with(|stage| (stage.next_seq(), stage.append(&refs[..])));
        drop(refs);
        match staged {
            Ok((seq, Ok(commit))) => {
                let seq = index(seq);
                if seq <= self.expect.txs.len() {
                    self.roll_back(seq - 1)?;
                    tx = self.tx(seq, now, tx.rows);
                }
                if seq != self.expect.txs.len() + 1 {
                    return Err(format!("sequence {seq} follows {}", self.expect.txs.len()));
                }
                self.expect.txs.push(Arc::new(tx));
                self.pending.push(Pending { commit, seq, generation: self.rollbacks.len() });
                Ok(())
            }
            Ok((_, Err(error))) | Err(error) => self.excuse("append", &error),
        }
    }

    fn tx(&self, seq: usize, now: i64, rows: Vec<Row>) -> Tx {
        let before = seq.checked_sub(2).and_then(|index| self.expect.txs.get(index));
        Tx { seq, at: before.map_or(now, |tx| now.max(tx.at)), rows }
    }

    /// A generation has ended: all that was staged behind `to` did not happen.
    fn roll_back(&mut self, to: usize) -> Verdict {
        if to < self.expect.acked {
            return Err(format!("{} was acknowledged and is withdrawn", self.expect.acked));
        }
        self.expect.txs.truncate(to);
        self.rollbacks.push(to);
        Ok(())
    }

    fn wait(&mut self, index: usize) -> Verdict {
        if self.pending.is_empty() {
            return Ok(());
        }
        let pending = self.pending.remove(index % self.pending.len());
        let (seq, generation) = (pending.seq, pending.generation);
        let answer = pending.commit.wait();
        self.judge(seq, generation, answer.map(|ack| usize::try_from(ack.seq().get())))
    }

    /// Checks the answer to a wait against the model, and learns from it.
    fn judge<E>(
        &mut self,
        seq: usize,
        generation: usize,
        answer: Result<Result<usize, E>, CommitError>,
    ) -> Verdict {
        let withdrawn = self.rollbacks.get(generation).is_some_and(|&to| seq > to);
        match answer {
            Ok(_) if withdrawn => Err(format!("{seq} was withdrawn, and is acknowledged")),
            Ok(Ok(acked)) if acked == seq => {
                self.expect.acked = self.expect.acked.max(seq);
                if self.mode == Mode::Durable {
                    self.expect.must = self.expect.must.max(seq);
                }
                Ok(())
            }
            Ok(_) => Err(format!("{seq} is acknowledged by another number")),
            Err(error) => {
                self.learn(seq, generation, &error)?;
                self.excuse("wait", &error)
            }
        }
    }

    /// Learns from an error what did not happen.
    fn learn(&mut self, seq: usize, generation: usize, error: &CommitError) -> Verdict {
        if generation < self.rollbacks.len() {
            return match error.kind() {
                ErrorKind::NotCommitted => Ok(()),
                _ => Err(format!("{seq} was withdrawn, and the answer is: {error}")),
            };
        }
        match error.kind() {
            ErrorKind::NotCommitted => {
                let written = self.log.as_ref().map_or(0, |log| index(log.written_seq()));
                self.roll_back(written.max(self.expect.acked))
            }
            ErrorKind::Unknown => Ok(()),
            // It did not happen, and nothing can have happened after it.
            ErrorKind::Poisoned | ErrorKind::Closed if seq > self.expect.acked => {
                self.expect.txs.truncate(seq - 1);
                Ok(())
            }
            _ => Err(format!("{seq} was acknowledged, and the answer is: {error}")),
        }
    }

    fn wait_all(&mut self, newest_first: bool) -> Verdict {
        while !self.pending.is_empty() {
            self.wait(if newest_first { self.pending.len() - 1 } else { 0 })?;
            self.note_durable()?;
        }
        Ok(())
    }

    fn barrier(
        &mut self,
        name: &str,
        barrier: impl Fn(&Log) -> Result<Seq, CommitError>,
    ) -> Verdict {
        let Some(log) = self.log.clone() else { return Ok(()) };
        match barrier(&log) {
            Ok(seq) if index(seq) >= self.expect.txs.len() => {
                self.expect.acked = self.expect.txs.len();
                Ok(())
            }
            Ok(seq) => Err(format!("{name} ended at {seq}, before what was staged")),
            Err(error) => {
                // It names no transaction; but a withdrawal takes all that are open.
                if error.kind() == ErrorKind::NotCommitted {
                    self.learn(self.expect.txs.len(), self.rollbacks.len(), &error)?;
                }
                self.excuse(name, &error)
            }
        }
    }

    fn rewrite(&mut self, keep: usize) -> Verdict {
        let Some(log) = self.log.clone() else { return Ok(()) };
        let through = index(log.durable_seq()).saturating_sub(keep);
        let mut archive = Archive { session: self, wrong: None };
        let result = log.rewrite(Seq::new(through as u64), &mut archive);
        if let Some(wrong) = archive.wrong {
            return Err(wrong);
        }
        result.map(|_| ()).or_else(|error| self.excuse("rewrite", &error))
    }

    /// Ends the process in some way, and opens the log in another.
    fn reopen(&mut self, exit: Exit) -> Verdict {
        match exit {
            Exit::Close => self.close()?,
            Exit::Drop => self.leave(),
            Exit::Kill => self.next_process(|fs, _| fs.kill()),
            Exit::PowerCut(policy) => {
                self.next_process(|fs, rng| fs.power_cut(policy, rng));
                self.expect.acked = self.expect.must;
            }
        }
        self.rollbacks.clear();
        self.mode = if self.rng.chance(250) { Mode::Buffered } else { Mode::Durable };
        self.ensure_open().map(|_| ())
    }

    fn leave(&mut self) {
        self.note();
        self.pending.clear();
        self.log = None;
    }

    fn next_process(&mut self, next: impl FnOnce(&SimFs, &mut Rng) -> SimFs) {
        self.moments.extend(self.fs.take_moments());
        let fs = next(&self.fs, &mut self.rng);
        self.leave();
        self.fs = fs;
        self.fs.record();
        self.note();
    }

    fn close(&mut self) -> Verdict {
        let Some(log) = self.log.clone() else { return Ok(()) };
        let closed = log.close();
        if let Err(error) = &closed {
            self.excuse("close", error)?;
        } else {
            self.expect.must = self.expect.txs.len();
            self.expect.acked = self.expect.must;
            self.expect.published = self.expect.must;
        }
        self.note();
        self.wait_all(false)?;
        drop(log);
        self.leave();
        Ok(())
    }

    /// Opens the log, after creating it if there is none; false if a fault prevents it.
    fn ensure_open(&mut self) -> Verdict<bool> {
        if self.log.is_some() {
            return Ok(true);
        }
        self.faults_before = self.fs.faults_met();
        self.note();
        match observe::open(self.sabotage.env(&self.fs), self.mode) {
            Ok(opened) => self.begin(opened).map(|()| true),
            Err(Refusal::Wrong(wrong)) => Err(wrong),
            Err(Refusal::Error(error)) if error.kind() == ErrorKind::NotFound => self.create(),
            Err(Refusal::Error(error)) => self.excuse("open", &error).map(|()| false),
        }
    }

    fn create(&mut self) -> Verdict<bool> {
        if self.expect.exists {
            return Err("the log is gone".to_owned());
        }
        match observe::create(&*self.sabotage.env(&self.fs)) {
            Ok(()) => {
                self.expect.exists = true;
                self.ensure_open()
            }
            Err(error) => self.excuse("create", &error).map(|()| false),
        }
    }

    /// A recovery has returned: what it found is what there is from now on.
    fn begin(&mut self, opened: Opened) -> Verdict {
        self.expect.check_killed(&opened.found)?;
        self.expect = self.expect.exactly(&opened.found);
        self.rollbacks.clear();
        self.log = Some(opened.log);
        self.note();
        Ok(())
    }
}

fn index(seq: Seq) -> usize {
    usize::try_from(seq.get()).unwrap_or(usize::MAX)
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
