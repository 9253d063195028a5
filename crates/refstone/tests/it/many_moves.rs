//! Refs with many moves: what the log told before anything was sealed is told for ever.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use refstone::exchange::{GitRefs, Progress, ReflogEntry, import_refs};
use refstone::{
    At, CompactOptions, Edit, HistoryForm, Merge, ObjectFormat, ObjectId, OsEnv, RefMove, RefName,
    Seq, Target, Transaction, history, history_after, history_newest_first, read_ref_at,
    read_view_at, verify,
};
use refstone_log::{RepairOptions, repair};

use crate::common::{Scratch, name};

const MAIN: &str = "refs/heads/main";
/// Most moves are of the second.
const NAMES: [&str; 5] = ["HEAD", MAIN, "refs/heads/cold", "refs/s", "refs/tags/t"];

/// Numbers that look random, and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn id(&mut self, format: ObjectFormat) -> ObjectId {
        let mut id = vec![[1, 2, 3][self.below(3)]; format.len()];
        id[0] = u8::try_from(self.below(256)).unwrap();
        ObjectId::from_bytes(&id).unwrap()
    }

    /// Often that of before, since moves of one ref share them; never empty.
    fn text(&mut self, longest: usize) -> Vec<u8> {
        let seed = self.below(6);
        let len = match seed {
            0 => longest,
            _ => 1 + self.below(20) * seed * seed,
        };
        let hard = [b'\\', 0xff, b'x', b'\n', 0x80, b'%', b'\t', 0xe2];
        (0..len).map(|at| hard[(at * seed) % 8]).collect()
    }

    fn name(&mut self) -> RefName {
        let at = self.below(16);
        name(NAMES[if at < NAMES.len() { at } else { 1 }])
    }

    fn edit(&mut self, format: ObjectFormat) -> Edit {
        let of = self.name();
        match self.below(12) {
            0 if !of.is_head() => Edit::delete(of),
            1 => Edit::set(of, name([MAIN, "refs/heads/none"][self.below(2)])),
            _ => Edit::set(of, self.id(format)),
        }
        .no_deref()
    }

    fn transaction(&mut self, format: ObjectFormat) -> Transaction {
        let edit = self.edit(format);
        let tx = Transaction::new(self.text(40));
        let tx = if self.below(5) == 0 { tx } else { tx.with_message(self.text(9000)) };
        let second = self.edit(format);
        if second.name == edit.name || second.name.is_head() || edit.name.is_head() {
            return tx.with(edit);
        }
        tx.with(edit).with(second)
    }
}

/// Reflogs of which no entry needs to go on where the one before ended, or come after it.
fn imported(numbers: &mut Numbers, format: ObjectFormat) -> GitRefs {
    let zero = ObjectId::from_bytes(&vec![0; format.len()]).unwrap();
    let mut reflogs = BTreeMap::new();
    for (of, entries) in [("HEAD", 60), (MAIN, 120), ("refs/gone", 20)] {
        let entry = |_| {
            let time = [1, numbers.below(1 << 31), 1_600_000_000][numbers.below(3)];
            let mut id = || if numbers.below(4) == 0 { zero } else { numbers.id(format) };
            let (old, new) = (id(), id());
            let identity = format!("N <n@example.org> {time} +0000").into();
            let message = (numbers.below(3) > 0).then(|| numbers.text(3000).into());
            ReflogEntry { old, new, identity, message }
        };
        reflogs.insert(name(of), (0..entries).map(entry).collect());
    }
    let refs = BTreeMap::from([
        (RefName::head(), Target::from(name(MAIN))),
        (name(MAIN), numbers.id(format).into()),
    ]);
    GitRefs { object_format: format, refs, reflogs, left_out: Vec::new() }
}

/// Takes one transaction out of the live log, as damage and a repair do.
fn lose_one(scratch: &mut Scratch, format: ObjectFormat) {
    let marked = ObjectId::from_bytes(&vec![0xa7; format.len()]).unwrap();
    let edit = Edit::set(name(MAIN), marked).no_deref();
    scratch.store.commit(&Transaction::new("lost").with(edit)).unwrap();
    commit_some(scratch, &mut Numbers(3), format, 20);
    scratch.close_for(|dir| {
        let live = dir.join("refs.arrow");
        let mut bytes = fs::read(&live).unwrap();
        let at = bytes.windows(format.len()).position(|id| id == marked.as_bytes()).unwrap();
        bytes[at] ^= 1;
        fs::write(&live, bytes).unwrap();
        repair(&OsEnv, dir, &RepairOptions::default()).unwrap();
    });
}

fn commit_some(scratch: &Scratch, numbers: &mut Numbers, format: ObjectFormat, count: usize) {
    let batch: Vec<_> = (0..count).map(|_| numbers.transaction(format)).collect();
    for outcome in scratch.store.commit_batch(&batch) {
        outcome.unwrap();
    }
}

