//! Crashes a workload at every operation, and judges every disk that may be left.
//!
//! For each moment of a run the lab draws disks that a power cut may leave. Each is read by
//! outside readers as it is, then recovered, and compared with what the user had been told. Some
//! recoveries are crashed in turn, at each of their operations.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use refstone_log::{ErrorKind, Mode};

use super::disk::Disk;
use super::fs::SimFs;
use super::keep::Policy;
use super::kernel::Moment;
use super::model::{Expect, Found, Tx, Verdict};
use super::observe::{self, Opened, Refusal};
use super::report::{Effort, Report, Violation};
use super::rng::Rng;
use super::sabotage::Sabotage;
use super::session::Session;
use super::torn::TornBytes;
use super::watchdog::Watchdog;
use super::workload::{self, Step};

/// What one disk turned out to hold.
#[derive(Debug)]
struct Outcome {
    seen: Found,
    recovered: Found,
    /// Whether torn bytes were taken off.
    torn: bool,
}

/// The lab. Everything it does follows from the seeds it is given.
#[derive(Debug)]
pub struct Lab {
    effort: Effort,
    pub(super) sabotage: Sabotage,
    /// What it has done so far.
    pub report: Report,
    pub(super) run: Run,
}

/// What belongs to one workload.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) rng: Rng,
    /// Disks that were judged, by their checksums.
    outcomes: HashMap<u32, Vec<(Disk, Rc<Outcome>)>>,
    /// Length and checksum of published parts that a stock reader has read.
    stock: HashSet<(usize, u32)>,
    /// All transactions that may be there at the moment that is judged.
    pub(super) possible: Vec<Arc<Tx>>,
}

impl Run {
    fn new(rng: Rng) -> Run {
        Run { rng, outcomes: HashMap::new(), stock: HashSet::new(), possible: Vec::new() }
    }

    fn known(&self, checksum: u32, disk: &Disk) -> Option<Rc<Outcome>> {
        let candidates = self.outcomes.get(&checksum)?;
        let (_, outcome) = candidates.iter().find(|(known, _)| known.looks_like(disk))?;
        Some(outcome.clone())
    }
}

/// A clock that is ahead of all that any workload stamps.
const LATE: i64 = 1 << 40;

/// Deeper than this, recoveries of recoveries are not crashed again.
const DEPTH_MAX: usize = 2;

/// Recoveries of recoveries come to an end.
const REPAIRS_MAX: usize = 8;

impl Lab {
    /// A lab that has done nothing yet.
    #[must_use]
    pub fn new(effort: Effort, sabotage: Sabotage) -> Lab {
        Lab { effort, sabotage, report: Report::default(), run: Run::new(Rng::new(0)) }
    }

    /// The steps of the workload with this seed.
    #[must_use]
    pub fn steps(&self, seed: u64) -> Vec<Step> {
        workload::draw(&mut Rng::new(seed), self.effort.steps)
    }

    /// Runs the workload with this seed, and crashes it at every operation.
    pub fn run(&mut self, seed: u64) {
        let steps = self.steps(seed);
        self.run_steps(seed, &steps);
    }

    /// Runs these steps, and crashes them at every operation.
    pub fn run_steps(&mut self, seed: u64, steps: &[Step]) {
        self.report.workloads += 1;
        self.run = Run::new(Rng::new(!seed));
        let _watchdog = Watchdog::start(seed);
        let verdict = catch_unwind(AssertUnwindSafe(|| self.crash(seed, steps)));
        let verdict = verdict.unwrap_or_else(|panic| Err(format!("panic: {}", text(&*panic))));
        if let Err(what) = verdict {
            self.report.violations.push(Violation { seed, what });
        }
    }

