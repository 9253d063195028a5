//! The lab for stores: random transactions, compactions, merges and rebuilds, crashed at every
//! operation.
//!
//! The [`Lab`](super::Lab) knows what a log may hold. Here the question is what a store makes of
//! its live log, its history and its tables: after any crash it opens, its refs and its history
//! are those of one and the same transaction, and that is none that came before what was
//! acknowledged.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use refstone::{
    At, CompactOptions, Compacting, CreateOptions, Edit, Env, ErrorKind, HistoryForm, Merge,
    ObjectId, OpenOptions, RefName, RefStore, Resting, Seq, Target, Transaction, history_with,
    read_view_with,
};

use super::disk::Disk;
use super::fs::SimFs;
use super::keep::Policy;
use super::kernel::Moment;
use super::model::Verdict;
use super::observe::log_dir;
use super::report::Violation;
use super::rng::Rng;
use super::sabotage::Sabotage;

/// What the lab has done so far.
#[derive(Clone, Debug, Default)]
pub struct StoreReport {
    /// Workloads run.
    pub workloads: u64,
    /// Moments at which a machine was crashed.
    pub moments: u64,
    /// Disks on which a store was opened; the same disk counts once within a workload.
    pub states: u64,
    /// Those of them that a crashed opening had left.
    pub nested: u64,
    /// Compactions that took transactions out of a live log.
    pub sealed: u64,
    /// Files that were merged.
    pub merged: u64,
    /// What went wrong.
    pub violations: Vec<Violation>,
}

impl fmt::Display for StoreReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StoreReport { workloads, moments, states, nested, sealed, merged, violations } = self;
        let violations = violations.len();
        write!(
            f,
            "{workloads} workloads crashed at {moments} moments, {states} crash states ({nested} \
             after a crashed opening), {sealed} compactions, {merged} files merged, {violations} \
             violations"
        )
    }
}

/// The refs behind one transaction.
pub(super) type Refs = BTreeMap<RefName, Target>;

/// What a store may hold: the refs behind each transaction, counted from none.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) states: Vec<Refs>,
    /// So many transactions are durable.
    pub(super) must: usize,
}

impl Model {
    pub(super) fn new() -> Model {
        let head = (RefName::head(), branch(0).into());
        Model { states: vec![BTreeMap::from([head])], must: 0 }
    }

    pub(super) fn now(&self) -> &Refs {
        &self.states[self.states.len() - 1]
    }

    pub(super) fn check(&self, must: usize, seq: Seq, refs: &Refs) -> Verdict {
        let seq = usize::try_from(seq.get()).unwrap_or(usize::MAX);
        if seq < must {
            return Err(format!(
                "transaction {must} was acknowledged, and the store ends at {seq}"
            ));
        }
        match self.states.get(seq) {
            Some(expected) if expected == refs => Ok(()),
            Some(expected) => {
                Err(format!("behind transaction {seq} {refs:?}, expected {expected:?}"))
            }
            None => Err(format!("transaction {seq} never happened")),
        }
    }
}

pub(super) fn branch(number: usize) -> RefName {
    RefName::new(format!("refs/heads/b{number}")).expect("a legal name")
}

/// What a user does with a store.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// So many transactions under one barrier.
    Commit(usize),
    Compact(CompactOptions),
    Rebuild,
    Reopen(Exit),
}

#[derive(Clone, Copy, Debug)]
enum Exit {
    Close,
    Kill,
    PowerCut,
}

/// The lab. Everything it does follows from the seeds it is given.
#[derive(Debug, Default)]
pub struct StoreLab {
    sabotage: Sabotage,
    /// What it has done so far.
    pub report: StoreReport,
    known: Vec<(u32, Disk, Seq)>,
}

/// One workload's machine.
struct Machine {
    sabotage: Sabotage,
    fs: SimFs,
    store: Option<RefStore>,
    model: Model,
    rng: Rng,
    ids: u32,
}

