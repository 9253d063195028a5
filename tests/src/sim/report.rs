//! How hard the lab looks, and what it found.

use std::fmt;

/// How hard the lab looks.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Steps of a workload, apart from its end.
    pub steps: usize,
    /// How many of a thousand moments are judged.
    pub moments: usize,
    /// Disks drawn at random for each moment, besides the fixed ones.
    pub draws: usize,
    /// How many of a thousand recoveries are crashed at every operation.
    pub nested: usize,
    /// How many of a thousand disks `verify` looks at.
    pub verified: usize,
    /// How many of a thousand recovered logs are used further, or damaged.
    pub used: usize,
}

impl Effort {
    /// For every change: seconds in a debug build.
    pub const QUICK: Effort =
        Effort { steps: 14, moments: 1000, draws: 2, nested: 60, verified: 200, used: 30 };
    /// For workloads that are many and alike.
    pub const SPARSE: Effort =
        Effort { steps: 0, moments: 60, draws: 2, nested: 0, verified: 0, used: 0 };
    /// For a full run.
    pub const FULL: Effort =
        Effort { steps: 30, moments: 1000, draws: 5, nested: 60, verified: 500, used: 60 };
}

/// What the lab has done so far.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Workloads run.
    pub workloads: u64,
    /// Moments at which a machine was crashed.
    pub moments: u64,
    /// Crash states: machines on which a log was recovered. Disks that are the same within one
    /// workload count once.
    pub states: u64,
    /// Crash states in which a recovery had been crashed before.
    pub nested: u64,
    /// Disks with a flipped bit.
    pub damaged: u64,
    /// Repairs of those that were crashed at every operation.
    pub repairs: u64,
    /// What went wrong.
    pub violations: Vec<Violation>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { workloads, moments, states, nested, damaged, repairs, violations } = self;
        let violations = violations.len();
        write!(
            f,
            "{workloads} workloads crashed at {moments} moments, {states} crash states ({nested} \
             after a crashed recovery), {damaged} damaged disks, {repairs} crashed repairs, \
             {violations} violations"
        )
    }
}

/// A promise that was broken.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The seed of the workload.
    pub seed: u64,
    /// When, and what.
    pub what: String,
}
