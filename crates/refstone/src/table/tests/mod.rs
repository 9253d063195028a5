//! Tables against a plain map, against damage, and against other readers of Arrow.

mod arrow;
mod damage;
mod faults;
mod listing;
mod measure;
mod model;
mod trails;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bstr::BString;
use refstone_log::{Env, ObjectFormat, OsEnv, Seq, Timestamp};
use tempfile::TempDir;

use super::{Entry, Identity, Order, Step, Steps, Table, TableError, TableWriter, Trail};
use crate::edit::Target;
use crate::name::RefName;
use crate::oid::ObjectId;
use crate::row::RefMove;
use crate::stop::Stop;

/// One move of one ref: what a transaction of one row does.
#[derive(Clone, Debug)]
pub(super) struct Move {
    name: RefName,
    target: Option<Target>,
}

/// For each ref its last state and its moves, oldest first.
type State = BTreeMap<Vec<u8>, (Entry, Vec<RefMove>)>;

fn name(name: &str) -> RefName {
    RefName::new(name).unwrap()
}

fn oid(format: ObjectFormat, byte: u8) -> ObjectId {
    ObjectId::from_bytes(&vec![byte; format.len()]).unwrap()
}

fn set(to: &str, byte: u8) -> Move {
    Move { name: name(to), target: Some(Target::Object(oid(ObjectFormat::Sha1, byte))) }
}

fn link(from: &str, to: &str) -> Move {
    Move { name: name(from), target: Some(Target::Symbolic(name(to))) }
}

fn delete(gone: &str) -> Move {
    Move { name: name(gone), target: None }
}

/// The state after moves of which the first has this sequence. What they say of the object before is
/// often what the move before says, and often not.
fn state(first: u64, moves: &[Move]) -> State {
    let mut state = State::new();
    for (seq, moved) in (first..).zip(moves) {
        let at = Timestamp::from_micros(i64::try_from(seq).unwrap() * 10);
        let entry = Entry { seq: Seq::new(seq), at, target: moved.target.clone() };
        let known = state.entry(moved.name.as_bytes().to_vec());
        let (last, moves) = known.or_insert_with(|| (entry.clone(), Vec::new()));
        *last = entry;
        let new = moved.target.as_ref().and_then(Target::object);
        let byte = u8::try_from(seq % 6).unwrap();
        let odd = seq % 3 == 0;
        moves.push(RefMove {
            seq: Seq::new(seq),
            at,
            actor: if odd {
                BString::from(b"bob\\\xff")
            } else {
                format!("actor-{}", seq % 2).into()
            },
            name: moved.name.clone(),
            old_oid: new.filter(|_| seq % 5 != 0).map(|new| oid(new.format(), byte)),
            new_oid: new,
            symref: moved.target.as_ref().and_then(Target::symbolic).cloned(),
            message: (seq % 4 != 1).then(|| format!("why {}", seq / 8).into()),
        });
    }
    state
}

/// Tells moves, which are given oldest first.
fn tell(moves: &[RefMove], steps: &mut Steps<'_, '_>) -> Result<(), TableError> {
    moves
        .iter()
        .rev()
        .try_for_each(|moved| steps.push(&Step::of(moved.seq, moved.at, &moved.as_row())))
}

/// All moves of a ref, oldest first, read from one end.
fn trail(table: &Arc<Table>, of: &[u8], order: Order) -> Result<Vec<RefMove>, TableError> {
    let name = RefName::from_proven(of);
    let mut chunks = Vec::new();
    let Some(mut trail) = Trail::of(table.clone(), of)? else { return Ok(Vec::new()) };
    while let Some(steps) = trail.next_chunk(order)? {
        chunks.push(steps.iter().rev().map(|step| step.ref_move(&name).unwrap()).collect());
    }
    if order == Order::NewestFirst {
        chunks.reverse();
    }
    Ok(chunks.into_iter().flat_map(|chunk: Vec<_>| chunk).collect())
}

fn identity(format: ObjectFormat, first: u64, count: usize) -> Identity {
    let last = first + count as u64 - 1;
    Identity {
        log_id: [7; 16],
        object_format: format,
        first: Seq::new(first),
        last: Seq::new(last),
        last_crc: 0x1234_abcd,
        last_at: Timestamp::from_micros(i64::try_from(last).unwrap() * 10),
    }
}

