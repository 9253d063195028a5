//! The runner of nornir-bench finds and runs this crate's example from the repository's root.

use std::path::{Path, PathBuf};
use std::process::Command;

use nornir_bench::runner::{RunOptions, find_bench_example, run_bench_example};
use refstone_bench::arms::ARMS;

const PREVIEW: &str = "NORNIR_BENCH_PREVIEW";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the root exists")
}

#[test]
fn the_runner_finds_the_example() {
    let options = RunOptions::from_env_cargo();
    let found = find_bench_example(&root(), &options.cargo).expect("an example");
    assert_eq!(found.run_dir, root().join("bench"));
}

/// The runner hands its environment on, and only a preview is quick: so this test starts itself
/// again with the variable set.
#[test]
fn the_runner_runs_the_example() {
    if std::env::var_os(PREVIEW).is_some() {
        return run_in_preview();
    }
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "the_runner_runs_the_example", "--nocapture"]).env(PREVIEW, "1");
    assert!(again.status().unwrap().success());
}

fn run_in_preview() {
    let run = run_bench_example(&root(), &RunOptions::from_env_cargo()).expect("it runs");
    let run = run.expect("it is found");
    assert!(run.all_tests_passed(), "{:?}", run.tests);
    for arm in ARMS {
        let result = run.find(arm.id).unwrap_or_else(|| panic!("{} is missing", arm.id));
        for key in ["mode", "batch", "payload", "sync_p50_us", "load_before", "verdict"] {
            assert!(result.metrics.contains_key(key), "{} has no {key}", arm.id);
        }
    }
}
