//! What everybody is told when a write, a sync or a leader fails.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use refstone_log::{CommitError, ErrorKind, Mode, Observer, Seq};
use refstone_tests::logs::Row;
use refstone_tests::sim::Op;
use shuttle::thread;

use crate::machine::{Machine, choose, commit, explore, up_to};

type Told = Result<u64, CommitError>;

/// What each of three writers is told.
fn told(machine: &Arc<Machine>) -> Vec<Told> {
    let writers: Vec<_> = (0..3)
        .map(|n| {
            let machine = machine.clone();
            thread::spawn(move || match machine.log.append(&[Row::numbered(n).as_row()]) {
                Ok(commit) => commit.wait().map(|ack| ack.seq().get()),
                Err(_) => Err(CommitError::Closed),
            })
        })
        .collect();
    writers.into_iter().map(|writer| writer.join().unwrap()).collect()
}

fn acknowledged(told: &[Told]) -> Vec<u64> {
    let mut seqs: Vec<u64> = told.iter().filter_map(|told| told.as_ref().ok().copied()).collect();
    seqs.sort_unstable();
    seqs
}

// Breaks: a waiter of a withdrawn sequence that takes its second use for its own; a sequence that
// is given out again before the first use is over; a gap.
#[test]
fn after_a_failed_write_everybody_is_told_of_its_own_transaction() {
    explore(|| {
        let machine = Arc::new(Machine::new());
        machine.fail(Op::Write, choose(4));
        let told = told(&machine);
        let durable = machine.rows_after_a_power_cut();
        for (n, told) in told.iter().enumerate() {
            let row = Row::numbered(n as u64);
            match told {
                Ok(seq) => assert!(durable.contains(&(*seq, row)), "{seq} is of another"),
                // A write that publishes failed before: then the log stops.
                Err(_) => assert!(durable.iter().all(|(_, other)| *other != row), "{n} happened"),
            }
        }
    });
}

// Breaks: a failed sync that only its leader hears of; one that is taken for a success; waiters
// that are not woken when the log stops (deadlock).
#[test]
fn after_a_failed_sync_everybody_is_answered_and_nothing_acknowledged_is_lost() {
    explore(|| {
        let machine = Arc::new(Machine::new());
        machine.fail(Op::Sync, choose(3));
        let told = told(&machine);
        let acknowledged = acknowledged(&told);
        let stopped = machine.log.append(&[Row::numbered(9).as_row()]).is_err();
        assert!(stopped || acknowledged.len() == 3, "{told:?}");
        for error in told.iter().filter_map(|told| told.as_ref().err()) {
            let kind = error.kind();
            let honest = [ErrorKind::Unknown, ErrorKind::Poisoned, ErrorKind::Closed];
            assert!(honest.contains(&kind), "{error}");
        }
        let after = machine.after_a_power_cut();
        assert!(after.starts_with(&acknowledged), "{acknowledged:?} were told, {after:?} are left");
    });
}

/// Dies in the leader's place, once.
#[derive(Debug)]
struct Dies(AtomicU64);

impl Observer for Dies {
    fn durable(&self, _through: Seq) {
        assert!(self.0.fetch_sub(1, Ordering::SeqCst) != 0, "planned");
    }

    fn rolled_back(&self, _to: Seq) {}
}

// Breaks: a leadership that dies with its leader (deadlock); a leader's death that is told as a
// success.
#[test]
fn a_leader_that_dies_leaves_nobody_waiting() {
    explore(|| {
        let dies = Arc::new(Dies(AtomicU64::new(choose(3) as u64)));
        let machine = Arc::new(Machine::observed(Mode::Durable, dies));
        let writers: Vec<_> = (0..3)
            .map(|n| {
                let machine = machine.clone();
                thread::spawn(move || {
                    let staged = machine.log.append(&[Row::numbered(n).as_row()]).ok()?;
                    catch_unwind(AssertUnwindSafe(|| staged.wait())).ok()
                })
            })
            .collect();
        let told: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        let stopped = machine.log.append(&[Row::numbered(9).as_row()]).is_err();
        let acknowledged = told.iter().flatten().filter(|told| told.is_ok()).count();
        // If nobody died yet, it is this one who does.
        let _ = catch_unwind(AssertUnwindSafe(|| machine.log.close()));
        assert!(stopped || acknowledged == 3, "{told:?}");
        for error in told.iter().flatten().filter_map(|told| told.as_ref().err()) {
            assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
        }
    });
}

#[test]
fn a_failed_write_spends_no_sequence_in_any_order() {
    explore(|| {
        let machine = Arc::new(Machine::new());
        machine.fail(Op::Write, 0);
        let first = told(&machine);
        let count = acknowledged(&first).len() as u64;
        assert_eq!(acknowledged(&first), up_to(count));
        assert!(count < 3, "nobody met the fault");
        assert_eq!(commit(&machine.log, 7).unwrap(), count + 1);
        assert_eq!(machine.after_a_power_cut(), up_to(count + 1));
    });
}
