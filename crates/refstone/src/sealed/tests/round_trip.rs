//! What is written is what is read, in both forms.

use proptest::prelude::*;
use refstone_log::{ObjectFormat, OsEnv, Seq, Timestamp};

use super::support::{FORMS, Pushes, identity, moves, read, row, write, write_as};
use crate::sealed::{Form, HistoryFile, HistoryWriter, Identity};
use crate::stop::Stop;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // Breaks: a derived old id from the row of another ref; from a deletion; text unescaped with
    // another rule than it was escaped; `null` read as the empty text.
    #[test]
    fn moves_are_read_as_they_were_written(moves in moves(60)) {
        let dir = tempfile::tempdir().unwrap();
        for form in FORMS {
            let file = write(dir.path(), &moves, form);
            prop_assert_eq!(file.form(), form);
            prop_assert_eq!(&read(&file), &moves);
            file.verify(Stop::NEVER).unwrap();
        }
    }
}

// Breaks: an identity field that is written from another one, or not at all.
#[test]
fn a_file_says_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let moves: Vec<_> = Pushes::new(1, 3).skip(6).take(3).collect();
    let gaps = vec![(Seq::new(1), Seq::new(2)), (Seq::new(5), Seq::new(6))];
    let expected = Identity { gaps, ..identity(&moves, ObjectFormat::Sha1) };
    let path = dir.path().join("7-9.parquet");
    write_as(&path, &moves, Form::Derived, &expected).unwrap();
    let file = HistoryFile::open(&OsEnv, &path).unwrap();
    assert_eq!(file.identity(), &expected);
    assert_eq!((file.rows(), file.form()), (3, Form::Derived));
    assert_eq!(file.bytes(), std::fs::metadata(&path).unwrap().len());
}

// Breaks: naming the file before it is whole; leaving the temporary one behind.
#[test]
fn a_file_that_is_not_finished_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("1-3.parquet");
    let mut writer = HistoryWriter::create(&OsEnv, &path, ObjectFormat::Sha1, Form::Full).unwrap();
    for moved in Pushes::new(1, 3).take(3) {
        writer.push(moved.seq, moved.at, &row(&moved)).unwrap();
    }
    drop(writer);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

// Breaks: trusting the caller; each of these files would be refused, or worse, believed, later.
#[test]
fn what_is_no_history_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let moves: Vec<_> = Pushes::new(1, 3).take(3).collect();
    let good = identity(&moves, ObjectFormat::Sha1);
    for bad in [
        Identity { first: Seq::new(2), ..good.clone() },
        Identity { last: Seq::new(4), ..good.clone() },
        Identity { last_at: Timestamp::from_micros(0), ..good.clone() },
        Identity { object_format: ObjectFormat::Sha256, ..good.clone() },
    ] {
        write_as(&path, &moves, Form::Full, &bad).unwrap_err();
    }
    let mut out_of_order = moves.clone();
    out_of_order.swap(0, 1);
    write_as(&path, &out_of_order, Form::Full, &good).unwrap_err();
    write_as(&path, &[], Form::Full, &good).unwrap_err();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

// Breaks: row groups by rows alone (a reader would decode gigabytes of a dictionary's text); chunks
// that do not end with their row group.
#[test]
fn much_text_makes_small_row_groups() {
    let dir = tempfile::tempdir().unwrap();
    let mut moves: Vec<_> = Pushes::new(1, 3).take(40).collect();
    for moved in &mut moves {
        moved.message = Some(vec![b'm'; 4 << 20].into());
    }
    let file = write(dir.path(), &moves, Form::Full);
    assert!(file.scan(0..file.rows()).all(|rows| rows.unwrap().len() <= 17));
    assert_eq!(read(&file), moves);
}
