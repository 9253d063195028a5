//! Threads that sleep until a round is over, and are woken together.
//!
//! All that a round covers sleep on one word, so the kernel wakes them in one call. Waking each by
//! name took a call, a lock and a count for every one of them: with 256 writers on two processors a
//! bare loop without that commits 1.4 times as much (`.nornir/levers.md`).

use crate::sabotage::{self, Sabotage};
use crate::sync::WaitWord;

/// How many rounds have words of their own. Two would do; with four, those of a round are not woken
/// for nothing by a thread that is late to wake those of the round before the last.
const WORDS: usize = 4;

/// What the sleepers of each round sleep on.
#[derive(Debug, Default)]
pub(crate) struct Beds {
    words: [WaitWord; WORDS],
}

/// Who sleeps. Under the gate's lock.
#[derive(Debug, Default)]
pub(crate) struct Sleepers {
    /// The round that is under way, or next.
    round: u64,
    counts: [usize; WORDS],
}

/// A thread's place among the sleepers of a round. It is used up by being woken together with them;
/// who wakes up for another reason [leaves](Sleepers::leave) it.
#[derive(Debug)]
pub(crate) struct Place {
    round: u64,
    seen: u32,
}

/// Those who are to be woken, once the gate's lock is given up.
#[derive(Debug, Default)]
#[must_use = "they sleep until they are woken"]
pub(crate) struct Woken {
    /// The round whose first sleeper becomes the next leader.
    heir: Option<u64>,
    rounds: [Option<u64>; 2],
    /// How many threads sleep there, but for the heir.
    pub(crate) threads: usize,
}

/// Which round will cover a thread's ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Covered {
    ByThisRound,
    ByTheNext,
}

impl Sleepers {
    /// Takes a place. Its owner gives up the gate's lock, and sleeps in it.
    pub(crate) fn enter(&mut self, beds: &Beds, covered: Covered) -> Place {
        let round = self.round + u64::from(covered == Covered::ByTheNext);
        self.counts[index(round)] += 1;
        Place { round, seen: beds.words[index(round)].value() }
    }

    /// Gives up the place of a thread that woke up and found its ticket open.
    pub(crate) fn leave(&mut self, place: &Place) {
        if place.round >= self.round {
            self.counts[index(place.round)] -= 1;
        }
    }

    /// Ends a round: all that it covered are to be woken.
    pub(crate) fn end_round(&mut self) -> Woken {
        let ended = self.round;
        self.round += 1;
        let threads = std::mem::take(&mut self.counts[index(ended)]);
        Woken { heir: None, rounds: [(threads > 0).then_some(ended), None], threads }
    }

    /// Ends everything: those who sleep for the round after this one are to be woken too.
    pub(crate) fn end_all(&mut self) -> Woken {
        let first = self.end_round();
        let second = self.end_round();
        Woken {
            heir: None,
            rounds: [first.rounds[0], second.rounds[0]],
            threads: first.threads + second.threads,
        }
    }

    /// Who leads next: the first who sleeps for the round that is next now.
    pub(crate) fn heir(&self) -> Option<u64> {
        (self.counts[index(self.round)] > 0).then_some(self.round)
    }
}

impl Woken {
    pub(crate) fn with_heir(self, heir: Option<u64>) -> Woken {
        Woken { heir, ..self }
    }

    /// Wakes them, the heir first: its write and sync go on while the others are woken.
    pub(crate) fn wake(self, beds: &Beds) {
        if sabotage::is(Sabotage::LoseWakeUp) {
            return;
        }
        if let Some(round) = self.heir {
            beds.words[index(round)].wake_one();
        }
        for round in self.rounds.into_iter().flatten() {
            beds.words[index(round)].wake_all();
        }
    }
}

impl Beds {
    /// Sleeps until the place's round is over, or this thread is to lead, or for no reason.
    pub(crate) fn sleep(&self, place: &Place) {
        self.words[index(place.round)].wait(place.seen);
    }
}

fn index(round: u64) -> usize {
    usize::try_from(round % WORDS as u64).expect("a small number")
}

#[cfg(test)]
mod tests {
    use super::*;

    // Breaks: counting a place again that was left, or not at all (nobody would be woken).
    #[test]
    fn places_are_counted_until_they_are_left_or_woken() {
        let (beds, mut sleepers) = (Beds::default(), Sleepers::default());
        assert_eq!(sleepers.end_round().threads, 0);
        let left = sleepers.enter(&beds, Covered::ByThisRound);
        let _stays = sleepers.enter(&beds, Covered::ByThisRound);
        let next = sleepers.enter(&beds, Covered::ByTheNext);
        sleepers.leave(&left);
        assert_eq!(sleepers.end_round().threads, 1);
        assert_eq!(sleepers.heir(), Some(next.round));
        // It is for the round that is next now.
        sleepers.leave(&next);
        assert_eq!(sleepers.heir(), None);
    }

    // Break: ending one round for all (those behind it would sleep on).
    #[test]
    fn an_end_of_everything_wakes_those_behind_the_round_too() {
        let (beds, mut sleepers) = (Beds::default(), Sleepers::default());
        let this = sleepers.enter(&beds, Covered::ByThisRound);
        let next = sleepers.enter(&beds, Covered::ByTheNext);
        let woken = sleepers.end_all();
        assert_eq!((woken.threads, woken.rounds), (2, [Some(this.round), Some(next.round)]));
        // They are woken already: leaving must not take anybody else's place.
        let _other = sleepers.enter(&beds, Covered::ByThisRound);
        sleepers.leave(&next);
        assert_eq!(sleepers.end_round().threads, 1);
    }
}
