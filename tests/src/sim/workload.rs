//! What a user does with a log, drawn from a seed.

use std::io::ErrorKind as Io;

use super::fault::{Fault, Op, Plan};
use super::keep::Policy;
use super::rng::Rng;

/// One thing that a user, or fate, does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Stages a transaction of so many rows, each with a message of so many bytes.
    Append {
        /// Rows.
        rows: usize,
        /// Bytes of each row's message; 0 for none.
        message: usize,
    },
    /// Waits for one of the commits that are pending; the number counts around them.
    Wait(usize),
    /// Waits for all of them.
    WaitAll {
        /// In which order.
        newest_first: bool,
    },
    /// Waits for all that is staged, without its commits.
    Barrier,
    /// Makes all that is staged durable, in any mode.
    Sync,
    /// Drops a pending commit without waiting.
    Forget(usize),
    /// Seals all but the newest so many transactions and takes them out of the live file.
    Rewrite {
        /// How many stay.
        keep: usize,
    },
    /// Waits for all of them, and puts the log to rest.
    Rest,
    /// Ends the process, and opens the log in another.
    Reopen(Exit),
    /// The kernel drops clean pages.
    Evict(Policy),
    /// The clock jumps back.
    ClockBack,
    /// Something is going to fail.
    Fail(Plan),
    /// Nothing is going to fail any more.
    Heal,
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It closes the log.
    Close,
    /// It drops its handles.
    Drop,
    /// It is killed.
    Kill,
    /// The power fails.
    PowerCut(Policy),
}

/// The largest message of an ordinary run: some of these cross an extent together.
const MESSAGE_MAX: usize = 9 << 10;
/// A message that crosses an extent by itself.
const MESSAGE_LARGE: usize = 40 << 10;
/// A message that is longer than what recovery reads at once.
const MESSAGE_HUGE: usize = 300 << 10;

/// Draws a workload of so many steps. It ends with a kill, a close and a power cut, and nothing
/// fails in its last steps.
#[must_use]
pub fn draw(rng: &mut Rng, len: usize) -> Vec<Step> {
    // Half of the workloads meet no failing operation, so that plain crashes are not crowded out.
    let faulty = rng.chance(500);
    let mut steps: Vec<Step> = (0..len).map(|_| step(rng, faulty)).collect();
    steps.extend([Step::Heal, Step::Reopen(Exit::Kill), append(rng)]);
    steps.extend([Step::WaitAll { newest_first: false }, Step::Reopen(Exit::Close), append(rng)]);
    steps.extend([Step::Wait(0), Step::Reopen(Exit::PowerCut(Policy::Nothing))]);
    steps
}

fn step(rng: &mut Rng, faulty: bool) -> Step {
    match rng.below(100) {
        0..45 => append(rng),
        45..60 => Step::Wait(rng.below(8)),
        60..62 => Step::Rest,
        62..68 => Step::WaitAll { newest_first: rng.chance(500) },
        68..69 => Step::Barrier,
        69..71 => Step::Sync,
        71..74 => Step::Forget(rng.below(8)),
        74..77 => Step::Rewrite { keep: rng.below(4) },
        77..79 => Step::ClockBack,
        79..88 => Step::Reopen(exit(rng)),
        88..89 => Step::Evict(Policy::Random { per_mille: 500 }),
        _ if faulty => Step::Fail(plan(rng)),
        _ => append(rng),
    }
}

fn append(rng: &mut Rng) -> Step {
    let rows = if rng.chance(700) { 1 } else { 1 + rng.below(6) };
    let message = match rng.below(400) {
        0 if rows == 1 => MESSAGE_HUGE,
        0..200 => 0,
        200..320 => rng.below(64),
        320..380 => rng.below(MESSAGE_MAX),
        _ => rng.below(MESSAGE_LARGE),
    };
    Step::Append { rows, message }
}

fn exit(rng: &mut Rng) -> Exit {
    match rng.below(4) {
        0 => Exit::Close,
        1 => Exit::Drop,
        2 => Exit::Kill,
        _ => Exit::PowerCut(policy(rng)),
    }
}

/// A policy that does not depend on when things happened.
pub(super) fn policy(rng: &mut Rng) -> Policy {
    match rng.below(5) {
        0 => Policy::Nothing,
        1 => Policy::Everything,
        2 => Policy::Small,
        _ => Policy::Random { per_mille: rng.pick(&[20, 200, 500, 800, 980]) },
    }
}

fn plan(rng: &mut Rng) -> Plan {
    const SYNC: [Fault; 2] = [Fault::Error(Io::Other), Fault::DoneBut(Io::Other)];
    const WRITE: [Fault; 5] = [
        Fault::Error(Io::StorageFull),
        Fault::HalfThen(Io::Other),
        Fault::Error(Io::Interrupted),
        Fault::Short,
        Fault::NoBytes,
    ];
    let (op, fault) = match rng.below(10) {
        0..5 => (Op::Sync, rng.pick(&SYNC)),
        5..9 => (Op::Write, rng.pick(&WRITE)),
        _ => (rng.pick(&[Op::SyncDir, Op::Rename, Op::Create]), rng.pick(&SYNC)),
    };
    Plan { op, after: rng.below(3), fault, lasting: false }
}
