//! Lets the disks under real file systems run full until syncs fail, and judges what is left.
//!
//! Wants root, loop devices, `mkfs.ext4` and `python3`. It exits with 1 if a promise was broken, and
//! with 3 if the machine lacks something.

use std::process::ExitCode;

use refstone_tests::real::{FailedSyncs, writer};

const USAGE: &str = "usage: failed_syncs [--disks N] [--seed S]";

fn main() -> ExitCode {
    writer::run_if_asked();
    match parse(std::env::args().skip(1)) {
        Ok((disks, seed)) => run(disks, seed),
        Err(problem) => {
            eprintln!("{problem}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<(u64, u64), String> {
    let (mut disks, mut seed) = (100, 1);
    while let Some(word) = words.next() {
        let number = words.next().and_then(|value| value.parse().ok());
        let number = number.ok_or_else(|| format!("{word} needs a number"));
        match word.as_str() {
            "--disks" => disks = number?,
            "--seed" => seed = number?,
            _ => return Err(format!("unknown argument {word}")),
        }
    }
    Ok((disks, seed))
}

fn run(disks: u64, seed: u64) -> ExitCode {
    let program = std::env::current_exe().expect("the path of this program");
    let mut series = FailedSyncs::new(program, seed);
    for _ in 0..disks {
        if let Err(skipped) = series.fail() {
            eprintln!("error: {skipped}");
            return ExitCode::from(3);
        }
    }
    series.report.violations.iter().for_each(|violation| println!("VIOLATION: {violation}"));
    println!("seed {seed}: {}", series.report);
    if series.report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
