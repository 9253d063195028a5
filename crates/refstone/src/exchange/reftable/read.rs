//! Reading a stack of tables.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use bstr::ByteSlice;
use flate2::bufread::ZlibDecoder;
use refstone_log::ObjectFormat;

use super::super::reflog::Identity;
use super::super::{ExchangeError, GitRefs, GitRepository, ReflogEntry, Steps, Tell};
use super::bytes::{Cursor, Problem};
use super::footer::Footer;
use super::{BLOCK_HEADER_LEN, INDEX_BLOCK, LOG_BLOCK, REF_BLOCK, header_len, kind};
use crate::edit::Target;
use crate::name::RefName;
use crate::oid::ObjectId;

/// How often the stack is looked at again when a table of it has gone into another meanwhile.
const ATTEMPTS: usize = 10;

pub(in super::super) fn read(
    source: &GitRepository,
    mut tell: Tell<'_>,
) -> Result<GitRefs, ExchangeError> {
    let format = source.object_format;
    let mut steps = Steps::new("reading", None, &mut tell);
    let mut stack = Stack::default();
    for (path, bytes) in tables(&source.dir.join("reftable"))? {
        steps.tell()?;
        let table = stack.add(&bytes, format, &mut steps);
        table.map_err(|error| error.at(&path))?;
    }
    stack.merged(format)
}

/// The tables of a stack, oldest first.
fn tables(dir: &Path) -> Result<Vec<(PathBuf, Vec<u8>)>, ExchangeError> {
    let list = dir.join("tables.list");
    let mut attempt = 1;
    loop {
        let names = fs::read(&list).map_err(ExchangeError::io(&list, "read it"))?;
        let paths = names.lines().map(|name| dir.join(name.to_path_lossy()));
        let tables = paths.map(|path| match fs::read(&path) {
            Ok(bytes) => Ok((path, bytes)),
            Err(error) => Err((path, error)),
        });
        match tables.collect::<Result<Vec<_>, _>>() {
            Ok(tables) => return Ok(tables),
            Err((_, error)) if error.kind() == io::ErrorKind::NotFound && attempt < ATTEMPTS => {
                attempt += 1;
            }
            Err((path, error)) => return Err(ExchangeError::io(&path, "read it")(error)),
        }
    }
}

/// Why a table was not read to its end.
enum Ended {
    Problem(Problem),
    Other(ExchangeError),
}

impl Ended {
    fn at(self, path: &Path) -> ExchangeError {
        match self {
            Ended::Problem(Problem { offset, text }) => {
                ExchangeError::Reftable { path: path.to_owned(), offset, problem: text }
            }
            Ended::Other(error) => error,
        }
    }
}

impl From<Problem> for Ended {
    fn from(problem: Problem) -> Ended {
        Ended::Problem(problem)
    }
}

impl From<ExchangeError> for Ended {
    fn from(error: ExchangeError) -> Ended {
        Ended::Other(error)
    }
}

/// What a name holds in a table; `None` if the table deletes it.
type Refs = BTreeMap<Vec<u8>, Option<RefValue>>;

enum RefValue {
    Object(ObjectId),
    Symbolic(Vec<u8>),
}

/// Records of later tables stand over those of earlier ones.
#[derive(Default)]
struct Stack {
    refs: Refs,
    /// By name and update index.
    logs: BTreeMap<(Vec<u8>, u64), Option<ReflogEntry>>,
}

impl Stack {
    fn add(
        &mut self,
        table: &[u8],
        format: ObjectFormat,
        steps: &mut Steps<'_, '_>,
    ) -> Result<(), Ended> {
        let footer = Footer::read(table, format)?;
        let blocks = Blocks { bytes: &table[..footer.end], format, block_size: footer.block_size };
        let behind = blocks.refs(&mut |name, value| {
            self.refs.insert(name, value);
            steps.step()
        })?;
        if behind > 0 || !blocks.has_no_refs(footer.logs) {
            blocks.ends(behind, footer.ref_index, footer.behind_refs())?;
        }
        let behind = blocks.logs(footer.logs, &mut |name, index, entry| {
            self.logs.insert((name, index), entry);
            steps.step()
        })?;
        if behind > 0 {
            blocks.ends(behind, footer.log_index, footer.end)?;
        }
        Ok(())
    }

