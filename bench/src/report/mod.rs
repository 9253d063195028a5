//! From a run to documents: tables in the README, plots beside it. No figure is typed by hand.

mod figures;
mod plots;
mod region;
mod svg;
mod tables;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nornir_bench::{BenchResult, BenchRun, history};

use crate::arm::OTHERS_CORES_MAX;

pub use figures::Figures;

/// Where the runs are kept, below the repository's root: one `BenchRun` a line.
pub const HISTORY: &str = ".nornir/history.jsonl";
const README: &str = "README.md";
const PLOTS: &str = "docs/plots";

pub fn history_file(root: &Path) -> PathBuf {
    root.join(HISTORY)
}

/// The newest run that documents may quote.
///
/// # Errors
/// If the history cannot be read.
pub fn last_full_run(root: &Path) -> Result<Option<BenchRun>> {
    let runs = history::read_all(&history_file(root))?;
    Ok(runs.into_iter().rev().find(|run| unfit(run).is_none()))
}

/// Why documents must not quote a run; `None` if they may.
pub fn unfit(run: &BenchRun) -> Option<String> {
    if run.machine.ends_with("-preview") {
        return Some("it is a preview".to_owned());
    }
    if !run.all_tests_passed() {
        return Some(format!("red arms: {}", run.failed_tests().join(", ")));
    }
    let others = |result: &BenchResult| result.metrics.get("others_cores")?.as_f64();
    // That arm is over too soon for it to be told.
    let mut timed = run.results.iter().filter(|result| result.name != "refstone.capabilities");
    let noisy = |result: &&BenchResult| others(result).is_some_and(|o| o > others_cores_max());
    if let Some(noisy) = timed.find(noisy) {
        return Some(format!("other processes took too much of the processors in {}", noisy.name));
    }
    let missing = |arm: &&crate::arm::Arm| run.find(arm.id).is_none();
    if let Some(arm) = crate::arms::ARMS.iter().find(missing) {
        return Some(format!("{} was not run", arm.id));
    }
    // Without the best of them, the next would pass for the best.
    let figures = Figures::of(run);
    let unmeasured =
        |name: &&&str| figures.get("peers", &format!("{name}_moves_per_sec_16")).is_none();
    crate::peers::NAMES.iter().find(unmeasured).map(|name| format!("{name} was not measured"))
}

/// `REFSTONE_BENCH_OTHERS_MAX` sets another limit, in processors.
fn others_cores_max() -> f64 {
    let given = std::env::var("REFSTONE_BENCH_OTHERS_MAX").ok();
    given.and_then(|cores| cores.parse().ok()).unwrap_or(OTHERS_CORES_MAX)
}

/// Writes the plots, and the tables into the README's marked regions; says what it did.
///
/// # Errors
/// If a file cannot be read or written, or a region has no end.
pub fn render(root: &Path, run: &BenchRun) -> Result<Vec<String>> {
    let figures = Figures::of(run);
    let mut done = vec![format!("rendering the run of {} on {}", run.date, run.machine)];
    let plots = root.join(PLOTS);
    fs::create_dir_all(&plots).with_context(|| format!("create {}", plots.display()))?;
    for (name, svg) in plots::all(&figures) {
        let path = plots.join(name);
        fs::write(&path, svg).with_context(|| format!("write {}", path.display()))?;
        done.push(format!("wrote {PLOTS}/{name}"));
    }
    done.extend(render_readme(&root.join(README), &figures)?);
    Ok(done)
}

fn render_readme(path: &Path, figures: &Figures<'_>) -> Result<Vec<String>> {
    let Ok(mut text) = fs::read_to_string(path) else {
        return Ok(vec![format!("there is no {README}: no table was written")]);
    };
    let mut done = Vec::new();
    for (name, table) in tables::all(figures) {
        match region::replace(&text, name, &table)? {
            Some(replaced) => {
                text = replaced;
                done.push(format!("{README}: wrote table {name}"));
            }
            None => done.push(format!("{README}: no region {}", region::begin(name))),
        }
    }
    fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use nornir_bench::TestOutcome;

    use super::*;

    fn full_run() -> BenchRun {
        let ids = crate::arms::ARMS.map(|arm| arm.id);
        let result = |id: &str| BenchResult { name: id.to_owned(), ..BenchResult::default() };
        let with_peers = |mut result: BenchResult| {
            if result.name == "refstone.peers" {
                let keys = crate::peers::NAMES.map(|name| format!("{name}_moves_per_sec_16"));
                keys.into_iter().for_each(|key| drop(result.metrics.insert(key, 1.0.into())));
            }
            result
        };
        let passed = |id: &str| TestOutcome {
            name: id.to_owned(),
            passed: true,
            duration_ms: None,
            message: None,
        };
        BenchRun {
            id: BenchRun::new_id(),
            date: "2026-01-02".to_owned(),
            timestamp: None,
            version: "0.1.0".to_owned(),
            machine: "2-core something".to_owned(),
            cores: 2,
            machine_facts: None,
            results: ids.map(result).map(with_peers).into(),
            tests: ids.map(passed).into(),
        }
    }

    // Breaks: quoting a preview, a red or a noisy run, or one that left arms out.
    #[test]
    fn documents_quote_only_full_green_quiet_runs() {
        assert_eq!(unfit(&full_run()), None);
        let mut preview = full_run();
        preview.machine.push_str("-preview");
        assert!(unfit(&preview).is_some());
        let mut red = full_run();
        red.tests[0].passed = false;
        assert!(unfit(&red).unwrap().starts_with("red arms"));
        let mut noisy = full_run();
        noisy.results[1].metrics.insert("others_cores".to_owned(), 1.5.into());
        assert!(unfit(&noisy).unwrap().starts_with("other processes"));
        let mut partial = full_run();
        partial.results.pop();
        assert!(unfit(&partial).unwrap().ends_with("was not run"));
        let mut best_left_out = full_run();
        let peers = best_left_out.results.iter_mut().find(|result| result.name == "refstone.peers");
        peers.unwrap().metrics.remove("rocksdb_moves_per_sec_16");
        assert_eq!(unfit(&best_left_out).unwrap(), "rocksdb was not measured");
    }

    #[test]
    fn a_run_is_rendered_where_there_are_regions() {
        let root = tempfile::tempdir().unwrap();
        let readme = "# x\n<!-- bench:begin peers -->\nold\n<!-- bench:end peers -->\nend\n";
        fs::write(root.path().join(README), readme).unwrap();
        let done = render(root.path(), &full_run()).unwrap();
        let text = fs::read_to_string(root.path().join(README)).unwrap();
        assert!(!text.contains("old") && text.ends_with("end\n"), "{text}");
        assert!(text.contains("2026-01-02") && text.contains("2-core something"));
        assert!(done.iter().any(|line| line.contains("no region")), "{done:?}");
        assert!(root.path().join("docs/plots/scaling.svg").exists());
    }

    #[test]
    fn without_a_readme_the_command_says_so() {
        let root = tempfile::tempdir().unwrap();
        let done = render(root.path(), &full_run()).unwrap();
        assert!(done.iter().any(|line| line.contains("there is no README.md")), "{done:?}");
    }
}
