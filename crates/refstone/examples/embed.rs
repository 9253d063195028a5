//! A deployment board: `live` and `next` move together, and what was live when can be asked later.
//!
//! `cargo run -p refstone --example embed -- DIR`
use std::error::Error;
use std::path::Path;

use refstone::{At, CreateOptions, Edit, ObjectId, RefName, RefStore, Transaction};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::args_os().nth(1).ok_or("usage: embed DIR")?;
    deploy(Path::new(&dir)).map(|told| println!("{told}"))
}

/// Opens the store, creating it at first, deploys two versions, and tells what happened.
pub(crate) fn deploy(dir: &Path) -> Result<String, Box<dyn Error>> {
    if !dir.exists() {
        RefStore::create(dir, &CreateOptions::default())?;
    }
    let store = RefStore::open(dir)?;
    let live = RefName::new("refs/deployments/live")?;
    let next = RefName::new("refs/deployments/next")?;
    let [one, two]: [ObjectId; 2] = ["1".repeat(40).parse()?, "2".repeat(40).parse()?];

    // Both refs move, or none. What is acknowledged survives a power cut.
    let first = Transaction::new("alice")
        .with_message("first version")
        .with(Edit::set(live.clone(), one))
        .with(Edit::set(next.clone(), two));
    let first = store.commit(&first)?;

    // Only if `live` is what we think, and while another thread goes on with something else.
    let swap = Transaction::new("bob").with(Edit::update(live.clone(), two, one));
    let pending = store.stage(&swap)?;
    let other = Transaction::new("carol").with(Edit::delete(next));
    std::thread::scope(|scope| scope.spawn(|| store.commit(&other)).join().expect("no panic"))?;
    pending.wait()?;
    if let Err(refused) = store.commit(&swap) {
        println!("{:?}: {refused}", refused.kind());
    }
    store.close()?;

    // Without the lock, also beside a running store: then, now, and everything between.
    let then = refstone::read_view_at(dir, At::Seq(first.seq()))?.get(&live)?;
    let now = refstone::read_view(dir)?.get(&live)?;
    assert_eq!((then, now), (Some(one.into()), Some(two.into())));
    let moves: Result<Vec<_>, _> = refstone::history(dir, Some(&live))?.collect();
    Ok(moves?.iter().map(|m| format!("{} {} {}\n", m.seq, m.actor, m.name)).collect())
}