    fn crash(&mut self, seed: u64, steps: &[Step]) -> Verdict {
        let mut session = Session::new(self.sabotage, Rng::new(seed ^ 0x5e55_1017));
        for (index, &step) in steps.iter().enumerate() {
            let done = session.step(step);
            for (moment, expect) in session.take_moments() {
                if !self.run.rng.chance(self.effort.moments) {
                    continue;
                }
                self.judge(&moment, &expect).map_err(|what| {
                    let (op, at) = (moment.op, moment.index);
                    format!(
                        "step {index}, {step:?}, crashed at operation {at} (after {op:?}): {what}"
                    )
                })?;
            }
            done.map_err(|what| format!("step {index}, {step:?}: {what}"))?;
        }
        Ok(())
    }

    /// Judges every disk drawn for one moment.
    fn judge(&mut self, moment: &Moment, expect: &Expect) -> Verdict {
        self.report.moments += 1;
        self.run.possible.clone_from(&expect.txs);
        let floor = self.power_cut(&moment.disk, Policy::Nothing, expect, 0)?;
        let (seen, _) = observe::published(&SimFs::boot(moment.disk.clone()))?;
        durable_only(&seen, &floor.recovered).map_err(|what| format!("before a crash, {what}"))?;
        if moment.disk.is_certain() {
            return Ok(());
        }
        for policy in self.policies(&moment.disk) {
            let outcome = self.power_cut(&moment.disk, policy, expect, 0)?;
            durable_only(&outcome.seen, &floor.recovered)
                .map_err(|what| format!("{policy:?}: after a power cut, {what}"))?;
        }
        if self.run.rng.chance(self.effort.nested) {
            self.kill(&moment.disk, expect).map_err(|what| format!("killed: {what}"))?;
        }
        Ok(())
    }

    /// The policies for one moment: the extremes, and some drawn at random.
    fn policies(&mut self, disk: &Disk) -> Vec<Policy> {
        let ticks = disk.uncertain_ticks();
        let rng = &mut self.run.rng;
        let mut policies = vec![Policy::Everything, Policy::Small];
        policies.extend((0..self.effort.draws).map(|_| match rng.below(4) {
            0 => Policy::Until(rng.pick(&ticks)),
            1 => Policy::From(rng.pick(&ticks)),
            _ => Policy::Random { per_mille: rng.pick(&[20, 200, 500, 800, 980]) },
        }));
        policies
    }

    /// Cuts the power: one disk that may be left.
    fn power_cut(
        &mut self,
        disk: &Disk,
        policy: Policy,
        expect: &Expect,
        depth: usize,
    ) -> Verdict<Rc<Outcome>> {
        let survivor = disk.survivor(policy, &mut self.run.rng);
        let outcome =
            self.outcome(&survivor, depth).map_err(|what| format!("{policy:?}: {what}"))?;
        expect
            .check_seen(&outcome.seen)
            .and_then(|()| expect.check_recovered(&outcome.recovered))
            .map_err(|what| format!("{policy:?}: {what}"))?;
        Ok(outcome)
    }

    /// What a disk holds. The answer depends on the disk alone, so each is asked once.
    fn outcome(&mut self, disk: &Disk, depth: usize) -> Verdict<Rc<Outcome>> {
        if depth > REPAIRS_MAX {
            return Err(format!("after {depth} recoveries there is still something to repair"));
        }
        let checksum = disk.checksum();
        if let Some(outcome) = self.run.known(checksum, disk) {
            return Ok(outcome);
        }
        self.report.states += 1;
        self.report.nested += u64::from(depth > 0);
        let (seen, end) = observe::published(&SimFs::boot(disk.clone()))?;
        self.check_stock(disk, &seen, end)?;
        if self.run.rng.chance(self.effort.verified) {
            observe::verified(&SimFs::boot(disk.clone()))?;
        }
        let fs = SimFs::boot(disk.clone());
        fs.record();
        let opened = self.open(&fs)?;
        let recovered = opened.as_ref().map_or(Found::Absent, |opened| opened.found.clone());
        let torn = opened.as_ref().is_some_and(|opened| opened.recovery.torn.is_some());
        let outcome = Rc::new(Outcome { seen, recovered, torn });
        let known = self.run.outcomes.entry(checksum).or_default();
        known.push((disk.clone(), outcome.clone()));
        match opened {
            Some(opened) => self.follow_up(disk, &fs, opened, &outcome, depth)?,
            None => self.create_anew(&fs)?,
        }
        if depth == 0 && self.run.rng.chance(self.effort.used) {
            self.flip_a_bit(disk, end, &outcome.recovered)?;
        }
        Ok(outcome)
    }

