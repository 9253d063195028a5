//! Seeds, and mutations of them, hold what the targets demand.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use refstone_fuzz::mutate::mutated;
use refstone_fuzz::{TARGETS, Target, frames, names, packets, recovery};
use refstone_tests::sim::Rng;

/// Mutations of each target, unless the environment asks for more.
const RUNS: u64 = 3000;

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let mut paths: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

fn replay(target: &str, judge: Target) {
    let seeds = seeds(target);
    assert!(seeds.len() >= 4, "{target} has seeds");
    seeds.iter().for_each(|seed| judge(seed));
    let runs = std::env::var("REFSTONE_FUZZ_RUNS").map_or(RUNS, |runs| runs.parse().unwrap());
    for run in 0..runs {
        let input = mutated(&seeds, &mut Rng::new(run));
        if catch_unwind(AssertUnwindSafe(|| judge(&input))).is_err() {
            panic!("{target}, mutation {run}: {}", input.escape_ascii());
        }
    }
}

#[test]
fn every_target_has_seeds_and_no_others_do() {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let mut found: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    assert_eq!(found, TARGETS.map(|(name, _)| name));
}

// Breaks: a bound that is not checked; a column that arrow-rs would refuse.
#[test]
fn a_frame_is_read_alike_by_everybody_or_by_nobody() {
    replay("frames", frames);
}

// Breaks: `verify` and recovery that judge by different rules; an opening that cuts what a reader saw.
#[test]
fn a_damaged_log_is_judged_alike_by_everybody() {
    replay("recovery", recovery);
}

// Break: any rule of git's left out, or one too many.
#[test]
fn names_are_legal_as_the_manual_says() {
    replay("names", names);
}

// Break: a decoder that depends on how its bytes arrive.
#[test]
fn requests_are_understood_however_they_are_cut() {
    replay("packets", packets);
}
