//! The wire protocol, which is pure: a large push is parsed, a large listing is written.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use refstone::{ObjectFormat, ObjectId};
use refstone_bench::workload::oid;
use refstone_server::wire::advertise::ReceivePack;
use refstone_server::wire::commands::{Limits, RequestReader};
use refstone_server::wire::pkt::{self, Decoder};
use refstone_server::wire::report::{self, RefReport};
use refstone_server::wire::v2::RefLine;

const REFS: u64 = 1_000;

fn id(number: u64) -> ObjectId {
    ObjectId::from_bytes(&oid(1, number)).expect("twenty bytes")
}

fn names() -> Vec<String> {
    (0..REFS).map(|number| format!("refs/heads/topic-{number:07}")).collect()
}

/// What a client sends that creates all refs.
fn request() -> Vec<u8> {
    let zero = ObjectId::zero(ObjectFormat::Sha1).to_hex();
    let mut request = Vec::new();
    for (number, name) in (0..).zip(names()) {
        let capabilities = if number == 0 { "\0report-status atomic" } else { "" };
        let line = format!("{zero} {} {name}{capabilities}", id(number).to_hex());
        pkt::encode(&mut request, &[line.as_bytes()]).expect("a short line");
    }
    request.extend_from_slice(pkt::FLUSH);
    request
}

fn reading(criterion: &mut Criterion) {
    let request = request();
    let mut group = criterion.benchmark_group("read");
    group.throughput(Throughput::Elements(REFS));
    group.bench_function("packets of 1,000 lines", |bencher| {
        bencher.iter(|| {
            let mut decoder = Decoder::default();
            decoder.push(black_box(&request));
            while let Some(packet) = decoder.decode().expect("well formed") {
                black_box(packet);
            }
        });
    });
    group.bench_function("a push of 1,000 commands", |bencher| {
        bencher.iter(|| {
            let mut reader = RequestReader::new(ObjectFormat::Sha1, Limits::default());
            reader.feed(black_box(&request)).expect("well formed").expect("whole")
        });
    });
    group.finish();
}

fn writing(criterion: &mut Criterion) {
    let names = names();
    let ids: Vec<ObjectId> = (0..REFS).map(id).collect();
    let mut group = criterion.benchmark_group("write");
    group.throughput(Throughput::Elements(REFS));
    group.bench_function("an advertisement of 1,000 refs", |bencher| {
        bencher.iter(|| {
            let mut out = Vec::new();
            let mut advertisement = ReceivePack::new("report-status atomic".to_owned());
            for (name, id) in names.iter().zip(&ids) {
                advertisement.push(&mut out, *id, name.as_bytes()).expect("a short line");
            }
            advertisement.finish(&mut out, ObjectFormat::Sha1).expect("a short line");
            out
        });
    });
    group.bench_function("an answer to ls-refs of 1,000 refs", |bencher| {
        bencher.iter(|| {
            let mut out = Vec::new();
            for (name, id) in names.iter().zip(&ids) {
                let (oid, name) = (Some(*id), name.as_bytes());
                let line = RefLine { oid, name, symref_target: None, peeled: None };
                line.encode(&mut out).expect("a short line");
            }
            out
        });
    });
    group.bench_function("a report of 1,000 refs", |bencher| {
        bencher.iter(|| {
            let mut out = Vec::new();
            let refs = names.iter().map(|n| RefReport { name: n.as_bytes(), refusal: None });
            report::encode(&mut out, Ok(()), refs).expect("short lines");
            out
        });
    });
    group.finish();
}

criterion_group!(benches, reading, writing);
criterion_main!(benches);
