//! Checking and counting all that a store consists of.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use refstone::{
    CompactOptions, CreateOptions, Edit, ErrorKind, HistoryForm, Merge, ObjectId, RefStore, Seq,
    survey, verify,
};

use crate::common::{Scratch, head, oid, tx};

fn compact(scratch: &Scratch, merge: Merge) {
    let options = CompactOptions { form: HistoryForm::Full, merge };
    scratch.store.compact(options, &mut |_| ()).unwrap();
}

fn fill(scratch: &Scratch, transactions: u8) {
    for number in 1..=transactions {
        let edits = [
            Edit::set(head("hot"), oid(number)),
            Edit::set(head(&format!("topic-{}", number % 5)), oid(number)),
        ];
        scratch.store.commit(&tx(edits)).unwrap();
    }
}

/// Two history files with their tables, and something in the live log.
fn store_with_files() -> Scratch {
    let scratch = Scratch::new();
    fill(&scratch, 10);
    compact(&scratch, Merge::Due);
    fill(&scratch, 20);
    scratch.store.commit(&tx([Edit::delete(head("topic-1"))])).unwrap();
    compact(&scratch, Merge::Due);
    fill(&scratch, 3);
    scratch
}

fn only(scratch: &Scratch, shelf: &str, prefix: &str) -> PathBuf {
    let entries = fs::read_dir(scratch.dir().join(shelf)).unwrap().map(|entry| entry.unwrap());
    let mut found = entries.filter(|entry| entry.file_name().to_str().unwrap().starts_with(prefix));
    found.next().unwrap().path()
}

fn flip(file: &Path, at: impl Fn(usize) -> usize) {
    let mut bytes = fs::read(file).unwrap();
    let index = at(bytes.len());
    bytes[index] ^= 1;
    fs::write(file, bytes).unwrap();
}

#[test]
fn a_sound_store_is_counted() {
    let scratch = store_with_files();
    let report = verify(&scratch.dir(), &mut |_| ()).unwrap();
    assert!(report.is_sound(), "{report:?}");
    assert_eq!((report.history.files, report.history.rows), (2, 20 + 41));
    assert_eq!((report.sealed_seq, report.live.rows), (Seq::new(31), 6));
    // HEAD, hot and five topics; and a deletion in the second.
    assert_eq!((report.tables.files, report.tables.rows), (2, 7 + 6));

    let survey = survey(&scratch.dir()).unwrap();
    assert_eq!((survey.durable_seq, survey.sealed_seq), (Seq::new(34), Seq::new(31)));
    assert_eq!((survey.live.transactions, survey.live.rows), (3, 6));
    assert_eq!(survey.live.bytes, report.live.bytes);
    let ranges = survey.history.iter().map(|part| (part.first.get(), part.last.get()));
    assert!(ranges.eq([(1, 10), (11, 31)]));
    let bytes = survey.history.iter().map(|part| part.bytes).sum::<u64>();
    assert_eq!(bytes, report.history.bytes);
    let files = survey.live.file_bytes + bytes + report.tables.bytes;
    assert_eq!(survey.directory_bytes, files, "and an empty lock");
}

// Breaks: leaving out `HistoryFile::verify`: the first row is sound, and the table is blamed.
#[test]
fn damaged_history_is_damage_and_the_rest_is_checked() {
    let scratch = Scratch::new();
    fill(&scratch, 10);
    compact(&scratch, Merge::Due);
    let edit = |number: u32| {
        let word = |n: u32| number.wrapping_mul(0x9e37_79b9).rotate_left(n).to_be_bytes();
        let id: Vec<u8> = (1..=5).flat_map(word).collect();
        tx([Edit::set(head("hot"), ObjectId::from_bytes(&id).unwrap())])
    };
    let many: Vec<_> = (1..=6000).map(edit).collect();
    assert!(scratch.store.commit_batch(&many).iter().all(Result::is_ok));
    compact(&scratch, Merge::Due);
    fill(&scratch, 3);
    flip(&only(&scratch, "history", "11-"), |len| len / 3 * 2);
    let report = verify(&scratch.dir(), &mut |_| ()).unwrap();
    assert_eq!((report.damage.len(), report.damaged_tables.len()), (1, 0), "{report:?}");
    assert_eq!(report.damage[0].kind(), ErrorKind::Corrupt);
    assert!(report.damage[0].to_string().contains("11-6010.parquet"), "{report:?}");
    assert_eq!((report.history.files, report.tables.files), (1, 1));
    assert_eq!(report.live.transactions, 3);
}

