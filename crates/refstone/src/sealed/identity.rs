//! Who a history file is: the key-value metadata of its footer.

use std::str::FromStr;

use parquet::file::metadata::KeyValue;
use refstone_log::{ObjectFormat, Seq, Timestamp};

use super::columns::Form;

/// The transactions that a history file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The log they come from.
    pub(crate) log_id: [u8; 16],
    pub(crate) object_format: ObjectFormat,
    /// The first of them, or the first of the lost ones before it.
    pub(crate) first: Seq,
    /// The last one.
    pub(crate) last: Seq,
    /// The checksum of the last one's frame, with which the chain goes on.
    pub(crate) last_crc: u32,
    /// When the last one was.
    pub(crate) last_at: Timestamp,
    /// Sequences that a recorded repair lost, as inclusive ranges, ascending.
    pub(crate) gaps: Vec<(Seq, Seq)>,
}

const FORMAT: &str = "1";
const KIND: &str = "history";

impl Identity {
    /// The sequence that follows `seq`, if none is missing but those that a repair lost.
    pub(super) fn next(&self, seq: Seq) -> Seq {
        let mut next = seq.next();
        for (start, end) in &self.gaps {
            if *start <= next && next <= *end {
                next = end.next();
            }
        }
        next
    }

    /// The first transaction that is there: a range may start with one that a repair lost.
    pub(super) fn first_present(&self) -> Seq {
        self.next(Seq::new(self.first.get().saturating_sub(1)))
    }

    pub(super) fn pairs(&self, form: Form) -> Vec<KeyValue> {
        let gaps: Vec<_> = self.gaps.iter().map(|(start, end)| format!("{start}-{end}")).collect();
        let pair = |key: &str, value: String| KeyValue::new(format!("refstone.{key}"), value);
        vec![
            pair("format", FORMAT.to_owned()),
            pair("kind", KIND.to_owned()),
            pair("form", form.name().to_owned()),
            pair("log_id", hex(&self.log_id)),
            pair("object_format", self.object_format.name().to_owned()),
            pair("first_seq", self.first.to_string()),
            pair("last_seq", self.last.to_string()),
            pair("last_crc", format!("{:08x}", self.last_crc)),
            pair("last_at", self.last_at.as_micros().to_string()),
            pair("gaps", gaps.join(",")),
        ]
    }

    /// The identity and the form that metadata tells, or what is wrong with it.
    pub(super) fn from_pairs(pairs: &Pairs<'_>) -> Result<(Identity, Form), String> {
        pairs.expect("format", FORMAT)?;
        pairs.expect("kind", KIND)?;
        let identity = Identity {
            log_id: pairs.map("log_id", parse_log_id)?,
            object_format: pairs.parse("object_format")?,
            first: Seq::new(pairs.parse("first_seq")?),
            last: Seq::new(pairs.parse("last_seq")?),
            last_crc: pairs.map("last_crc", |text| u32::from_str_radix(text, 16).ok())?,
            last_at: Timestamp::from_micros(pairs.parse("last_at")?),
            gaps: pairs.map("gaps", parse_gaps)?,
        };
        Ok((identity, pairs.parse("form")?))
    }
}

/// The `refstone.` keys of a footer.
pub(super) struct Pairs<'a>(pub(super) &'a [KeyValue]);

impl Pairs<'_> {
    pub(super) fn find(&self, key: &str) -> Result<&str, String> {
        let named = |pair: &&KeyValue| pair.key.strip_prefix("refstone.") == Some(key);
        let value = self.0.iter().find(named).and_then(|pair| pair.value.as_deref());
        value.ok_or_else(|| format!("the metadata has no `refstone.{key}`"))
    }

    fn expect(&self, key: &str, expected: &str) -> Result<(), String> {
        let wrong = |found| format!("`refstone.{key}` is `{found}`, expected `{expected}`");
        self.find(key).and_then(|found| (found == expected).then_some(()).ok_or(wrong(found)))
    }

    fn parse<T: FromStr>(&self, key: &str) -> Result<T, String> {
        self.map(key, |text| text.parse().ok())
    }

    fn map<T>(&self, key: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, String> {
        let found = self.find(key)?;
        parse(found).ok_or_else(|| format!("`refstone.{key}` is `{found}`"))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse_log_id(text: &str) -> Option<[u8; 16]> {
    let number = u128::from_str_radix(text, 16).ok()?;
    (text.len() == 32).then_some(number.to_be_bytes())
}

fn parse_gaps(text: &str) -> Option<Vec<(Seq, Seq)>> {
    text.split(',').filter(|gap| !gap.is_empty()).map(parse_gap).collect()
}

fn parse_gap(text: &str) -> Option<(Seq, Seq)> {
    let (start, end) = text.split_once('-')?;
    Some((Seq::new(start.parse().ok()?), Seq::new(end.parse().ok()?)))
}
