//! A store goes on behind its history when the live log is lost, or is an older copy.

use std::fs;
use std::io;
use std::path::Path;

use refstone::{
    CompactOptions, CreateOptions, Edit, ErrorKind, ObjectFormat, RefMove, RefName, RefStore,
    ResumeError, ResumeOptions, Resumed, Seq, read_view, resume, verify,
};

use crate::common::{Scratch, commit_numbers, compact, head, moves, name, oid, outgrow, tx};

fn run(dir: &Path) -> Result<Resumed, ResumeError> {
    resume(dir, &ResumeOptions::default())
}

/// Transactions 1 to 4 and 5 to 8 in history, 9 and 10 in the live log. Closed.
fn closed_store() -> Scratch {
    let scratch = Scratch::new();
    for numbers in [1..=4, 5..=8] {
        commit_numbers(&scratch.store, numbers);
        compact(&scratch.store);
    }
    commit_numbers(&scratch.store, 9..=10);
    scratch.store.close().unwrap();
    scratch
}

// Breaks: giving up too few sequences, or none (two transactions get one number); leaving what was
// given up out of the schema; an anchor that history does not end with.
#[test]
fn a_lost_live_log_is_made_anew_behind_history_and_no_sequence_is_given_out_twice() {
    let losses: [fn(&Path) -> io::Result<()>; 2] =
        [|live| fs::remove_file(live), |live| fs::write(live, b"")];
    for lose in losses {
        let mut scratch = closed_store();
        let dir = scratch.dir();
        let live = dir.join("refs.arrow");
        let sealed: Vec<RefMove> = moves(&dir).into_iter().take(16).collect();
        let mut given_out = vec![8, 9, 10];
        // Twice, since what the first new log gave out may be lost as well.
        for number in 20..=21 {
            lose(&live).unwrap();
            let dry = ResumeOptions { dry_run: true, ..ResumeOptions::default() };
            assert_eq!(resume(&dir, &dry).unwrap().sealed_seq, Seq::new(8));
            assert!(RefStore::open(&dir).is_err(), "it was a dry run");

            let resumed = run(&dir).unwrap();
            assert_eq!(resumed.damage.kind(), ErrorKind::Corrupt);
            assert_eq!((resumed.sealed_seq, resumed.given_up.0), (Seq::new(8), Seq::new(9)));
            assert_eq!(moves(&dir), sealed);
            scratch.reopen_closed();
            assert_eq!(scratch.store.view().get(&head("hot")).unwrap(), Some(oid(8).into()));
            assert_eq!(scratch.store.view().get(&head("b9")).unwrap(), None);
            let committed = scratch.store.commit(&tx([Edit::set(head("hot"), oid(number))]));
            let seq = committed.unwrap().seq();
            assert_eq!(seq, resumed.given_up.1.next());
            assert!(given_out.iter().all(|given| *given < seq.get()), "{seq} after {given_out:?}");
            given_out.push(seq.get());
            scratch.store.close().unwrap();
            ["history", "tables"].iter().for_each(|shelf| discard_newer(&dir.join(shelf), 8));
        }
    }
}

