//! Checks everything that a store consists of, without its lock.

use std::path::Path;
use std::sync::Arc;

use refstone_log::{Env, ErrorKind, LogReader, OsEnv, Seq, Timestamp, VerifyReport};

use crate::archive::{Archive, SealedUnit};
use crate::error::{OpenError, ReadError};
use crate::history::moves_of;
use crate::ranges::Shelf;
use crate::shelves::newer_history;
use crate::table::Table;

/// How often a check begins anew when files are sealed or merged while it opens them.
const ATTEMPTS: usize = 16;

/// What [`verify`] found.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct StoreReport {
    /// The live log. What damage it has is among the other [`damage`](StoreReport::damage).
    pub live: VerifyReport,
    /// The newest transaction that is no longer in the live log.
    pub sealed_seq: Seq,
    /// The history files that count, as far as they are sound.
    pub history: Checked,
    /// The tables that go with them, as far as they are sound.
    pub tables: Checked,
    /// Damage to the log or to its history: what was durable cannot be read.
    pub damage: Vec<OpenError>,
    /// Tables that are missing, damaged, or say something else than history. Nothing is lost by
    /// that: [`crate::RefStore::rebuild`] makes them anew.
    pub damaged_tables: Vec<ReadError>,
}

/// Files that were checked and found sound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checked {
    /// How many.
    pub files: usize,
    /// Their rows.
    pub rows: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Checked {
    fn add(&mut self, rows: u64, bytes: u64) {
        self.files += 1;
        self.rows += rows;
        self.bytes += bytes;
    }
}

impl StoreReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.damage.is_empty() && self.damaged_tables.is_empty()
    }
}

/// Checks every byte of the live log, of history and of the tables, that they join, and that the
/// tables say what history says.
///
/// Changes nothing, takes no lock and works beside a running writer, which may seal and merge
/// meanwhile. Costs a read of everything, and the memory that a rebuild of the largest table takes.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let dir = &dir.path().join("refstone");
/// # use refstone::{CreateOptions, Edit, ObjectId, RefName, RefStore, Transaction};
/// # RefStore::create(dir, &CreateOptions::default())?;
/// # let store = RefStore::open(dir)?;
/// # let id = ObjectId::from_bytes(&[1; 20])?;
/// let edit = Edit::set(RefName::new("refs/heads/main")?, id);
/// store.commit(&Transaction::new("alice").with(edit))?;
/// let report = refstone::verify(dir)?;
/// assert!(report.is_sound(), "{:?}", report.damage);
/// assert_eq!(report.live.transactions, 1);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// If there is no store to check, or the operating system does not let it be read. Damage is no
/// error but a finding.
pub fn verify(dir: &Path) -> Result<StoreReport, OpenError> {
    for _ in 1..ATTEMPTS {
        if let Some(checking) = Checking::start(dir)? {
            return checking.finish();
        }
    }
    Err(ReadError::because(
        ErrorKind::Io,
        format!("{}: files are replaced faster than they can be opened", dir.display()),
    )
    .into())
}

/// All files of one moment, open.
struct Checking {
    report: StoreReport,
    archive: Option<Archive>,
    tables: Vec<Result<Arc<Table>, ReadError>>,
}

impl Checking {
    /// Opens everything; `None` if something was sealed or merged meanwhile.
    fn start(dir: &Path) -> Result<Option<Checking>, OpenError> {
        // Before the live log is read: what is sealed later may well go further.
        let shelf = Shelf::history(dir);
        let files = shelf.list(&OsEnv);
        let files = files.map_err(|error| ReadError::io(shelf.dir(), "list", &error))?;
        let opened = Archive::open(&(Arc::new(OsEnv) as Arc<dyn Env>), dir);
        let mut live = refstone_log::verify(&OsEnv, dir)?;
        let mut damage: Vec<OpenError> = live.damage.take().into_iter().map(Into::into).collect();
        if damage.is_empty() {
            let newest = Seq::new(live.last_seq.get() + live.unpublished);
            damage.extend(newer_history(&shelf, &files, newest).map(OpenError::from));
        }
        let mut tables = Vec::new();
        let archive = match opened {
            Ok(archive) => {
                tables.extend(archive.sealed.iter().map(|unit| open_table(&archive, unit)));
                if is_past(&archive, &tables) {
                    return Ok(None);
                }
                Some(archive)
            }
            // What is wrong with the live log has been found, and better told.
            Err(_) if !damage.is_empty() => None,
            Err(error) => {
                found(&mut damage, error)?;
                None
            }
        };
        let report = StoreReport { live, damage, ..StoreReport::default() };
        Ok(Some(Checking { report, archive, tables }))
    }

