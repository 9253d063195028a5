//! Making the table of a range of transactions, in bounded memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use refstone_log::{Env, Seq, Timestamp};

use crate::digest::Digest;
use crate::error::ReadError;
use crate::name::RefName;
use crate::new_file::TEMPORARY;
use crate::sealed::HistoryFile;
use crate::shelves::Shelves;
use crate::stop::Stop;
use crate::table::{self, Identity, Step, Table};

/// What the moves of a range may take; more are put into tables of parts of it, which are merged. A
/// million refs that came in one transaction fit: making their table twice, and removing the parts,
/// would hold up commits.
const MEMORY: usize = 192 << 20;

/// A table that is being made.
pub(crate) struct Making<'s> {
    env: &'s dyn Env,
    path: PathBuf,
    /// Of the whole range; its end is known when it is reached.
    identity: Identity,
    head: RefName,
    stop: Stop<'s>,
    memory: usize,
    digest: Digest,
    parts: Vec<Arc<Table>>,
    /// The newest transaction so far.
    reached: (Seq, Timestamp),
}

impl<'s> Making<'s> {
    /// Starts the table of the transactions from `first` on that is to be called `path`.
    pub(crate) fn start(
        shelves: &'s Shelves,
        path: PathBuf,
        first: Seq,
        stop: Stop<'s>,
    ) -> Making<'s> {
        let object_format = shelves.object_format;
        let identity = Identity {
            log_id: shelves.log_id,
            object_format,
            first,
            last: first,
            last_crc: 0,
            last_at: Timestamp::default(),
        };
        Making {
            env: &*shelves.env,
            path,
            identity,
            head: shelves.head.clone(),
            stop,
            memory: MEMORY,
            digest: Digest::new(object_format),
            parts: Vec::new(),
            reached: (Seq::ZERO, Timestamp::default()),
        }
    }

    /// Takes all moves of a history file.
    pub(crate) fn take(&mut self, history: &HistoryFile) -> Result<(), ReadError> {
        for (row, moved) in (0..).zip(history.moves(0..history.rows())) {
            self.stop.check_at(row)?;
            let moved = moved?;
            let step = Step::of(moved.seq, moved.at, &moved.as_row());
            self.note(moved.name.clone(), &step)?;
        }
        Ok(())
    }

    /// Notes a move. They come in commit order.
    pub(crate) fn note(&mut self, name: RefName, step: &Step<'_>) -> Result<(), ReadError> {
        if step.seq > self.reached.0 {
            if self.digest.bytes() > self.memory {
                self.end_part()?;
            }
            self.reached = (step.seq, step.at);
        }
        self.digest.note(name, step);
        Ok(())
    }

    /// Writes the table, synced and under its name; the caller syncs the directory. The range ends with
    /// this transaction, the checksum of its frame and its time.
    pub(crate) fn finish(
        mut self,
        last: Seq,
        last_crc: u32,
        last_at: Timestamp,
    ) -> Result<(), ReadError> {
        let first = self.next_first();
        let identity = Identity { first, last, last_crc, last_at, ..self.identity.clone() };
        if self.parts.is_empty() {
            let path = self.path.clone();
            return self.write(&path, identity);
        }
        self.write_part(identity)?;
        table::merge(self.env, &self.path, &self.parts, self.stop)?;
        Ok(())
    }

    fn next_first(&self) -> Seq {
        self.parts.last().map_or(self.identity.first, |part| part.identity().last.next())
    }

    fn end_part(&mut self) -> Result<(), ReadError> {
        let (last, last_at) = self.reached;
        let first = self.next_first();
        self.write_part(Identity { first, last, last_at, ..self.identity.clone() })
    }

    fn write_part(&mut self, identity: Identity) -> Result<(), ReadError> {
        let mut path = self.path.clone().into_os_string();
        path.push(format!(".part-{}{TEMPORARY}", self.parts.len()));
        let path = PathBuf::from(path);
        self.write(&path, identity)?;
        self.parts.push(Arc::new(Table::open(self.env, &path)?));
        Ok(())
    }

    fn write(&mut self, path: &Path, identity: Identity) -> Result<(), ReadError> {
        let empty = Digest::new(identity.object_format);
        let mut digest = std::mem::replace(&mut self.digest, empty);
        if identity.is_lowest() {
            digest.start_head(self.head.clone());
        }
        digest.write(self.env, path, identity, self.stop)
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        for part in self.parts.drain(..) {
            let path = part.path().to_owned();
            // What is closed can be given back little by little.
            drop(part);
            // A file that stays is no harm: nobody reads temporary names.
            let _ = self.env.remove(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use refstone_log::{ObjectFormat, OsEnv};

    use super::*;
    use crate::oid::ObjectId;
    use crate::ranges::Shelf;

    fn shelves(dir: &std::path::Path) -> Shelves {
        Shelves {
            env: Arc::new(OsEnv),
            history: Shelf::history(dir),
            tables: Shelf::tables(dir),
            log_id: [3; 16],
            object_format: ObjectFormat::Sha1,
            head: RefName::new("refs/heads/main").unwrap(),
        }
    }

    /// Makes the table of transactions that move three of some refs each, in so much memory.
    fn make(dir: &std::path::Path, name: &str, memory: usize) -> (usize, Vec<u8>) {
        let (shelves, path) = (shelves(dir), dir.join(name));
        let mut making = Making::start(&shelves, path.clone(), Seq::new(1), Stop::NEVER);
        making.memory = memory;
        for seq in 1..=400_u64 {
            let id = ObjectId::from_bytes(&[seq.to_le_bytes()[0]; 20]).unwrap();
            for number in 0..3 {
                let name = format!("refs/heads/topic-{}", (seq * 7 + number) % 50);
                let step = Step {
                    seq: Seq::new(seq),
                    at: Timestamp::from_micros(9),
                    actor: b"alice",
                    old_oid: None,
                    new_oid: (seq % 9 > 0).then(|| id.as_bytes()),
                    symref: None,
                    message: None,
                };
                making.note(RefName::new(name).unwrap(), &step).unwrap();
            }
        }
        let parts = making.parts.len();
        making.finish(Seq::new(400), 77, Timestamp::from_micros(9)).unwrap();
        (parts, std::fs::read(path).unwrap())
    }

    // Breaks: a part that ends within a transaction; parts that stay; `HEAD` in none of them.
    #[test]
    fn a_table_made_of_parts_is_the_same() {
        let scratch = tempfile::tempdir().unwrap();
        let (none, whole) = make(scratch.path(), "whole", MEMORY);
        let (parts, merged) = make(scratch.path(), "merged", 20_000);
        assert_eq!(none, 0);
        assert!(parts >= 3, "{parts}");
        assert!(whole == merged);
        let table = Arc::new(Table::open(&OsEnv, &scratch.path().join("merged")).unwrap());
        table.verify(Stop::NEVER).unwrap();
        assert!(table.target(b"HEAD").unwrap().is_some());
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 2, "no part is left");
    }
}
