//! Whether a leader waits a moment for those it expects back.
//!
//! A leader that syncs whatever is queued ends up with two half-groups that take turns: while one
//! syncs, the other half stages and waits. In a closed loop those just released come back at
//! once; a leader that waits for them gets everybody into one group, and one sync serves twice as
//! many. That pays while coming back is fast compared with a sync. Where it is not (many writers,
//! few cores, a fast disk), waiting only delays the sync. Models of the two costs were off by
//! more than the gain, so the gate tries both and keeps what commits more.

use std::time::{Duration, Instant};

/// The policy of a gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gathering {
    /// A leader waits for those just released, at most half a sync, as long as that is measured
    /// to commit more than not waiting.
    #[default]
    Adaptive,
    /// A leader always waits so.
    On,
    /// A leader takes what is there.
    Off,
}

/// Rounds over which a policy is measured.
const WINDOW: u32 = 32;
/// One window in so many tries the policy that was worse.
const PROBE: u32 = 32;

/// What a leader should wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// Until so many are staged.
    pub(crate) wanted: usize,
    pub(crate) at_most: Duration,
}

/// What the gate has learned.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    gathering: Gathering,
    /// How many are expected to be staged soon, and when that was so.
    expected: usize,
    round_end: Option<Instant>,
    /// The mean of recent syncs.
    sync: Duration,
    trial: Trial,
}

/// The comparison of the two policies.
#[derive(Debug, Default)]
struct Trial {
    waiting: bool,
    window: u32,
    rounds: u32,
    commits: usize,
    busy: Duration,
    /// Commits per second without and with waiting; zero before the first window.
    rates: [f64; 2],
}

impl Gather {
    pub(crate) fn set(&mut self, gathering: Gathering) {
        self.gathering = gathering;
    }

    /// Ends a round that released so many, with so many staged meanwhile.
    pub(crate) fn end_round(
        &mut self,
        released: usize,
        staged: usize,
        sync: Duration,
        now: Instant,
    ) {
        self.sync = if self.sync.is_zero() { sync } else { (self.sync * 7 + sync) / 8 };
        self.expected = staged + released;
        let took = self.round_end.map(|end| now.saturating_duration_since(end));
        self.round_end = Some(now);
        match took {
            Some(took) if took < self.sync * 4 => self.trial.count(released, took),
            // The log was idle in between, which says nothing of either policy.
            _ => self.trial.restart(),
        }
    }

    /// What the next leader should wait for, if anything.
    pub(crate) fn plan(&self, staged: usize, now: Instant) -> Option<Wait> {
        let waits = match self.gathering {
            Gathering::Adaptive => self.trial.waiting,
            Gathering::On => true,
            Gathering::Off => false,
        };
        let since = now.saturating_duration_since(self.round_end?);
        // Alone there is nobody to wait for; after a while nobody is on the way back.
        let worth = self.expected > staged.max(1) && since < self.sync;
        (waits && worth).then_some(Wait { wanted: self.expected, at_most: self.sync / 2 })
    }
}

impl Trial {
    fn count(&mut self, commits: usize, took: Duration) {
        self.rounds += 1;
        self.commits += commits;
        self.busy += took;
        if self.rounds >= WINDOW {
            self.judge();
        }
    }

    fn restart(&mut self) {
        (self.rounds, self.commits, self.busy) = (0, 0, Duration::ZERO);
    }

    #[allow(clippy::cast_precision_loss, reason = "a rate needs no more than 52 bits")]
    fn judge(&mut self) {
        let rate = self.commits as f64 / self.busy.as_secs_f64().max(1e-9);
        let known = &mut self.rates[usize::from(self.waiting)];
        *known = if *known == 0.0 { rate } else { (*known + rate) / 2.0 };
        self.window += 1;
        let [off, on] = self.rates;
        // Not waiting is tried first, then waiting; from then on the better one, but for probes.
        let better = on == 0.0 || on > off;
        self.waiting = better != self.window.is_multiple_of(PROBE);
        self.restart();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC: Duration = Duration::from_micros(100);

    /// Runs rounds in which a policy takes so long, and returns the share of rounds that waited.
    fn share_waited(
        rounds: usize,
        writers: usize,
        took: impl Fn(bool) -> (usize, Duration),
    ) -> f64 {
        let (mut gather, mut now, mut waited) = (Gather::default(), Instant::now(), 0);
        for _ in 0..rounds {
            let waits = gather.plan(writers / 2, now).is_some();
            waited += usize::from(waits);
            let (released, took) = took(waits);
            now += took;
            gather.end_round(released, writers - released, SYNC, now);
        }
        f64::from(u32::try_from(waited).unwrap()) / f64::from(u32::try_from(rounds).unwrap())
    }

    // Break: comparing the sizes of groups instead of rates.
    #[test]
    fn waiting_is_kept_where_it_commits_more_and_left_off_where_it_does_not() {
        let pays = |waits| if waits { (16, SYNC * 3 / 2) } else { (8, SYNC) };
        assert!(share_waited(10_000, 16, pays) > 0.9);
        let costs = |waits| if waits { (16, SYNC * 5 / 2) } else { (8, SYNC) };
        assert!(share_waited(10_000, 16, costs) < 0.1);
    }

    // Break: expecting back the only writer there is.
    #[test]
    fn a_single_writer_never_waits() {
        let mut gather = Gather::default();
        gather.set(Gathering::On);
        let now = Instant::now();
        gather.end_round(1, 0, SYNC, now);
        assert_eq!(gather.plan(1, now), None);
        assert_eq!(gather.plan(0, now), None);
    }

    // Break: expecting those of yesterday.
    #[test]
    fn nobody_is_expected_back_after_a_while() {
        let mut gather = Gather::default();
        gather.set(Gathering::On);
        let now = Instant::now();
        gather.end_round(16, 0, SYNC, now);
        assert_eq!(gather.plan(1, now), Some(Wait { wanted: 16, at_most: SYNC / 2 }));
        assert_eq!(gather.plan(1, now + SYNC * 2), None);
    }
}
