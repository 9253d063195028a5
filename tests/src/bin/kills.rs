//! Kills writers again and again, beside readers and followers, and judges what is left.
//!
//! With `--python`, a Python that has pyarrow, the log is also read from outside all the while. It
//! exits with 1 if a promise was broken.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use refstone_tests::real::{Kills, Outside, writer};

const USAGE: &str = "usage: kills [--kills N] [--seconds T] [--seed S] [--dir DIR] [--python PATH]";

/// What the command line asks for.
struct Arguments {
    kills: u64,
    limit: Duration,
    seed: u64,
    dir: PathBuf,
    python: Option<PathBuf>,
}

fn main() -> ExitCode {
    writer::run_if_asked();
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(problem) => {
            eprintln!("{problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&arguments) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(3)
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments {
        kills: 500,
        limit: Duration::from_secs(600),
        seed: 1,
        dir: std::env::temp_dir(),
        python: None,
    };
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        let number = || value.parse().map_err(|_| format!("{word} needs a number"));
        match word.as_str() {
            "--kills" => arguments.kills = number()?,
            "--seconds" => arguments.limit = Duration::from_secs(number()?),
            "--seed" => arguments.seed = number()?,
            "--dir" => arguments.dir = value.into(),
            "--python" => arguments.python = Some(value.into()),
            _ => return Err(format!("unknown argument {word}")),
        }
    }
    Ok(arguments)
}

fn run(arguments: &Arguments) -> std::io::Result<usize> {
    let start = Instant::now();
    let mut series = Kills::new(std::env::current_exe()?, &arguments.dir, arguments.seed)?;
    if let Some(python) = &arguments.python {
        series.look_from_outside(Outside::start(python)?);
    }
    // What is wrong once is wrong with all that follows.
    while series.report.kills < arguments.kills
        && start.elapsed() < arguments.limit
        && series.report.violations.is_empty()
    {
        series.kill()?;
    }
    series.report.violations.iter().for_each(|violation| println!("VIOLATION: {violation}"));
    let seconds = start.elapsed().as_secs_f64();
    println!("seed {}: {}; {seconds:.0} s", arguments.seed, series.report);
    Ok(series.report.violations.len())
}