    fn merged(self, format: ObjectFormat) -> Result<GitRefs, ExchangeError> {
        let mut found = GitRefs::new(format);
        for (name, value) in self.refs {
            let target = match value {
                None => continue,
                Some(RefValue::Object(id)) => Ok(Target::Object(id)),
                Some(RefValue::Symbolic(target)) => RefName::new(target).map(Target::Symbolic),
            };
            match RefName::new(name).and_then(|name| Ok((name, target?))) {
                // What a stack starts with where git makes a repository that has no refs yet.
                Ok((name, target)) => drop(found.refs.insert(name, target)),
                Err(error) => found.left_out.push(error.to_string()),
            }
        }
        for ((name, _), entry) in self.logs {
            let Some(entry) = entry else { continue };
            match RefName::new(name) {
                Ok(name) => {
                    let entries = found.reflogs.entry(name).or_default();
                    // An entry from nowhere to nowhere only says that there is a log.
                    entries.extend(Some(entry).filter(|e| !(e.old.is_zero() && e.new.is_zero())));
                }
                Err(error) => found.left_out.push(format!("reflog: {error}")),
            }
        }
        Ok(found)
    }
}

/// The blocks of one table, without its footer.
struct Blocks<'a> {
    bytes: &'a [u8],
    format: ObjectFormat,
    block_size: usize,
}

/// The records of one block.
struct Block<'a> {
    /// From the start of the block, of which the file header is a part if it is the first.
    bytes: Cow<'a, [u8]>,
    /// Where the records start, and where they end.
    records: std::ops::Range<usize>,
    /// Where the next block starts.
    next: usize,
}

impl<'a> Blocks<'a> {
    /// Returns where the blocks of references end.
    fn refs(
        &self,
        visit: &mut dyn FnMut(Vec<u8>, Option<RefValue>) -> Result<(), ExchangeError>,
    ) -> Result<usize, Ended> {
        let mut start = 0;
        let mut keys = Keys::default();
        while let Some(block) = self.block(start, REF_BLOCK)? {
            let mut cursor = block.cursor();
            keys.restart();
            while !cursor.is_done() {
                let kind = keys.next(&mut cursor)?;
                cursor.varint()?; // the update index
                let value = self.ref_value(&mut cursor, kind)?;
                visit(keys.last.clone(), value)?;
            }
            start = block.next;
        }
        Ok(start)
    }

    /// Whether a table whose first block is none of references may be so: it is empty, or has logs
    /// alone, which then start at 0.
    fn has_no_refs(&self, logs: usize) -> bool {
        match self.bytes.get(header_len(self.format)) {
            None => true,
            Some(&first) => first == LOG_BLOCK && logs == 0,
        }
    }

    /// Checks that a section whose blocks end at `at` ends there: its index follows, if it has one, of
    /// which the root is the last block, and then what comes behind the section.
    ///
    /// A block whose type is damaged would else be taken for the end.
    fn ends(&self, mut at: usize, root: usize, end: usize) -> Result<(), Problem> {
        let mut last = 0;
        while root > 0 && at < end {
            let block = self.block(at, INDEX_BLOCK)?;
            let block =
                block.ok_or(Cursor::at(self.bytes, at).problem("a block is of no known type"))?;
            block.check_index(at)?;
            (last, at) = (at, block.next);
        }
        match at == end && last == root {
            true => Ok(()),
            false => {
                Err(Problem { offset: at, text: "a section does not end where the next begins" })
            }
        }
    }

    fn ref_value(&self, cursor: &mut Cursor<'_>, kind: u8) -> Result<Option<RefValue>, Problem> {
        let value = match kind {
            kind::DELETION => return Ok(None),
            kind::OBJECT => RefValue::Object(self.id(cursor)?),
            kind::OBJECT_PEELED => {
                let id = self.id(cursor)?;
                self.id(cursor)?;
                RefValue::Object(id)
            }
            kind::SYMBOLIC => RefValue::Symbolic(cursor.counted()?.to_vec()),
            _ => return Err(cursor.problem("a reference of unknown kind")),
        };
        Ok(Some(value))
    }

    /// Returns where the blocks of logs end.
    fn logs(
        &self,
        position: usize,
        visit: &mut dyn FnMut(Vec<u8>, u64, Option<ReflogEntry>) -> Result<(), ExchangeError>,
    ) -> Result<usize, Ended> {
        // Zero stands for none, and for the start of a table that has logs alone.
        let mut start = position;
        let mut keys = Keys::default();
        while let Some(block) = self.block(start, LOG_BLOCK)? {
            let mut cursor = block.cursor();
            keys.restart();
            while !cursor.is_done() {
                let kind = keys.next(&mut cursor)?;
                let (name, index) = split_log_key(&keys.last)
                    .ok_or(cursor.problem("the key of a log has no update index"))?;
                let entry = self.log_value(&mut cursor, kind)?;
                visit(name.to_vec(), index, entry)?;
            }
            start = block.next;
        }
        Ok(start)
    }

