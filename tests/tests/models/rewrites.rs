//! The swap of the live file, beside those who write.

use std::error::Error;
use std::sync::Arc;

use refstone_log::{Leaving, Sealer, Seq};
use shuttle::thread;

use crate::machine::{Machine, commit, explore, up_to, writers};

#[derive(Default)]
struct Kept(Vec<u64>);

impl Sealer for Kept {
    fn seal(&mut self, leaving: &mut Leaving<'_>) -> Result<(), Box<dyn Error + Send + Sync>> {
        while let Some(frame) = leaving.next()? {
            self.0.push(frame.seq().get());
        }
        Ok(())
    }
}

// Breaks: sealing what became durable after the end of the copy was looked up; a swap beside a group in
// flight; a writer, a leader or a gate that stays with the old file; a leader that starts between the
// last copy and the swap.
#[test]
fn a_rewrite_beside_writers_loses_nothing() {
    explore(|| {
        let machine = Arc::new(Machine::new());
        commit(&machine.log, 0).unwrap();
        let writers = writers(&machine, 1..=2);
        let mut kept = Kept::default();
        machine.log.rewrite(Seq::MAX, &mut kept).unwrap();
        writers.into_iter().for_each(|writer| assert!(writer.join().is_ok()));
        let all: Vec<u64> = kept.0.iter().copied().chain(machine.published()).collect();
        assert_eq!(all, up_to(3));
        let all: Vec<u64> = kept.0.into_iter().chain(machine.after_a_power_cut()).collect();
        assert_eq!(all, up_to(3), "after a power cut");
    });
}

// Breaks: a rewrite that does not look whether the log was closed before its turn came; a close that does
// not wait for one that did: it goes on beside the next writer.
#[test]
fn a_rewrite_beside_a_close_swaps_before_it_or_not_at_all() {
    explore(|| {
        let machine = Arc::new(Machine::new());
        commit(&machine.log, 0).unwrap();
        let closing = thread::spawn({
            let machine = machine.clone();
            move || {
                machine.log.close().unwrap();
                commit(&machine.reopen(), 1).unwrap()
            }
        });
        let mut kept = Kept::default();
        let swapped = machine.log.rewrite(Seq::MAX, &mut kept).is_ok();
        assert_eq!(closing.join().unwrap(), 2);
        assert_eq!(machine.published(), if swapped { vec![2] } else { up_to(2) });
    });
}
