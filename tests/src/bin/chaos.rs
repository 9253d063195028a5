//! Damages logs: every bit of a small one, and random places of logs of 1, 100 and 100,000
//! transactions. It exits with 1 if a damage went unnoticed or took more with it than it touched, or if
//! a repair did not save the rest.

use std::process::ExitCode;
use std::time::Instant;

use refstone_tests::real::chaos::{Chaos, scratch_parent};

const USAGE: &str = "usage: chaos [--damages N] [--seed S]";

/// How many transactions the logs have, and for what part of the damages they are meant.
const LOGS: [(u64, u64); 3] = [(1, 1), (100, 1), (100_000, 20)];

fn main() -> ExitCode {
    let (damages, seed) = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(problem) => {
            eprintln!("{problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(damages, seed) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(3)
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<(u64, u64), String> {
    let (mut damages, mut seed) = (5000, 1);
    while let Some(word) = words.next() {
        let number = words.next().and_then(|value| value.parse().ok());
        let number = number.ok_or_else(|| format!("{word} needs a number"));
        match word.as_str() {
            "--damages" => damages = number?,
            "--seed" => seed = number?,
            _ => return Err(format!("unknown argument {word}")),
        }
    }
    Ok((damages, seed))
}

/// Returns how much was broken.
fn run(damages: u64, seed: u64) -> Result<usize, Box<dyn std::error::Error>> {
    let mut broken = flip_every_bit(seed)?;
    for (transactions, part) in LOGS {
        let start = Instant::now();
        let mut log = Chaos::new(&scratch_parent(), transactions, seed)?;
        for _ in 0..damages / part {
            log.damage_anywhere()?;
        }
        broken += tell(&log, &format!("{transactions} transactions, random places"), start);
    }
    Ok(broken)
}

fn flip_every_bit(seed: u64) -> Result<usize, Box<dyn std::error::Error>> {
    let start = Instant::now();
    let mut log = Chaos::new(&scratch_parent(), 1, seed)?;
    for bit in 0..log.len() * 8 {
        log.flip(bit)?;
    }
    Ok(tell(&log, "1 transaction, every bit", start))
}

fn tell(log: &Chaos, what: &str, start: Instant) -> usize {
    log.report.violations.iter().for_each(|violation| println!("VIOLATION: {violation}"));
    println!("{what}: {}; {:.1} s", log.report, start.elapsed().as_secs_f64());
    log.report.violations.len()
}
