//! When logs go to rest: those that nobody writes, and the first of too many.
//!
//! One thread looks after all logs of the process that are awake, and ends with the last of them.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Weak;
use std::thread;
use std::time::Duration;

use crate::log::Inner;
use crate::seq::Seq;
use crate::sync::Mutex;

/// Logs that are awake at a time. Each has two descriptors beside that of its lock.
///
/// More may be for a moment: as many as there are threads that write others.
const AWAKE_MAX: usize = 256;

/// A log to which nothing was written between two looks goes to rest.
///
/// Waking costs some five microseconds, and going to rest a sync.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// In the order in which they woke, or were last looked at.
static AWAKE: Mutex<Awake> = Mutex::new(Awake { logs: VecDeque::new(), watched: false });

#[derive(Debug)]
struct Awake {
    logs: VecDeque<Watched>,
    /// There is a thread that looks after them.
    watched: bool,
}

/// A log, which closes when its owners drop it: whoever looks at it is none of them.
#[derive(Debug)]
struct Watched {
    log: Weak<Inner>,
    /// Its newest transaction when it was last looked at.
    seen: Seq,
}

impl Watched {
    /// Puts the log to rest, unless it moved since the last look; gives it back if it stays awake.
    fn look(self, patience: Patience) -> Option<Watched> {
        let log = self.log.upgrade()?;
        let now = log.gate.written_seq();
        let spared = now != self.seen && patience == Patience::IfIdle;
        let awake = spared || catch_unwind(AssertUnwindSafe(|| log.rest())).is_ok_and(is_busy);
        awake.then_some(Watched { seen: now, ..self })
    }
}

/// A log that has stopped or is closed is none to come back to.
fn is_busy(rests: Result<bool, crate::CommitError>) -> bool {
    rests.is_ok_and(|rests| !rests)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    IfIdle,
    None,
}

/// Looks after a log that woke from now on. Called with its writer mutex held.
pub(crate) fn woke(log: Weak<Inner>, newest: Seq) {
    put_back(Some(Watched { log, seen: newest }));
}

/// Notes a log that is awake; there is a thread that looks after it from then on.
fn put_back(log: Option<Watched>) {
    let Some(log) = log else { return };
    let mut awake = AWAKE.lock();
    awake.logs.push_back(log);
    if !awake.watched {
        let thread = thread::Builder::new().name("refstone-rest".to_owned());
        // Where there is no thread, the next log that wakes tries again.
        awake.watched = thread.spawn(watch).is_ok();
    }
}

/// Puts logs to rest until one more may wake. Called without a lock.
pub(crate) fn make_room() {
    for turn in 0..2 * AWAKE_MAX {
        let patience = if turn < AWAKE_MAX { Patience::IfIdle } else { Patience::None };
        let first = {
            let mut awake = AWAKE.lock();
            if awake.logs.len() < AWAKE_MAX {
                return;
            }
            awake.logs.pop_front()
        };
        put_back(first.and_then(|log| log.look(patience)));
    }
}

fn watch() {
    loop {
        thread::sleep(LOOK_EVERY);
        let awake = AWAKE.lock().logs.len();
        for _ in 0..awake {
            let first = AWAKE.lock().logs.pop_front();
            put_back(first.and_then(|log| log.look(Patience::IfIdle)));
        }
        let mut awake = AWAKE.lock();
        if awake.logs.is_empty() {
            awake.watched = false;
            return;
        }
    }
}
