//! The red proofs: every promise is broken on purpose, and the test that holds it must notice.
//!
//! `docs/durability.md`, "Red proofs", is the list. The tests run first as they are, and pass. Then
//! each sabotage is switched on alone, and the tests of its row must fail, saying what the row says.
//! An ordinary build is searched for traces of all this.
//!
//! `--only NAME` proves one sabotage.

mod build;
mod run;
mod table;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Instant;

use build::Built;
use run::Outcome;
use table::Proof;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let only = match (words.next().as_deref(), words.next(), words.next()) {
        (None, ..) => None,
        (Some("--only"), Some(name), None) => Some(name),
        _ => {
            eprintln!("usage: red_proofs [--only NAME]");
            return ExitCode::from(2);
        }
    };
    match prove(only.as_deref()) {
        Ok(summary) => {
            println!("{summary}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

fn prove(only: Option<&str>) -> Result<String, String> {
    let proofs = table::read()?;
    let wanted = |proof: &&Proof| only.is_none_or(|name| proof.sabotage == name);
    let proofs: Vec<&Proof> = proofs.iter().filter(wanted).collect();
    let built = Built::new()?;
    built.ordinary_build_has_no_trace()?;
    let start = Instant::now();
    let tests: BTreeSet<&str> = proofs.iter().map(|proof| proof.test.as_str()).collect();
    let tests: Vec<&str> = tests.into_iter().collect();
    let mut failures = run::all(&tests, |test| green(&built, test))?;
    failures.extend(run::all(&proofs, |proof| red(&built, proof))?);
    if proofs.is_empty() || !failures.is_empty() {
        return Err(format!("{} proofs failed:\n{}", failures.len(), failures.join("\n")));
    }
    let seconds = start.elapsed().as_secs();
    Ok(format!("{} red proofs, {} tests, {seconds} s", proofs.len(), tests.len()))
}

/// Runs one test as it is; says what is wrong with it.
fn green(built: &Built, test: &str) -> Result<Option<String>, String> {
    Ok(match run::test(built, test, None)? {
        Outcome::Green => None,
        Outcome::Red(said) => Some(format!("{test} fails without sabotage:\n{said}")),
    })
}

/// Runs one proof; says what is wrong with it.
fn red(built: &Built, proof: &Proof) -> Result<Option<String>, String> {
    let Proof { sabotage, test, says, .. } = proof;
    let problem = match run::test(built, test, Some(sabotage))? {
        Outcome::Green => Some(format!("{sabotage}: {test} does not notice")),
        Outcome::Red(said) if !said.contains(says.as_str()) => {
            Some(format!("{sabotage}: {test} fails, but not with `{says}`:\n{said}"))
        }
        Outcome::Red(_) => None,
    };
    println!("{} {sabotage}: {test}", if problem.is_none() { "red" } else { "???" });
    Ok(problem)
}
