//! Secrets, crashed at every operation: there is the old secret or the new one, and what a change
//! that returned has replaced is in no file, whatever the disk kept.

use std::collections::BTreeMap;
use std::io::ErrorKind as Io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use refstone::Env;
use refstone::secrets::{AppendError, SecretStore};
use refstone_log::{ErrorKind, SecretLog};
use refstone_tests::sim::{Disk, Fault, Moment, Op, Plan, Policy, Rng, Sabotage, SimFs};

/// One change: a key, and its new secret.
type Change = (&'static str, Option<&'static str>);

/// Each secret is a word of its own, so that its bytes are found in a file.
const CHANGES: [Change; 7] = [
    ("host-key", Some("apple-of-the-first-change")),
    ("token", Some("birch-of-the-second-change")),
    ("host-key", Some("cedar-of-the-third-change")),
    ("host-key", Some("damson-of-the-fourth-change")),
    ("token", None),
    ("host-key", None),
    ("token", Some("elder-of-the-seventh-change")),
];

type Secrets = BTreeMap<&'static str, &'static str>;

/// The secrets behind the first `count` changes.
fn secrets(count: usize) -> Secrets {
    let mut secrets = Secrets::new();
    for (key, value) in &CHANGES[..count.min(CHANGES.len())] {
        match value {
            Some(value) => secrets.insert(key, value),
            None => secrets.remove(key),
        };
    }
    secrets
}

fn dir() -> PathBuf {
    PathBuf::from("/data/secrets")
}

/// A store on the way: how many changes have returned, and on what the next one runs.
struct Run {
    fs: SimFs,
    env: Arc<dyn Env>,
    done: usize,
}

impl Run {
    fn create(env: impl FnOnce(&SimFs) -> Arc<dyn Env>) -> Run {
        let fs = SimFs::new();
        let env = env(&fs);
        SecretLog::create(&*env, &dir()).unwrap();
        Run { fs, env, done: 0 }
    }

    fn open(&self) -> SecretStore {
        SecretStore::open_in(self.env.clone(), &dir()).unwrap()
    }

    fn change(&mut self, store: &SecretStore) {
        self.try_change(store).unwrap();
        self.done += 1;
        self.fs.note(self.done);
    }

    fn try_change(&self, store: &SecretStore) -> Result<(), AppendError> {
        let (key, value) = CHANGES[self.done];
        match value {
            Some(value) => store.put("alice", key, value).map(drop),
            None => store.delete("alice", key).map(|seq| assert!(seq.is_some())),
        }
    }
}

/// All moments of a store that is created, changed, reopened in the middle, and changed.
fn moments(env: impl FnOnce(&SimFs) -> Arc<dyn Env>) -> Vec<Moment> {
    let mut run = Run::create(env);
    run.fs.record();
    for half in [0..3, 3..CHANGES.len()] {
        let store = run.open();
        half.for_each(|_| run.change(&store));
    }
    run.fs.take_moments()
}

/// What a disk must not hold once the secrets are these: every other one.
fn check_gone(disk: &Disk, may: &[Secrets], when: &str) -> Result<(), String> {
    let values = CHANGES.iter().filter_map(|(_, value)| *value);
    for value in values.filter(|value| !may.iter().any(|now| now.values().any(|v| v == value))) {
        if disk.holds(value.as_bytes()) {
            return Err(format!("{when}: a file holds {value}"));
        }
    }
    Ok(())
}

/// What a store holds.
fn found(store: &SecretStore) -> BTreeMap<String, Vec<u8>> {
    let value = |key: &[u8]| store.get(key).unwrap().as_bytes().to_vec();
    let name = |key: &[u8]| String::from_utf8(key.to_vec()).unwrap();
    store.keys().iter().map(|key| (name(key), value(key))).collect()
}

fn is(found: &BTreeMap<String, Vec<u8>>, secrets: &Secrets) -> bool {
    let expected =
        secrets.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()));
    *found == expected.collect()
}

