//! One writer, N commits, nothing else: `commit_path N`. For counting instructions with callgrind,
//! which does not depend on neighbours; see `callgrind.sh`.

use anyhow::{Context, Result};
use refstone::{CreateOptions, RefStore};
use refstone_bench::measure::disk::Disk;
use refstone_bench::peers::transaction;
use refstone_bench::workload::Mover;

fn main() -> Result<()> {
    let commits: usize = std::env::args().nth(1).context("usage: commit_path COMMITS")?.parse()?;
    let dir = Disk::open()?.scratch("commit-path")?;
    let dir = dir.path().join("refstone");
    RefStore::create(&dir, &CreateOptions::default())?;
    let store = RefStore::open(&dir)?;
    let mut mover = Mover::new(1234, 1);
    for _ in 0..commits {
        store.commit(&transaction(mover.step())?)?;
    }
    store.close()?;
    Ok(())
}
