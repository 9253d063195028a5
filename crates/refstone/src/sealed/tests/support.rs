//! Moves to seal, and files of them.

use std::path::Path;

use proptest::prelude::*;
use refstone_log::{ObjectFormat, OsEnv, RefRow, Seq, Timestamp};

use crate::oid::ObjectId;
use crate::row::RefMove;
use crate::sealed::{Form, HistoryFile, HistoryWriter, Identity, SealedError};
use crate::{NAME_LEN_MAX, RefName};

pub(super) const FORMS: [Form; 2] = [Form::Full, Form::Derived];

/// The row of the log that records a move.
pub(super) fn row(moved: &RefMove) -> RefRow<'_> {
    RefRow {
        actor: &moved.actor,
        refname: moved.name.as_bytes(),
        old_oid: moved.old_oid.as_ref().map(ObjectId::as_bytes),
        new_oid: moved.new_oid.as_ref().map(ObjectId::as_bytes),
        symref: moved.symref.as_ref().map(RefName::as_bytes),
        message: moved.message.as_ref().map(AsRef::as_ref),
    }
}

/// The identity of a file of these moves.
pub(super) fn identity(moves: &[RefMove], objects: ObjectFormat) -> Identity {
    let (first, last) = (moves.first().unwrap(), moves.last().unwrap());
    Identity {
        log_id: *b"the log of tests",
        object_format: objects,
        first: first.seq,
        last: last.seq,
        last_crc: 0x0123_abcd,
        last_at: last.at,
        gaps: vec![],
    }
}

pub(super) fn write_as(
    path: &Path,
    moves: &[RefMove],
    form: Form,
    identity: &Identity,
) -> Result<HistoryFile, SealedError> {
    let mut writer = HistoryWriter::create(&OsEnv, path, identity.object_format, form)?;
    for moved in moves {
        writer.push(moved.seq, moved.at, &row(moved))?;
    }
    assert_eq!(writer.rows() as usize, moves.len());
    writer.finish(identity)?;
    HistoryFile::open(&OsEnv, path)
}

/// A history file of these moves, in a directory.
pub(super) fn write(dir: &Path, moves: &[RefMove], form: Form) -> HistoryFile {
    write_of(objects(moves), dir, moves, form)
}

/// The format of the object ids in these moves.
pub(super) fn objects(moves: &[RefMove]) -> ObjectFormat {
    let mut ids = moves.iter().flat_map(|moved| [moved.old_oid, moved.new_oid]).flatten();
    ids.next().map_or(ObjectFormat::Sha1, |id| id.format())
}

/// The same, of moves that may have no object ids.
pub(super) fn write_of(
    objects: ObjectFormat,
    dir: &Path,
    moves: &[RefMove],
    form: Form,
) -> HistoryFile {
    let identity = identity(moves, objects);
    let path = dir.join(format!("{}-{}.parquet", identity.first, identity.last));
    write_as(&path, moves, form, &identity).unwrap()
}

pub(super) fn read(file: &HistoryFile) -> Vec<RefMove> {
    file.moves(0..file.rows()).map(Result::unwrap).collect()
}

/// Random numbers from a seed.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(super) fn oid(&mut self, objects: ObjectFormat) -> ObjectId {
        let words = [(); 4].map(|()| self.next().to_le_bytes()).concat();
        ObjectId::from_bytes(&words[..objects.len()]).unwrap()
    }
}

/// Pushes to few refs often and to many seldom (Zipf, 1.2), by 200 people: each moves one ref
/// from where it was to a new random object, up to 4 ms after the push before.
pub(super) struct Pushes {
    random: Random,
    names: Vec<RefName>,
    values: Vec<Option<ObjectId>>,
    weights: Vec<f64>,
    seq: Seq,
    at: i64,
}

impl Pushes {
    pub(super) fn new(seed: u64, refs: u32) -> Pushes {
        let name = |n| RefName::new(format!("refs/heads/topic-{n}")).unwrap();
        let mut total = 0.0;
        let weight = |n: u32| {
            total += f64::from(n + 1).powf(-1.2);
            total
        };
        Pushes {
            random: Random(seed),
            names: (0..refs).map(name).collect(),
            values: vec![None; refs as usize],
            weights: (0..refs).map(weight).collect(),
            seq: Seq::ZERO,
            at: 1_700_000_000_000_000,
        }
    }

