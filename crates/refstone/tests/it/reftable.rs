//! Reads git's reftable files: what they hold is shown in full by no command of git.
//!
//! The format is git's `Documentation/technical/reftable`. Only what these tests need is read:
//! ref records and log records, by going through their blocks from the first to the last.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;

use bstr::{BString, ByteSlice};
use flate2::read::ZlibDecoder;

use crate::reflog::{Entry, Logs};
use crate::update_ref::Refs;

/// Values and logs as the whole stack of tables has them, its newest table last.
pub(crate) fn read(git_dir: &Path) -> (Refs, Logs) {
    let dir = git_dir.join("reftable");
    let names = fs::read_to_string(dir.join("tables.list")).unwrap();
    let mut stack = Stack::default();
    for name in names.lines() {
        Table::new(&fs::read(dir.join(name)).unwrap()).read(&mut stack);
    }
    stack.show()
}

/// `None` is a tombstone.
#[derive(Default)]
struct Stack {
    refs: BTreeMap<BString, Option<BString>>,
    logs: BTreeMap<(BString, u64), Option<Entry>>,
}

impl Stack {
    fn show(self) -> (Refs, Logs) {
        let refs = self.refs.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let mut logs = Logs::new();
        for ((name, _), entry) in self.logs {
            logs.entry(name).or_default().extend(entry);
        }
        logs.retain(|_, entries| !entries.is_empty());
        (refs.collect(), logs)
    }
}

struct Table<'a> {
    bytes: &'a [u8],
    header_len: usize,
    oid_len: usize,
    block_size: usize,
    footer: usize,
}

impl<'a> Table<'a> {
    fn new(bytes: &'a [u8]) -> Table<'a> {
        assert_eq!(&bytes[..4], b"REFT");
        let (header_len, oid_len) = if bytes[4] == 1 { (24, 20) } else { (28, 32) };
        Table {
            bytes,
            header_len,
            oid_len,
            block_size: len(&bytes[5..8]),
            footer: bytes.len() - header_len - 44,
        }
    }

    fn read(&self, stack: &mut Stack) {
        let mut at = 0;
        while self.kind(at) == b'r' {
            let start = self.start(at);
            let block_len = len(&self.bytes[start + 1..start + 4]);
            self.refs(Records::new(&self.bytes[start + 4..at + block_len]), stack);
            at += if self.block_size == 0 { block_len } else { self.block_size };
        }
        let log_offset = self.footer + self.header_len + 24;
        at = len(&self.bytes[log_offset..log_offset + 8]);
        while self.kind(at) == b'g' {
            let start = self.start(at) + 4;
            let mut inflated = Vec::new();
            let mut decoder = ZlibDecoder::new(&self.bytes[start..]);
            decoder.read_to_end(&mut inflated).unwrap();
            at = start + to_len(decoder.total_in());
            self.logs(Records::new(&inflated), stack);
        }
    }

    /// Where the block at this offset starts; the file's header is part of the first one.
    fn start(&self, at: usize) -> usize {
        if at == 0 { self.header_len } else { at }
    }

    fn kind(&self, at: usize) -> u8 {
        let start = self.start(at);
        if start < self.footer { self.bytes[start] } else { 0 }
    }

    fn refs(&self, mut records: Records<'_>, stack: &mut Stack) {
        while let Some(kind) = records.next_key() {
            records.varint();
            let value = match kind {
                0 => None,
                1 => Some(hex(records.take(self.oid_len))),
                2 => Some(hex(&records.take(2 * self.oid_len)[..self.oid_len])),
                _ => Some(records.text()),
            };
            stack.refs.insert(records.key.clone().into(), value);
        }
    }

    fn logs(&self, mut records: Records<'_>, stack: &mut Stack) {
        while let Some(kind) = records.next_key() {
            let (name, index) = records.key.split_at(records.key.len() - 9);
            let key = (BString::from(name), u64::MAX - number(&index[1..]));
            let entry = (kind == 1).then(|| {
                let old = hex(records.take(self.oid_len));
                let new = hex(records.take(self.oid_len));
                let (_name, _email) = (records.text(), records.text());
                let _time = records.varint();
                records.take(2);
                let message = records.text().trim_end().into();
                Entry { old, new, message }
            });
            stack.logs.insert(key, entry);
        }
    }
}

/// The records of one block. Each has its key's bytes behind those it shares with the one before.
struct Records<'a> {
    rest: &'a [u8],
    key: Vec<u8>,
}

impl Records<'_> {
    fn new(block: &[u8]) -> Records<'_> {
        let restarts = len(&block[block.len() - 2..]);
        Records { rest: &block[..block.len() - 2 - 3 * restarts], key: Vec::new() }
    }

    /// Reads the key of the next record; says which kind of value follows.
    fn next_key(&mut self) -> Option<u64> {
        if self.rest.is_empty() {
            return None;
        }
        let shared = to_len(self.varint());
        let len_and_kind = self.varint();
        self.key.truncate(shared);
        let suffix = self.take(to_len(len_and_kind >> 3)).to_vec();
        self.key.extend(suffix);
        Some(len_and_kind & 7)
    }

    fn take(&mut self, len: usize) -> &[u8] {
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        taken
    }

    fn text(&mut self) -> BString {
        let len = to_len(self.varint());
        self.take(len).into()
    }

    fn varint(&mut self) -> u64 {
        let mut byte = self.take(1)[0];
        let mut value = u64::from(byte & 0x7f);
        while byte & 0x80 != 0 {
            byte = self.take(1)[0];
            value = ((value + 1) << 7) | u64::from(byte & 0x7f);
        }
        value
    }
}

fn number(big_endian: &[u8]) -> u64 {
    big_endian.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn len(big_endian: &[u8]) -> usize {
    to_len(number(big_endian))
}

fn to_len(number: u64) -> usize {
    usize::try_from(number).unwrap()
}

fn hex(id: &[u8]) -> BString {
    id.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
}
