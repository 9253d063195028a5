//! What makes an arm red. Pure, so that every rule can be shown to go red.
//!
//! No rule looks at a wall clock: a busy neighbour must not fail anybody's build. Rules look at
//! bytes, counts, and ratios within one interleaved run.

/// The judgement of one arm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Green,
    Red(String),
    /// What was to be judged could not be observed here.
    Unobservable(String),
}

/// The most bytes that the standard push may cost.
pub const BYTES_PER_PUSH_MAX: f64 = 680.0;
/// The least that sixteen writers must gain over one, where writers queue.
pub const GROUP_COMMIT_MIN_X: f64 = 1.3;
/// The most syncs per push that sixteen writers who queue may need: each sync carries as many as
/// they must gain. Counting does not depend on neighbours, as rates do.
pub const SYNCS_PER_PUSH_MAX: f64 = 1.0 / GROUP_COMMIT_MIN_X;
/// Writers queued if sixteen of them wait at least so many times as long as one.
pub const QUEUED_WAIT_X: f64 = 2.0;
/// A commit of one writer must be a sync for at least this share of its time, or there is little
/// for a group to share.
pub const SYNC_SHARE_MIN: f64 = 0.3;
/// Memory may move so much while the log grows by many rewrites.
pub const MEMORY_GROWTH_MAX_MB: f64 = 64.0;
/// The most that one move of a ref among a million rows may have read. Their tables are some more than
/// those of few rows, and each costs a lookup.
pub const KIB_PER_MOVE_MAX: f64 = 4.0;
/// What is new may cost so much more in a long log than in a short one, in bytes read.
pub const TAIL_MAX_X: f64 = 1.2;
/// The least share of the wall clock that the phases must explain.
pub const PHASES_MIN: f64 = 0.95;

impl Verdict {
    /// The first that is not green.
    pub fn and(self, other: Verdict) -> Verdict {
        match self {
            Verdict::Green => other,
            not_green => not_green,
        }
    }
}

pub fn bytes_per_push(bytes: f64) -> Verdict {
    if bytes <= BYTES_PER_PUSH_MAX {
        return Verdict::Green;
    }
    Verdict::Red(format!(
        "bytes_per_push is {bytes:.1}, and at most {BYTES_PER_PUSH_MAX} are meant"
    ))
}

/// What a run at 1 and 16 writers showed.
#[derive(Clone, Debug)]
pub struct Grouping {
    /// The rate at 16 writers over the rate at 1.
    pub group_commit_x: f64,
    pub syncs_per_push_16: f64,
    /// Time waited per commit for mutex and gate, at 16 writers over 1.
    pub lock_wait_ratio_x: f64,
    /// Share of a commit of one writer that is its sync.
    pub sync_share_1: f64,
    /// The file system is memory.
    pub memory: bool,
}

impl Grouping {
    /// Why grouping could not be seen; `None` if it could.
    pub fn unobservable(&self) -> Option<String> {
        if self.memory {
            return Some("on a file system in memory a sync is free".to_owned());
        }
        if self.sync_share_1 < SYNC_SHARE_MIN {
            let percent = self.sync_share_1 * 100.0;
            return Some(format!(
                "syncs are {percent:.0} % of a commit: there is nothing to share"
            ));
        }
        if self.lock_wait_ratio_x < QUEUED_WAIT_X {
            let ratio = self.lock_wait_ratio_x;
            return Some(format!(
                "nobody queued: 16 writers waited {ratio:.2} times as long as one"
            ));
        }
        None
    }
}

pub fn group_commit(seen: &Grouping) -> Verdict {
    if let Some(why) = seen.unobservable() {
        return Verdict::Unobservable(why);
    }
    let Grouping { group_commit_x, syncs_per_push_16, lock_wait_ratio_x, .. } = seen;
    if *group_commit_x >= GROUP_COMMIT_MIN_X && *syncs_per_push_16 <= SYNCS_PER_PUSH_MAX {
        return Verdict::Green;
    }
    Verdict::Red(format!(
        "16 writers queued (they waited {lock_wait_ratio_x:.1} times as long as one), got \
         {group_commit_x:.2} times the rate of one, and needed {syncs_per_push_16:.2} syncs per \
         push: their commits did not share syncs"
    ))
}

