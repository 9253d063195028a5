//! A log that a repair left with gaps is a store as any other.

use std::fs;
use std::path::Path;

use refstone::{
    CompactOptions, Edit, Merge, OsEnv, RefMove, ResumeError, history, read_view, sealed_identity,
    verify,
};
use refstone_log::{RepairError, RepairOptions, repair};

use crate::common::{Scratch, commit_numbers, compact, head, listing, oid, tx};

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
        scratch.store.rebuild(&mut |_| ()).unwrap();
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

/// Overwrites what tells transactions of this log from garbage.
fn wipe_schema(dir: &Path) {
    let live = dir.join("refs.arrow");
    let mut bytes = fs::read(&live).unwrap();
    bytes[40..600].fill(0);
    fs::write(live, bytes).unwrap();
}

fn repair_by_history(dir: &Path) -> Result<refstone_log::Repaired, RepairError> {
    let sealed = sealed_identity(dir, None).unwrap();
    repair(&OsEnv, dir, &RepairOptions { sealed, ..RepairOptions::default() })
}

// Breaks: an anchor or a chain that is not that of history; taking what history has for lost, or saving
// it twice; a gap that is forgotten with the schema.
#[test]
fn history_tells_the_schema_of_a_live_log() {
    for (lost, half_sealed) in [(None, false), (Some(11), false), (None, true), (Some(8), true)] {
        let mut scratch = Scratch::by_hand();
        commit_numbers(&scratch.store, 1..=4);
        compact(&scratch.store);
        commit_numbers(&scratch.store, 5..=8);
        let live = scratch.dir().join("refs.arrow");
        let before_sealing = fs::read(&live).unwrap();
        compact(&scratch.store);
        scratch.close_for(|_| {
            // A crash between the history file and the swap of the live log.
            if half_sealed {
                fs::write(&live, before_sealing).unwrap();
            }
        });
        commit_numbers(&scratch.store, 9..=12);
        let mut before = moves(&scratch);
        scratch.close_for(|dir| {
            wipe_schema(dir);
            if let Some(seq) = lost {
                let mut bytes = fs::read(&live).unwrap();
                let at = bytes.windows(20).position(|window| window == [seq; 20]).unwrap();
                bytes[at] ^= 0x80;
                fs::write(&live, bytes).unwrap();
            }
            let done = repair_by_history(dir).unwrap();
            // What history has is not lost.
            let lost: Vec<u64> = lost.into_iter().filter(|seq| *seq > 8).map(u64::from).collect();
            assert!(done.lost.iter().map(|(first, _)| first.get()).eq(lost.iter().copied()));
            assert_eq!((done.transactions, done.last_seq.get()), (4 - lost.len() as u64, 12));
            before.retain(|moved| !lost.contains(&moved.seq.get()));
        });
        assert_eq!(moves(&scratch), before, "{lost:?} {half_sealed}");
        assert!(verify(&scratch.dir(), &mut |_| ()).unwrap().is_sound());
        compact(&scratch.store);
        assert_eq!(moves(&scratch), before, "{lost:?} {half_sealed}");
    }
}

// Break: recording what a history file has as lost, because that file is missing just now.
#[test]
fn history_that_is_not_whole_tells_no_schema() {
    let mut scratch = Scratch::by_hand();
    for numbers in [1..=4, 5..=8] {
        commit_numbers(&scratch.store, numbers);
        compact(&scratch.store);
    }
    scratch.close_for(|dir| {
        let live = fs::read(dir.join("refs.arrow")).unwrap();
        wipe_schema(dir);
        for file in ["history/1-4.parquet", "history/5-8.parquet"] {
            let (path, aside) = (dir.join(file), dir.join("aside"));
            fs::rename(&path, &aside).unwrap();
            let error = sealed_identity(dir, None).unwrap_err();
            assert!(
                matches!(error, ResumeError::MoreSealed { .. } | ResumeError::Open(_)),
                "{error}"
            );
            fs::rename(aside, path).unwrap();
        }
        assert!(matches!(repair_by_history(dir), Err(RepairError::NothingSaved { .. })));
        fs::write(dir.join("refs.arrow"), live).unwrap();
        let nothing = repair_by_history(dir).unwrap_err();
        assert!(matches!(nothing, RepairError::NotDamaged { .. }), "{nothing}");
    });
}

// Break: giving up nothing behind the end. The schema that is damaged told of it, and nothing else does.
#[test]
fn what_an_earlier_repair_gave_up_is_not_given_out_when_history_tells_the_schema() {
    let mut scratch = Scratch::by_hand();
    commit_numbers(&scratch.store, 1..=4);
    compact(&scratch.store);
    commit_numbers(&scratch.store, 5..=8);
    let mut given_up = 0;
    scratch.close_for(|dir| {
        let live = dir.join("refs.arrow");
        let mut bytes = fs::read(&live).unwrap();
        let at = bytes.windows(20).rposition(|window| window == [8; 20]).unwrap();
        bytes.truncate(at);
        fs::write(&live, bytes).unwrap();
        let done = repair(&OsEnv, dir, &RepairOptions::default()).unwrap();
        given_up = done.given_up.unwrap().1.get();
        wipe_schema(dir);
        assert_eq!(repair_by_history(dir).unwrap().last_seq.get(), 7);
    });
    let seq = scratch.store.commit(&tx([Edit::set(head("next"), oid(9))])).unwrap().seq();
    assert!(seq.get() > given_up, "{seq} was given up before");
}

// Breaks: counting what fits behind damage as all that may have stood there, also where the file was cut
// off behind it (sequences are given out again).
#[test]
fn a_log_that_is_damaged_and_cut_off_behind_gives_no_sequence_out_twice() {
    for (damaged, cut) in [(20, 23), (23, 23), (29, 30)] {
        let mut scratch = Scratch::new();
        commit_numbers(&scratch.store, 1..=30);
        scratch.close_for(|dir| {
            let live = dir.join("refs.arrow");
            let mut bytes = fs::read(&live).unwrap();
            let place =
                |number: u8| bytes.windows(20).position(|window| window == [number; 20]).unwrap();
            let (damaged, end) = (place(damaged), place(cut) + 30);
            bytes[damaged] ^= 0x80;
            // The first frame that is not whole is no place to go on from.
            bytes[damaged..end].iter_mut().for_each(|byte| *byte |= 1);
            bytes.truncate(end);
            fs::write(&live, bytes).unwrap();
            repair(&OsEnv, dir, &RepairOptions::default()).unwrap();
        });
        let seq = scratch.store.commit(&tx([Edit::set(head("later"), oid(99))])).unwrap().seq();
        assert!(seq.get() > 30, "{seq} was given out before, damaged at {damaged}, cut at {cut}");
    }
}