/// Takes back what the store has sealed by itself since.
fn discard_newer(shelf: &Path, seq: u64) {
    for entry in fs::read_dir(shelf).unwrap() {
        let path = entry.unwrap().path();
        let last = path.file_stem().unwrap().to_str().unwrap().split_once('-').unwrap().1;
        if last.parse::<u64>().unwrap() > seq {
            fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn a_store_that_went_on_is_as_any_other() {
    let mut scratch = closed_store();
    let dir = scratch.dir();
    fs::remove_file(dir.join("refs.arrow")).unwrap();
    let given_up = run(&dir).unwrap().given_up;
    scratch.reopen_closed();
    commit_numbers(&scratch.store, 30..=33);
    compact(&scratch.store);
    commit_numbers(&scratch.store, 34..=35);
    scratch.store.compact(merge_all(), &mut |_| ()).unwrap();
    commit_numbers(&scratch.store, 36..=36);
    let report = verify(&dir, &mut |_| ()).unwrap();
    assert!(report.is_sound(), "{report:?}");
    assert_eq!(report.live.gaps, [given_up]);
    let seqs: Vec<u64> = moves(&dir).iter().map(|moved| moved.seq.get()).collect();
    let behind = given_up.1.get();
    let expected = (1..=8).chain(behind + 1..=behind + 7).flat_map(|seq| [seq; 2]);
    assert_eq!(seqs, expected.collect::<Vec<_>>());
    scratch.reopen();
    scratch.store.rebuild(&mut |_| ()).unwrap();
    assert_eq!(scratch.store.view().get(&head("b36")).unwrap(), Some(oid(36).into()));
    assert!(verify(&dir, &mut |_| ()).unwrap().is_sound());
    assert!(matches!(run(&dir), Err(ResumeError::NotLost { .. })));
}

fn merge_all() -> CompactOptions {
    CompactOptions { merge: refstone::Merge::All, ..CompactOptions::default() }
}

// Breaks: refusing an older copy; going on behind the copy; not keeping it.
#[test]
fn an_older_copy_gives_way_to_a_log_behind_history_and_is_kept() {
    for compacted_before in [false, true] {
        let mut scratch = Scratch::new();
        let dir = scratch.dir();
        let live = dir.join("refs.arrow");
        let old = outgrow(&scratch, compacted_before);
        let before = moves(&dir);
        scratch.store.close().unwrap();
        fs::write(&live, &old).unwrap();
        let error = RefStore::open(&dir).unwrap_err().to_string();
        let (newest, sealed) = if compacted_before { (6, 9) } else { (3, 6) };
        for words in [format!("transaction {sealed}"), format!("found {newest}")] {
            assert!(error.contains(&words), "{error}");
        }

        let resumed = run(&dir).unwrap();
        assert_eq!(resumed.sealed_seq, Seq::new(sealed));
        let kept = resumed.original.unwrap();
        assert!(kept.ends_with("refs.arrow.damaged-1"));
        assert_eq!(fs::read(kept).unwrap(), old);
        assert_eq!(moves(&dir), before);
        scratch.reopen_closed();
        commit_numbers(&scratch.store, 10..=10);
        assert!(verify(&dir, &mut |_| ()).unwrap().is_sound());
    }
}

// Breaks: believing that a shorter log is an older copy.
#[test]
fn a_copy_that_went_another_way_is_refused_and_nothing_is_changed() {
    let mut scratch = Scratch::new();
    let dir = scratch.dir();
    let live = dir.join("refs.arrow");
    commit_numbers(&scratch.store, 1..=3);
    let old = fs::read(&live).unwrap();
    commit_numbers(&scratch.store, 4..=9);
    compact(&scratch.store);
    scratch.store.close().unwrap();
    fs::rename(dir.join("history"), dir.join("aside")).unwrap();
    fs::rename(dir.join("tables"), dir.join("aside-2")).unwrap();
    fs::write(&live, old).unwrap();
    scratch.reopen_closed();
    commit_numbers(&scratch.store, 50..=51);
    scratch.store.close().unwrap();
    fs::rename(dir.join("aside"), dir.join("history")).unwrap();
    let before = fs::read(&live).unwrap();
    match run(&dir) {
        Err(ResumeError::Differs { seq, .. }) => assert_eq!(seq, Seq::new(4)),
        other => panic!("{other:?}"),
    }
    assert_eq!(fs::read(&live).unwrap(), before);

    fs::copy(closed_store().dir().join("refs.arrow"), &live).unwrap();
    assert!(run(&dir).is_err(), "a log of another store");
}

// Breaks: going on behind history of which a file is missing or damaged.
#[test]
fn history_must_be_whole() {
    let harms: [fn(&Path); 3] = [
        |history| fs::remove_file(history.join("1-4.parquet")).unwrap(),
        |history| fs::write(history.join("5-8.parquet"), b"nonsense").unwrap(),
        |history| fs::remove_dir_all(history).unwrap(),
    ];
    for harm in harms {
        let scratch = closed_store();
        let dir = scratch.dir();
        fs::remove_file(dir.join("refs.arrow")).unwrap();
        harm(&dir.join("history"));
        let error = run(&dir).unwrap_err();
        assert!(matches!(&error, ResumeError::Open(error) if error.kind() == ErrorKind::Corrupt));
        assert!(!dir.join("refs.arrow").exists());
    }
}

// Breaks: not looking whether tables go further than history.
#[test]
fn history_that_ends_before_a_table_does_is_not_whole() {
    let scratch = closed_store();
    let dir = scratch.dir();
    fs::remove_file(dir.join("refs.arrow")).unwrap();
    fs::remove_file(dir.join("history/5-8.parquet")).unwrap();
    let error = run(&dir).unwrap_err();
    assert!(matches!(error, ResumeError::MoreSealed { .. }), "{error}");
    let said = error.to_string();
    for words in ["5-8.arrow", "transactions 5 to 8", "ends with 4", "Restore it", "move the table"]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!dir.join("refs.arrow").exists());
    fs::rename(dir.join("tables/5-8.arrow"), dir.join("aside")).unwrap();
    assert_eq!(run(&dir).unwrap().sealed_seq, Seq::new(4));
}

// Breaks: opening the files of history without reading them.
#[test]
fn every_block_of_history_is_checked_before_a_log_goes_on_behind_it() {
    let sound = fs::read(closed_store().dir().join("history/1-4.parquet")).unwrap();
    // The footer tells of itself when the file is opened.
    for at in [8, sound.len() / 8] {
        let scratch = closed_store();
        let dir = scratch.dir();
        fs::remove_file(dir.join("refs.arrow")).unwrap();
        let file = dir.join("history/1-4.parquet");
        let mut bytes = fs::read(&file).unwrap();
        bytes[at] ^= 1;
        fs::write(&file, bytes).unwrap();
        for dry_run in [true, false] {
            let options = ResumeOptions { dry_run, ..ResumeOptions::default() };
            let error = resume(&dir, &options).unwrap_err();
            assert!(error.to_string().contains("1-4.parquet"), "{error}");
            assert!(!dir.join("refs.arrow").exists());
        }
    }
}

// Breaks: not comparing the gaps of the live log with the files of history.
#[test]
fn a_history_file_in_a_gap_of_the_live_log_is_refused_and_found() {
    let mut scratch = closed_store();
    let dir = scratch.dir();
    scratch.reopen_closed();
    compact(&scratch.store);
    scratch.store.close().unwrap();
    fs::remove_file(dir.join("refs.arrow")).unwrap();
    let [file, table] = ["history/9-10.parquet", "tables/9-10.arrow"].map(|name| dir.join(name));
    fs::rename(&file, dir.join("aside")).unwrap();
    fs::remove_file(table).unwrap();
    assert_eq!(run(&dir).unwrap().sealed_seq, Seq::new(8));
    for is_written in [false, true] {
        if is_written {
            fs::rename(&file, dir.join("aside")).unwrap();
            scratch.reopen_closed();
            commit_numbers(&scratch.store, 40..=40);
            scratch.store.close().unwrap();
        }
        fs::rename(dir.join("aside"), &file).unwrap();
        let report = verify(&dir, &mut |_| ()).unwrap();
        assert!(!report.is_sound());
        let said = [RefStore::open(&dir).unwrap_err().to_string(), report.damage[0].to_string()];
        assert!(said.iter().all(|said| said.contains("9-10.parquet")), "{said:?}");
        assert_eq!(read_view(&dir).unwrap_err().kind(), ErrorKind::Corrupt);
        if is_written {
            assert!(said.iter().all(|said| said.contains("recorded as lost")), "{said:?}");
        }
    }
    fs::remove_file(&file).unwrap();
    assert!(verify(&dir, &mut |_| ()).unwrap().is_sound());
    scratch.reopen_closed();
}

// Breaks: guessing what HEAD pointed to.
#[test]
fn where_head_began_is_told_by_the_table_or_asked_for() {
    for (has_tables, said) in [(true, None), (false, None), (false, Some("refs/heads/trunk"))] {
        let scratch = tempfile::tempdir().unwrap();
        let dir = &scratch.path().join("refstone");
        let object_format = ObjectFormat::Sha1;
        let options = CreateOptions { object_format, head: name("refs/heads/trunk") };
        RefStore::create(dir, &options).unwrap();
        let store = RefStore::open(dir).unwrap();
        commit_numbers(&store, 1..=3);
        compact(&store);
        store.close().unwrap();
        fs::remove_file(dir.join("refs.arrow")).unwrap();
        if !has_tables {
            fs::remove_dir_all(dir.join("tables")).unwrap();
        }
        let options = ResumeOptions { head: said.map(name), ..ResumeOptions::default() };
        match resume(dir, &options) {
            Err(ResumeError::NoHead { .. }) => assert!(!has_tables && said.is_none()),
            resumed => {
                resumed.unwrap();
                let view = RefStore::open(dir).unwrap().view();
                let target = view.get(&RefName::head()).unwrap().unwrap();
                assert_eq!(target.symbolic(), Some(&name("refs/heads/trunk")));
            }
        }
    }
}

#[test]
fn a_store_that_is_held_is_left_alone() {
    let scratch = closed_store();
    let dir = scratch.dir();
    fs::remove_file(dir.join("refs.arrow")).unwrap();
    let lock = fs::File::open(dir.join("LOCK")).unwrap();
    lock.try_lock().unwrap();
    match run(&dir) {
        Err(ResumeError::Open(error)) => assert_eq!(error.kind(), ErrorKind::Locked),
        other => panic!("{other:?}"),
    }
    assert!(!dir.join("refs.arrow").exists());
}
