//! Cuts the power of real file systems under real writers, and judges what is left.
//!
//! Wants root, loop devices, the tools of the file system, and `python3`. With `--python`, a Python
//! that has pyarrow, every log is also read from outside before it is recovered. It exits with 1
//! if a promise was broken, and with 3 if the machine lacks something.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use refstone_tests::real::{CutsReport, Fs, Method, Moment, Outside, PowerCuts, writer};

const USAGE: &str = "usage: power_cuts [--fs ext4|xfs|btrfs] [--cuts N] [--seed S] \
                     [--method file-system|disk] [--python PATH]";

/// After so many cuts a new file system is made, with other options.
const CUTS_PER_VOLUME: usize = 50;

/// After so many violations there is nothing more to learn.
const VIOLATIONS_MAX: usize = 5;

/// What the command line asks for.
struct Arguments {
    fs: Fs,
    cuts: u64,
    seed: u64,
    method: Option<Method>,
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
        Ok(report) if report.violations.is_empty() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(3)
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments { fs: Fs::Ext4, cuts: 200, seed: 1, method: None, python: None };
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        let number = || value.parse().map_err(|_| format!("{word} needs a number"));
        match word.as_str() {
            "--fs" => arguments.fs = value.parse()?,
            "--cuts" => arguments.cuts = number()?,
            "--seed" => arguments.seed = number()?,
            "--method" => arguments.method = Some(method(&value)?),
            "--python" => arguments.python = Some(value.into()),
            _ => return Err(format!("unknown argument {word}")),
        }
    }
    Ok(arguments)
}

fn method(name: &str) -> Result<Method, String> {
    match name {
        "file-system" => Ok(Method::FileSystem),
        "disk" => Ok(Method::Disk),
        _ => Err(format!("unknown method {name}: expected file-system or disk")),
    }
}

/// One file system after the other, each cut in another way than the last.
fn run(arguments: &Arguments) -> Result<CutsReport, Box<dyn std::error::Error>> {
    let (mut report, start) = (CutsReport::default(), Instant::now());
    let mut seed = arguments.seed;
    while report.cuts < arguments.cuts && report.violations.len() < VIOLATIONS_MAX {
        let known = report.violations.len();
        let mut series = prepare(arguments, seed)?;
        for moment in Moment::ALL.into_iter().cycle().take(CUTS_PER_VOLUME) {
            if report.cuts + series.report.cuts < arguments.cuts {
                series.cut(moment)?;
            }
        }
        report.add(&series.report);
        for violation in &report.violations[known..] {
            println!("VIOLATION, seed {seed}: {violation}");
        }
        seed += 1;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{}, seeds {} to {}: {report}; {seconds:.0} s",
        arguments.fs.name(),
        arguments.seed,
        seed - 1
    );
    Ok(report)
}

fn prepare(arguments: &Arguments, seed: u64) -> Result<PowerCuts, Box<dyn std::error::Error>> {
    let turn = if seed.is_multiple_of(2) { Method::Disk } else { Method::FileSystem };
    let method = arguments.method.unwrap_or(turn);
    let program = std::env::current_exe()?;
    let mut series = PowerCuts::new(program, arguments.fs, arguments.fs.possible(method), seed)
        .map_err(Box::new)?;
    if let Some(python) = &arguments.python {
        series.look_from_outside(Outside::start(python)?);
    }
    Ok(series)
}
