//! The operating system fails.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use refstone_log::{Env, EnvFile, EnvLayer, FileLayer, ObjectFormat, OsEnv};

use super::super::{Order, Table, TableError};
use super::{Scratch, many, trail, varied, write};
use crate::stop::Stop;

/// The operating system's files, with reads or syncs that fail while they are told to.
#[derive(Clone, Debug, Default)]
pub(super) struct Faulty {
    pub(super) reads: Arc<AtomicBool>,
    syncs: Arc<AtomicBool>,
}

fn check(fails: &AtomicBool) -> io::Result<()> {
    match fails.load(Ordering::Relaxed) {
        true => Err(io::Error::other("planned")),
        false => Ok(()),
    }
}

impl EnvLayer for Faulty {
    fn below(&self) -> &dyn Env {
        &OsEnv
    }

    fn wrap(&self, _path: &Path, file: Box<dyn EnvFile>) -> Box<dyn EnvFile> {
        Box::new(FaultyFile { file, env: self.clone() })
    }
}

#[derive(Debug)]
struct FaultyFile {
    file: Box<dyn EnvFile>,
    env: Faulty,
}

impl FileLayer for FaultyFile {
    fn below(&self) -> &dyn EnvFile {
        &*self.file
    }

    fn above(&self, file: Box<dyn EnvFile>) -> Box<dyn EnvFile> {
        Box::new(FaultyFile { file, env: self.env.clone() })
    }

    /// Reads are short, as they may be.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        check(&self.env.reads)?;
        let len = buffer.len().min(1000);
        self.file.read_at(&mut buffer[..len], offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        check(&self.env.syncs)?;
        self.file.sync_data()
    }
}

fn is_io<T>(result: &Result<T, TableError>) -> bool {
    matches!(result, Err(TableError::Io { .. }))
}

// Breaks: an error taken for "no such ref"; an error that is kept.
#[test]
fn a_read_that_fails_is_an_error_and_is_tried_again() {
    let (env, mut scratch) = (Faulty::default(), Scratch::new());
    let path = scratch.path();
    let moves = many(3_000);
    write(&env, &path, ObjectFormat::Sha1, 1, &moves).unwrap();
    let table = Arc::new(Table::open(&env, &path).unwrap());
    let [first, last] = [&moves[0], &moves[9]].map(|moved| moved.name.as_bytes());
    let known = table.target(first).unwrap();
    let mut cursor = table.live_from(b"").unwrap();
    env.reads.store(true, Ordering::Relaxed);
    assert_eq!(table.target(first).unwrap(), known, "what was read is kept");
    assert!(is_io(&table.target(last)));
    assert!(is_io(&trail(&table, first, Order::NewestFirst)));
    assert!(is_io(&table.verify(Stop::NEVER)));
    assert!(is_io(&Table::open(&env, &path)));
    let stuck = std::iter::repeat_with(|| cursor.advance()).take(3_000).filter(Result::is_err);
    assert!(stuck.count() > 0);
    let stopped_at = cursor.name().unwrap().to_vec();
    env.reads.store(false, Ordering::Relaxed);
    assert!(table.target(last).unwrap().is_some());
    cursor.advance().unwrap();
    assert!(cursor.name().unwrap() > &stopped_at[..], "the cursor goes on where it stood");
}

// Breaks: the name given before the sync.
#[test]
fn a_table_that_is_not_synced_gets_no_name() {
    let (env, mut scratch) = (Faulty::default(), Scratch::new());
    let path = scratch.path();
    env.syncs.store(true, Ordering::Relaxed);
    assert!(is_io(&write(&env, &path, ObjectFormat::Sha1, 1, &varied())));
    assert!(OsEnv.list(scratch.dir.path()).unwrap().is_empty());
}

/// How often this process has a file open.
fn descriptors(path: &Path) -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    let files = links.filter_map(|link| std::fs::read_link(link.unwrap().path()).ok());
    files.filter(|file| file.starts_with(path.parent().unwrap())).count()
}

// Breaks: a descriptor that stays; a read by the name once the table is held.
#[test]
fn a_table_that_was_let_go_reads_its_file_anew_until_it_is_held() {
    let (env, mut scratch) = (Faulty::default(), Scratch::new());
    let path = scratch.path();
    let moves = many(3_000);
    write(&env, &path, ObjectFormat::Sha1, 1, &moves).unwrap();
    let [first, other, last] = [&moves[0], &moves[1], &moves[9]].map(|m| m.name.as_bytes());
    let table = Table::open(&env, &path).unwrap();
    assert_eq!(descriptors(&path), 1);
    let table = table.let_go(Arc::new(env));
    assert_eq!(descriptors(&path), 0);
    assert!(table.target(first).unwrap().is_some());
    table.verify(Stop::NEVER).unwrap();
    assert_eq!(descriptors(&path), 0);

    table.hold().unwrap();
    table.hold().unwrap();
    assert_eq!(descriptors(&path), 1);
    std::fs::write(path.with_extension("new"), "another table").unwrap();
    std::fs::rename(path.with_extension("new"), &path).unwrap();
    assert!(table.target(last).unwrap().is_some());
    table.verify(Stop::NEVER).unwrap();
    std::fs::remove_file(&path).unwrap();
    let table = Arc::new(table);
    assert!(!trail(&table, other, Order::OldestFirst).unwrap().is_empty());
}

#[test]
fn a_table_that_was_let_go_and_is_gone_is_an_error() {
    let mut scratch = Scratch::new();
    let path = scratch.path();
    write(&OsEnv, &path, ObjectFormat::Sha1, 1, &varied()).unwrap();
    let table = Table::open(&OsEnv, &path).unwrap().let_go(Arc::new(OsEnv));
    std::fs::remove_file(&path).unwrap();
    assert!(is_io(&table.hold()));
    assert!(is_io(&table.target(b"refs/heads/a")));
}