/// Opens what a crash left after `done` changes had returned, looks at every file, and goes on.
///
/// Returns how many changes it was.
fn check_crashed(fs: &SimFs, done: usize) -> Result<usize, String> {
    fs.record();
    let (store, now) = check_opening(fs, done)?;
    let half = Policy::Random { per_mille: 500 };
    for moment in fs.take_moments() {
        for (seed, policy) in [(0, Policy::Nothing), (1, Policy::Everything), (2, half)] {
            let survivor = moment.disk.survivor(policy, &mut Rng::new(seed));
            let again = check_opening(&SimFs::boot(survivor), done);
            again.map_err(|what| format!("the opening crashed too: {what}"))?;
        }
    }
    let seq = store.put("bob", "host-key", "fir-of-a-change-after-it").unwrap();
    assert_eq!(seq.get(), now as u64 + 1, "the sequence goes on");
    let mut later = secrets(now);
    later.insert("host-key", "fir-of-a-change-after-it");
    check_gone(&floor(fs), &[later], "changed after the crash")?;
    Ok(now)
}

fn check_opening(fs: &SimFs, done: usize) -> Result<(SecretStore, usize), String> {
    let may = [secrets(done), secrets(done + 1)];
    check_gone(&fs.disk(), &may, "after the crash")?;
    let opened = SecretStore::open_in(Arc::new(fs.clone()), &dir());
    let store = opened.map_err(|error| format!("it does not open: {error}"))?;
    let found = found(&store);
    let which = may.iter().position(|secrets| is(&found, secrets));
    let now = done + which.ok_or_else(|| format!("expected one of {may:?}, found {found:?}"))?;
    check_gone(&fs.disk(), &[secrets(now)], "opened")?;
    check_gone(&floor(fs), &[secrets(now)], "opened, and then cut")?;
    Ok((store, now))
}

/// What a power cut leaves at the least.
fn floor(fs: &SimFs) -> Disk {
    fs.disk().survivor(Policy::Nothing, &mut Rng::new(0))
}

/// Every disk that a power cut at this moment may leave, and the killed process's own.
fn disks(moment: &Moment) -> Vec<Disk> {
    let ticks = moment.disk.uncertain_ticks();
    let mut policies = vec![Policy::Nothing, Policy::Everything, Policy::Small];
    policies.extend([200, 500, 800].map(|per_mille| Policy::Random { per_mille }));
    policies.extend(ticks.iter().flat_map(|&tick| [Policy::Until(tick), Policy::From(tick)]));
    let cut = |(seed, policy): (u64, Policy)| moment.disk.survivor(policy, &mut Rng::new(seed));
    let mut disks: Vec<Disk> = (0..).zip(policies).map(cut).collect();
    disks.push(moment.disk.clone());
    disks
}

fn check_all(moments: &[Moment]) -> Result<(usize, [usize; 2]), String> {
    let (mut states, mut outcomes) = (0, [0, 0]);
    for moment in moments {
        for disk in disks(moment) {
            let now = check_crashed(&SimFs::boot(disk), moment.note)
                .map_err(|what| format!("operation {} ({:?}): {what}", moment.index, moment.op))?;
            outcomes[now - moment.note] += 1;
            states += 1;
        }
    }
    Ok((states, outcomes))
}

// Breaks: returning before the directory is synced (see the sabotage below); appending instead of
// writing anew; an opening that leaves the temporary file.
#[test]
fn at_every_operation_a_crash_leaves_the_old_secret_or_the_new_one_and_never_one_before() {
    let (states, [old, new]) = check_all(&moments(|fs| Arc::new(fs.clone()))).unwrap();
    assert!(states > 400, "only {states} states");
    assert!(old > 50 && new > 50, "{old} old, {new} new");
}

#[test]
fn the_check_finds_a_directory_that_was_not_synced() {
    let problem = check_all(&moments(|fs| Sabotage::NoSyncAfterReplacing.env(fs))).unwrap_err();
    assert!(problem.contains("expected one of"), "{problem}");
}

#[test]
fn the_check_finds_a_file_that_was_not_synced() {
    check_all(&moments(|fs| Sabotage::NoSync("secrets.arrow.tmp").env(fs))).unwrap_err();
}

#[test]
fn the_check_finds_a_rotated_secret_that_is_kept() {
    let problem = check_all(&moments(|fs| Sabotage::ReplacedKept.env(fs))).unwrap_err();
    assert!(problem.contains("a file holds apple"), "{problem}");
}

