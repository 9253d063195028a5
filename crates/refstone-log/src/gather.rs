//! Whether a leader waits a moment for those it expects back.
//!
//! A leader that syncs whatever is queued ends up with two half-groups that take turns: while one
//! syncs, the other half stages and waits. In a closed loop those just released come back at
//! once; a leader that waits for them gets everybody into one group, and one sync serves twice as
//! many. It pays only while coming back is fast compared with a sync, so the gate measures both
//! and leaves off where it does not.

use std::time::{Duration, Instant};

/// The policy of a gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gathering {
    /// A leader waits for those just released, at most half a sync, and leaves off by itself
    /// where that does not pay.
    #[default]
    Adaptive,
    /// A leader takes what is there.
    Off,
}

/// Rounds without waiting after waiting did not pay, before it is tried again.
const PAUSE: u32 = 64;
/// Failures in a row after which waiting pauses.
const FAILURES_MAX: u32 = 2;

/// What a leader should wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// Until so many are staged.
    pub(crate) wanted: usize,
    pub(crate) at_most: Duration,
}

/// What the gate has learned.
#[derive(Debug)]
pub(crate) struct Gather {
    gathering: Gathering,
    /// How many are expected to be staged soon, and since when.
    expected: usize,
    since: Instant,
    /// The mean of recent syncs.
    sync: Duration,
    failures: u32,
    pause: u32,
}

impl Default for Gather {
    fn default() -> Self {
        Gather {
            gathering: Gathering::default(),
            expected: 0,
            since: Instant::now(),
            sync: Duration::ZERO,
            failures: 0,
            pause: 0,
        }
    }
}

impl Gather {
    pub(crate) fn set(&mut self, gathering: Gathering) {
        self.gathering = gathering;
    }

    /// Ends a round: so many are now staged or released and expected back.
    pub(crate) fn expect(&mut self, expected: usize, last_sync: Duration) {
        self.expected = expected;
        self.since = Instant::now();
        self.sync = if self.sync.is_zero() { last_sync } else { (self.sync * 7 + last_sync) / 8 };
        self.pause = self.pause.saturating_sub(1);
    }

    /// What the next leader should wait for, if anything.
    pub(crate) fn plan(&self, staged: usize) -> Option<Wait> {
        let fresh = self.since.elapsed() < self.sync;
        let missing = self.expected > staged.max(1);
        let on = self.gathering == Gathering::Adaptive && self.pause == 0;
        (on && missing && fresh).then_some(Wait { wanted: self.expected, at_most: self.sync / 2 })
    }

    /// Learns how a wait ended.
    pub(crate) fn learn(&mut self, came: bool, _took: Duration) {
        if came {
            self.failures = 0;
            return;
        }
        self.failures += 1;
        if self.failures >= FAILURES_MAX {
            self.failures = 0;
            self.pause = PAUSE;
        }
    }
}
