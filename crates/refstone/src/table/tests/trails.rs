//! Refs that have moved often.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use refstone_log::{Env, EnvFile, EnvLayer, FileLayer, ObjectFormat, OsEnv, Seq, Timestamp};

use super::super::{Entry, Order, Step, Table, TableWriter, Trail};
use super::{Scratch, identity, name, oid, tell, trail};
use crate::edit::Target;
use crate::row::RefMove;
use crate::stop::Stop;

const BUSY: &str = "refs/heads/busy";

/// Moves of one ref, one in each transaction from `first` on. One of them says very much.
fn moves(first: u64, count: u64) -> Vec<RefMove> {
    let object = |seq: u64| Some(oid(ObjectFormat::Sha1, seq.to_le_bytes()[0]));
    let moved = |seq: u64| RefMove {
        seq: Seq::new(seq),
        at: Timestamp::from_micros(i64::try_from(seq).unwrap() * 1_000_003),
        actor: if seq % 7 < 5 { "alice".into() } else { format!("robot-{seq}").into() },
        name: name(BUSY),
        old_oid: object(seq - 1).filter(|_| seq % 1000 != 1),
        new_oid: object(seq),
        symref: None,
        message: match seq % 500 {
            0 => Some(vec![b'x'; 300_000].into()),
            1..200 => Some("push".into()),
            _ => None,
        },
    };
    (first..first + count).map(moved).collect()
}

fn entry(newest: &RefMove) -> Entry {
    Entry { seq: newest.seq, at: newest.at, target: newest.new_oid.map(Target::Object) }
}

/// A table of nothing but these moves.
fn write(env: &dyn Env, path: &Path, moves: &[RefMove]) -> Arc<Table> {
    let (first, newest) = (moves[0].seq.get(), &moves[moves.len() - 1]);
    let identity = identity(ObjectFormat::Sha1, first, moves.len());
    let mut writer = TableWriter::create(env, path, identity, moves.len() as u64).unwrap();
    writer.push(BUSY.as_bytes(), &entry(newest), |steps| tell(moves, steps)).unwrap();
    writer.finish().unwrap();
    Arc::new(Table::open(env, path).unwrap())
}

// Breaks: a chunk that is told by what the chunk before ends with; a window that does not grow with a
// chunk; a merge that ends with the first chunk.
#[test]
fn moves_of_many_chunks_are_read_from_both_ends() {
    let mut scratch = Scratch::new();
    let all = moves(1, 3000);
    let tables = all.chunks(900).map(|part| write(&OsEnv, &scratch.path(), part));
    let tables: Vec<_> = tables.collect();
    let merged = scratch.merged(&tables);
    merged.verify(Stop::NEVER).unwrap();
    for order in [Order::OldestFirst, Order::NewestFirst] {
        assert_eq!(trail(&tables[1], BUSY.as_bytes(), order).unwrap(), all[900..1800]);
        assert!(trail(&merged, BUSY.as_bytes(), order).unwrap() == all);
    }
    let whole = scratch.path();
    write(&OsEnv, &whole, &all);
    let bytes = |path: &Path| std::fs::read(path).unwrap();
    assert!(bytes(&whole) == bytes(merged.path()), "a merge makes what is made at once");
}

// Breaks: an actor, an object or a time that is told again.
#[test]
fn a_move_takes_at_most_28_bytes() {
    let mut all = moves(1, 10_000);
    for moved in &mut all {
        moved.actor = "alice".into();
        moved.message = None;
    }
    let table = write(&OsEnv, &Scratch::new().path(), &all);
    let each = table.moves_bytes() as f64 / 10_000.0;
    println!("{each:.2} bytes a move");
    assert!(each <= 28.0, "{each}");
}

/// Counts the bytes that are read.
#[derive(Clone, Debug, Default)]
struct Counting(Arc<AtomicU64>);

impl EnvLayer for Counting {
    fn below(&self) -> &dyn Env {
        &OsEnv
    }

    fn wrap(&self, _path: &Path, file: Box<dyn EnvFile>) -> Box<dyn EnvFile> {
        Box::new(CountingFile { file, count: self.clone() })
    }
}

#[derive(Debug)]
struct CountingFile {
    file: Box<dyn EnvFile>,
    count: Counting,
}

impl FileLayer for CountingFile {
    fn below(&self) -> &dyn EnvFile {
        &*self.file
    }

    fn above(&self, file: Box<dyn EnvFile>) -> Box<dyn EnvFile> {
        Box::new(CountingFile { file, count: self.count.clone() })
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        let read = self.file.read_at(buffer, offset)?;
        self.count.0.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

// Breaks: reading all moves of a ref for the first; all checksums of the section for one page.
#[test]
fn the_first_moves_from_either_end_cost_the_same_however_many_there_are() {
    let mut scratch = Scratch::new();
    let env = Counting::default();
    let mut few = moves(1, 400);
    let mut many = moves(1, 100_000);
    for moved in few.iter_mut().chain(&mut many) {
        moved.message = None;
    }
    let [few, many] = [&few, &many].map(|moves| write(&env, &scratch.path(), moves));
    for order in [Order::OldestFirst, Order::NewestFirst] {
        let [few, many] = [&few, &many].map(|table| {
            table.row(BUSY.as_bytes()).unwrap();
            let before = env.0.load(Ordering::Relaxed);
            let mut trail = Trail::of(table.clone(), BUSY.as_bytes()).unwrap().unwrap();
            assert!(trail.next_chunk(order).unwrap().unwrap().len() >= 100);
            env.0.load(Ordering::Relaxed) - before
        });
        println!("{few} bytes of 400 moves, {many} of 100,000");
        assert!(many <= 2 * few, "{many} and {few} bytes");
    }
}

// Breaks: a time that may not be after the newer one's; a length that stands at the end as at the start.
#[test]
fn whatever_a_step_says_is_read_back() {
    let long = vec![7; 20_000];
    let texts: [&[u8]; 4] = [b"", b"\xff\\", b"alice", &long];
    let objects = [None, Some(&[1; 20][..]), Some(&[2; 20])];
    let mut steps = Vec::new();
    for (number, actor) in (0..).zip(texts.iter().cycle().take(1000)) {
        let pick = |every: usize| objects[number / every % 3];
        steps.push(Step {
            seq: Seq::new([5, 1 << 55, 1][number % 3]),
            at: Timestamp::from_micros([0, -9, i64::MAX, i64::MIN][number % 4]),
            actor,
            old_oid: pick(1),
            new_oid: pick(2),
            symref: (number % 5 == 0).then_some(&b"refs/\xe4"[..]),
            message: [None, Some(texts[number / 7 % 4])][number % 2],
        });
    }
    let base = super::super::Base { seq: Seq::new(3), at: Timestamp::default(), oid: objects[1] };
    let (chunks, bytes) = super::super::step::tests::encoded(&steps, base);
    assert!(chunks > 100, "{chunks}");
    assert_eq!(super::super::step::tests::decoded(&bytes, base), steps);
}
