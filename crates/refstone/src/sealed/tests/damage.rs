//! Damage is an error that says where, and never another row.

use std::path::Path;

use refstone_log::{ObjectFormat, OsEnv};

use super::support::{FORMS, Pushes, Random, identity, read, write, write_as};
use crate::row::RefMove;
use crate::sealed::{Form, HistoryFile, Identity, SealedError};
use crate::stop::Stop;

/// Opens, verifies and reads a file all ways.
fn read_all(path: &Path) -> Result<Vec<RefMove>, SealedError> {
    let file = HistoryFile::open(&OsEnv, path)?;
    file.verify(Stop::NEVER)?;
    // From the newest on, each alone, which reads the old objects of derived files where they are.
    let each = (0..file.rows()).rev().flat_map(|row| file.moves(row..row + 1));
    let mut backwards = each.collect::<Result<Vec<_>, _>>()?;
    backwards.reverse();
    let moves = file.moves(0..file.rows()).collect::<Result<Vec<_>, _>>()?;
    assert_eq!(backwards, moves);
    Ok(moves)
}

fn refused(path: &Path, bytes: &[u8], what: &str) {
    std::fs::write(path, bytes).unwrap();
    match read_all(path) {
        Err(error @ SealedError::Damaged { .. }) => {
            assert!(error.to_string().starts_with(path.to_str().unwrap()), "{what}: {error}");
        }
        Err(error) => panic!("{what}: {error}"),
        Ok(_) => panic!("{what}: not noticed"),
    }
}

// Breaks: leaving any part out of the checksums: the magic, the pages, the page index, the footer,
// its length. Reading one way without them: scattered rows trusting the page index.
#[test]
fn every_flipped_byte_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let moves: Vec<_> = Pushes::new(5, 3).take(20).collect();
    for form in FORMS {
        let path = write(dir.path(), &moves, form).path().to_owned();
        let bytes = std::fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            refused(&path, &damaged, &format!("byte {at} of {}", bytes.len()));
        }
    }
}

// Breaks: the same without `verify`: a block that is handed out unchecked.
#[test]
fn a_flipped_byte_of_a_larger_file_never_changes_a_row() {
    let dir = tempfile::tempdir().unwrap();
    let moves: Vec<_> = Pushes::new(5, 50).take(6000).collect();
    let mut random = Random(11);
    for form in FORMS {
        let path = write(dir.path(), &moves, form).path().to_owned();
        let bytes = std::fs::read(&path).unwrap();
        for _ in 0..60 {
            let at = usize::try_from(random.below(bytes.len() as u64)).unwrap();
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << random.below(8);
            std::fs::write(&path, &damaged).unwrap();
            let Ok(file) = HistoryFile::open(&OsEnv, &path) else { continue };
            let mut told = file.moves(0..file.rows());
            let sound: Vec<_> = told.by_ref().map_while(Result::ok).collect();
            assert_eq!(sound, moves[..sound.len()], "byte {at}");
            assert!(told.next().is_none(), "byte {at}");
            assert!(file.verify(Stop::NEVER).is_err(), "byte {at}");
        }
    }
}

#[test]
fn a_cut_or_foreign_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let moves: Vec<_> = Pushes::new(5, 3).take(20).collect();
    let path = write(dir.path(), &moves, Form::Full).path().to_owned();
    let bytes = std::fs::read(&path).unwrap();
    for len in (0..bytes.len()).step_by(7) {
        refused(&path, &bytes[..len], &format!("{len} bytes"));
    }
    refused(&path, &[&bytes[..], b"PAR1"].concat(), "four bytes more");
    refused(&path, &[&bytes[..4], &bytes[..]].concat(), "moved");
    refused(&path, &[0xff; 100], "no Parquet");
}

#[test]
fn an_error_says_which_byte() {
    let dir = tempfile::tempdir().unwrap();
    let moves: Vec<_> = Pushes::new(5, 50).take(6000).collect();
    let path = write(dir.path(), &moves, Form::Full).path().to_owned();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[70_000] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let file = HistoryFile::open(&OsEnv, &path).unwrap();
    let error = file.verify(Stop::NEVER).unwrap_err().to_string();
    assert!(error.contains("1-6000.parquet, byte 65536: the checksum of 8192 bytes is"), "{error}");
}

// Breaks: any one comparison in `verify`. Checksums cannot tell what was written wrongly.
#[test]
fn a_sound_file_of_no_history_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let moves: Vec<_> = Pushes::new(5, 3).take(9).collect();
    let verify = |moves: &[RefMove]| {
        let identity = Identity { ..identity(moves, ObjectFormat::Sha1) };
        let file = write_as(&dir.path().join("file"), moves, Form::Derived, &identity).unwrap();
        assert_eq!(read(&file), moves);
        file.verify(Stop::NEVER).map_err(|error| error.to_string())
    };
    verify(&moves).unwrap();

    let mut hole = moves.clone();
    hole.remove(4);
    assert!(verify(&hole).unwrap_err().contains("row 4: transaction 6 follows 4"));

    let mut two_times = moves.clone();
    two_times[4].seq = two_times[3].seq;
    two_times.truncate(5);
    assert!(verify(&two_times).unwrap_err().contains("row 4: transaction 4 follows 4"));
}
