//! A log on a simulated disk, and the schedulers that run it.

use std::sync::Arc;

use refstone_log::{
    CommitError, Env, Frame, Gathering, Log, LogOptions, Mode, NoObserver, Observer, OpenError,
};
use refstone_tests::logs::{Row, published};
use refstone_tests::sim::observe::{create, log_dir};
use refstone_tests::sim::{Fault, Op, Plan, Policy, Rng, SimFs};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::thread::{self, JoinHandle};
use shuttle::{Config, Runner};

/// Preemptions that the second scheduler spends where they hurt most.
const PREEMPTIONS: usize = 3;

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

/// Runs a program in many interleavings: with switches anywhere, and with few of them.
pub(crate) fn explore(program: impl Fn() + Clone + Send + Sync + 'static) {
    let runs = usize::try_from(from_environment("REFSTONE_MODEL_RUNS", 400)).unwrap();
    let seed = from_environment("REFSTONE_MODEL_SEED", 1);
    run(RandomScheduler::new_from_seed(seed, runs / 2), program.clone());
    run(PctScheduler::new_from_seed(seed, PREEMPTIONS, runs / 2), program);
}

fn run(scheduler: impl Scheduler + 'static, program: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    // The log writes zeros from its stack.
    config.stack_size = 1 << 20;
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(program);
}

/// A number below `end`, of the scheduler's choice.
pub(crate) fn choose(end: usize) -> usize {
    use shuttle::rand::Rng as _;
    shuttle::rand::thread_rng().gen_range(0..end)
}

/// A machine with an open log.
pub(crate) struct Machine {
    pub(crate) fs: SimFs,
    pub(crate) log: Log,
}

impl Machine {
    pub(crate) fn new() -> Machine {
        Machine::observed(Mode::Durable, Arc::new(NoObserver))
    }

    pub(crate) fn observed(mode: Mode, observer: Arc<dyn Observer>) -> Machine {
        let fs = SimFs::new();
        create(&fs).unwrap();
        let log = open(&fs, mode, observer).unwrap();
        // What a leader waits for depends on the clock, and no scheduler rules that.
        log.gate().set_gathering(Gathering::Off);
        Machine { fs, log }
    }

    /// The log, opened again.
    pub(crate) fn reopen(&self) -> Log {
        open(&self.fs, Mode::Durable, Arc::new(NoObserver)).unwrap()
    }

    /// The next operation of its kind after so many more fails, once.
    pub(crate) fn fail(&self, op: Op, after: usize) {
        let fault = Fault::Error(std::io::ErrorKind::Other);
        self.fs.plan(Plan { op, after, fault, lasting: false });
    }

    /// What readers of the file see.
    pub(crate) fn published(&self) -> Vec<u64> {
        published(&self.fs, &log_dir())
    }

    /// What is in the log after the power has failed, and all that was not synced is lost.
    pub(crate) fn after_a_power_cut(&self) -> Vec<u64> {
        self.rows_after_a_power_cut().into_iter().map(|(seq, _)| seq).collect()
    }

    /// The same, with the first row of each transaction.
    pub(crate) fn rows_after_a_power_cut(&self) -> Vec<(u64, Row)> {
        self.fs.heal();
        let next = self.fs.power_cut(Policy::Nothing, &mut Rng::new(0));
        let mut rows = Vec::new();
        let env: Arc<dyn Env> = Arc::new(next);
        let mut replay =
            |frame: &Frame<'_>| rows.push((frame.seq().get(), Row::from(&frame.ref_row(0))));
        let (log, _) = Log::open(env, &log_dir(), Arc::new(NoObserver), &mut replay).unwrap();
        log.close().unwrap();
        rows
    }
}

fn open(fs: &SimFs, mode: Mode, observer: Arc<dyn Observer>) -> Result<Log, OpenError> {
    let env: Arc<dyn Env> = Arc::new(fs.clone());
    let options = LogOptions { mode, ..LogOptions::default() };
    Ok(Log::open_in(options, env, &log_dir(), observer, &mut |_| ())?.0)
}

/// Commits one transaction; says its sequence.
pub(crate) fn commit(log: &Log, n: u64) -> Result<u64, CommitError> {
    let commit = log.append(&[Row::numbered(n).as_row()]).expect("the log is open");
    commit.wait().map(|ack| ack.seq().get())
}

/// A thread for each of these, which commits one transaction; the sequences that they got.
pub(crate) fn writers(
    machine: &Arc<Machine>,
    numbers: impl IntoIterator<Item = u64>,
) -> Vec<JoinHandle<u64>> {
    let writer = |n| {
        let machine = machine.clone();
        thread::spawn(move || commit(&machine.log, n).unwrap())
    };
    numbers.into_iter().map(writer).collect()
}

/// `1..=count`.
pub(crate) fn up_to(count: u64) -> Vec<u64> {
    (1..=count).collect()
}