fn all_moves(dir: &Path) -> Vec<RefMove> {
    history(dir, None).unwrap().map(Result::unwrap).collect()
}

fn check(scratch: &Scratch, model: &[RefMove], numbers: &mut Numbers) {
    assert!(all_moves(&scratch.dir()) == model);
    for of in NAMES.iter().chain(&["refs/gone", "refs/never"]).map(|of| name(of)) {
        check_ref(scratch, &of, model, numbers);
    }
    for _ in 0..STEPS {
        let seq = some_seq(model, numbers);
        let view = read_view_at(&scratch.dir(), At::Seq(seq)).unwrap();
        let seen: BTreeMap<_, _> = view.iter_prefix(b"").map(Result::unwrap).collect();
        let mut refs = BTreeMap::from([(RefName::head(), name(MAIN).into())]);
        for moved in model.iter().filter(|moved| moved.seq <= seq) {
            match moved.target() {
                Some(target) => drop(refs.insert(moved.name.clone(), target)),
                None => drop(refs.remove(&moved.name)),
            }
        }
        assert!(seen == refs, "as of {seq}");
    }
}

fn check_ref(scratch: &Scratch, of: &RefName, model: &[RefMove], numbers: &mut Numbers) {
    let dir = &scratch.dir();
    let moves: Vec<_> = model.iter().filter(|moved| moved.name == *of).cloned().collect();
    let newest_first = [
        history_newest_first(dir, Some(of)).unwrap(),
        scratch.store.history_newest_first(Some(of)).unwrap(),
    ];
    for told in newest_first {
        assert!(told.map(Result::unwrap).eq(moves.iter().rev().cloned()), "{of}, newest first");
    }
    let held_behind = |count: usize| match &moves[..count] {
        [.., last] => last.target(),
        [] => of.is_head().then(|| name(MAIN).into()),
    };
    let seqs = (0..STEPS).map(|_| some_seq(model, numbers));
    for seq in [Seq::ZERO].into_iter().chain(seqs.collect::<Vec<_>>()) {
        let behind = moves.partition_point(|moved| moved.seq <= seq);
        let after = history_after(dir, seq, Some(of)).unwrap().map(Result::unwrap);
        assert!(after.eq(moves[behind..].iter().cloned()), "{of} after {seq}");
        let then = read_ref_at(dir, of, At::Seq(seq)).unwrap();
        assert_eq!(then, held_behind(behind), "{of} as of {seq}");
        let at = model[numbers.below(model.len())].at;
        let then = read_ref_at(dir, of, At::Time(at)).unwrap();
        let behind = moves.partition_point(|moved| moved.at <= at);
        assert_eq!(then, held_behind(behind), "{of} at {at:?}");
    }
}

/// Perhaps one that is not there yet.
fn some_seq(model: &[RefMove], numbers: &mut Numbers) -> Seq {
    let newest = model.last().unwrap().seq.get();
    match numbers.below(8) {
        0 => Seq::new(newest + 1),
        _ => model[numbers.below(model.len())].seq,
    }
}

fn store_of_many(numbers: &mut Numbers, format: ObjectFormat) -> Scratch {
    let mut scratch = Scratch::of(format);
    let refs = imported(numbers, format);
    scratch.close_for(|dir| {
        fs::remove_dir_all(dir).unwrap();
        let mut go_on = |_: Progress| ControlFlow::Continue(());
        import_refs(&refs, dir, &mut go_on).unwrap();
    });
    scratch
}

/// Questions of each kind that are asked each time.
const STEPS: usize = 2;

// Breaks: a chunk told by the base of another; a span that begins or ends one transaction off; going on
// with a chunk from the other end.
#[test]
fn what_a_ref_did_is_told_alike_wherever_its_moves_lie() {
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        let mut numbers = Numbers(41);
        let mut scratch = store_of_many(&mut numbers, format);
        for round in 0..6 {
            if round == 3 {
                lose_one(&mut scratch, format);
            }
            commit_some(&scratch, &mut numbers, format, 40);
            let model = all_moves(&scratch.dir());
            let form = [HistoryForm::Full, HistoryForm::Derived][round % 2];
            let merge = if round == 4 { Merge::All } else { Merge::Due };
            scratch.store.compact(CompactOptions { form, merge }, &mut |_| ()).unwrap();
            match round % 3 {
                0 => scratch.store.rebuild(&mut |_| ()).unwrap(),
                1 => scratch.reopen(),
                _ => {}
            }
            check(&scratch, &model, &mut numbers);
        }
        let report = verify(&scratch.dir(), &mut |_| ()).unwrap();
        assert!(report.is_sound(), "{report:?}");
    }
}