    fn finish(self) -> Result<StoreReport, OpenError> {
        let Checking { mut report, archive, tables } = self;
        let Some(mut archive) = archive else { return Ok(report) };
        report.sealed_seq = archive.anchor.seq;
        let mut reached = Timestamp::default();
        for (unit, table) in archive.sealed.iter().zip(tables) {
            match check_history(unit, reached) {
                Ok(()) => report.history.add(unit.file.rows().into(), unit.file.bytes()),
                Err(error) => {
                    found(&mut report.damage, error.into())?;
                    // There is nothing to compare the table with.
                    continue;
                }
            }
            reached = unit.file.identity().last_at;
            match check_table(&archive, unit, table) {
                Ok(table) => {
                    report.tables.add(table.live_rows() + table.gone_rows(), table.bytes());
                }
                Err(error) => report.damaged_tables.push(error),
            }
        }
        // A frame proves that its bytes are as they were written, not that they make sense.
        if let Err(error) = check_moves(&mut archive)
            && report.damage.is_empty()
        {
            found(&mut report.damage, error)?;
        }
        Ok(report)
    }
}

/// Damage is a finding; what keeps us from looking is not.
fn found(damage: &mut Vec<OpenError>, error: OpenError) -> Result<(), OpenError> {
    match error.kind() {
        ErrorKind::Corrupt => {
            damage.push(error);
            Ok(())
        }
        _ => Err(error),
    }
}

fn open_table(archive: &Archive, unit: &SealedUnit) -> Result<Arc<Table>, ReadError> {
    archive.shelves.open_table(unit.range).map(Arc::new)
}

/// Whether the writer has sealed or merged since the archive was opened.
fn is_past(archive: &Archive, tables: &[Result<Arc<Table>, ReadError>]) -> bool {
    let sealed = match LogReader::open(&OsEnv, &archive.dir) {
        Ok(now) => now.anchor() != archive.anchor,
        Err(_) => false,
    };
    let missing = |table: &&Result<_, ReadError>| {
        table.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound)
    };
    // A merge removes the history first: where only the table is missing, there was no merge.
    let merged = || {
        let still = archive.shelves.list(&archive.shelves.history).unwrap_or_default();
        archive.sealed.iter().any(|unit| !still.contains(&unit.range))
    };
    sealed || (tables.iter().any(|table| missing(&table)) && merged())
}

/// Checks a history file, and that it does not begin before the one before it has ended.
fn check_history(unit: &SealedUnit, reached: Timestamp) -> Result<(), ReadError> {
    unit.file.verify()?;
    match unit.file.fetch(&[0])?.first() {
        Some(first) if first.at < reached => {
            let path = unit.file.path().display();
            let problem = format!("{path}: it begins before the file before it has ended");
            Err(ReadError::because(ErrorKind::Corrupt, problem))
        }
        _ => Ok(()),
    }
}

fn check_table(
    archive: &Archive,
    unit: &SealedUnit,
    table: Result<Arc<Table>, ReadError>,
) -> Result<Arc<Table>, ReadError> {
    let table = table?;
    table.verify()?;
    archive.shelves.compare(&table, &unit.file)?;
    Ok(table)
}

/// Checks that every row of the live log is a move of a ref.
fn check_moves(archive: &mut Archive) -> Result<(), OpenError> {
    while let Some(frame) = archive.live.next()? {
        moves_of(&frame, &archive.dir, None)?;
    }
    Ok(())
}
