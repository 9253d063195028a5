//! A compaction in which one operation fails, at each of them in turn.
//!
//! Whatever fails, the store has what was acknowledged, to its user, to its readers and after a
//! restart; it goes on, unless it says that its log has stopped; and when the fault is gone it
//! compacts as ever.

use std::io::ErrorKind as Io;
use std::sync::Arc;

use refstone::{CompactOptions, Edit, HistoryForm, Merge, ObjectId, RefStore, Transaction};

use super::disk::Disk;
use super::fault::{Fault, Op, Plan};
use super::fs::SimFs;
use super::keep::Policy;
use super::model::Verdict;
use super::observe::log_dir;
use super::rng::Rng;
use super::store::{Model, branch, check_history, open, options, refs};

/// The ways in which operations fail; the second says whether they go on failing.
const FAULTS: [(Fault, bool); 6] = [
    (Fault::Error(Io::Other), false),
    (Fault::Error(Io::StorageFull), true),
    (Fault::DoneBut(Io::Other), false),
    (Fault::HalfThen(Io::StorageFull), true),
    (Fault::Short, true),
    (Fault::NoBytes, false),
];

/// What the runs came to.
#[derive(Clone, Debug, Default)]
pub struct FaultReport {
    /// Compactions in which an operation failed.
    pub runs: u64,
    /// Those of them that failed for it.
    pub failed: u64,
    /// Those after which the log had stopped.
    pub stopped: u64,
}

/// Fails each operation of a compaction that seals, and merges with what was sealed before.
///
/// # Errors
///
/// The first promise that was broken.
pub fn fail_every_operation_of_a_compaction() -> Verdict<FaultReport> {
    let mut report = FaultReport::default();
    let base = Run::base()?;
    for op in Op::ALL {
        let count = base.clone().count(op)?;
        for (fault, lasting) in FAULTS.into_iter().filter(|(fault, _)| fault.suits(op)) {
            for after in 0..count {
                let plan = Plan { op, after, fault, lasting };
                let run = base.clone().run(plan, &mut report);
                run.map_err(|what| format!("{plan:?}: {what}"))?;
            }
        }
    }
    Ok(report)
}

/// A disk, and what is on it.
#[derive(Clone)]
struct Run {
    disk: Disk,
    model: Model,
    ids: u8,
}

const ALL: CompactOptions = CompactOptions { form: HistoryForm::Derived, merge: Merge::All };

impl Run {
    /// Two files of history, and a live log with transactions of its own.
    fn base() -> Verdict<Run> {
        let fs = SimFs::new();
        RefStore::create_with(&fs, &log_dir(), &options()).map_err(|error| error.to_string())?;
        let store = boot(&fs)?;
        let mut run = Run { disk: Disk::new(), model: Model::new(), ids: 0 };
        for _ in 0..2 {
            run.commit(&store)?;
            run.commit(&store)?;
            compact(&store, CompactOptions::default())?;
        }
        run.commit(&store)?;
        store.close().map_err(|error| error.to_string())?;
        run.disk = fs.disk();
        Ok(run)
    }

    /// Moves a ref, creates one, and deletes one that was created before.
    fn commit(&mut self, store: &RefStore) -> Verdict {
        self.ids += 1;
        let id = ObjectId::from_bytes(&[self.ids; 20]).expect("twenty bytes");
        let number = usize::from(self.ids);
        let mut tx = Transaction::new("tester");
        tx.push(Edit::set(branch(0), id));
        tx.push(Edit::set(branch(number), id));
        let mut next = self.model.now().clone();
        next.extend([(branch(0), id.into()), (branch(number), id.into())]);
        if number > 2 {
            tx.push(Edit::delete(branch(number - 2)));
            next.remove(&branch(number - 2));
        }
        store.commit(&tx).map_err(|error| error.to_string())?;
        self.model.states.push(next);
        self.model.must += 1;
        Ok(())
    }

    /// How many operations of a kind the compaction has.
    fn count(self, op: Op) -> Verdict<usize> {
        let fs = SimFs::boot(self.disk);
        let store = boot(&fs)?;
        let before = fs.count(op);
        let done = compact(&store, ALL)?;
        if (done.sealed, done.merged) != (1, 3) {
            return Err(format!("expected one sealed and three merged, found {done:?}"));
        }
        Ok(fs.count(op) - before)
    }

    fn run(mut self, plan: Plan, report: &mut FaultReport) -> Verdict {
        let fs = SimFs::boot(self.disk.clone());
        let store = boot(&fs)?;
        fs.plan(plan);
        let failed = compact(&store, ALL).is_err();
        fs.heal();
        report.runs += 1;
        report.failed += u64::from(failed);
        self.look(&fs, &store).map_err(|what| format!("then: {what}"))?;
        // Once more, as an operator would.
        let again = store.compact(ALL, &mut |_| ());
        self.look(&fs, &store).map_err(|what| format!("after another compaction: {what}"))?;
        let stopped = match self.commit(&store) {
            Ok(()) => false,
            Err(_) if store.log().append_with(|_| ()).is_err() => true,
            Err(what) => return Err(format!("a commit: {what}")),
        };
        report.stopped += u64::from(stopped);
        match again {
            Err(error) if !stopped => return Err(format!("another compaction: {error}")),
            Ok(_) if stopped => return Err("it compacts with a log that has stopped".to_owned()),
            _ => {}
        }
        if !stopped {
            self.look(&fs, &store).map_err(|what| format!("after a commit: {what}"))?;
        }
        self.restart(&fs, store)
    }

    fn look(&self, fs: &SimFs, store: &RefStore) -> Verdict {
        let view = store.view();
        self.model.check(self.model.must, view.seq(), &refs(&view)?)?;
        check_history(fs, &self.model, view.seq())
    }

    /// What is there after a power cut, and after a kill.
    fn restart(&self, fs: &SimFs, store: RefStore) -> Verdict {
        let mut rng = Rng::new(1);
        let cut = SimFs::boot(fs.disk().survivor(Policy::Nothing, &mut rng));
        let killed = fs.kill();
        drop(store);
        for (how, fs) in [("a power cut", cut), ("a kill", killed)] {
            let look = || {
                let store = boot(&fs)?;
                self.look(&fs, &store)
            };
            look().map_err(|what| format!("after {how}: {what}"))?;
        }
        Ok(())
    }
}

fn boot(fs: &SimFs) -> Verdict<RefStore> {
    open(Arc::new(fs.clone()))?.ok_or_else(|| "the store is gone".to_owned())
}

fn compact(store: &RefStore, options: CompactOptions) -> Verdict<refstone::Compacted> {
    store.compact(options, &mut |_| ()).map_err(|error| error.to_string())
}