    /// Opens a log, which nothing may prevent; `None` if there is none.
    fn open(&self, fs: &SimFs) -> Verdict<Option<Opened>> {
        match observe::open(self.sabotage.env(fs), Mode::Durable) {
            Ok(opened) => Ok(Some(opened)),
            Err(Refusal::Wrong(wrong)) => Err(wrong),
            Err(Refusal::Error(error)) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(Refusal::Error(error)) => Err(format!("the log does not open: {error}")),
        }
    }

    /// What a crash left of a creation is no obstacle to the next.
    fn create_anew(&self, fs: &SimFs) -> Verdict {
        observe::create(&*self.sabotage.env(fs))
            .map_err(|error| format!("there is no log, and none can be created: {error}"))
    }

    /// Judges a recovery that has returned, and some that crash on the way.
    fn follow_up(
        &mut self,
        disk: &Disk,
        fs: &SimFs,
        opened: Opened,
        outcome: &Outcome,
        depth: usize,
    ) -> Verdict {
        let torn = TornBytes::of(disk, opened.recovery.torn.as_ref());
        let next = fs.kill();
        let moments = fs.take_moments();
        drop(opened.log);
        let expect = Expect::whole(&outcome.recovered);
        let after = next.disk();
        torn.check_kept(&after.survivor(Policy::Nothing, &mut self.run.rng))?;
        let again = self
            .power_cut(&after, Policy::Nothing, &expect, depth + 1)
            .map_err(|what| format!("recovered, then {what}"))?;
        if again.torn {
            return Err("a repair has returned and is not durable".to_owned());
        }
        if depth < DEPTH_MAX && self.run.rng.chance(self.effort.nested) {
            self.crash_recovery(&moments, &expect, &torn, depth)?;
        }
        if depth == 0 && self.run.rng.chance(self.effort.used) {
            self.use_further(&next, &expect).map_err(|what| format!("used further: {what}"))?;
        }
        Ok(())
    }

    /// Crashes a recovery at each of its operations: another one finds the same.
    fn crash_recovery(
        &mut self,
        moments: &[Moment],
        expect: &Expect,
        torn: &TornBytes,
        depth: usize,
    ) -> Verdict {
        for moment in moments {
            for policy in [
                Policy::Nothing,
                Policy::Everything,
                Policy::Small,
                Policy::Random { per_mille: 500 },
            ] {
                let survivor = moment.disk.survivor(policy, &mut self.run.rng);
                let context = |what: String| {
                    format!("recovery crashed at operation {}, {policy:?}: {what}", moment.index)
                };
                torn.check_not_lost(&survivor).map_err(context)?;
                let outcome = self.outcome(&survivor, depth + 1).map_err(context)?;
                expect.check_recovered(&outcome.recovered).map_err(context)?;
                durable_only(&outcome.seen, &outcome.recovered).map_err(context)?;
            }
        }
        Ok(())
    }

    /// Only the process dies: the next one finds the kernel's cache, which the disk may not hold.
    fn kill(&mut self, disk: &Disk, expect: &Expect) -> Verdict {
        const RECOVERING: usize = 0;
        const RECOVERED: usize = 1;
        self.report.states += 1;
        let fs = SimFs::boot(disk.clone());
        fs.record();
        fs.note(RECOVERING);
        let Some(opened) = self.open(&fs)? else {
            return expect.check_killed(&Found::Absent);
        };
        expect.check_killed(&opened.found)?;
        let exact = expect.exactly(&opened.found);
        fs.note(RECOVERED);
        let next = fs.kill();
        for moment in fs.take_moments() {
            let expect = if moment.note == RECOVERED { &exact } else { expect };
            self.judge_recovering(&moment, expect)
                .map_err(|what| format!("recovered to operation {}, {what}", moment.index))?;
        }
        drop(opened.log);
        self.use_further(&next, &exact)
    }

