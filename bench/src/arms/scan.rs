//! Listing refs: all of them, those below a prefix, and all again after half of them were deleted and
//! made anew. And a name that takes the place of a directory whose refs are gone.

use anyhow::Result;
use refstone::{Edit, ObjectId, RefName, RefStore, Transaction, View};

use super::{compact, create_refs, name, store_with_refs, timed_ms};
use crate::arm::{Arm, Bench, Scale};
use crate::measure::row::Row;
use crate::measure::stats::median;
use crate::verdict::{Verdict, all_there};
use crate::workload::{ACTOR, oid};

pub(super) const ARM: Arm = Arm { id: "refstone.scan", writes, run };

fn writes(scale: Scale) -> u64 {
    scale.pick(256 << 20, 16 << 20)
}

fn run(bench: &Bench<'_>) -> Result<(Row, Verdict)> {
    let refs = bench.scale.pick(1_000_000, 10_000);
    let store = store_with_refs(&bench.dir.join("refstone"), refs)?;
    let view = store.view();
    let mut row =
        Row::new("reads only, hot", refs, "View::iter_prefix, name and value of each ref");
    let all = scan(&view, b"", &mut row, "all")?;
    // A thousandth of the refs: those that share all but three digits.
    let some = scan(&view, b"refs/heads/topic-0001", &mut row, "prefix")?;
    let verdict = all_there("refs listed", refs as u64 + 1, all);
    let verdict = verdict.and(all_there("refs below the prefix", 1_000, some));
    drop(view);
    replace_half(&store, refs, &mut row)?;
    let again = scan(&store.view(), b"", &mut row, "again")?;
    row.put("emptied_directory_us", take_emptied_place(&store, refs / 10)?);
    Ok((row, verdict.and(all_there("refs listed again", refs as u64 + 1, again))))
}

/// Deletes half of the refs and makes them again.
fn replace_half(store: &RefStore, refs: usize, row: &mut Row) -> Result<()> {
    let half = refs / 2;
    let (ms, ()) = timed_ms(|| delete_refs(store, (0..half).map(name)))?;
    row.put("delete_half_s", ms / 1e3);
    compact(store)?;
    let (ms, ()) = timed_ms(|| create_refs(store, 0, half))?;
    row.put("create_half_s", ms / 1e3);
    compact(store)?;
    Ok(())
}

fn delete_refs(store: &RefStore, names: impl Iterator<Item = String>) -> Result<()> {
    let mut tx = Transaction::new(ACTOR);
    for name in names {
        tx.push(Edit::delete(RefName::new(name)?));
    }
    store.commit(&tx)?;
    Ok(())
}

/// Microseconds to stage a ref with the name of a directory that had so many refs.
fn take_emptied_place(store: &RefStore, refs: usize) -> Result<f64> {
    let id = ObjectId::from_bytes(&oid(1, 0))?;
    let below = |number| format!("refs/heads/emptied/{number:07}");
    let mut tx = Transaction::new(ACTOR);
    for number in 0..refs {
        tx.push(Edit::create(RefName::new(below(number))?, id));
    }
    store.commit(&tx)?;
    compact(store)?;
    delete_refs(store, (0..refs).map(below))?;
    compact(store)?;
    let tx = Transaction::new(ACTOR).with(Edit::create(RefName::new("refs/heads/emptied")?, id));
    let (ms, staged) = timed_ms(|| Ok(store.stage(&tx)?))?;
    staged.wait()?;
    Ok(ms * 1e3)
}

/// The median time of some listings, and how many refs one has.
fn scan(view: &View, prefix: &[u8], row: &mut Row, label: &str) -> Result<u64> {
    let mut times = Vec::new();
    let mut listed = 0;
    for _ in 0..5 {
        let (ms, (count, bytes)) = timed_ms(|| list(view, prefix))?;
        times.push(ms);
        listed = count;
        row.put(format!("bytes_{label}"), bytes as f64);
    }
    row.put(format!("list_{label}_ms"), median(&times));
    Ok(listed)
}

/// Touches every name and value, as a server does that sends them.
fn list(view: &View, prefix: &[u8]) -> Result<(u64, usize)> {
    let (mut count, mut bytes) = (0, 0);
    for item in view.iter_prefix(prefix) {
        let (name, target) = item?;
        let value = target.object().map_or(0, |id| id.as_bytes().len());
        count += 1;
        bytes += name.as_bytes().len() + std::hint::black_box(value);
    }
    Ok((count, bytes))
}
