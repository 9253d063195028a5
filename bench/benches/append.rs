//! The pure part of a commit: encoding and staging, nobody waiting for a disk.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use refstone::{Compacting, CreateOptions, OpenOptions, RefStore};
use refstone_bench::hooks::{HookedEnv, Quiet};
use refstone_bench::peers::transaction;
use refstone_bench::workload::{ACTOR, Mover, oid};
use refstone_log::{Log, NoObserver, ObjectFormat, RefLogOptions, RefRow};

/// Staged before the group is taken; the group buffer holds some thousands.
const GROUP: u64 = 1_000;

fn quiet() -> Arc<HookedEnv<Quiet>> {
    Arc::new(HookedEnv(Arc::new(Quiet)))
}

/// Times `count` stagings, and not the rounds that take them away.
fn staging(count: u64, mut stage: impl FnMut(u64) -> Duration) -> Duration {
    let groups = (0..count.div_ceil(GROUP)).map(|group| GROUP.min(count - group * GROUP));
    groups.map(&mut stage).sum()
}

fn append(criterion: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a directory");
    let options =
        RefLogOptions { object_format: ObjectFormat::Sha1, head: b"refs/heads/main".to_vec() };
    Log::create(&*quiet(), dir.path(), &options).expect("an empty directory");
    let opened = Log::open(quiet(), dir.path(), Arc::new(NoObserver), &mut |_| ());
    let (log, _) = opened.expect("a log");
    let ids = [1, 2].map(|count| oid(count, 0));
    let row = RefRow {
        actor: ACTOR.as_bytes(),
        refname: b"refs/heads/topic-1234",
        old_oid: Some(&ids[0]),
        new_oid: Some(&ids[1]),
        symref: None,
        message: None,
    };
    criterion.bench_function("log: append one row, not waited for", |bencher| {
        bencher.iter_custom(|count| {
            staging(count, |group| {
                let start = Instant::now();
                for _ in 0..group {
                    drop(black_box(log.append(black_box(&[row])).expect("room")));
                }
                let took = start.elapsed();
                log.barrier().expect("a quiet disk does not fail");
                took
            })
        });
    });
}

fn stage(criterion: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path().join("refstone");
    RefStore::create(&dir, &CreateOptions::default()).expect("an empty directory");
    let store = RefStore::open_with(
        &dir,
        OpenOptions::default().env(quiet()).compacting(Compacting::ByHand),
    )
    .expect("a store");
    let mut mover = Mover::new(0, 1);
    criterion.bench_function("store: stage one move, not waited for", |bencher| {
        bencher.iter_custom(|count| {
            staging(count, |group| {
                let txs: Vec<_> = (0..group)
                    .map(|_| transaction(mover.step()).expect("names are legal"))
                    .collect();
                let start = Instant::now();
                for tx in &txs {
                    drop(black_box(store.stage(black_box(tx)).expect("room")));
                }
                let took = start.elapsed();
                store.log().barrier().expect("a quiet disk does not fail");
                took
            })
        });
    });
}

criterion_group!(benches, append, stage);
criterion_main!(benches);
