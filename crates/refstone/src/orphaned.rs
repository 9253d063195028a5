//! History whose live log is missing, or damaged from its first bytes on: what it tells of its log.

use std::cmp::Reverse;
use std::path::Path;
use std::sync::Arc;

use refstone_log::{Anchor, Env, Seq};

use crate::name::RefName;
use crate::ranges::{SeqRange, Shelf};
use crate::sealed::{HistoryFile, Identity};
use crate::shelves::Shelves;
use crate::store::CreateOptions;

/// What history tells of the log that it came from.
#[derive(Debug)]
pub(crate) struct Orphaned {
    /// Its `head` is a guess if [`head`](Orphaned::head) is none.
    pub(crate) shelves: Shelves,
    /// Where history ends. The checksum is 0 if the last file does not open.
    pub(crate) anchor: Anchor,
    /// What `HEAD` pointed to at first, if the tables still tell.
    pub(crate) head: Option<RefName>,
}

impl Orphaned {
    /// `None` if there is no history that can be read.
    pub(crate) fn find(env: &Arc<dyn Env>, dir: &Path) -> Option<Orphaned> {
        let (history, tables) = (Shelf::history(dir), Shelf::tables(dir));
        let mut ranges = history.list(&**env).ok()?;
        ranges.sort_by_key(|range| Reverse((range.last, Reverse(range.first))));
        let end = ranges.first()?.last;
        let open = |range: &SeqRange| HistoryFile::open(&**env, &history.path(*range)).ok();
        let newest = ranges.iter().find_map(open)?;
        let identity = newest.identity();
        let anchor = match identity {
            Identity { last, last_crc, last_at, .. } if *last == end => {
                Anchor { seq: end, crc: *last_crc, at: *last_at }
            }
            _ => Anchor { seq: end, crc: 0, at: identity.last_at },
        };
        let mut shelves = Shelves {
            env: env.clone(),
            history,
            tables,
            log_id: identity.log_id,
            object_format: identity.object_format,
            head: CreateOptions::default().head,
        };
        let head = initial_head(&shelves);
        shelves.head = head.clone().unwrap_or(shelves.head);
        Some(Orphaned { shelves, anchor, head })
    }
}

/// The lowest table has what `HEAD` began with, unless a row has moved it since.
fn initial_head(shelves: &Shelves) -> Option<RefName> {
    let ranges = shelves.list(&shelves.tables).ok()?;
    let lowest = ranges.into_iter().filter(|range| range.first == Seq::ZERO.next());
    let lowest = lowest.max_by_key(|range| range.last)?;
    let table = shelves.open_table(lowest).ok()?;
    let head = table.row(RefName::head().as_bytes()).ok()??;
    head.target().filter(|_| head.seq() == Seq::ZERO)?.symbolic().cloned()
}
