//! A log that a repair left with gaps is a store as any other.

use std::fs;

use refstone::{CompactOptions, Edit, Merge, OsEnv, RefMove, history, read_view};
use refstone_log::{RepairOptions, repair};

use crate::common::{Scratch, head, listing, oid, tx};

/// Thirty transactions, of which these were damaged and the log repaired.
fn repaired(lost: &[u64]) -> Scratch {
    let mut scratch = Scratch::new();
    for number in 1..=30 {
        scratch.store.commit(&tx([Edit::set(head(&format!("b{number}")), oid(number))])).unwrap();
    }
    scratch.close_for(|dir| {
        let live = dir.join("refs.arrow");
        let mut bytes = fs::read(&live).unwrap();
        for seq in lost {
            let id = [u8::try_from(*seq).unwrap(); 20];
            let at = bytes.windows(20).position(|window| window == id).unwrap();
            bytes[at] ^= 0x80;
        }
        fs::write(&live, bytes).unwrap();
        repair(&OsEnv, dir, &RepairOptions::default()).unwrap();
    });
    scratch
}

// Break: a repair that records as lost what was sealed since the copy was made: the store then takes
// the file that has it for a leftover, and removes it.
#[test]
fn a_copy_that_is_older_than_sealed_history_is_refused() {
    let mut scratch = Scratch::new();
    let fill = |scratch: &Scratch, numbers: std::ops::Range<u8>| {
        for number in numbers {
            let edit = Edit::set(head(&format!("b{number}")), oid(number));
            scratch.store.commit(&tx([edit])).unwrap();
        }
    };
    let copy_as = |scratch: &Scratch, name: &str| {
        let copy = scratch.dir().parent().unwrap().join(name);
        fs::copy(scratch.dir().join("refs.arrow"), &copy).unwrap();
        copy
    };
    fill(&scratch, 1..10);
    let old = copy_as(&scratch, "old");
    scratch.store.compact(CompactOptions::default(), &mut |_| ()).unwrap();
    let new = copy_as(&scratch, "new");
    fill(&scratch, 10..20);
    let before = moves(&scratch);
    scratch.close_for(|dir| {
        let live = dir.join("refs.arrow");
        let mut bytes = fs::read(&live).unwrap();
        bytes[100..300].fill(0);
        fs::write(&live, bytes).unwrap();
        let from = |copy| {
            let options = RepairOptions { schema_from: Some(copy), ..RepairOptions::default() };
            repair(&OsEnv, dir, &options)
        };
        let error = from(old).unwrap_err();
        assert!(error.to_string().contains("history/1-9.parquet"), "{error}");
        from(new).unwrap();
    });
    assert_eq!(moves(&scratch), before);
}

fn moves(scratch: &Scratch) -> Vec<RefMove> {
    history(&scratch.dir(), None).unwrap().map(Result::unwrap).collect()
}

// Breaks: refusing a log with gaps; a range of history that starts or ends with a transaction that
// is lost; files that do not join across a gap.
#[test]
fn a_repaired_store_opens_compacts_and_merges_across_its_gaps() {
    for lost in [&[7, 8, 20][..], &[1, 2], &[30], &[1, 15, 29, 30]] {
        let mut scratch = repaired(lost);
        let refs = scratch.refs();
        // HEAD is one of them.
        assert_eq!(refs.len(), 31 - lost.len(), "{lost:?}");
        let mut before = moves(&scratch);
        assert!(before.iter().all(|moved| !lost.contains(&moved.seq.get())));
        for round in 0..3 {
            scratch.store.compact(CompactOptions::default(), &mut |_| ()).unwrap();
            assert_eq!(moves(&scratch), before, "{lost:?}, round {round}");
            scratch.reopen();
            let edit = Edit::set(head("later"), oid(100 + round));
            let seq = scratch.store.commit(&tx([edit])).unwrap().seq();
            assert!(seq.get() > 30, "{seq} may have been given out before");
            before = moves(&scratch);
            assert_eq!(before.last().unwrap().seq, seq);
        }
        let all = CompactOptions { merge: Merge::All, ..CompactOptions::default() };
        scratch.store.compact(all, &mut |_| ()).unwrap();
        scratch.store.rebuild().unwrap();
        scratch.reopen();
        assert_eq!(moves(&scratch), before, "{lost:?}");
        assert_eq!(listing(&read_view(&scratch.dir()).unwrap()), scratch.refs());
    }
}

// Break: counting from the lost ones, not from what was sealed.
#[test]
fn a_log_that_was_compacted_is_repaired_too() {
    let mut scratch = Scratch::new();
    for number in 1..=30 {
        scratch.store.commit(&tx([Edit::set(head(&format!("b{number}")), oid(number))])).unwrap();
        if number == 12 {
            scratch.store.compact(CompactOptions::default(), &mut |_| ()).unwrap();
        }
    }
    scratch.close_for(|dir| {
        let live = dir.join("refs.arrow");
        let mut bytes = fs::read(&live).unwrap();
        for seq in [13, 20] {
            let at = bytes.windows(20).position(|window| window == [seq; 20]).unwrap();
            bytes[at] ^= 0x80;
        }
        fs::write(&live, bytes).unwrap();
        let done = repair(&OsEnv, dir, &RepairOptions::default()).unwrap();
        let lost: Vec<u64> = done.lost.iter().map(|(first, _)| first.get()).collect();
        assert_eq!(lost, [13, 20]);
    });
    assert_eq!(scratch.refs().len(), 29);
    let before = moves(&scratch);
    scratch.store.compact(CompactOptions::default(), &mut |_| ()).unwrap();
    scratch.reopen();
    assert_eq!(moves(&scratch), before);
}
