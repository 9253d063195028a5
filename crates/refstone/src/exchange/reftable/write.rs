//! Writing a table, on top of the one that git made with the repository.

use std::fs;
use std::io::Write;
use std::path::Path;

use bstr::ByteSlice;
use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};
use refstone_log::ObjectFormat;

use super::super::reflog::Identity;
use super::super::{ExchangeError, GitRefs, ReflogEntry, Steps, Tell, git};
use super::bytes::{put_counted, put_key, put_varint, u24};
use super::{BLOCK_HEADER_LEN, LOG_BLOCK, MAGIC, REF_BLOCK, header_len, kind, version};
use crate::edit::Target;
use crate::oid::ObjectId;

/// Room for the longest name and its target in one block. Git's own size comes with its compaction.
const BLOCK_SIZE: usize = 64 << 10;

/// Git cuts a message here when it writes one, so that an entry fits a block of its size.
const MESSAGE_LEN_MAX: usize = 2048;

/// A record starts without its predecessor's key this often.
const RESTART_EVERY: usize = 16;

pub(in super::super) fn write(
    refs: &GitRefs,
    dir: &Path,
    mut tell: Tell<'_>,
) -> Result<(), ExchangeError> {
    let mut steps = Steps::new("writing", Some(refs.steps()), &mut tell);
    let stack = dir.join("reftable");
    let list = stack.join("tables.list");
    let names = fs::read(&list).map_err(ExchangeError::io(&list, "read it"))?;
    let table = table(refs, next_index(&names), &mut steps)?;
    let path = stack.join(&table.name);
    fs::write(&path, &table.bytes).map_err(ExchangeError::io(&path, "write it"))?;
    let names = [&names, table.name.as_bytes(), b"\n"].concat();
    fs::write(&list, names).map_err(ExchangeError::io(&list, "write it"))?;
    steps.tell()?;
    git::compact(dir)
}

/// The update index behind those of the tables listed: names are `0x<first>-0x<last>-<random>.ref`.
fn next_index(names: &[u8]) -> u64 {
    let last = |name: &[u8]| {
        let last = name.split_str("-0x").nth(1)?.split_str("-").next()?;
        u64::from_str_radix(last.to_str().ok()?, 16).ok()
    };
    names.lines().filter_map(last).max().unwrap_or(0) + 1
}

/// A table as a file.
pub(super) struct Table {
    pub(super) name: String,
    pub(super) bytes: Vec<u8>,
}

/// All refs at `first`, and each reflog entry at an index of its own from there on.
pub(super) fn table(
    refs: &GitRefs,
    first: u64,
    steps: &mut Steps<'_, '_>,
) -> Result<Table, ExchangeError> {
    let format = refs.object_format;
    let logs = numbered(refs, first);
    let last = logs.iter().map(|log| log.index).max().unwrap_or(first);
    let header = header(format, first, last);
    let mut out = Sections { bytes: header.clone(), header_len: header.len() };
    let mut block = Records::default();
    for (name, target) in &refs.refs {
        steps.step()?;
        out.add(REF_BLOCK, &mut block, name.as_bytes(), &ref_value(target));
    }
    out.flush(REF_BLOCK, &mut block);
    let log_position = out.bytes.len();
    for log in &logs {
        steps.step()?;
        let value = log_value(log.entry, format);
        out.add(LOG_BLOCK, &mut block, &log.key(), &(kind::LOG_UPDATE, value));
    }
    out.flush(LOG_BLOCK, &mut block);
    let has_logs = !logs.is_empty();
    let mut bytes = out.bytes;
    let footer = footer(header, if has_logs { log_position as u64 } else { 0 });
    bytes.extend_from_slice(&footer);
    let name = format!("{first:#014x}-{last:#014x}-{:08x}.ref", u32::MAX);
    Ok(Table { name, bytes })
}

/// An entry of the log of `name`; `None` only says that there is a log.
struct Numbered<'a> {
    name: &'a [u8],
    index: u64,
    entry: Option<&'a ReflogEntry>,
}

impl Numbered<'_> {
    fn key(&self) -> Vec<u8> {
        [self.name, b"\0", &(!self.index).to_be_bytes()].concat()
    }
}

/// The entries in the order of their keys: by name, and newest first.
fn numbered(refs: &GitRefs, first: u64) -> Vec<Numbered<'_>> {
    let mut index = first;
    let mut logs = Vec::new();
    for (name, entries) in &refs.reflogs {
        let entries = entries.iter().map(Some);
        let marker = (entries.len() == 0).then_some(None);
        let from = logs.len();
        for entry in entries.chain(marker) {
            logs.push(Numbered { name: name.as_bytes(), index, entry });
            index += 1;
        }
        logs[from..].reverse();
    }
    logs
}

fn ref_value(target: &Target) -> (u8, Vec<u8>) {
    // The update index, as the difference from the first of the table.
    let mut value = vec![0];
    match target {
        Target::Object(id) => {
            value.extend_from_slice(id.as_bytes());
            (kind::OBJECT, value)
        }
        Target::Symbolic(to) => {
            put_counted(&mut value, to.as_bytes());
            (kind::SYMBOLIC, value)
        }
    }
}

