//! Levers that need no disk: `encode DIR [ROUNDS]`. Nanoseconds of processor time, medians of
//! interleaved rounds.
//!
//! A log that lies in DIR stages its frames and commits them between the measurements.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::hint::black_box;
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{FixedSizeBinaryBuilder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch, TimestampMicrosecondArray, UInt64Array};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::{
    DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions, write_message,
};
use arrow_schema::SchemaRef;
use refstone_log::{Log, NoObserver, ObjectFormat, OsEnv, RefLogOptions, RefRow};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Transactions of one measurement.
const COUNT: usize = 2_000;
/// Transactions of one group, where a group is one frame.
const GROUP: usize = 16;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("usage: encode DIR [ROUNDS]")?;
    let rounds = arguments.next().map_or(Ok(21), |rounds| rounds.parse())?;
    let dir = tempfile::tempdir_in(dir)?;
    encoders(dir.path(), rounds)?;
    buffers(rounds);
    frames(dir.path(), rounds)?;
    maps(rounds);
    Ok(())
}

fn open(dir: &Path) -> Result<Log> {
    let head = b"refs/heads/main".to_vec();
    let options = RefLogOptions { object_format: ObjectFormat::Sha1, head };
    Log::create(&OsEnv, dir, &options)?;
    Ok(Log::open(Arc::new(OsEnv), dir, Arc::new(NoObserver), &mut |_| ())?.0)
}

const ROW: RefRow<'static> = RefRow {
    actor: b"alice",
    refname: b"refs/heads/topic-1234",
    old_oid: Some(&[1; 20]),
    new_oid: Some(&[2; 20]),
    symref: None,
    message: None,
};

/// The template against the encoder of arrow-rs, both with checksum.
fn encoders(dir: &Path, rounds: usize) -> Result<()> {
    let log = open(&dir.join("encoders"))?;
    let schema: SchemaRef = log.arrow_schema();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.push(staged(&log, &[ROW], COUNT)?);
        theirs.push(per(COUNT, || {
            for seq in 0..COUNT as u64 {
                black_box(crc32c::crc32c(&arrow_frame(&schema, seq).expect("a frame")));
            }
        }));
    }
    report("template encoder", &ours, "arrow-rs builders and IpcDataGenerator", &theirs);
    Ok(())
}

fn arrow_frame(schema: &SchemaRef, seq: u64) -> Result<Vec<u8>> {
    let oids = |byte| -> Result<ArrayRef> {
        let mut builder = FixedSizeBinaryBuilder::with_capacity(1, 20);
        builder.append_value([byte; 20])?;
        Ok(Arc::new(builder.finish()))
    };
    let text = |value: Option<&str>| -> ArrayRef {
        let mut builder = StringBuilder::with_capacity(1, 32);
        builder.append_option(value);
        Arc::new(builder.finish())
    };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(UInt64Array::from(vec![seq])),
        Arc::new(TimestampMicrosecondArray::from(vec![1_700_000_000]).with_timezone("UTC")),
        text(Some("alice")),
        text(Some("refs/heads/topic-1234")),
        oids(1)?,
        oids(2)?,
        text(None),
        text(None),
    ];
    let batch = RecordBatch::try_new(schema.clone(), columns)?;
    let options = IpcWriteOptions::try_new(8, false, arrow_ipc::MetadataVersion::V5)?;
    let mut tracker = DictionaryTracker::new(false);
    let mut compression = IpcWriteContext::default();
    let generator = IpcDataGenerator::default();
    let (_, encoded) = generator.encode(&batch, &mut tracker, &options, &mut compression)?;
    let mut bytes = Vec::with_capacity(1024);
    write_message(&mut bytes, encoded, &options)?;
    Ok(bytes)
}

