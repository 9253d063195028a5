//! The simulated machine: what a power cut may take, and what it must leave.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use refstone_log::{Env, EnvFile};
use refstone_tests::sim::{Disk, Fault, Op, Plan, Policy, Rng, SimFs};

const SECTOR: usize = 512;

fn path() -> PathBuf {
    PathBuf::from("/file")
}

/// A machine with one durable file of so many sectors, filled with `a`.
fn machine(sectors: usize) -> (SimFs, Box<dyn EnvFile>) {
    let fs = SimFs::new();
    let file = fs.create_new(&path()).unwrap();
    file.write_at(&vec![b'a'; sectors * SECTOR], 0).unwrap();
    file.sync_data().unwrap();
    fs.sync_dir(Path::new("/")).unwrap();
    (fs, file)
}

fn bytes(disk: &Disk) -> Vec<u8> {
    disk.read(&path()).unwrap().to_vec()
}

fn floor(fs: &SimFs) -> Disk {
    fs.disk().survivor(Policy::Nothing, &mut Rng::new(0))
}

/// What each sector starts with, over many power cuts.
fn survivors(fs: &SimFs, policy: Policy) -> BTreeSet<String> {
    let mut rng = Rng::new(7);
    let disk = fs.disk();
    let cut = |_| {
        let bytes = bytes(&disk.survivor(policy, &mut rng));
        bytes.chunks(SECTOR).map(|sector| char::from(sector[0])).collect()
    };
    (0..200).map(cut).collect()
}

const HALF: Policy = Policy::Random { per_mille: 500 };

fn set<const N: usize>(texts: [&str; N]) -> BTreeSet<String> {
    texts.map(str::to_owned).into()
}

#[test]
fn each_sector_of_an_unsynced_write_survives_or_not() {
    let (fs, file) = machine(2);
    file.write_at(&vec![b'b'; 2 * SECTOR], 0).unwrap();
    assert_eq!(survivors(&fs, HALF), set(["aa", "ab", "ba", "bb"]));
    assert_eq!(survivors(&fs, Policy::Nothing), set(["aa"]));
    assert_eq!(survivors(&fs, Policy::Everything), set(["bb"]));
    file.sync_data().unwrap();
    assert_eq!(survivors(&fs, HALF), set(["bb"]));
}

#[test]
fn writes_to_one_sector_survive_in_order_and_to_different_ones_in_any() {
    let (fs, file) = machine(2);
    file.write_at(b"b", 0).unwrap();
    file.write_at(b"c", 0).unwrap();
    file.write_at(b"d", SECTOR as u64).unwrap();
    let expected = set(["aa", "ba", "ca", "ad", "bd", "cd"]);
    assert_eq!(survivors(&fs, HALF), expected);
    let tick = fs.disk().tick();
    assert_eq!(survivors(&fs, Policy::From(tick)), set(["aa", "ad"]));
    assert_eq!(survivors(&fs, Policy::Until(tick - 1)), set(["ba", "ca"]));
}

#[test]
fn a_sector_may_be_torn_between_words_but_never_inside_one() {
    let (fs, file) = machine(1);
    file.write_at(&[b'b'; 16], 32).unwrap();
    let mut rng = Rng::new(1);
    let lens = (0..2000).map(|_| {
        let bytes = bytes(&fs.disk().survivor(Policy::Random { per_mille: 900 }, &mut rng));
        bytes.iter().filter(|&&byte| byte == b'b').count()
    });
    assert_eq!(lens.collect::<BTreeSet<_>>(), BTreeSet::from([0, 4, 8, 12, 16]));
}

#[test]
fn a_length_survives_without_its_bytes_and_bytes_are_cut_by_an_old_length() {
    let (fs, file) = machine(1);
    file.write_at(&[b'b'; SECTOR], SECTOR as u64).unwrap();
    assert_eq!(survivors(&fs, HALF), set(["a", "ab", "a\0"]));
    assert_eq!(bytes(&floor(&fs)).len(), SECTOR);
}

#[test]
fn a_name_is_durable_only_after_a_sync_of_its_directory() {
    let fs = SimFs::new();
    fs.create_dir_all(Path::new("/a/b")).unwrap();
    let file = fs.create_new(Path::new("/a/b/f")).unwrap();
    file.write_at(b"x", 0).unwrap();
    file.sync_data().unwrap();
    fs.sync_dir(Path::new("/a/b")).unwrap();
    fs.sync_dir(Path::new("/a")).unwrap();
    assert!(floor(&fs).list(Path::new("/a")).is_err(), "the root was not synced");
    fs.sync_dir(Path::new("/")).unwrap();
    assert_eq!(floor(&fs).read(Path::new("/a/b/f")).unwrap(), b"x");
}