fn log_value(entry: Option<&ReflogEntry>, format: ObjectFormat) -> Vec<u8> {
    let zero = ObjectId::zero(format);
    let (old, new) = entry.map_or((zero, zero), |entry| (entry.old, entry.new));
    let mut value = [old.as_bytes(), new.as_bytes()].concat();
    let identity = entry.and_then(|entry| Identity::parse(&entry.identity));
    let (name, email) = identity.map_or_else(Default::default, |i| (i.name, i.email));
    let (time, zone) = identity.map_or((0, 0), |identity| (identity.time, identity.zone));
    put_counted(&mut value, name);
    put_counted(&mut value, email);
    put_varint(&mut value, time);
    value.extend_from_slice(&zone.to_be_bytes());
    // Git ends every message with a newline, and has none where nothing was said.
    match entry.and_then(|entry| entry.message.as_ref()).filter(|message| !message.is_empty()) {
        Some(message) => {
            let message = &message[..message.len().min(MESSAGE_LEN_MAX)];
            put_counted(&mut value, &[message, b"\n"].concat());
        }
        None => put_counted(&mut value, b""),
    }
    value
}

/// Records of the block being filled.
#[derive(Default)]
struct Records {
    bytes: Vec<u8>,
    /// Where records start that do not share a key, counted from the first record.
    restarts: Vec<usize>,
    count: usize,
    last: Vec<u8>,
}

/// The file so far.
struct Sections {
    bytes: Vec<u8>,
    header_len: usize,
}

impl Sections {
    fn add(&mut self, block_type: u8, block: &mut Records, key: &[u8], value: &(u8, Vec<u8>)) {
        let (kind, value) = value;
        // A key costs at most its length and two numbers, a restart three bytes.
        let room = block.bytes.len() + 3 * (block.restarts.len() + 1) + key.len() + value.len();
        if block.count > 0 && room + self.header_len + 32 > BLOCK_SIZE {
            self.flush(block_type, block);
        }
        if block.count.is_multiple_of(RESTART_EVERY) {
            block.restarts.push(block.bytes.len());
            block.last.clear();
        }
        put_key(&mut block.bytes, &block.last, key, *kind);
        block.bytes.extend_from_slice(value);
        block.last = key.to_vec();
        block.count += 1;
    }

    fn flush(&mut self, block_type: u8, block: &mut Records) {
        if block.count == 0 {
            return;
        }
        let Records { mut bytes, restarts, .. } = std::mem::take(block);
        // The first block has the file header in it.
        let is_first = self.bytes.len() == self.header_len;
        let start = BLOCK_HEADER_LEN + if is_first { self.header_len } else { 0 };
        for restart in &restarts {
            bytes.extend_from_slice(&u24(start + restart));
        }
        let count = u16::try_from(restarts.len()).expect("a block has fewer restarts than bytes/4");
        bytes.extend_from_slice(&count.to_be_bytes());
        self.bytes.push(block_type);
        self.bytes.extend_from_slice(&u24(start + bytes.len()));
        match block_type {
            LOG_BLOCK => self.bytes.extend_from_slice(&deflated(&bytes)),
            _ => self.bytes.extend_from_slice(&bytes),
        }
    }
}

fn deflated(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory takes all")
}

fn header(format: ObjectFormat, first: u64, last: u64) -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    header.push(version(format));
    // Blocks follow each other without padding.
    header.extend_from_slice(&u24(0));
    header.extend_from_slice(&first.to_be_bytes());
    header.extend_from_slice(&last.to_be_bytes());
    if format == ObjectFormat::Sha256 {
        header.extend_from_slice(b"s256");
    }
    debug_assert_eq!(header.len(), header_len(format));
    header
}

fn footer(header: Vec<u8>, log_position: u64) -> Vec<u8> {
    let mut footer = header;
    // Index of refs, objects, index of objects, logs, index of logs.
    for position in [0, 0, 0, log_position, 0] {
        footer.extend_from_slice(&position.to_be_bytes());
    }
    let mut crc = Crc::new();
    crc.update(&footer);
    footer.extend_from_slice(&crc.sum().to_be_bytes());
    footer
}

#[cfg(test)]
mod tests {
    use super::super::bytes::Cursor;
    use super::*;

    #[test]
    fn indexes_go_on_behind_the_tables_that_are_there() {
        let names =
            b"0x000000000001-0x00000000000a-5d3bb30c.ref\n0x00000000000b-0x00000000001f-x.ref\n";
        assert_eq!(next_index(names), 32);
        assert_eq!(next_index(b""), 1);
    }

    #[test]
    fn a_block_that_is_full_is_followed_by_another() {
        let mut out = Sections { bytes: vec![0; 24], header_len: 24 };
        let mut block = Records::default();
        for number in 0..20 {
            let value = (kind::LOG_UPDATE, vec![7; 10_000]);
            out.add(REF_BLOCK, &mut block, format!("{number:02}").as_bytes(), &value);
        }
        out.flush(REF_BLOCK, &mut block);
        let first = Cursor::at(&out.bytes, 25).length(3).unwrap();
        assert!(first <= BLOCK_SIZE, "{first}");
        assert_eq!(out.bytes[first], REF_BLOCK);
    }
}
