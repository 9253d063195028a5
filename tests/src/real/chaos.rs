//! Damages logs at random, and demands that nothing of it goes unnoticed, that nothing else is lost, and
//! that a repair saves all the rest.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use refstone_log::{
    ErrorKind, Log, LogReader, Mode, NoObserver, ObjectFormat, OsEnv, RefLogOptions, RepairError,
    RepairOptions, Repaired, repair, verify,
};
use tempfile::TempDir;

use super::Verdict;
use crate::logs::Row;
use crate::sim::Rng;

/// What a series of damages was like.
#[derive(Clone, Debug, Default)]
pub struct ChaosReport {
    /// Damages that were done, each to a sound log.
    pub damages: u64,
    /// Transactions that were found in damaged logs, each on its own.
    pub found: u64,
    /// Transactions that repairs saved.
    pub saved: u64,
    /// What was broken.
    pub violations: Vec<String>,
}

impl fmt::Display for ChaosReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ChaosReport { damages, found, saved, violations } = self;
        write!(
            f,
            "{damages} damages, {found} undamaged transactions found on their own, {saved} saved by \
             repairs, {} violations",
            violations.len()
        )
    }
}

/// A closed log that is damaged, judged, and made sound again.
#[derive(Debug)]
pub struct Chaos {
    scratch: TempDir,
    file: File,
    sound: Vec<u8>,
    log_id: [u8; 16],
    /// Where each frame is.
    frames: Vec<Range<usize>>,
    /// Behind the end-of-stream marker.
    end: usize,
    rng: Rng,
    /// What happened.
    pub report: ChaosReport,
}

type Failure = Box<dyn std::error::Error>;

/// A copy of the sound log.
const COPY: &str = "copy.arrow";