#[test]
fn history_of_another_log_and_history_that_is_missing_are_damage() {
    let scratch = store_with_files();
    let file = only(&scratch, "history", "1-");
    let aside = scratch.dir().join("aside");
    fs::rename(&file, &aside).unwrap();
    let report = verify(&scratch.dir(), &mut |_| ()).unwrap();
    assert!(report.damage[0].to_string().contains("transactions 1 to 10"), "{report:?}");
    fs::copy(only(&store_with_files(), "history", "1-"), &file).unwrap();
    let report = verify(&scratch.dir(), &mut |_| ()).unwrap();
    assert!(report.damage[0].to_string().contains("of another log"), "{report:?}");
    fs::rename(&aside, &file).unwrap();
    assert!(verify(&scratch.dir(), &mut |_| ()).unwrap().is_sound());
}

// Breaks: taking a damaged table for damage to the log.
#[test]
fn a_damaged_table_is_damage_to_a_cache_and_is_made_anew() {
    let mut scratch = store_with_files();
    type Harm = fn(&Path);
    let harms: [Harm; 2] = [|table| flip(table, |len| len / 2), |table| flip(table, |len| len - 3)];
    for harm in harms {
        harm(&only(&scratch, "tables", "1-"));
        let report = verify(&scratch.dir(), &mut |_| ()).unwrap();
        assert!(report.damage.is_empty() && !report.is_sound(), "{report:?}");
        assert_eq!((report.damaged_tables.len(), report.tables.files), (1, 1));
        assert!(report.damaged_tables[0].to_string().contains("1-10.arrow"), "{report:?}");
        scratch.store.rebuild(&mut |_| ()).unwrap();
        assert!(verify(&scratch.dir(), &mut |_| ()).unwrap().is_sound());
        scratch.reopen();
    }
}

// Breaks: taking a missing table for damage; not telling of it.
#[test]
fn a_copy_without_tables_is_sound_and_opens() {
    let mut scratch = store_with_files();
    scratch.store.close().unwrap();
    let before = refs(&scratch);
    fs::remove_dir_all(scratch.dir().join("tables")).unwrap();
    let report = verify(&scratch.dir(), &mut |_| ()).unwrap();
    assert!(report.is_sound(), "{report:?}");
    assert_eq!((report.missing_tables.len(), report.tables.files), (report.history.files, 0));
    scratch.reopen_closed();
    assert_eq!(refs(&scratch), before);
    assert!(verify(&scratch.dir(), &mut |_| ()).unwrap().missing_tables.is_empty());
}

fn refs(scratch: &Scratch) -> Vec<refstone::RefMove> {
    refstone::history(&scratch.dir(), None).unwrap().map(Result::unwrap).collect()
}

