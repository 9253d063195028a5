//! The table of `docs/durability.md`.

use std::collections::BTreeSet;
use std::fs;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/durability.md");
const HEADING: &str = "\n## Red proofs\n";

/// A row: with this sabotage, that test fails and says so.
pub(crate) struct Proof {
    promise: String,
    pub(crate) sabotage: String,
    pub(crate) test: String,
    pub(crate) says: String,
}

/// Reads the table, and insists that every promise has a row.
pub(crate) fn read() -> Result<Vec<Proof>, String> {
    let document = fs::read_to_string(DOCUMENT).map_err(|error| format!("{DOCUMENT}: {error}"))?;
    let (before, section) = document.split_once(HEADING).ok_or("there is no section of proofs")?;
    let section = section.split("\n## ").next().unwrap_or_default();
    let proofs: Vec<Proof> = section.lines().filter_map(row).collect();
    let proven: BTreeSet<&str> = proofs.iter().map(|proof| proof.promise.as_str()).collect();
    let promises = before.lines().filter_map(|line| line.strip_prefix("**")?.split_once(". "));
    let promises: Vec<&str> = promises.map(|(number, _)| number).collect();
    if promises.is_empty() {
        return Err("the document promises nothing".to_owned());
    }
    match promises.iter().find(|number| !proven.contains(*number)) {
        Some(number) => Err(format!("promise {number} has no red proof")),
        None => Ok(proofs),
    }
}

/// `| promise | sabotage | what it does | test | what the test says |`
fn row(line: &str) -> Option<Proof> {
    let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
    let [promise, sabotage, _, test, says] = cells[..] else { return None };
    let code = |cell: &str| Some(cell.strip_prefix('`')?.strip_suffix('`')?.to_owned());
    Some(Proof {
        promise: promise.to_owned(),
        sabotage: code(sabotage)?,
        test: code(test)?,
        says: code(says)?,
    })
}
