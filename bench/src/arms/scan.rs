//! Listing refs: all of them, and those below a prefix.

use anyhow::Result;
use refstone::View;

use super::{store_with_refs, timed_ms};
use crate::arm::{Arm, Bench, Scale};
use crate::measure::row::Row;
use crate::measure::stats::median;
use crate::verdict::{Verdict, all_there};

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
    Ok((row, verdict.and(all_there("refs below the prefix", 1_000, some))))
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
