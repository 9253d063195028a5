//! Checks everything that a store consists of, without its lock.

use std::path::Path;
use std::sync::Arc;

use refstone_log::{Anchor, ErrorKind, LogReader, OsEnv, Seq, Timestamp, VerifyReport};

use crate::archive::{Parts, SealedUnit, os_env};
use crate::error::{OpenError, ReadError};
use crate::history::moves_of;
use crate::progress::{Progress, paced};
use crate::shelves::Shelves;
use crate::stop::Stop;
use crate::table::Table;

/// How often a check begins anew when files are sealed or merged while it opens them.
const ATTEMPTS: usize = 16;

/// How often a row of history is gone through: in its file, in the table, and when the two are compared.
const PASSES: u64 = 3;

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
    /// The transactions that those hold, as inclusive ranges that do not touch.
    pub sound_history: Vec<(Seq, Seq)>,
    /// The tables that go with them, as far as they are sound.
    pub tables: Checked,
    /// Damage to the log or to its history: what was durable cannot be read.
    pub damage: Vec<OpenError>,
    /// Tables that are damaged, or say something else than history. Nothing is lost by that:
    /// [`crate::RefStore::rebuild`] makes them anew.
    pub damaged_tables: Vec<ReadError>,
    /// Tables that are not there, as in a backup without them. The next opening makes them, so that is
    /// no damage.
    pub missing_tables: Vec<ReadError>,
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

    /// Checks what was sealed, oldest first.
    fn add_sealed(
        &mut self,
        shelves: &Shelves,
        sealed: Vec<Pair>,
        stop: Stop<'_>,
    ) -> Result<(), OpenError> {
        let mut reached = Timestamp::default();
        for (unit, table) in sealed {
            match check_history(&unit, reached, stop) {
                Ok(()) => self.add_history(&unit),
                Err(error) => {
                    found(&mut self.damage, error.into())?;
                    // There is nothing to compare the table with.
                    continue;
                }
            }
            reached = unit.file.identity().last_at;
            match check_table(shelves, &unit, table, stop) {
                Ok(table) => {
                    self.tables.add(table.live_rows() + table.gone_rows(), table.bytes());
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    self.missing_tables.push(error);
                }
                Err(error) => self.damaged_tables.push(error),
            }
        }
        Ok(())
    }

    /// They come oldest first.
    fn add_history(&mut self, SealedUnit { range, file }: &SealedUnit) {
        self.history.add(file.rows().into(), file.bytes());
        match self.sound_history.last_mut() {
            Some((_, last)) if last.next() == range.first => *last = range.last,
            _ => self.sound_history.push((range.first, range.last)),
        }
    }
}