impl Chaos {
    /// Makes a log of so many transactions, in a directory below `parent`.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn new(parent: &Path, transactions: u64, seed: u64) -> Result<Chaos, Failure> {
        let scratch = TempDir::new_in(parent)?;
        let dir = scratch.path().join("refstone");
        fill(&dir, transactions)?;
        let (frames, log_id) = survey(&dir)?;
        let live = dir.join("refs.arrow");
        std::fs::copy(&live, scratch.path().join(COPY))?;
        let file = OpenOptions::new().read(true).write(true).open(&live)?;
        let end = frames.last().map_or(0, |last| last.end) + 8;
        let sound = std::fs::read(live)?;
        let rng = Rng::new(seed);
        let report = ChaosReport::default();
        Ok(Chaos { scratch, file, sound, log_id, frames, end, rng, report })
    }

    /// Bytes up to the end of the end-of-stream marker.
    #[must_use]
    pub fn len(&self) -> usize {
        self.end
    }

    /// Whether there is nothing to damage; there always is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.end == 0
    }

    /// Puts random bytes in a random place.
    ///
    /// # Errors
    /// As the operating system says. What the log does wrong is in the report.
    pub fn damage_anywhere(&mut self) -> io::Result<()> {
        let start = self.rng.below(self.end);
        let len = [1, 8, 64, 4096][self.rng.below(4)];
        let end = (start + 1 + self.rng.below(len)).min(self.end);
        let mut bytes: Vec<u8> = (start..end).map(|_| self.rng.bits().to_be_bytes()[0]).collect();
        if bytes == self.sound[start..end] {
            bytes[0] ^= 1;
        }
        self.damage(start, &bytes)
    }

    /// Flips one bit.
    ///
    /// # Errors
    /// As the operating system says. What the log does wrong is in the report.
    pub fn flip(&mut self, bit: usize) -> io::Result<()> {
        self.damage(bit / 8, &[self.sound[bit / 8] ^ (1 << (bit % 8))])
    }

    fn damage(&mut self, start: usize, bytes: &[u8]) -> io::Result<()> {
        let range = start..start + bytes.len();
        self.report.damages += 1;
        self.file.write_all_at(bytes, start as u64)?;
        let verdict = self.judge(&range);
        self.file.write_all_at(&self.sound[range.clone()], start as u64)?;
        if let Err(violation) = verdict {
            self.report.violations.push(format!("bytes {range:?} damaged: {violation}"));
        }
        Ok(())
    }

    fn judge(&mut self, range: &Range<usize>) -> Verdict {
        let dir = self.scratch.path().join("refstone");
        let report = verify(&OsEnv, &dir).map_err(|error| format!("verify: {error}"))?;
        let damage = report.damage.ok_or("verify saw nothing")?;
        if damage.kind() != ErrorKind::Corrupt {
            return Err(format!("verify took it for something else: {damage}"));
        }
        let damaged = std::fs::read(dir.join("refs.arrow")).map_err(|error| error.to_string())?;
        match Log::open(Arc::new(OsEnv), &dir, Arc::new(NoObserver), &mut |_| ()) {
            Ok(_) => return Err("it was opened".to_owned()),
            Err(error) if error.kind() != ErrorKind::Corrupt => {
                return Err(format!("opening took it for something else: {error}"));
            }
            Err(_) => {}
        }
        let after = std::fs::read(dir.join("refs.arrow")).map_err(|error| error.to_string())?;
        if after != damaged {
            return Err("the refusal changed the file".to_owned());
        }
        self.judge_reader(&dir, range)?;
        self.judge_found(&damaged, range)?;
        self.judge_repair(&damaged, range)
    }

    /// A reader gets what is in front of the damage, and nothing else.
    fn judge_reader(&self, dir: &Path, range: &Range<usize>) -> Verdict {
        let in_front = self.frames.iter().filter(|frame| frame.end <= range.start).count();
        let Ok(mut reader) = LogReader::open(&OsEnv, dir) else {
            // The schema is damaged.
            return Ok(());
        };
        let mut read = 0;
        while let Ok(Some(_)) = reader.next() {
            read += 1;
        }
        if read == in_front {
            Ok(())
        } else {
            Err(format!("{in_front} transactions are in front of it, and a reader got {read}"))
        }
    }

    /// Each frame that was not touched is found on its own, and nothing else is.
    fn judge_found(&mut self, damaged: &[u8], range: &Range<usize>) -> Verdict {
        let found = find(damaged, &self.log_id);
        let left = self.undamaged(range);
        self.report.found += found.len() as u64;
        if found == left {
            Ok(())
        } else {
            Err(format!("{} frames are undamaged, and {} were found", left.len(), found.len()))
        }
    }

    fn undamaged(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        self.frames.iter().filter(|frame| !touches(frame, range)).cloned().collect()
    }

    /// A repair saves each frame that was not touched, byte for byte, records what is missing, and
    /// leaves a sound log that goes on behind all that was ever given out.
    fn judge_repair(&mut self, damaged: &[u8], range: &Range<usize>) -> Verdict {
        let dir = self.scratch.path().join("repaired");
        let told = |error: io::Error| format!("the directory of the repair: {error}");
        std::fs::create_dir(&dir).map_err(told)?;
        std::fs::write(dir.join("refs.arrow"), damaged).map_err(told)?;
        let verdict = self.repair_in(&dir, range);
        std::fs::remove_dir_all(&dir).map_err(told)?;
        verdict
    }

    fn repair_in(&mut self, dir: &Path, range: &Range<usize>) -> Verdict {
        let left = self.undamaged(range);
        let repaired = match self.repair(dir, range) {
            // Without schema and transactions nothing shows that the copy is this log's.
            Err(RepairError::Foreign { .. }) if left.is_empty() => return Ok(()),
            repaired => repaired.map_err(|error| format!("repair: {error}"))?,
        };
        let bytes = std::fs::read(dir.join("refs.arrow")).map_err(|error| error.to_string())?;
        let saved = find(&bytes, &self.log_id);
        self.report.saved += saved.len() as u64;
        let of = |ranges: &[Range<usize>], bytes: &[u8]| -> Vec<u8> {
            ranges.iter().flat_map(|range| &bytes[range.clone()]).copied().collect()
        };
        if repaired.transactions != left.len() as u64
            || of(&saved, &bytes) != of(&left, &self.sound)
        {
            let (left, saved) = (left.len(), saved.len());
            return Err(format!("{left} frames are undamaged, and a repair saved {saved}"));
        }
        self.judge_gaps(dir, range)?;
        self.judge_opening(dir)
    }

    fn repair(&self, dir: &Path, range: &Range<usize>) -> Result<Repaired, RepairError> {
        let first = self.frames.first().map_or(self.end, |frame| frame.start);
        match repair(&OsEnv, dir, &RepairOptions::default()) {
            Err(RepairError::Schema { .. }) if range.start < first => {
                let schema_from = Some(self.scratch.path().join(COPY));
                repair(&OsEnv, dir, &RepairOptions { schema_from, ..RepairOptions::default() })
            }
            other => other,
        }
    }

    /// The repaired log is sound, and records each frame that it lacks.
    fn judge_gaps(&self, dir: &Path, range: &Range<usize>) -> Verdict {
        let report = verify(&OsEnv, dir).map_err(|error| format!("verify repaired: {error}"))?;
        if let Some(damage) = report.damage {
            return Err(format!("the repaired log is damaged: {damage}"));
        }
        for (seq, frame) in (1..).zip(&self.frames) {
            let mut gaps = report.gaps.iter();
            let recorded = gaps.any(|(first, last)| (first.get()..=last.get()).contains(&seq));
            if recorded != touches(frame, range) {
                return Err(format!("transaction {seq} is a gap of the repaired log: {recorded}"));
            }
        }
        Ok(())
    }

    fn judge_opening(&self, dir: &Path) -> Verdict {
        let opened = Log::open(Arc::new(OsEnv), dir, Arc::new(NoObserver), &mut |_| ());
        let (log, _) = opened.map_err(|error| format!("opening repaired: {error}"))?;
        let committed =
            log.append(&[Row::standard().as_row()]).map_err(|error| error.to_string())?;
        let seq = committed.wait().map_err(|error| error.to_string())?.seq().get();
        if seq <= self.frames.len() as u64 {
            return Err(format!("the repaired log gave out {seq} a second time"));
        }
        log.close().map_err(|error| error.to_string())
    }
}

