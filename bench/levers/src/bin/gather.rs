//! A leader that waits for returners, one that never does, and one that decides by what it
//! measures: `gather DIR`. Interleaved runs; medians of commits per second.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use refstone_log::{Gathering, Log, NoObserver, ObjectFormat, OsEnv, RefLogOptions, RefRow};

const SPAN: Duration = Duration::from_millis(700);
const POLICIES: [Gathering; 3] = [Gathering::Off, Gathering::Adaptive, Gathering::On];
/// Each policy three times, none always first.
const ORDER: [usize; 9] = [0, 1, 2, 2, 1, 0, 0, 1, 2];

fn run(base: &Path, writers: usize, gathering: Gathering) -> f64 {
    let scratch = tempfile::tempdir_in(base).expect("a scratch directory");
    let dir = scratch.path().join("log");
    let head = b"refs/heads/main".to_vec();
    let options = RefLogOptions { object_format: ObjectFormat::Sha1, head };
    Log::create(&OsEnv, &dir, &options).expect("a new log");
    let (log, _) =
        Log::open(Arc::new(OsEnv), &dir, Arc::new(NoObserver), &mut |_| ()).expect("it opens");
    log.gate().set_gathering(gathering);
    let (start, end) = (Instant::now(), Instant::now() + SPAN);
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let log = &log;
            scope.spawn(move || push_until(log, writer, end));
        }
    });
    log.durable_seq().get() as f64 / start.elapsed().as_secs_f64()
}

fn push_until(log: &Log, writer: usize, end: Instant) {
    let refname = format!("refs/heads/topic-{writer:04}");
    let row = RefRow {
        actor: b"alice",
        refname: refname.as_bytes(),
        old_oid: Some(&[1; 20]),
        new_oid: Some(&[2; 20]),
        symref: None,
        message: None,
    };
    while Instant::now() < end {
        log.append(&[row]).expect("staged").wait().expect("durable");
    }
}

fn main() {
    let base = std::env::args().nth(1).expect("usage: gather DIR");
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("load {}", load.trim());
    for writers in [1, 2, 4, 8, 16, 32, 64, 256] {
        let mut rates = [vec![], vec![], vec![]];
        for n in ORDER {
            rates[n].push(run(Path::new(&base), writers, POLICIES[n]));
        }
        let [off, adaptive, on] = rates.map(|mut rates| {
            rates.sort_by(f64::total_cmp);
            rates[rates.len() / 2]
        });
        let gain = adaptive / off;
        println!(
            "{writers:4} writers: off {off:8.0}, adaptive {adaptive:8.0} (x{gain:.2}), on {on:8.0}"
        );
    }
}
