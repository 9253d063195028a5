//! The full crash lab: runs seeded workloads until enough crash states were judged.
//!
//! Workloads are drawn from the seeds S, S + 1, …; it exits with 1 if a promise was broken.
//! `--stores` crashes stores that compact and merge instead of bare logs.
//! `--replay S` runs one workload and shows its steps. `--quick` looks as the ordinary tests do.

use std::process::ExitCode;
use std::time::Instant;

use refstone_tests::sim::{Effort, Lab, Sabotage, StoreLab, Violation};

const USAGE: &str = "usage: crash_lab [--quick|--stores] [--states N] [--seed S] [--replay S]";

/// After so many violations there is nothing more to learn.
const VIOLATIONS_MAX: usize = 10;

/// What the command line asks for.
struct Arguments {
    effort: Effort,
    states: u64,
    seed: u64,
    replay: bool,
    stores: bool,
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok(arguments) if arguments.stores => run_stores(&arguments),
        Ok(arguments) if arguments.replay => replay(&arguments),
        Ok(arguments) => run(&arguments),
        Err(problem) => {
            eprintln!("{problem}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments =
        Arguments { effort: Effort::FULL, states: 100_000, seed: 1, replay: false, stores: false };
    while let Some(word) = words.next() {
        let mut number = || {
            let value = words.next().and_then(|value| value.parse().ok());
            value.ok_or_else(|| format!("{word} needs a number"))
        };
        match word.as_str() {
            "--quick" => arguments.effort = Effort::QUICK,
            "--stores" => arguments.stores = true,
            "--states" => arguments.states = number()?,
            "--seed" => arguments.seed = number()?,
            "--replay" => (arguments.seed, arguments.replay) = (number()?, true),
            _ => return Err(format!("unknown argument {word}")),
        }
    }
    Ok(arguments)
}

fn run(arguments: &Arguments) -> ExitCode {
    // A panic of the log is a violation like any other, and is printed as one.
    std::panic::set_hook(Box::new(|_| ()));
    let start = Instant::now();
    let mut lab = Lab::new(arguments.effort, Sabotage::None);
    let mut seed = arguments.seed;
    while lab.report.states < arguments.states && lab.report.violations.len() < VIOLATIONS_MAX {
        let known = lab.report.violations.len();
        lab.run(seed);
        lab.report.violations[known..].iter().for_each(print_violation);
        seed += 1;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("seeds {} to {}: {}, {seconds:.1} s", arguments.seed, seed - 1, lab.report);
    verdict(&lab)
}

fn run_stores(arguments: &Arguments) -> ExitCode {
    let start = Instant::now();
    let mut lab = StoreLab::default();
    let states = if arguments.replay { 1 } else { arguments.states };
    let mut seed = arguments.seed;
    while lab.report.states < states && lab.report.violations.len() < VIOLATIONS_MAX {
        let known = lab.report.violations.len();
        lab.run(seed);
        lab.report.violations[known..].iter().for_each(print_violation);
        seed += 1;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("seeds {} to {}: {}, {seconds:.1} s", arguments.seed, seed - 1, lab.report);
    if lab.report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn replay(arguments: &Arguments) -> ExitCode {
    let mut lab = Lab::new(arguments.effort, Sabotage::None);
    for (index, step) in lab.steps(arguments.seed).iter().enumerate() {
        println!("step {index}: {step:?}");
    }
    lab.run(arguments.seed);
    lab.report.violations.iter().for_each(print_violation);
    println!("seed {}: {}", arguments.seed, lab.report);
    verdict(&lab)
}

fn print_violation(violation: &Violation) {
    println!("VIOLATION, seed {}: {}", violation.seed, violation.what);
    println!("  replay with: --replay {}", violation.seed);
}

fn verdict(lab: &Lab) -> ExitCode {
    if lab.report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
