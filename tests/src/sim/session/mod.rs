//! Runs a workload on a simulated machine, and keeps the model of what the log owes.

mod archive;
mod commits;

use std::error::Error;

use refstone_log::{Commit, ErrorKind, Log, Mode, Seq};

use crate::sim::fs::SimFs;
use crate::sim::keep::Policy;
use crate::sim::kernel::Moment;
use crate::sim::model::{Expect, Verdict};
use crate::sim::observe::{self, Opened, Refusal};
use crate::sim::rng::Rng;
use crate::sim::sabotage::Sabotage;
use crate::sim::workload::{Exit, Step};

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
        let Some(log) = self.log.clone() else { return Ok(()) };
        match step {
            Step::Append { rows, message } => self.append(&log, rows, message)?,
            Step::Wait(index) => self.wait(index)?,
            Step::WaitAll { newest_first } => self.wait_all(newest_first)?,
            Step::Barrier => self.barrier(&log, "barrier", Log::barrier)?,
            Step::Sync => self.barrier(&log, "sync", Log::sync)?,
            Step::Forget(index) => self.forget(index),
            Step::Rewrite { keep } => self.rewrite(&log, keep)?,
            Step::Rest => self.rest(&log)?,
            _ => {}
        }
        Ok(())
    }

    /// A log at rest has synced all it stored, as a closed one has.
    fn rest(&mut self, log: &Log) -> Verdict {
        self.wait_all(false)?;
        match log.rest() {
            Ok(false) => {}
            Ok(true) if index(log.durable_seq()) < self.expect.txs.len() => {
                return Err("it rests, and not all of it is durable".to_owned());
            }
            Ok(true) => {
                self.expect.must = self.expect.txs.len();
                self.expect.acked = self.expect.must;
                self.expect.published = self.expect.must;
            }
            Err(error) => self.excuse("rest", &error)?,
        }
        Ok(())
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
