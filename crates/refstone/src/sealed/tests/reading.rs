//! Reading parts of a file.

use std::ops::Range;
use std::sync::OnceLock;

use refstone_log::{Seq, Timestamp};
use tempfile::TempDir;

use super::support::{FORMS, Pushes, Random, write};
use crate::row::RefMove;
use crate::sealed::{Form, HistoryFile};

const ROWS: u32 = 70_000;

struct Large {
    moves: Vec<RefMove>,
    files: Vec<HistoryFile>,
    _dirs: [TempDir; 2],
}

/// More rows than a row group has, three to a transaction, in both forms.
fn large() -> &'static Large {
    static LARGE: OnceLock<Large> = OnceLock::new();
    LARGE.get_or_init(|| {
        let mut moves: Vec<_> = Pushes::new(7, 500).take(ROWS as usize).collect();
        for index in 0..moves.len() {
            let first = moves[index - index % 3].clone();
            moves[index].seq = Seq::new(index as u64 / 3 + 1);
            moves[index].at = first.at;
        }
        let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let files = FORMS.iter().zip(&dirs);
        let files = files.map(|(form, dir)| write(dir.path(), &moves, *form)).collect();
        Large { moves, files, _dirs: dirs }
    })
}

fn slice(rows: Range<u32>) -> &'static [RefMove] {
    &large().moves[rows.start as usize..rows.end as usize]
}

// Breaks: sources of derived ids looked for in the chunk alone.
#[test]
fn any_range_is_read() {
    for range in [0..ROWS, 0..1, 65_535..65_537, 65_536..ROWS, 8191..8193, 1023..3000, 9..9] {
        for file in &large().files {
            let found: Vec<_> = file.moves(range.clone()).map(Result::unwrap).collect();
            assert_eq!(found, slice(range.clone()), "{range:?}");
        }
    }
}

#[test]
fn a_range_ends_with_the_file() {
    let file = &large().files[0];
    assert_eq!(file.moves(ROWS - 2..ROWS + 5).count(), 2);
    assert_eq!(file.moves(ROWS..ROWS + 5).count(), 0);
}

// Breaks: a selection in row numbers of the file; a request that leaves out its last row.
#[test]
fn scattered_objects_are_read() {
    let mut random = Random(3);
    for count in [0, 1, 2, 200, 5000] {
        let mut numbers: Vec<_> =
            (0..count).map(|_| u32::try_from(random.below(u64::from(ROWS))).unwrap()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let new = |row: &u32| Some((*row, large().moves[*row as usize].new_oid?));
        let expected: Vec<_> = numbers.iter().filter_map(new).collect();
        for file in &large().files {
            let mut found = Vec::new();
            file.each_new_oid(&numbers, |row, id| found.push((row, id))).unwrap();
            assert_eq!(found, expected);
        }
    }
}

// Breaks: `>` for `>=`, the row of the last match, a row counted within its row group.
#[test]
fn a_sequence_is_found() {
    let last = u64::from(ROWS).div_ceil(3);
    for seq in [0, 1, 2, 21_845, 21_846, 21_847, last, last + 1, u64::MAX] {
        let expected = large().moves.partition_point(|moved| moved.seq < Seq::new(seq));
        for file in &large().files {
            assert_eq!(file.row_at(Seq::new(seq)).unwrap() as usize, expected, "{seq}");
        }
    }
}

#[test]
fn a_time_is_found() {
    let at = |row: usize| large().moves[row].at.as_micros();
    let last = ROWS as usize - 1;
    for at in [i64::MIN, at(0) - 1, at(0), at(3), at(65_536) - 1, at(65_536), at(last), i64::MAX] {
        let at = Timestamp::from_micros(at);
        let expected = large().moves.partition_point(|moved| moved.at <= at);
        for file in &large().files {
            assert_eq!(file.row_after(at).unwrap() as usize, expected, "{at:?}");
        }
    }
}

// Breaks: storing every old id in a derived file, or a distance in none.
#[test]
fn a_derived_file_stores_few_old_ids() {
    let [full, derived] = &large().files[..] else { unreachable!() };
    assert_eq!((full.form(), derived.form()), (Form::Full, Form::Derived));
    assert!(derived.bytes() + 16 * u64::from(ROWS) < full.bytes());
}