/// Nanoseconds per transaction to stage so many.
fn staged(log: &Log, rows: &[RefRow<'_>], count: usize) -> Result<f64> {
    let nanos = log.append_with(|stage| {
        let mut commits = Vec::with_capacity(count);
        let nanos = per(count, || {
            for _ in 0..count {
                commits.push(stage.append(rows));
            }
        });
        commits.into_iter().collect::<std::result::Result<Vec<_>, _>>().map(|_| nanos)
    })??;
    log.barrier()?;
    Ok(nanos)
}

/// A buffer for each frame against one that is used again.
fn buffers(rounds: usize) {
    let template = vec![7_u8; 672];
    let (mut fresh, mut reused) = (Vec::new(), Vec::new());
    let mut kept: Vec<u8> = Vec::new();
    for _ in 0..rounds {
        fresh.push(per(COUNT, || {
            for _ in 0..COUNT {
                let mut buffer = Vec::with_capacity(672);
                buffer.extend_from_slice(&template);
                black_box(&buffer);
            }
        }));
        reused.push(per(COUNT, || {
            for _ in 0..COUNT {
                kept.clear();
                kept.extend_from_slice(&template);
                black_box(&kept);
            }
        }));
    }
    report("buffer used again", &reused, "a buffer for each frame", &fresh);
}

/// A frame for each transaction against one frame for a group.
fn frames(dir: &Path, rounds: usize) -> Result<()> {
    let log = open(&dir.join("one-by-one"))?;
    let grouped = open(&dir.join("grouped"))?;
    let (mut single, mut together) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        single.push(staged(&log, &[ROW], COUNT)?);
        together.push(staged(&grouped, &[ROW; GROUP], COUNT / GROUP)? / GROUP as f64);
    }
    report("16 transactions as rows of one frame", &together, "a frame for each", &single);
    let bytes = |log: &Log| log.live_bytes() as f64 / (rounds * COUNT) as f64;
    println!("  bytes per transaction: {:.0} against {:.0}", bytes(&grouped), bytes(&log));
    log.close()?;
    grouped.close()?;
    let (mut slow, mut fast) = (Vec::new(), Vec::new());
    for _ in 0..rounds.min(5) {
        fast.push(read(&dir.join("grouped/refs.arrow"), rounds * COUNT)?);
        slow.push(read(&dir.join("one-by-one/refs.arrow"), rounds * COUNT)?);
    }
    report("arrow-rs reads a transaction of a grouped frame", &fast, "of its own", &slow);
    Ok(())
}

fn read(path: &Path, rows: usize) -> Result<f64> {
    let bytes = std::fs::read(path)?;
    let mut found = 0;
    let nanos = per(rows, || {
        let reader = StreamReader::try_new(Cursor::new(&bytes), None).expect("a stream");
        found = reader.map(|batch| batch.expect("a batch").num_rows()).sum();
    });
    assert_eq!(found, rows / GROUP * GROUP, "rows");
    Ok(nanos)
}

/// What is staged, in an ordered map against a hash: put, look up twice, remove.
fn maps(rounds: usize) {
    for staged in [16, 256, 4096] {
        let names: Vec<Arc<[u8]>> =
            (0..staged).map(|n| format!("refs/heads/topic-{n:07}").into_bytes().into()).collect();
        let (mut ordered, mut hashed) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let mut map = BTreeMap::new();
            ordered.push(per(COUNT, || {
                for turn in 0..COUNT {
                    let name = &names[turn * 7919 % staged];
                    map.insert(name.clone(), turn);
                    black_box(map.get(&names[turn * 31 % staged]));
                    black_box(map.get(name));
                    if turn % 2 == 1 {
                        map.remove(name);
                    }
                }
            }));
            let mut map = HashMap::new();
            hashed.push(per(COUNT, || {
                for turn in 0..COUNT {
                    let name = &names[turn * 7919 % staged];
                    map.insert(name.clone(), turn);
                    black_box(map.get(&names[turn * 31 % staged]));
                    black_box(map.get(name));
                    if turn % 2 == 1 {
                        map.remove(name);
                    }
                }
            }));
        }
        println!("{staged} refs staged:");
        report("  hash", &hashed, "  ordered map", &ordered);
    }
}

/// Nanoseconds of processor time for one of so many.
fn per(count: usize, work: impl FnOnce()) -> f64 {
    let start = thread_nanos();
    work();
    (thread_nanos() - start) as f64 / count as f64
}

fn thread_nanos() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call only writes the timespec that it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

fn report(with: &str, with_ns: &[f64], without: &str, without_ns: &[f64]) {
    let (a, b) = (median(with_ns), median(without_ns));
    println!("{with} / {without}: {a:.0}/{b:.0} ns, ratio {:.2}", b / a);
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