    /// A recovery from the cache, at one moment: nobody sees what the disk does not hold.
    fn judge_recovering(&mut self, moment: &Moment, expect: &Expect) -> Verdict {
        let floor = self.power_cut(&moment.disk, Policy::Nothing, expect, 1)?;
        let (seen, _) = observe::published(&SimFs::boot(moment.disk.clone()))?;
        durable_only(&seen, &floor.recovered)?;
        for policy in [Policy::Everything, Policy::Random { per_mille: 500 }] {
            let outcome = self.power_cut(&moment.disk, policy, expect, 1)?;
            durable_only(&outcome.seen, &floor.recovered)?;
        }
        Ok(())
    }

    /// A recovered log is as good as any: what it acknowledges survives.
    fn use_further(&mut self, fs: &SimFs, expect: &Expect) -> Verdict {
        let rng = Rng::new(self.run.rng.bits());
        // Later than any transaction, also than those that were sealed and are not looked at.
        fs.set_clock(LATE);
        let mut session = Session::resume(fs, self.sabotage, rng, expect.clone());
        let append = Step::Append { rows: 1, message: 0 };
        for step in [append, append, Step::WaitAll { newest_first: true }] {
            session.step(step)?;
        }
        let disk = session.fs().disk();
        self.power_cut(&disk, Policy::Nothing, session.expect(), 1).map(|_| ())
    }

    /// A stock Arrow reader sees what ours sees.
    fn check_stock(&mut self, disk: &Disk, seen: &Found, end: usize) -> Verdict {
        let Found::Log { txs, .. } = seen else { return Ok(()) };
        let bytes = disk.read(&observe::live_path()).map_err(|error| error.to_string())?;
        // It stops at the marker behind the last published frame; what follows does not matter.
        let end = bytes.len().min(end + 8);
        if !self.run.stock.insert((end, crc32c::crc32c(&bytes[..end]))) {
            return Ok(());
        }
        let stock = observe::stock(bytes)?;
        let same = stock.len() == txs.len() && stock.iter().zip(txs).all(|(a, b)| *a == **b);
        if same { Ok(()) } else { Err("a stock reader sees other rows".to_owned()) }
    }

    /// Damage to what was published is refused, and nothing is changed. A repair saves the rest.
    fn flip_a_bit(&mut self, disk: &Disk, end: usize, before: &Found) -> Verdict {
        if end == 0 {
            return Ok(());
        }
        self.report.damaged += 1;
        let (byte, bit) = (self.run.rng.below(end), self.run.rng.below(8));
        let mut damaged = disk.clone();
        damaged
            .damage(&observe::live_path(), |bytes| bytes[byte] ^= 1 << bit)
            .map_err(|error| error.to_string())?;
        let fs = SimFs::boot(damaged.clone());
        let context = |what: &str| Err(format!("bit {bit} of byte {byte} flipped: {what}"));
        match observe::open(self.sabotage.env(&fs), Mode::Durable) {
            Err(Refusal::Error(error)) if error.kind() == ErrorKind::Corrupt => {}
            Err(Refusal::Error(error)) => return context(&error.to_string()),
            _ => return context("the log opens"),
        }
        let same =
            fs.disk().read(&observe::live_path()).ok() == damaged.read(&observe::live_path()).ok();
        if !same {
            return context("the file was changed");
        }
        self.crash_repair(&damaged, before).or_else(|what| context(&what))
    }
}

/// Nobody sees what is not durable: what is seen would be recovered from the synced disk alone.
fn durable_only(seen: &Found, floor: &Found) -> Verdict {
    let (seen, durable) = (seen.newest(), floor.newest());
    if seen <= durable {
        return Ok(());
    }
    Err(format!("a reader sees transaction {seen}, and only {durable} were durable"))
}

fn text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}