#[test]
fn a_rename_is_whole_and_the_descriptor_follows_the_file() {
    let (fs, file) = machine(1);
    let to = Path::new("/other");
    fs.rename(&path(), to).unwrap();
    file.write_at(b"z", 0).unwrap();
    assert_eq!(fs.disk().read(to).unwrap()[0], b'z');
    let mut rng = Rng::new(3);
    for _ in 0..50 {
        let disk = fs.disk().survivor(HALF, &mut rng);
        assert_ne!(disk.read(&path()).is_ok(), disk.read(to).is_ok());
    }
    assert!(floor(&fs).read(&path()).is_ok());
    fs.sync_dir(Path::new("/")).unwrap();
    assert!(floor(&fs).read(to).is_ok());
}

#[test]
fn what_a_failed_sync_lost_is_read_back_and_is_on_no_disk_until_it_is_written_again() {
    let (fs, file) = machine(2);
    file.write_at(&vec![b'b'; 2 * SECTOR], 0).unwrap();
    let fault = Fault::Error(ErrorKind::Other);
    fs.plan(Plan { op: Op::Sync, after: 0, fault, lasting: false });
    file.sync_data().unwrap_err();
    file.sync_data().unwrap();
    assert_eq!(bytes(&fs.disk())[0], b'b', "the cache has it");
    assert_eq!(survivors(&fs, HALF), set(["aa", "ab", "ba", "bb"]), "the disk may have it");
    file.write_at(b"b", 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(survivors(&fs, HALF), set(["ba", "bb"]), "one sector was written again");
    fs.evict(Policy::Nothing, &mut Rng::new(0));
    assert_eq!(bytes(&fs.disk())[SECTOR], b'a', "read from the disk again");
}

#[test]
fn a_lock_dies_with_its_process_and_a_dead_process_does_nothing() {
    let (fs, file) = machine(1);
    let lock = fs.lock(Path::new("/LOCK")).unwrap();
    let error = fs.spawn().lock(Path::new("/LOCK")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    let next = fs.kill();
    let held = next.lock(Path::new("/LOCK")).unwrap();
    drop(lock);
    assert!(next.spawn().lock(Path::new("/LOCK")).is_err(), "the dead took the lock along");
    drop(held);
    file.write_at(b"z", 0).unwrap_err();
    assert_eq!(bytes(&next.disk())[0], b'a');
}

#[test]
fn faults_come_when_they_were_planned() {
    let (fs, file) = machine(1);
    let plan = |op, after, fault| fs.plan(Plan { op, after, fault, lasting: false });
    plan(Op::Write, 1, Fault::HalfThen(ErrorKind::StorageFull));
    file.write_at(b"bb", 0).unwrap();
    file.write_at(b"cc", 0).unwrap_err();
    assert_eq!(bytes(&fs.disk())[..2], *b"cb");
    plan(Op::Sync, 0, Fault::DoneBut(ErrorKind::Other));
    file.sync_data().unwrap_err();
    assert_eq!(survivors(&fs, HALF), set(["c"]), "it was synced all the same");
    plan(Op::Write, 0, Fault::Short);
    assert_eq!(file.write_at(b"dddd", 0).unwrap(), 2);
    assert_eq!(fs.faults_met(), 3);
}

#[test]
fn what_is_given_back_is_gone_also_under_a_name_that_a_power_cut_brings_back() {
    let (fs, file) = machine(2);
    file.give_back();
    assert_eq!(bytes(&fs.disk()).len(), 2 * SECTOR, "it has its name");
    let reader = fs.open_read(&path()).unwrap();
    fs.remove(&path()).unwrap();
    file.give_back();
    assert_eq!(reader.len().unwrap(), 2 * SECTOR as u64, "somebody reads it");
    drop(reader);
    file.give_back();
    assert_eq!(file.len().unwrap(), 0);
    assert_eq!(bytes(&floor(&fs)), b"", "the name is back, and not what it named");
    fs.sync_dir(Path::new("/")).unwrap();
    assert!(floor(&fs).read(&path()).is_err());
}