/// Checks every byte of the live log, of history and of the tables, that they join, and that the
/// tables say what history says.
///
/// Changes nothing, takes no lock and works beside a running writer, which may seal and merge
/// meanwhile. Costs a read of everything, and some hundred bytes of memory for each ref. `progress` is
/// told [how far](Progress::Checking) it is with history and tables.
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
/// let report = refstone::verify(dir, &mut |_| ())?;
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
pub fn verify(dir: &Path, progress: &mut dyn FnMut(Progress)) -> Result<StoreReport, OpenError> {
    for _ in 1..ATTEMPTS {
        if let Some(checking) = Checking::start(dir)? {
            return checking.finish(progress);
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
    opened: Option<Opened>,
}

struct Opened {
    live: Option<LogReader>,
    shelves: Shelves,
    sealed: Vec<Pair>,
}

/// A history file that opens, and the table that goes with it.
type Pair = (SealedUnit, Result<Arc<Table>, ReadError>);

impl Checking {
    /// Opens everything; `None` if something was sealed or merged meanwhile.
    fn start(dir: &Path) -> Result<Option<Checking>, OpenError> {
        let parts = Parts::open(&os_env(), dir);
        let mut live = refstone_log::verify(&OsEnv, dir)?;
        let damage: Vec<OpenError> = live.damage.take().into_iter().map(Into::into).collect();
        let mut report = StoreReport { live, damage, ..StoreReport::default() };
        let opened = match parts {
            Ok(parts) => match Opened::of(parts, dir, &mut report)? {
                Some(opened) => Some(opened),
                None => return Ok(None),
            },
            // What is wrong with the live log has been found, and better told.
            Err(_) if !report.damage.is_empty() => None,
            Err(error) => {
                found(&mut report.damage, error)?;
                None
            }
        };
        Ok(Some(Checking { report, opened }))
    }

    fn finish(self, progress: &mut dyn FnMut(Progress)) -> Result<StoreReport, OpenError> {
        let Checking { mut report, opened } = self;
        let Some(Opened { live, shelves, sealed }) = opened else { return Ok(report) };
        let of = PASSES * sealed.iter().map(|(unit, _)| u64::from(unit.file.rows())).sum::<u64>();
        let tell = |done| progress(Progress::Checking { done, of });
        paced(Stop::NEVER, of, tell, |stop| report.add_sealed(&shelves, sealed, stop))?;
        // A frame proves that its bytes are as they were written, not that they make sense.
        if let Some(Err(error)) = live.map(|live| check_moves(live, shelves.dir()))
            && report.damage.is_empty()
        {
            found(&mut report.damage, error)?;
        }
        Ok(report)
    }
}

impl Opened {
    /// Opens the tables, too, and notes what does not open; `None` if something was sealed or merged
    /// meanwhile.
    fn of(parts: Parts, dir: &Path, report: &mut StoreReport) -> Result<Option<Opened>, OpenError> {
        let Parts { live, shelves, anchor, sealed } = parts;
        let open = |unit: SealedUnit| {
            let table = shelves.open_table(unit.range).map(Arc::new);
            (unit, table)
        };
        let (mut opened, mut damaged) = (Vec::new(), Vec::new());
        for part in sealed {
            match part.unit {
                Ok(unit) => opened.push(open(unit)),
                Err(error) => damaged.push(error),
            }
        }
        let live = match live {
            Ok(live) => Some(live),
            Err(problem) if report.damage.is_empty() => {
                found(&mut report.damage, problem)?;
                None
            }
            // What is wrong with the live log has been found, and better told.
            Err(_) => None,
        };
        if live.is_some() && is_past(dir, &shelves, anchor, &opened) {
            return Ok(None);
        }
        report.sealed_seq = anchor.seq;
        damaged.into_iter().try_for_each(|error| found(&mut report.damage, error.into()))?;
        Ok(Some(Opened { live, shelves, sealed: opened }))
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

/// Whether the writer has sealed or merged since the files were opened.
fn is_past(dir: &Path, shelves: &Shelves, anchor: Anchor, opened: &[Pair]) -> bool {
    let sealed = match LogReader::open(&OsEnv, dir) {
        Ok(now) => now.anchor() != anchor,
        Err(_) => false,
    };
    let missing = opened
        .iter()
        .any(|(_, table)| table.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound));
    // A merge removes the history first: where only the table is missing, there was no merge.
    let merged = || {
        let still = shelves.list(&shelves.history).unwrap_or_default();
        opened.iter().any(|(unit, _)| !still.contains(&unit.range))
    };
    sealed || (missing && merged())
}

/// Checks a history file, and that it does not begin before the one before it has ended.
pub(crate) fn check_history(
    unit: &SealedUnit,
    reached: Timestamp,
    stop: Stop<'_>,
) -> Result<(), ReadError> {
    unit.file.verify(stop)?;
    match unit.file.moves(0..1).next().transpose()? {
        Some(first) if first.at < reached => {
            let path = unit.file.path().display();
            let problem = format!("{path}: it begins before the file before it has ended");
            Err(ReadError::because(ErrorKind::Corrupt, problem))
        }
        _ => Ok(()),
    }
}

fn check_table(
    shelves: &Shelves,
    unit: &SealedUnit,
    table: Result<Arc<Table>, ReadError>,
    stop: Stop<'_>,
) -> Result<Arc<Table>, ReadError> {
    let table = table?;
    table.verify(stop)?;
    shelves.compare(&table, &unit.file, stop)?;
    Ok(table)
}

/// Checks that every row of the live log is a move of a ref.
fn check_moves(mut live: LogReader, dir: &Path) -> Result<(), OpenError> {
    while let Some(frame) = live.next()? {
        moves_of(&frame, dir, None)?;
    }
    Ok(())
}