    fn log_value(&self, cursor: &mut Cursor<'_>, kind: u8) -> Result<Option<ReflogEntry>, Problem> {
        match kind {
            kind::DELETION => return Ok(None),
            kind::LOG_UPDATE => {}
            _ => return Err(cursor.problem("a log entry of unknown kind")),
        }
        let (old, new) = (self.id(cursor)?, self.id(cursor)?);
        let (name, email) = (cursor.counted()?.as_bstr(), cursor.counted()?.as_bstr());
        let (time, zone) = (cursor.varint()?, cursor.take(2)?);
        let zone = zone.iter().fold(0i16, |zone, &byte| zone << 8 | i16::from(byte));
        let message = cursor.counted()?;
        let message = message.strip_suffix(b"\n").unwrap_or(message);
        let identity = Identity { name, email, time, zone, len: 0 }.raw();
        let message = Some(message.into()).filter(|message: &bstr::BString| !message.is_empty());
        Ok(Some(ReflogEntry { old, new, identity, message }))
    }

    fn id(&self, cursor: &mut Cursor<'_>) -> Result<ObjectId, Problem> {
        let raw = cursor.take(self.format.len())?;
        ObjectId::from_bytes(raw).map_err(|_| cursor.problem("no object id"))
    }

    /// The block at `start`, if it is of this kind.
    fn block(&self, start: usize, wanted: u8) -> Result<Option<Block<'a>>, Problem> {
        let header = if start == 0 { header_len(self.format) } else { 0 };
        let mut cursor = Cursor::at(self.bytes, start + header);
        if cursor.is_done() || cursor.number(1)? != u64::from(wanted) {
            return Ok(None);
        }
        let len = cursor.length(3)?;
        if len < header + BLOCK_HEADER_LEN + 2 {
            return Err(cursor.problem("a block is too short"));
        }
        let (bytes, next) = match wanted {
            LOG_BLOCK => self.inflated(start, header, len)?,
            _ => {
                let bytes = Cursor::at(self.bytes, start).take(len)?;
                (Cow::Borrowed(bytes), self.behind(start, len))
            }
        };
        let restarts = Cursor::at(&bytes, len - 2).length(2)?;
        let records = header + BLOCK_HEADER_LEN;
        let end = (len - 2).checked_sub(3 * restarts).filter(|&end| end >= records);
        let end = end.ok_or(cursor.problem("a block has no room for its restarts"))?;
        Ok(Some(Block { bytes, records: records..end, next }))
    }

    /// A block is padded to the size of blocks, unless the next one starts right behind it.
    fn behind(&self, start: usize, len: usize) -> usize {
        let end = start + len;
        match self.bytes.get(end) {
            Some(0) if len < self.block_size => start + self.block_size,
            _ => end,
        }
    }

    fn inflated(
        &self,
        start: usize,
        header: usize,
        len: usize,
    ) -> Result<(Cow<'a, [u8]>, usize), Problem> {
        let plain = header + BLOCK_HEADER_LEN;
        let mut bytes = self.bytes[start..start + plain].to_vec();
        let mut inflate = ZlibDecoder::new(&self.bytes[start + plain..]);
        let wanted = (len - plain) as u64;
        let read = inflate.by_ref().take(wanted).read_to_end(&mut bytes);
        // One more byte makes the decoder see the end, and so know where the next block starts.
        let ended = inflate.read(&mut [0; 1]);
        if read.is_err() || bytes.len() != len || !matches!(ended, Ok(0)) {
            return Err(Problem { offset: start, text: "a block of logs does not inflate" });
        }
        let taken = usize::try_from(inflate.total_in()).unwrap_or(usize::MAX);
        Ok((Cow::Owned(bytes), start + plain + taken))
    }
}

impl Block<'_> {
    fn cursor(&self) -> Cursor<'_> {
        Cursor::at(&self.bytes[..self.records.end], self.records.start)
    }

    /// Checks that it is one of an index: of the last keys of blocks before it, and where they are.
    fn check_index(&self, start: usize) -> Result<(), Problem> {
        let mut cursor = self.cursor();
        let (mut keys, mut before) = (Keys::default(), None);
        while !cursor.is_done() {
            let kind = keys.next(&mut cursor)?;
            let position = Some(cursor.varint()?);
            if kind != kind::INDEX || position <= before || position >= Some(start as u64) {
                return Err(Problem { offset: start, text: "an index points nowhere" });
            }
            before = position;
        }
        Ok(())
    }
}