    fn pick(&mut self) -> usize {
        let total = self.weights.last().unwrap();
        let fraction = f64::from(u32::try_from(self.random.next() >> 32).unwrap()) / 2f64.powi(32);
        self.weights.partition_point(|weight| *weight < fraction * total).min(self.names.len() - 1)
    }
}

impl Iterator for Pushes {
    type Item = RefMove;

    fn next(&mut self) -> Option<RefMove> {
        let picked = self.pick();
        self.seq = self.seq.next();
        self.at += 1 + i64::try_from(self.random.below(4096)).unwrap();
        let new_oid = Some(self.random.oid(ObjectFormat::Sha1));
        let old_oid = std::mem::replace(&mut self.values[picked], new_oid);
        let actor = format!("user-{}", self.random.below(200)).into();
        let name = self.names[picked].clone();
        let at = Timestamp::from_micros(self.at);
        let seq = self.seq;
        Some(RefMove { seq, at, actor, name, old_oid, new_oid, symref: None, message: None })
    }
}

fn name() -> impl Strategy<Value = RefName> {
    let longest = NAME_LEN_MAX - "refs/heads/".len();
    let bytes = prop_oneof![
        // Few, so that refs move again.
        8 => "[a-d]".prop_map(String::into_bytes),
        2 => Just(b"\xff\xfe".to_vec()),
        1 => "[a-zé]{1,20}".prop_map(String::into_bytes),
        1 => Just(vec![b'n'; longest]),
    ];
    bytes.prop_map(|bytes| RefName::new([&b"refs/heads/"[..], &bytes].concat()).unwrap())
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(vec![]),
        "[a-z]{0,12}".prop_map(String::into_bytes),
        r"[\\x0-9a-f]{0,12}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..24),
    ]
}

/// What a move leaves, and what it says was there: the truth, or anything.
#[derive(Clone, Debug)]
struct Step {
    name: RefName,
    old: Option<Option<u8>>,
    new: Option<Result<u8, RefName>>,
    actor: Vec<u8>,
    message: Option<Vec<u8>>,
    /// Whether it belongs to the transaction of the step before.
    joins: bool,
    after: i64,
}

fn step() -> impl Strategy<Value = Step> {
    let old = prop_oneof![4 => Just(None), 1 => any::<Option<u8>>().prop_map(Some)];
    let target = prop_oneof![5 => any::<u8>().prop_map(Ok), 1 => name().prop_map(Err)];
    let new = prop::option::weighted(0.8, target);
    let message = prop::option::of(text());
    (name(), old, new, text(), message, any::<bool>(), 0_i64..3).prop_map(
        |(name, old, new, actor, message, joins, after)| Step {
            name,
            old,
            new,
            actor,
            message,
            joins,
            after,
        },
    )
}

fn follow(objects: ObjectFormat, first: u64, steps: Vec<Step>) -> Vec<RefMove> {
    let oid = |byte: u8| ObjectId::from_bytes(&vec![byte; objects.len()]).unwrap();
    let mut values = std::collections::HashMap::new();
    let (mut seq, mut at) = (Seq::new(first - 1), Timestamp::from_micros(-5));
    let mut moves = Vec::new();
    for step in steps {
        if moves.is_empty() || !step.joins {
            (seq, at) = (seq.next(), Timestamp::from_micros(at.as_micros() + step.after));
        }
        let new_oid = step.new.as_ref().and_then(|new| new.as_ref().ok()).map(|byte| oid(*byte));
        let was = values.insert(step.name.clone(), new_oid).flatten();
        moves.push(RefMove {
            seq,
            at,
            actor: step.actor.into(),
            name: step.name,
            old_oid: step.old.map_or(was, |old| old.map(oid)),
            new_oid,
            symref: step.new.and_then(Result::err),
            message: step.message.map(Into::into),
        });
    }
    moves
}

/// Moves of every shape: text of any bytes, deletions, symbolic refs, several in a transaction,
/// old values that are the truth and others.
pub(super) fn moves(most: usize) -> impl Strategy<Value = Vec<RefMove>> {
    let objects = prop_oneof![Just(ObjectFormat::Sha1), Just(ObjectFormat::Sha256)];
    let steps = prop::collection::vec(step(), 1..=most);
    (objects, 1_u64..1000, steps).prop_map(|(objects, first, steps)| follow(objects, first, steps))
}