/// Writes the table of these moves.
fn write(
    env: &dyn Env,
    path: &Path,
    format: ObjectFormat,
    first: u64,
    moves: &[Move],
) -> Result<(), TableError> {
    let identity = identity(format, first, moves.len());
    let lowest = identity.is_lowest();
    let mut writer = TableWriter::create(env, path, identity, moves.len() as u64)?;
    let state = state(first, moves);
    let is_gone = |entry: &Entry| lowest && entry.target.is_none();
    for (name, (entry, moves)) in state.iter().filter(|(_, (entry, _))| !is_gone(entry)) {
        writer.push(name, entry, |steps| tell(moves, steps))?;
    }
    for (name, (entry, moves)) in state.iter().filter(|(_, (entry, _))| is_gone(entry)) {
        writer.push_gone(name, entry, |steps| tell(moves, steps))?;
    }
    writer.finish()
}

/// A directory with tables in it.
struct Scratch {
    dir: TempDir,
    count: usize,
}

impl Scratch {
    fn new() -> Scratch {
        Scratch { dir: tempfile::tempdir().unwrap(), count: 0 }
    }

    fn path(&mut self) -> PathBuf {
        self.count += 1;
        self.dir.path().join(format!("{}.arrow", self.count))
    }

    fn table(&mut self, format: ObjectFormat, first: u64, moves: &[Move]) -> Arc<Table> {
        let path = self.path();
        write(&OsEnv, &path, format, first, moves).unwrap();
        Arc::new(Table::open(&OsEnv, &path).unwrap())
    }

    fn merged(&mut self, inputs: &[Arc<Table>]) -> Arc<Table> {
        Arc::new(super::merge(&OsEnv, &self.path(), inputs, Stop::NEVER).unwrap())
    }
}

/// Moves of every kind: deleted refs, symbolic ones, escapes, names that start with others.
fn varied() -> Vec<Move> {
    let raw = |raw: &[u8]| RefName::new(raw).unwrap();
    let mut odd = set("refs/heads/a", 3);
    odd.name = raw(b"refs/heads/a\xff");
    let mut other = odd.clone();
    other.name = raw("refs/heads/ä\u{7f0}".as_bytes());
    vec![
        set("refs/heads/a", 1),
        set("refs/heads/a/b", 2),
        link("HEAD", "refs/heads/a"),
        odd,
        delete("refs/heads/a/b"),
        set("refs/heads/a", 2),
        set("refs/tags/x", 2),
        delete("refs/tags/y"),
        other,
        link("refs/heads/z", "refs/heads/a"),
        Move { name: raw(b"refs/heads/s"), target: Some(Target::Symbolic(raw(b"refs/\xe4"))) },
    ]
}

/// Many refs, so that there are several blocks and pages.
fn many(count: usize) -> Vec<Move> {
    let named = |n: usize| {
        let name = format!("refs/heads/team-{}/topic-{n:06}", n % 37);
        let byte = u8::try_from(n % 251).unwrap();
        if n % 11 == 3 { delete(&name) } else { set(&name, byte) }
    };
    (0..count).map(named).collect()
}

// Breaks: the live run searched behind its end; a block of the second run taken for one of the first.
#[test]
fn an_empty_table_has_nothing() {
    let path = Scratch::new();
    let file = path.dir.path().join("t");
    let identity = identity(ObjectFormat::Sha1, 1, 1);
    TableWriter::create(&OsEnv, &file, identity.clone(), 0).unwrap().finish().unwrap();
    let table = Arc::new(Table::open(&OsEnv, &file).unwrap());
    assert_eq!(table.identity(), &identity);
    assert_eq!((table.path(), table.bytes()), (&*file, file.metadata().unwrap().len()));
    assert_eq!(table.target(b"HEAD").unwrap(), None);
    assert!(table.holding(&oid(ObjectFormat::Sha1, 1)).unwrap().is_empty());
    assert_eq!(table.live_from(b"").unwrap().name(), None);
    assert_eq!(table.gone_from(b"").unwrap().name(), None);
    table.verify(Stop::NEVER).unwrap();
}