impl StoreLab {
    /// A lab over storage that betrays the store.
    #[must_use]
    pub fn sabotaged(sabotage: Sabotage) -> StoreLab {
        StoreLab { sabotage, ..StoreLab::default() }
    }

    /// Runs the workload with this seed, and crashes it at every operation.
    pub fn run(&mut self, seed: u64) {
        self.report.workloads += 1;
        self.known.clear();
        let verdict = catch_unwind(AssertUnwindSafe(|| self.crash(seed)));
        let verdict = verdict.unwrap_or_else(|_| Err("panic".to_owned()));
        if let Err(what) = verdict {
            self.report.violations.push(Violation { seed, what });
        }
    }

    fn crash(&mut self, seed: u64) -> Verdict {
        let mut rng = Rng::new(!seed);
        let mut machine = Machine::start(self.sabotage, Rng::new(seed))?;
        for index in 0..14 {
            let step = machine.draw();
            let must = machine.model.must;
            let done = self.step(&mut machine, step);
            for moment in machine.fs.take_moments() {
                self.judge(&moment, must, &machine.model, &mut rng).map_err(|what| {
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

    fn step(&mut self, machine: &mut Machine, step: Step) -> Verdict {
        match step {
            Step::Commit(count) => machine.commit(count),
            Step::Compact(options) => {
                let done = machine.compact(options)?;
                self.report.sealed += u64::from(done.sealed > 0);
                self.report.merged += done.merged as u64;
                Ok(())
            }
            Step::Rebuild => {
                machine.store()?.rebuild(&mut |_| ()).map_err(|error| error.to_string())
            }
            Step::Reopen(exit) => machine.reopen(exit),
        }
    }

    fn judge(&mut self, moment: &Moment, must: usize, model: &Model, rng: &mut Rng) -> Verdict {
        self.report.moments += 1;
        let floor = self.open(&moment.disk.survivor(Policy::Nothing, rng), must, model, rng, 0)?;
        self.check_reader(&moment.disk, floor, model)
            .map_err(|what| format!("a reader: {what}"))?;
        if moment.disk.is_certain() {
            return Ok(());
        }
        let ticks = moment.disk.uncertain_ticks();
        for policy in [
            Policy::Everything,
            Policy::Until(rng.pick(&ticks)),
            Policy::Random { per_mille: rng.pick(&[100, 500, 900]) },
        ] {
            let survivor = moment.disk.survivor(policy, rng);
            let seq = self
                .check_reader(&survivor, floor, model)
                .and_then(|()| self.open(&survivor, must, model, rng, 0))
                .map_err(|what| format!("{policy:?}: {what}"))?;
            if seq < floor {
                return Err(format!("{policy:?}: the disk holds more, and the store less"));
            }
        }
        Ok(())
    }

    /// A reader without the lock, before any recovery, sees durable transactions alone.
    fn check_reader(&self, disk: &Disk, floor: Seq, model: &Model) -> Verdict {
        let env: Arc<dyn Env> = Arc::new(SimFs::boot(disk.clone()));
        let view = match read_view_with(&env, &log_dir(), At::Seq(Seq::new(u64::MAX))) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            view => view.map_err(|error| error.to_string())?,
        };
        if view.seq() > floor {
            return Err(format!(
                "it sees transaction {}, and only {floor} were durable",
                view.seq()
            ));
        }
        model.check(0, view.seq(), &refs(&view)?)
    }

    /// Opens a store on a disk, and compares what it holds; returns its newest transaction.
    fn open(
        &mut self,
        disk: &Disk,
        must: usize,
        model: &Model,
        rng: &mut Rng,
        depth: u64,
    ) -> Verdict<Seq> {
        let checksum = disk.checksum();
        let known =
            self.known.iter().find(|(sum, other, _)| *sum == checksum && other.looks_like(disk));
        if let Some((_, _, seq)) = known {
            return if seq.get() < must as u64 { Err(format!("{must} is lost")) } else { Ok(*seq) };
        }
        self.report.states += 1;
        self.report.nested += u64::from(depth > 0);
        let fs = SimFs::boot(disk.clone());
        fs.record();
        let Some(store) = open(self.sabotage.env(&fs))? else {
            return if must == 0 { Ok(Seq::ZERO) } else { Err("the store is gone".to_owned()) };
        };
        let seq = store.view().seq();
        model.check(must, seq, &refs(&store.view())?)?;
        check_history(&fs, model, seq)?;
        self.known.push((checksum, disk.clone(), seq));
        let next = fs.kill();
        let moments = fs.take_moments();
        drop(store);
        if depth == 0 && rng.chance(40) {
            for moment in moments {
                let survivor = moment.disk.survivor(Policy::Random { per_mille: 500 }, rng);
                let again = self.open(&survivor, must, model, rng, 1);
                again.map_err(|what| format!("opening crashed at {}: {what}", moment.index))?;
            }
        }
        if depth == 0 && rng.chance(40) {
            use_further(&next).map_err(|what| format!("used further: {what}"))?;
        }
        Ok(seq)
    }
}

impl Machine {
    fn start(sabotage: Sabotage, rng: Rng) -> Verdict<Machine> {
        let fs = SimFs::new();
        RefStore::create_with(&fs, &log_dir(), &options()).map_err(|error| error.to_string())?;
        fs.record();
        let store = open(sabotage.env(&fs))?;
        Ok(Machine { sabotage, fs, store, model: Model::new(), rng, ids: 0 })
    }

    fn store(&self) -> Verdict<&RefStore> {
        self.store.as_ref().ok_or_else(|| "there is no store".to_owned())
    }

    fn draw(&mut self) -> Step {
        let rng = &mut self.rng;
        let form = if rng.chance(500) { HistoryForm::Full } else { HistoryForm::Derived };
        let merge = if rng.chance(300) { Merge::All } else { Merge::Due };
        match rng.below(100) {
            0..45 => Step::Commit(1 + rng.below(3)),
            45..75 => Step::Compact(CompactOptions { form, merge }),
            75..80 => Step::Rebuild,
            80..86 => Step::Reopen(Exit::Close),
            86..93 => Step::Reopen(Exit::Kill),
            _ => Step::Reopen(Exit::PowerCut),
        }
    }

    fn commit(&mut self, count: usize) -> Verdict {
        let batch: Vec<Transaction> = (0..count).map(|_| self.transaction()).collect();
        for outcome in self.store()?.commit_batch(&batch) {
            outcome.map_err(|error| error.to_string())?;
        }
        self.model.must = self.model.states.len() - 1;
        Ok(())
    }

    /// One to three refs that move, noted in the model before the store sees them.
    fn transaction(&mut self) -> Transaction {
        let mut refs = self.model.now().clone();
        let mut tx = Transaction::new("tester");
        let first = self.rng.below(6);
        for number in first..first + 1 + self.rng.below(3) {
            let name = branch(number % 7);
            if refs.contains_key(&name) && self.rng.chance(300) {
                refs.remove(&name);
                tx.push(Edit::delete(name));
                continue;
            }
            self.ids += 1;
            let mut id = [7; 20];
            id[..4].copy_from_slice(&self.ids.to_be_bytes());
            let id = ObjectId::from_bytes(&id).expect("twenty bytes");
            refs.insert(name.clone(), id.into());
            tx.push(Edit::set(name, id));
        }
        self.model.states.push(refs);
        tx
    }

    fn compact(&mut self, options: CompactOptions) -> Verdict<refstone::Compacted> {
        self.store()?.compact(options, &mut |_| ()).map_err(|error| error.to_string())
    }

    fn reopen(&mut self, exit: Exit) -> Verdict {
        match exit {
            Exit::Close => self.store()?.close().map_err(|error| error.to_string())?,
            Exit::Kill => self.fs = self.fs.kill(),
            Exit::PowerCut => {
                let policy = Policy::Random { per_mille: 500 };
                self.fs = self.fs.power_cut(policy, &mut self.rng);
                self.fs.record();
            }
        }
        self.store = open(self.sabotage.env(&self.fs))?;
        let view = self.store()?.view();
        self.model.check(self.model.must, view.seq(), &refs(&view)?)
    }
}

pub(super) fn options() -> CreateOptions {
    CreateOptions { head: branch(0), ..CreateOptions::default() }
}

/// Opens the store, which nothing may prevent; `None` if there is none.
pub(super) fn open(env: Arc<dyn Env>) -> Verdict<Option<RefStore>> {
    let options = OpenOptions::default().env(env).compacting(Compacting::ByHand);
    let options = options.resting(Resting::ByHand);
    match RefStore::open_with(&log_dir(), options) {
        Ok(store) => Ok(Some(store)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("the store does not open: {error}")),
    }
}

pub(super) fn refs(view: &refstone::View) -> Verdict<Refs> {
    view.iter_prefix(b"").collect::<Result<_, _>>().map_err(|error| error.to_string())
}

/// The history tells each transaction once, in order, and leads to the refs.
pub(super) fn check_history(fs: &SimFs, model: &Model, newest: Seq) -> Verdict {
    let env: Arc<dyn Env> = Arc::new(fs.clone());
    let moves = history_with(&env, &log_dir(), Seq::ZERO, None);
    let moves = moves.map_err(|error| format!("history: {error}"))?;
    let mut found = model.states[0].clone();
    let mut last = Seq::ZERO;
    for moved in moves {
        let moved = moved.map_err(|error| format!("history: {error}"))?;
        if moved.seq != last && moved.seq != last.next() {
            return Err(format!("history: transaction {} follows {last}", moved.seq));
        }
        if moved.seq != last {
            model.check(0, last, &found).map_err(|what| format!("history: {what}"))?;
        }
        last = moved.seq;
        let target = moved.target();
        match target {
            Some(target) => drop(found.insert(moved.name, target)),
            None => drop(found.remove(&moved.name)),
        }
    }
    if last != newest {
        return Err(format!("history ends at {last}, and the refs at {newest}"));
    }
    model.check(0, last, &found).map_err(|what| format!("history: {what}"))
}

/// A recovered store is as good as any.
fn use_further(fs: &SimFs) -> Verdict {
    let Some(store) = open(Arc::new(fs.clone()))? else { return Ok(()) };
    let edit = Edit::set(branch(9), ObjectId::from_bytes(&[9; 20]).expect("twenty bytes"));
    let commit = store.commit(&Transaction::new("later").with(edit));
    let seq = commit.map_err(|error| error.to_string())?.seq();
    let merge = CompactOptions { merge: Merge::All, ..CompactOptions::default() };
    store.compact(merge, &mut |_| ()).map_err(|error| error.to_string())?;
    let expected = refs(&store.view())?;
    let mut rng = Rng::new(1);
    let next = fs.power_cut(Policy::Nothing, &mut rng);
    drop(store);
    let again = open(Arc::new(next.clone()))?.ok_or("the store is gone")?;
    // What the cut brought back of merged files goes with the next compaction.
    again.compact(merge, &mut |_| ()).map_err(|error| error.to_string())?;
    let leftovers = left_over(&next)?;
    if !leftovers.is_empty() {
        return Err(format!("{leftovers:?} are left over"));
    }
    match (again.view().seq(), refs(&again.view())?) {
        (found, refs) if found == seq && refs == expected => Ok(()),
        (found, refs) => Err(format!("{refs:?} at {found}, expected {expected:?} at {seq}")),
    }
}

/// Files beside the one history file and the one table that merging everything leaves.
fn left_over(fs: &SimFs) -> Verdict<Vec<PathBuf>> {
    let mut left = Vec::new();
    for shelf in ["history", "tables"] {
        let names = fs.disk().list(&log_dir().join(shelf)).map_err(|error| error.to_string())?;
        left.extend(names.into_iter().skip(1).map(PathBuf::from));
    }
    Ok(left)
}
