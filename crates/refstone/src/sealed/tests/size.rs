//! What a row takes.

use super::support::{FORMS, Pushes, write};
use crate::sealed::Form;

// Breaks: a dictionary on object ids (more than 45), old ids stored where they can be derived.
#[test]
fn a_sealed_row_takes_at_most_45_bytes_and_27_when_derived() {
    let dir = tempfile::tempdir().unwrap();
    let moves: Vec<_> = Pushes::new(1, 4083).take(100_000).collect();
    for form in FORMS {
        let file = write(dir.path(), &moves, form);
        let most = if form == Form::Full { 45 } else { 27 };
        let per_row = file.bytes() as f64 / f64::from(file.rows());
        println!("{form:?}: {per_row:.2} bytes a row");
        assert!(file.bytes() <= most * u64::from(file.rows()), "{form:?}: {per_row:.2}");
    }
}