// Breaks: each check of `add`, of `Steps` and of `finish` left out, and `push` after `push_gone`.
#[test]
fn a_writer_refuses_what_is_no_table() {
    let scratch = Scratch::new();
    let path = scratch.dir.path().join("t");
    let entry = |seq, target| Entry { seq: Seq::new(seq), at: Timestamp::default(), target };
    let object = |format| Some(Target::Object(oid(format, 1)));
    let good = entry(1, object(ObjectFormat::Sha1));
    let (newer, gone) = (entry(2, good.target.clone()), entry(2, None));
    let one = |entry: &Entry| RefMove {
        seq: entry.seq,
        at: entry.at,
        actor: "alice".into(),
        name: name("refs/b"),
        old_oid: None,
        new_oid: entry.target.as_ref().and_then(Target::object),
        symref: None,
        message: None,
    };
    let moves = |entries: &[&Entry]| entries.iter().map(|entry| one(entry)).collect::<Vec<_>>();
    let writer = || {
        let identity = identity(ObjectFormat::Sha1, 1, 5);
        let mut writer = TableWriter::create(&OsEnv, &path, identity, 2).unwrap();
        writer.push(b"refs/b", &newer, |steps| tell(&moves(&[&good, &newer]), steps)).unwrap();
        writer
    };
    let refused = |what: &str, name: &[u8], entry: &Entry, told: &[&Entry]| {
        let result = writer().push(name, entry, |steps| tell(&moves(told), steps));
        assert!(matches!(result, Err(TableError::Input { .. })), "{what}");
    };
    refused("the same name again", b"refs/b", &good, &[&good]);
    refused("names that fall", b"refs/a", &good, &[&good]);
    refused("a backslash", b"refs/c\\xff", &good, &[&good]);
    refused("a deletion among live rows", b"refs/c", &gone, &[&gone]);
    let late = entry(6, good.target.clone());
    refused("too new", b"refs/c", &late, &[&late]);
    let sha256 = entry(2, object(ObjectFormat::Sha256));
    refused("another hash", b"refs/c", &sha256, &[&sha256]);
    refused("no moves", b"refs/c", &good, &[]);
    refused("a move that made another state", b"refs/c", &good, &[&newer]);
    refused("a move that made another value", b"refs/c", &newer, &[&gone]);
    refused("moves that rise", b"refs/c", &good, &[&newer, &good]);
    refused("a move before all", b"refs/c", &good, &[&entry(0, None), &good]);
    let pushed = writer().push_gone(b"refs/c", &good, |steps| tell(&moves(&[&good]), steps));
    assert!(matches!(pushed, Err(TableError::Input { .. })), "a live row among deletions");
    let mut more = writer();
    more.push(b"refs/c", &good, |steps| tell(&moves(&[&good]), steps)).unwrap();
    assert!(matches!(more.finish(), Err(TableError::Input { .. })), "more moves than rows");
    let mut writer = writer();
    writer.push_gone(b"refs/a", &gone, |steps| tell(&moves(&[&gone]), steps)).unwrap();
    let pushed = writer.push(b"refs/c", &good, |steps| tell(&moves(&[&good]), steps));
    assert!(matches!(pushed, Err(TableError::Input { .. })), "a live row behind the deletions");
    drop(writer);
    assert_eq!(OsEnv.list(scratch.dir.path()).unwrap(), [""; 0], "nothing is left of a refusal");
}

#[test]
fn only_neighbours_of_one_log_are_merged() {
    let mut scratch = Scratch::new();
    let moves = varied();
    let low = scratch.table(ObjectFormat::Sha1, 1, &moves[..4]);
    let apart = scratch.table(ObjectFormat::Sha1, 6, &moves[5..]);
    let path = scratch.path();
    for inputs in [vec![], vec![low.clone(), apart.clone()], vec![apart, low]] {
        let error = super::merge(&OsEnv, &path, &inputs, Stop::NEVER).unwrap_err();
        assert!(matches!(error, TableError::Input { .. }), "{error}");
    }
}