// Break: a creation that renames before it syncs.
#[test]
fn a_crashed_creation_leaves_no_store_or_a_whole_one() {
    let fs = SimFs::new();
    fs.record();
    SecretLog::create(&fs, &dir()).unwrap();
    let mut outcomes = [0, 0];
    for moment in fs.take_moments() {
        for disk in disks(&moment) {
            let fs = SimFs::boot(disk);
            let opened = SecretStore::open_in(Arc::new(fs.clone()), &dir());
            outcomes[usize::from(opened.is_ok())] += 1;
            let store = opened.unwrap_or_else(|error| {
                assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
                SecretLog::create(&fs, &dir()).unwrap();
                SecretStore::open_in(Arc::new(fs.clone()), &dir()).unwrap()
            });
            assert_eq!(store.put("alice", "key", "secret").unwrap().get(), 1);
        }
    }
    assert!(outcomes.iter().all(|&count| count > 0), "{outcomes:?}");
}

// Breaks: a failed sync taken for a success; going on after a failed sync of the directory; a
// failed write that stops the store; a secret left in a file that could not be renamed.
#[test]
fn a_change_that_fails_has_not_happened_or_stops_the_store() {
    let faults =
        [Fault::Error(Io::Other), Fault::DoneBut(Io::Other), Fault::Error(Io::StorageFull)];
    let mut kinds = BTreeMap::new();
    for op in [Op::Create, Op::Remove, Op::Write, Op::Sync, Op::Rename, Op::SyncDir] {
        for fault in faults {
            for after in 0..2 {
                *kinds
                    .entry(change_with(Plan { op, after, fault, lasting: false }))
                    .or_insert(0) += 1;
            }
        }
    }
    let seen: Vec<_> = kinds.keys().map(String::as_str).collect();
    assert_eq!(seen, ["NoSpace", "NotCommitted", "Unknown", "done"], "{kinds:?}");
}

/// The third change, under a fault; says how it ended.
fn change_with(plan: Plan) -> String {
    let mut run = Run::create(|fs| Arc::new(fs.clone()));
    let store = run.open();
    (0..2).for_each(|_| run.change(&store));
    run.fs.plan(plan);
    let outcome = run.try_change(&store).map_err(|error| error.kind());
    run.fs.heal();
    let left = run.fs.disk().read(&dir().join("secrets.arrow.tmp")).map_or(0, <[u8]>::len);
    assert!(left == 0 || plan.op == Op::Remove, "{plan:?}: a failed change leaves its file");
    let before = is(&found(&store), &secrets(2));
    match outcome {
        Ok(()) => assert!(is(&found(&store), &secrets(3)), "{plan:?}"),
        Err(ErrorKind::NotCommitted | ErrorKind::NoSpace) => {
            assert!(before, "{plan:?}");
            run.change(&store);
        }
        Err(ErrorKind::Unknown) => {
            assert!(before, "{plan:?}: nobody sees what may not be durable");
            for poisoned in [store.put("a", "k", "v").map(drop), store.delete("a", "k").map(drop)] {
                assert_eq!(poisoned.unwrap_err().kind(), ErrorKind::Poisoned, "{plan:?}");
            }
        }
        Err(kind) => panic!("{plan:?}: {kind:?}"),
    }
    let done = run.done + usize::from(outcome.is_ok());
    for policy in [Policy::Nothing, Policy::Everything] {
        let cut = SimFs::boot(run.fs.disk().survivor(policy, &mut Rng::new(0)));
        let now = check_crashed(&cut, done).unwrap_or_else(|what| panic!("{plan:?}: {what}"));
        assert!(now == done || outcome == Err(ErrorKind::Unknown), "{plan:?}");
    }
    outcome.map_or_else(|kind| format!("{kind:?}"), |()| "done".to_owned())
}

// Break: an opening that returns although a leftover could not be removed.
#[test]
fn an_opening_that_cannot_remove_a_leftover_refuses() {
    let mut run = Run::create(|fs| Arc::new(fs.clone()));
    let store = run.open();
    run.change(&store);
    drop(store);
    let leftover = dir().join("secrets.arrow.tmp");
    run.fs.create_new(&leftover).unwrap().write_at(b"apple", 0).unwrap();
    let plan = |op| Plan { op, after: 0, fault: Fault::Error(Io::Other), lasting: false };
    for op in [Op::Remove, Op::SyncDir] {
        run.fs.plan(plan(op));
        SecretStore::open_in(run.env.clone(), &dir()).unwrap_err();
    }
    drop(run.open());
    assert!(run.fs.disk().read(Path::new(&leftover)).is_err());
}