/// The keys of a section, each of which is behind the one before.
#[derive(Default)]
struct Keys {
    last: Vec<u8>,
    /// How much of `last` the next key may share: nothing at the start of a block.
    shared_max: usize,
}

impl Keys {
    fn restart(&mut self) {
        self.shared_max = 0;
    }

    /// Takes the next key, which is `last` then, and returns the kind of its record.
    fn next(&mut self, cursor: &mut Cursor<'_>) -> Result<u8, Problem> {
        let start = *cursor;
        let (key, kind) = cursor.key(&self.last[..self.shared_max])?;
        if key <= self.last {
            return Err(start.problem("keys are out of order"));
        }
        (self.shared_max, self.last) = (key.len(), key);
        Ok(kind)
    }
}

/// The name, and the update index, which is stored so that the newest sorts first.
fn split_log_key(key: &[u8]) -> Option<(&[u8], u64)> {
    let (name, index) = key.split_last_chunk::<8>()?;
    Some((name.strip_suffix(b"\0")?, !u64::from_be_bytes(*index)))
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use proptest::prelude::*;

    use super::super::footer_len;
    use super::super::write::table;
    use super::*;

    fn sample() -> (GitRefs, Vec<u8>) {
        let mut refs = GitRefs::new(ObjectFormat::Sha1);
        let id = ObjectId::from_bytes(&[7; 20]).unwrap();
        for number in 0..40 {
            let name = RefName::new(format!("refs/heads/b{number}")).unwrap();
            refs.refs.insert(name.clone(), id.into());
            let entry = ReflogEntry {
                old: ObjectId::zero(ObjectFormat::Sha1),
                new: id,
                identity: "A <a@x> 1700000000 -0730".into(),
                message: Some("m".into()),
            };
            refs.reflogs.insert(name, vec![entry.clone(), entry]);
        }
        let mut tell = |_| ControlFlow::Continue(());
        let mut tell: Tell<'_> = &mut tell;
        let bytes = table(&refs, 2, &mut Steps::new("", None, &mut tell)).unwrap().bytes;
        (refs, bytes)
    }

    fn parse(bytes: &[u8]) -> Result<GitRefs, ExchangeError> {
        let mut tell = |_| ControlFlow::Continue(());
        let mut tell: Tell<'_> = &mut tell;
        let mut stack = Stack::default();
        let added = stack.add(bytes, ObjectFormat::Sha1, &mut Steps::new("", None, &mut tell));
        added.map_err(|ended| ended.at(Path::new("x")))?;
        stack.merged(ObjectFormat::Sha1)
    }

    #[test]
    fn a_table_that_was_written_is_read() {
        let (refs, bytes) = sample();
        assert_eq!(parse(&bytes).unwrap(), refs);
    }

    /// Where a byte is the type of a block, or the first of the footer.
    fn is_structure(bytes: &[u8], at: usize) -> bool {
        let end = bytes.len() - footer_len(ObjectFormat::Sha1);
        at == header_len(ObjectFormat::Sha1) || at >= end
    }

    // Breaks: taking a block of another type for the end of its section; a footer that is not checked.
    #[test]
    fn a_block_of_another_type_is_no_end() {
        let (_, sound) = sample();
        let logs = Footer::read(&sound, ObjectFormat::Sha1).unwrap().logs;
        for at in (0..sound.len()).filter(|&at| at == logs || is_structure(&sound, at)) {
            for byte in [0, b'r', b'g', b'i', b'o', 0xff] {
                let mut bytes = sound.clone();
                bytes[at] = byte;
                assert!(byte == sound[at] || parse(&bytes).is_err(), "{byte} at {at}");
            }
        }
    }

    // Breaks: not looking where a section ends; an end that is behind the last byte.
    #[test]
    fn a_table_that_is_cut_is_refused() {
        let (_, bytes) = sample();
        for len in 0..bytes.len() {
            assert!(parse(&bytes[..len]).is_err(), "{len} bytes");
        }
    }

    proptest! {
        // Breaks: an index of a slice that was not checked.
        #[test]
        fn damage_never_panics(at in 0usize..4096, byte: u8, cut in 0usize..4096) {
            let (_, mut bytes) = sample();
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = parse(&bytes);
            bytes.truncate(cut);
            let _ = parse(&bytes);
        }
    }
}
