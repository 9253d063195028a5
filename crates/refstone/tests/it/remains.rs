//! What is still told of a store of which a file is damaged or lost.

use std::fs;
use std::path::Path;

use refstone::{
    CompactOptions, Edit, ErrorKind, OpenError, RefMove, Seq, history, history_after,
    history_newest_first, verify,
};

use crate::common::{Scratch, head, oid, tx};

/// Transactions 1 to 3 and 4 to 6 in history, and 7 to 9 in the live log.
fn store() -> Scratch {
    let scratch = Scratch::new();
    for number in 1..=9 {
        scratch.store.commit(&tx([Edit::set(head("a"), oid(number))])).unwrap();
        if number == 3 || number == 6 {
            scratch.store.compact(CompactOptions::default(), &mut |_| ()).unwrap();
        }
    }
    scratch
}

/// Sequences; a file that is not readable stands as its error.
fn told(moves: impl Iterator<Item = Result<RefMove, OpenError>>) -> Vec<Result<u64, String>> {
    let told = |moved: Result<RefMove, OpenError>| match moved {
        Ok(moved) => Ok(moved.seq.get()),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            Err(error.to_string())
        }
    };
    moves.map(told).collect()
}

fn seqs(told: &[Result<u64, String>]) -> Vec<u64> {
    told.iter().map(|told| *told.as_ref().unwrap_or(&0)).collect()
}

fn break_footer(file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    let index = bytes.len() - 30;
    bytes[index] ^= 1;
    fs::write(file, bytes).unwrap();
}

// Breaks: refusing a store because of one file; ending at that file; a ref's moves lost with history
// that its table tells.
#[test]
fn a_history_file_that_does_not_open_hides_no_other() {
    let lost: [fn(&Path, &Path); 3] = [
        |history, _| break_footer(history),
        |history, table| [history, table].into_iter().for_each(break_footer),
        |history, _| fs::remove_file(history).unwrap(),
    ];
    for (case, lose) in lost.into_iter().enumerate() {
        for (first, newest_first, oldest_first) in [
            (1, vec![9, 8, 7, 6, 5, 4, 0], vec![0]),
            (4, vec![9, 8, 7, 0, 3, 2, 1], vec![1, 2, 3, 0]),
        ] {
            let scratch = store();
            let range = format!("{first}-{}", first + 2);
            let [history_file, table] =
                [format!("history/{range}.parquet"), format!("tables/{range}.arrow")]
                    .map(|file| scratch.dir().join(file));
            let sound = fs::read(&table).unwrap();
            lose(&history_file, &table);
            for name in [None, Some(head("a"))] {
                let moves = told(history_newest_first(&scratch.dir(), name.as_ref()).unwrap());
                let back = told(history(&scratch.dir(), name.as_ref()).unwrap());
                if case == 0 && name.is_some() {
                    assert_eq!(seqs(&moves), (1..10).rev().collect::<Vec<_>>());
                    assert_eq!(seqs(&back), (1..10).collect::<Vec<_>>());
                    continue;
                }
                assert_eq!(
                    (seqs(&moves), seqs(&back)),
                    (newest_first.clone(), oldest_first.clone())
                );
                let problem = moves.iter().find_map(|told| told.as_ref().err()).unwrap();
                let named = [range.as_str(), &range.replace('-', " to ")];
                assert!(named.iter().any(|named| problem.contains(named)), "{problem}");
            }
            fs::write(&table, sound).unwrap();
            let follower = told(history_after(&scratch.dir(), Seq::new(6), None).unwrap());
            assert_eq!(seqs(&follower), [7, 8, 9], "what it has dealt with is of no interest");

            let report = verify(&scratch.dir(), &mut |_| ()).unwrap();
            assert_eq!(report.damage.len(), 1, "{report:?}");
            assert!(report.damaged_tables.is_empty(), "{report:?}");
            assert_eq!((report.history.files, report.history.rows), (1, 3));
            assert_eq!((report.tables.files, report.live.transactions), (1, 3));
            assert_eq!(report.sealed_seq, Seq::new(6));
        }
    }
}

// Breaks: leaving history unread where there is no live log.
#[test]
fn history_is_read_without_its_live_log() {
    let losses: [fn(&Path); 3] = [
        |live| fs::remove_file(live).unwrap(),
        |live| fs::write(live, b"").unwrap(),
        |live| fs::write(live, [7; 40_000]).unwrap(),
    ];
    for lose in losses {
        let scratch = store();
        lose(&scratch.dir().join("refs.arrow"));
        let newest_first = told(history_newest_first(&scratch.dir(), None).unwrap());
        assert_eq!(seqs(&newest_first), [0, 6, 5, 4, 3, 2, 1]);
        let oldest_first = told(history(&scratch.dir(), None).unwrap());
        assert_eq!(seqs(&oldest_first), [1, 2, 3, 4, 5, 6, 0]);
        let problem = newest_first[0].as_ref().unwrap_err();
        assert!(problem.contains("refs.arrow"), "{problem}");

        let report = verify(&scratch.dir(), &mut |_| ()).unwrap();
        assert_eq!(report.damage.len(), 1, "{report:?}");
        assert!(report.damage[0].to_string().contains("refs.arrow"), "{report:?}");
        assert!(report.damaged_tables.is_empty(), "{report:?}");
        assert_eq!((report.history.files, report.history.rows, report.tables.files), (2, 6, 2));
        assert_eq!(report.sealed_seq, Seq::new(6));
        assert!(refstone::read_view(&scratch.dir()).is_err(), "what the refs are nobody knows");
    }
}
