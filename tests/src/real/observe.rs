//! What a log and its archive hold, as its reader, its recovery and pyarrow see it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use refstone_log::{Log, LogReader, NoObserver, OpenError, OsEnv, Recovery, verify};

use super::Verdict;
use super::label::Label;
use super::script::Script;
use super::writer::Task;

/// The transactions of a live log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The newest that is sealed, and so is in the archive.
    pub sealed: u64,
    /// Those behind it.
    pub live: Vec<Label>,
}

/// What a reader without the lock sees of a log that nobody writes.
///
/// # Errors
/// If it sees damage, or `verify` does.
pub fn before_recovery(root: &Path) -> Verdict<Seen> {
    let dir = Task::log_dir(root);
    let mut reader = LogReader::open(&OsEnv, &dir).map_err(|error| format!("reader: {error}"))?;
    let mut seen = Seen { sealed: reader.anchor().seq.get(), live: Vec::new() };
    while let Some(frame) = reader.next().map_err(|error| format!("reader: {error}"))? {
        if frame.seq().get() != seen.sealed + 1 + seen.live.len() as u64 {
            return Err(format!("reader: transaction {} is out of order", frame.seq()));
        }
        seen.live.push(Label::of(&frame)?);
    }
    let report = verify(&OsEnv, &dir).map_err(|error| format!("verify: {error}"))?;
    match report.damage {
        Some(damage) => Err(format!("verify: {damage}")),
        None if report.transactions != seen.live.len() as u64 => {
            Err(format!("verify counts {}, the reader {}", report.transactions, seen.live.len()))
        }
        None => Ok(seen),
    }
}

/// Opens the log as a writer does, closes it, and says what was replayed.
///
/// # Errors
/// If it does not open, or what is replayed is not whole.
pub fn recover(root: &Path) -> Verdict<(Seen, Recovery)> {
    let mut live = Vec::new();
    let replay = &mut |frame: &refstone_log::Frame<'_>| live.push(Label::of(frame));
    let opened: Result<_, OpenError> =
        Log::open(Arc::new(OsEnv), &Task::log_dir(root), Arc::new(NoObserver), replay);
    let (log, recovery) = opened.map_err(|error| format!("recovery: {error}"))?;
    let sealed = log.anchor().seq.get();
    log.close().map_err(|error| format!("close: {error}"))?;
    let live: Vec<Label> = live.into_iter().collect::<Verdict<_>>()?;
    if recovery.last_seq.get() != sealed + live.len() as u64 {
        return Err(format!("recovery: {} is not the newest sequence", recovery.last_seq));
    }
    Ok((Seen { sealed, live }, recovery))
}

/// What was sealed, by sequence.
///
/// # Errors
/// If the archive cannot be read: it was synced.
pub fn archived(root: &Path) -> Verdict<BTreeMap<u64, Label>> {
    let dir = Task::archive(root);
    let names = match fs::read_dir(&dir) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(format!("archive: {error}")),
    };
    let mut all = BTreeMap::new();
    for name in names {
        let path = name.map_err(|error| format!("archive: {error}"))?.path();
        if !path.ends_with("new") {
            all.append(&mut sealed_in(&path)?);
        }
    }
    Ok(all)
}

fn sealed_in(path: &Path) -> Verdict<BTreeMap<u64, Label>> {
    let text = fs::read_to_string(path).map_err(|error| format!("archive: {error}"))?;
    let line = |line: &str| {
        let (seq, label) = line.split_once(' ')?;
        Some((seq.parse().ok()?, label.parse().ok()?))
    };
    let lines: Option<BTreeMap<u64, Label>> = text.lines().map(line).collect();
    lines.ok_or_else(|| format!("archive: {} is torn", path.display()))
}

/// The transactions of an archive and a live log from the first on; they must agree and join.
///
/// # Errors
/// If they do not.
pub fn sealed_and_live(archive: &BTreeMap<u64, Label>, seen: &Seen) -> Verdict<Vec<Label>> {
    let mut all = Vec::new();
    for seq in 1..=seen.sealed {
        all.push(*archive.get(&seq).ok_or(format!("sequence {seq} is neither live nor sealed"))?);
    }
    for (seq, label) in (seen.sealed + 1..).zip(&seen.live) {
        if archive.get(&seq).is_some_and(|sealed| sealed != label) {
            return Err(format!("sequence {seq} is {label} in the log, and not in the archive"));
        }
        all.push(*label);
    }
    Ok(all)
}

/// pyarrow, in a process of its own.
#[derive(Debug)]
pub struct Outside(Script);

impl Outside {
    /// Starts it with a Python that has pyarrow.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(python: &Path) -> io::Result<Outside> {
        let readers: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python-interop");
        let readers = readers.to_string_lossy();
        Script::start(python, include_str!("outside.py"), &[&readers]).map(Outside)
    }

    /// The transactions that every reader of pyarrow sees in a log that nobody writes.
    ///
    /// # Errors
    /// If one sees an error, or half of a transaction, or two readers differ.
    pub fn read(&mut self, root: &Path) -> Verdict<Vec<(u64, Label)>> {
        self.ask("all", root)
    }

    /// The transactions that one of pyarrow's readers, each in its turn, sees beside a writer.
    ///
    /// # Errors
    /// If it sees an error, half of a transaction, or a gap.
    pub fn read_beside_a_writer(&mut self, root: &Path) -> Verdict<Vec<(u64, Label)>> {
        let seen = self.ask("next", root)?;
        let joined = seen.windows(2).all(|two| two[0].0 + 1 == two[1].0);
        if joined { Ok(seen) } else { Err("pyarrow: a sequence is missing".to_owned()) }
    }

    fn ask(&mut self, how: &str, root: &Path) -> Verdict<Vec<(u64, Label)>> {
        let live = Task::log_dir(root).join("refs.arrow");
        let question = format!("{how} {}", live.display());
        let answer = self.0.ask(question).map_err(|error| format!("pyarrow: {error}"))?;
        let answer: serde_json::Value =
            serde_json::from_str(&answer).map_err(|error| format!("pyarrow: {error}"))?;
        let rows = answer.as_array().ok_or_else(|| format!("pyarrow: {answer}"))?;
        let mut seen = Vec::new();
        for transaction in rows.chunk_by(|a, b| a[0] == b[0]) {
            let seq = transaction[0][0].as_u64().ok_or("pyarrow: no sequence")?;
            let label: Label = text(&transaction[0][1])
                .parse()
                .map_err(|()| format!("pyarrow: sequence {seq} is of nobody"))?;
            if !is_whole(transaction, label) {
                return Err(format!("pyarrow: sequence {seq} is not what {label} staged"));
            }
            seen.push((seq, label));
        }
        Ok(seen)
    }
}

fn text(value: &serde_json::Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn is_whole(transaction: &[serde_json::Value], label: Label) -> bool {
    let hex = |oid: &Option<Vec<u8>>| -> String {
        oid.iter().flatten().map(|byte| format!("{byte:02x}")).collect()
    };
    let rows = label.rows();
    rows.len() == transaction.len()
        && rows.iter().zip(transaction).all(|(row, found)| {
            text(&found[1]).as_bytes() == row.actor
                && text(&found[2]).as_bytes() == row.refname
                && text(&found[3]) == hex(&row.old_oid)
                && text(&found[4]) == hex(&row.new_oid)
                && Some(text(&found[5]).as_bytes()) == row.message.as_deref()
        })
}
