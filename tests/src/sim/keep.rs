//! What a power cut leaves of the operations that no sync had covered.

use super::rng::Rng;

/// When an operation happened, counted in changes to the disk.
pub type Tick = u64;

/// Which of the unsynced operations reach the disk. Each sector of a write, each new length and
/// each change of a name is one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// None: the disk holds what syncs have guaranteed, and no more.
    Nothing,
    /// All: the kernel had written everything back.
    Everything,
    /// Each by chance.
    Random {
        /// How many of a thousand are kept.
        per_mille: usize,
    },
    /// Those up to this tick; the operation with the tick itself is kept by chance.
    Until(Tick),
    /// Those from this tick on, without the earlier ones; the one with the tick by chance.
    From(Tick),
    /// Stores of a few bytes, without the large writes before them.
    Small,
}

/// A policy and the chances it takes.
#[derive(Debug)]
pub(super) struct Keep<'r> {
    policy: Policy,
    rng: &'r mut Rng,
}

/// Up to this many bytes a write is small.
const SMALL_MAX: usize = 8;

impl<'r> Keep<'r> {
    pub(super) fn new(policy: Policy, rng: &'r mut Rng) -> Keep<'r> {
        Keep { policy, rng }
    }

    /// Whether one operation reaches the disk: it has this tick, and writes so many bytes.
    pub(super) fn keeps(&mut self, tick: Tick, len: usize) -> bool {
        match self.policy {
            Policy::Nothing => false,
            Policy::Everything => true,
            Policy::Random { per_mille } => self.rng.chance(per_mille),
            Policy::Until(cut) => tick < cut || (tick == cut && self.rng.chance(500)),
            Policy::From(cut) => tick > cut || (tick == cut && self.rng.chance(500)),
            Policy::Small => len <= SMALL_MAX,
        }
    }

    /// Where a sector is torn while it is written, as a number of 4-byte words out of `words`.
    ///
    /// A device may write a page while a process stores into it: so a sector may hold the first
    /// words of a store without the rest, though never half of an aligned word.
    pub(super) fn tears(&mut self, words: usize) -> Option<usize> {
        let certain = matches!(self.policy, Policy::Nothing | Policy::Everything | Policy::Small);
        (!certain && words > 1 && self.rng.chance(60)).then(|| self.rng.below(words))
    }
}
