//! Runs the arms, keeps the run, and renders the documents: `bench-report [run | render [ROOT]]`.
//!
//! `run` (the default) runs every arm, appends the run to `.nornir/history.jsonl`, and renders the
//! README's tables and the plots if the run was full and green. `render` renders the last such run
//! again, also that of another checkout. A preview is printed, and neither kept nor rendered.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use nornir_bench::BenchRun;
use nornir_bench::api::{preview_run, stamp_machine};
use nornir_bench::history;
use nornir_bench::runner::{RunOptions, run_bench_example};
use refstone_bench::report;

fn main() -> Result<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        None | Some("run") => run(&root()?),
        Some("render") => {
            let root = arguments.next().map_or_else(root, |given| Ok(given.into()))?;
            let run = report::last_full_run(&root)?;
            render(&root, &run.context("no full run was kept yet: run without `render` first")?)?;
            Ok(ExitCode::SUCCESS)
        }
        Some(other) => bail!("unknown command '{other}': expected run or render"),
    }
}

/// The repository that this crate lies in.
fn root() -> Result<PathBuf> {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().context("find the repository")
}

fn run(root: &Path) -> Result<ExitCode> {
    let run = run_bench_example(root, &RunOptions::from_env_cargo())?;
    let mut run = run.context("there is no example nornir-bench")?;
    if run.machine.is_empty() {
        run.machine = stamp_machine(machine(&run));
    }
    if preview_run() {
        println!("{}", serde_json::to_string(&run)?);
        return Ok(exit_code(&run));
    }
    history::append(&report::history_file(root), &run)?;
    println!("kept the run in {}", report::HISTORY);
    match report::unfit(&run) {
        None => render(root, &run)?,
        Some(why) => println!("nothing was rendered: {why}"),
    }
    Ok(exit_code(&run))
}

fn render(root: &Path, run: &BenchRun) -> Result<()> {
    report::render(root, run)?.iter().for_each(|line| println!("{line}"));
    Ok(())
}

/// What kind of machine it is; `NORNIR_MACHINE` may say it better.
fn machine(run: &BenchRun) -> String {
    let facts = run.machine_facts.as_ref();
    let cpu = facts.map_or("unknown", |facts| facts.cpu_model.as_str());
    format!("{}-core {cpu}", run.cores)
}

fn exit_code(run: &BenchRun) -> ExitCode {
    for arm in run.failed_tests() {
        eprintln!("RED: {arm}");
    }
    if run.all_tests_passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