fn touches(frame: &Range<usize>, damage: &Range<usize>) -> bool {
    frame.start < damage.end && damage.start < frame.end
}

fn fill(dir: &Path, transactions: u64) -> Result<(), Failure> {
    let head = b"refs/heads/main".into();
    let options = RefLogOptions { object_format: ObjectFormat::Sha1, head };
    Log::create(&OsEnv, dir, &options)?;
    let observer = Arc::new(NoObserver);
    let (log, _) = Log::open_in(Mode::Buffered, Arc::new(OsEnv), dir, observer, &mut |_| ())?;
    for n in 0..transactions {
        // Nobody waits for one of them: the sync below does for all.
        drop(log.append(&[Row::numbered(n).as_row()])?);
    }
    log.sync()?;
    Ok(log.close()?)
}

/// Where the frames are, and the log's id.
fn survey(dir: &Path) -> Result<(Vec<Range<usize>>, [u8; 16]), Failure> {
    let mut reader = LogReader::open(&OsEnv, dir)?;
    let schema = reader.arrow_schema();
    let text = schema.metadata().get("refstone.log_id").ok_or("a log without an id")?;
    let id = u128::from_str_radix(text, 16)?.to_be_bytes();
    let mut frames = Vec::new();
    loop {
        let start = usize::try_from(reader.offset())?;
        if reader.next()?.is_none() {
            return Ok((frames, id));
        }
        frames.push(start..usize::try_from(reader.offset())?);
    }
}

/// The frames of a log that are valid on their own, as `docs/format.md` describes them; made apart
/// from the log's own decoder on purpose.
#[must_use]
pub fn find(bytes: &[u8], log_id: &[u8; 16]) -> Vec<Range<usize>> {
    const PREFIX: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0x10, 2, 0, 0];
    const METADATA_END: usize = 8 + 528;
    let frame = |start: usize| {
        let rest = &bytes[start..];
        let body = u64::from_le_bytes(*rest.get(32..)?.first_chunk()?);
        let len = usize::try_from(body).ok()?.checked_add(METADATA_END)?;
        let (covered, stored) = rest.get(..len)?.split_last_chunk::<4>()?;
        let seed = crc32c::crc32c(log_id);
        let checksum = crc32c::crc32c_append(seed, covered);
        (checksum == u32::from_le_bytes(*stored)).then_some(start..start + len)
    };
    let mut found = Vec::new();
    let mut start = 0;
    while start + PREFIX.len() <= bytes.len() {
        match bytes[start..].starts_with(&PREFIX).then(|| frame(start)).flatten() {
            Some(range) => {
                start = range.end;
                found.push(range);
            }
            None => start += 8,
        }
    }
    found
}

/// A directory in memory if there is one: damage is the same everywhere.
#[must_use]
pub fn scratch_parent() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}