/// Memory after the second rewrite and after the last one.
pub fn memory_is_flat(early_mb: f64, late_mb: f64) -> Verdict {
    let growth = late_mb - early_mb;
    if growth <= MEMORY_GROWTH_MAX_MB {
        return Verdict::Green;
    }
    Verdict::Red(format!("memory grew by {growth:.0} MiB while the log was rewritten"))
}

pub fn phases_cover(share: f64) -> Verdict {
    if share >= PHASES_MIN {
        return Verdict::Green;
    }
    Verdict::Red(format!("the phases explain {:.1} % of the wall clock", share * 100.0))
}

/// What was read for each move of a ref whose moves were made far apart.
pub fn moves_stand_side_by_side(kib_per_move: f64) -> Verdict {
    if kib_per_move <= KIB_PER_MOVE_MAX {
        return Verdict::Green;
    }
    Verdict::Red(format!("a move of a ref cost {kib_per_move:.0} KiB of reading"))
}

/// What was read for the newest moves of a short log, and of a long one.
pub fn tail_costs_the_same(short_kib: f64, long_kib: f64) -> Verdict {
    if long_kib <= short_kib * TAIL_MAX_X {
        return Verdict::Green;
    }
    Verdict::Red(format!(
        "the newest moves cost {long_kib:.0} KiB of reading in a long log, and {short_kib:.0} in a short one"
    ))
}

/// Work that was acknowledged, or planted, must be found.
pub fn all_there(what: &str, expected: u64, found: u64) -> Verdict {
    if expected == found {
        return Verdict::Green;
    }
    Verdict::Red(format!("expected {expected} {what}, found {found}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_red(verdict: &Verdict) -> bool {
        matches!(verdict, Verdict::Red(_))
    }

    fn queued(group_commit_x: f64) -> Grouping {
        Grouping {
            group_commit_x,
            syncs_per_push_16: 0.1,
            lock_wait_ratio_x: 40.0,
            sync_share_1: 0.9,
            memory: false,
        }
    }

    #[test]
    fn one_byte_too_many_is_red() {
        assert_eq!(bytes_per_push(680.0), Verdict::Green);
        assert!(is_red(&bytes_per_push(681.0)));
    }

    #[test]
    fn writers_that_queue_and_gain_nothing_are_red() {
        assert!(is_red(&group_commit(&queued(1.1))));
        assert_eq!(group_commit(&queued(1.3)), Verdict::Green);
    }

    #[test]
    fn syncs_that_carry_one_push_each_are_red_whatever_the_rate() {
        let alone = Grouping { syncs_per_push_16: 1.0, ..queued(2.0) };
        assert!(is_red(&group_commit(&alone)));
    }

    #[test]
    fn where_grouping_cannot_be_seen_there_is_no_verdict() {
        let unseen = [
            Grouping { memory: true, ..queued(1.1) },
            Grouping { sync_share_1: 0.1, ..queued(1.1) },
            Grouping { lock_wait_ratio_x: 1.2, ..queued(1.1) },
        ];
        for seen in unseen {
            assert!(matches!(group_commit(&seen), Verdict::Unobservable(_)), "{seen:?}");
        }
    }

    #[test]
    fn memory_that_grows_with_the_log_is_red() {
        assert_eq!(memory_is_flat(100.0, 120.0), Verdict::Green);
        assert!(is_red(&memory_is_flat(100.0, 200.0)));
    }

    #[test]
    fn reading_much_for_little_is_red() {
        assert_eq!(moves_stand_side_by_side(1.4), Verdict::Green);
        assert!(is_red(&moves_stand_side_by_side(38.0)));
        assert_eq!(tail_costs_the_same(80.0, 90.0), Verdict::Green);
        assert!(is_red(&tail_costs_the_same(80.0, 11_000.0)));
    }

    #[test]
    fn phases_with_a_gap_are_red() {
        assert_eq!(phases_cover(0.97), Verdict::Green);
        assert!(is_red(&phases_cover(0.90)));
    }

    #[test]
    fn a_lost_move_is_red() {
        assert_eq!(all_there("refs", 7, 7), Verdict::Green);
        assert!(is_red(&all_there("refs", 7, 6)));
        assert!(is_red(&Verdict::Green.and(all_there("refs", 7, 6))));
    }
}