// Breaks: checking a table by itself. It is sound, of this log and of this range.
#[test]
fn a_table_that_does_not_say_what_history_says_is_found() {
    let scratch = tempfile::tempdir().unwrap();
    let [ours, theirs] = ["ours", "theirs"].map(|name| scratch.path().join(name));
    RefStore::create(&ours, &CreateOptions::default()).unwrap();
    fs::create_dir(&theirs).unwrap();
    fs::copy(ours.join("refs.arrow"), theirs.join("refs.arrow")).unwrap();
    for (dir, id) in [(&ours, 1), (&theirs, 2)] {
        let store = RefStore::open(dir).unwrap();
        store.commit(&tx([Edit::set(head("a"), oid(id))])).unwrap();
        store.compact(CompactOptions::default(), &mut |_| ()).unwrap();
        store.close().unwrap();
        assert!(verify(dir, &mut |_| ()).unwrap().is_sound());
    }
    fs::copy(theirs.join("tables/1-1.arrow"), ours.join("tables/1-1.arrow")).unwrap();
    let report = verify(&ours, &mut |_| ()).unwrap();
    assert!(report.damage.is_empty());
    assert!(report.damaged_tables[0].to_string().contains("1-1.parquet"), "{report:?}");
    RefStore::open(&ours).unwrap().rebuild(&mut |_| ()).unwrap();
    assert!(verify(&ours, &mut |_| ()).unwrap().is_sound());
}

// Breaks: opening the tables after what they go with has been merged away, and taking that for
// damage.
#[test]
fn sealing_and_merging_meanwhile_is_no_damage() {
    let scratch = Scratch::new();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let checks = scope.spawn(|| {
            let mut checks = 0;
            while !done.load(Ordering::Relaxed) {
                let report = verify(&scratch.dir(), &mut |_| ()).unwrap();
                assert!(report.is_sound(), "{report:?}");
                survey(&scratch.dir()).unwrap();
                checks += 1;
            }
            checks
        });
        for round in 0..60 {
            fill(&scratch, 3);
            compact(&scratch, if round % 2 == 0 { Merge::All } else { Merge::Due });
        }
        done.store(true, Ordering::Relaxed);
        assert!(checks.join().unwrap() > 5);
    });
}

#[test]
fn what_a_store_did_is_counted_from_its_opening() {
    let mut scratch = Scratch::new();
    fill(&scratch, 4);
    scratch.reopen();
    assert_eq!(scratch.store.stats().group_size_mean(), None);
    let batch: Vec<_> = (1..=50).map(|number| tx([Edit::set(head("a"), oid(number))])).collect();
    for outcome in scratch.store.commit_batch(&batch) {
        outcome.unwrap();
    }
    let stats = scratch.store.stats();
    assert_eq!((stats.transactions, stats.syncs), (50, 1));
    assert_eq!(stats.group_size_mean(), Some(50.0));
    assert_eq!(stats.sync_time_mean(), Some(stats.sync_time));
    assert_eq!((stats.durable_seq, stats.sealed_seq), (Seq::new(54), Seq::ZERO));
    compact(&scratch, Merge::Due);
    let stats = scratch.store.stats();
    assert_eq!((stats.compactions.compactions, stats.compactions.done.sealed), (1, 54));
    assert_eq!(stats.sealed_seq, Seq::new(54));
}

// Breaks: going through all tables, however long it takes, while whoever closes the store waits.
#[test]
fn a_rebuild_stops_when_its_store_is_closed() {
    let scratch = store_with_files();
    let table = only(&scratch, "tables", "1-");
    fs::write(&table, b"nonsense").unwrap();
    scratch.store.close().unwrap();
    assert_eq!(scratch.store.rebuild(&mut |_| ()).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(fs::read(table).unwrap(), b"nonsense");
}

// Breaks: telling what the system says alone; a table that is not made anew by the next opening.
#[test]
fn a_table_that_is_taken_from_an_open_store_is_told_with_what_helps() {
    let mut scratch = Scratch::new();
    fill(&scratch, 10);
    compact(&scratch, Merge::Due);
    scratch.reopen();
    fs::remove_dir_all(scratch.dir().join("tables")).unwrap();
    let error = scratch.store.view().get(&head("hot")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    for part in ["tables/1-10.arrow: this table is missing", "nothing is lost", "the next opening"]
    {
        assert!(error.to_string().contains(part), "{error}");
    }
    scratch.reopen();
    assert_eq!(scratch.store.view().get(&head("hot")).unwrap(), Some(oid(10).into()));
}
