//! The message that opens the file: columns, and who the log is (`docs/format.md`, "Schema").

use std::collections::HashMap;
use std::sync::Arc;

use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions, write_message};
use arrow_schema::{DataType, Field, Schema, TimeUnit};

use super::decode::SharedSchema;
use super::gaps::Gaps;
use super::layout::{MARKER, PREFIX_LEN};
use super::text::{Backslash, escape_into, unescape};
use crate::kind::{Column, ColumnType, Kind, ObjectFormat};
use crate::seq::{Seq, Timestamp};

/// The one format this version writes and reads.
pub(crate) const FORMAT: &str = "1";
/// The largest schema message that is read.
pub(crate) const SCHEMA_MAX: usize = 1 << 20;

/// Opens the checksum in the message; a colon cannot occur in any other value.
const CHECKSUM_TAG: &[u8; 7] = b"crc32c:";
const CHECKSUM_BLANK: &[u8; 8] = b"00000000";

/// Where the chain of frames starts: the last transaction that is no longer in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Its sequence; [`Seq::ZERO`] if none was taken out yet.
    pub seq: Seq,
    /// The checksum of its frame; of the log's identity, if there is none.
    pub crc: u32,
    /// Its time.
    pub at: Timestamp,
}

/// Everything the schema's metadata says of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) kind: Kind,
    pub(crate) log_id: [u8; 16],
    /// Of a ref log; a log of secrets names no objects, and does not write this.
    pub(crate) object_format: ObjectFormat,
    /// The initial symbolic target of `HEAD`, of a ref log.
    pub(crate) head: Vec<u8>,
    pub(crate) anchor: Anchor,
    /// Sequences that a repair lost, or that newer secrets replaced.
    pub(crate) gaps: Gaps,
}

impl Identity {
    /// A log that has no transaction yet.
    pub(crate) fn fresh(log_id: [u8; 16], object_format: ObjectFormat, head: Vec<u8>) -> Identity {
        let anchor =
            Anchor { seq: Seq::ZERO, crc: crc32c::crc32c(&log_id), at: Timestamp::default() };
        Identity { kind: Kind::Refs, log_id, object_format, head, anchor, gaps: Gaps::default() }
    }

    /// A log of secrets that has none yet.
    pub(crate) fn fresh_secrets(log_id: [u8; 16]) -> Identity {
        let identity = Identity::fresh(log_id, ObjectFormat::Sha1, Vec::new());
        Identity { kind: Kind::Secrets, ..identity }
    }

    pub(crate) fn columns(&self) -> Vec<Column> {
        self.kind.columns(self.object_format)
    }

    /// The Arrow schema of the log, its metadata included.
    pub(crate) fn arrow_schema(&self) -> SharedSchema {
        self.schema_with_checksum(CHECKSUM_BLANK)
    }

    fn schema_with_checksum(&self, checksum: &[u8; 8]) -> SharedSchema {
        let fields: Vec<Field> = self.columns().iter().map(field).collect();
        Arc::new(Schema::new_with_metadata(fields, self.metadata(checksum)))
    }

    fn metadata(&self, checksum: &[u8; 8]) -> HashMap<String, String> {
        let tag = [CHECKSUM_TAG.as_slice(), checksum].concat();
        let mut pairs = vec![
            ("checksum", String::from_utf8_lossy(&tag).into_owned()),
            ("first_seq", self.anchor.seq.next().to_string()),
            ("format", FORMAT.to_owned()),
            ("gaps", self.gaps.format()),
            ("kind", self.kind.name().to_owned()),
            ("log_id", hex(&self.log_id)),
            ("sealed_at", self.anchor.at.as_micros().to_string()),
            ("sealed_crc", format!("{:08x}", self.anchor.crc)),
            ("sealed_seq", self.anchor.seq.to_string()),
        ];
        if self.kind == Kind::Refs {
            let mut head = Vec::new();
            escape_into(&self.head, Backslash::Forbidden, &mut head);
            pairs.push(("head", String::from_utf8_lossy(&head).into_owned()));
            pairs.push(("object_format", self.object_format.name().to_owned()));
        }
        pairs.into_iter().map(|(key, value)| (format!("refstone.{key}"), value)).collect()
    }

    /// The whole message, its checksum filled in; a multiple of 8 bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut message = encode_schema(&self.schema_with_checksum(CHECKSUM_BLANK));
        let digits = checksum_digits(&message).expect("the metadata has one checksum");
        let crc = format!("{:08x}", crc32c::crc32c(&message));
        message[digits..digits + 8].copy_from_slice(crc.as_bytes());
        message
    }

    /// Reads the message back, after its checksum proved every byte of it.
    pub(crate) fn decode(message: &[u8]) -> Result<Identity, SchemaError> {
        verify_checksum(message)?;
        let schema = arrow_ipc::convert::try_schema_from_flatbuffer_bytes(&message[PREFIX_LEN..])
            .map_err(|error| SchemaError::Arrow(error.to_string()))?;
        let pairs = Pairs(&schema);
        pairs.expect("format", FORMAT)?;
        let identity = pairs.identity()?;
        if schema.fields() != identity.arrow_schema().fields() {
            return Err(SchemaError::Columns { kind: identity.kind.name() });
        }
        Ok(identity)
    }
}

/// Longer messages are not mended: every bit costs a checksum of the whole.
pub(crate) const MENDED_MAX: usize = 8 << 10;

/// The identity in a message of which one bit is wrong, and the length of the message.
///
/// The checksum covers the whole message, so the one bit that makes it right is the one that was
/// wrong: that any other does by chance is less likely than one in a hundred thousand.
pub(crate) fn mend(head: &[u8], file_len: u64) -> Option<(Identity, usize)> {
    let mut head = head[..head.len().min(MENDED_MAX)].to_vec();
    suspects(&head, file_len).into_iter().find_map(|bit| {
        head[bit / 8] ^= 1 << (bit % 8);
        let mended = whole(&head, file_len);
        head[bit / 8] ^= 1 << (bit % 8);
        mended
    })
}

/// The bits that may be the wrong one. Where the message has a length and a checksum, these are
/// their own bits, and those of the others that make the checksum right.
fn suspects(head: &[u8], file_len: u64) -> Vec<usize> {
    let len = head.first_chunk().and_then(|prefix| message_len(*prefix, file_len).ok());
    let message = len.and_then(|len| head.get(..len));
    let Some((message, digits)) = message.and_then(|m| Some((m, checksum_digits(m)?))) else {
        return (0..head.len() * 8).collect();
    };
    let stored = std::str::from_utf8(&message[digits..digits + 8]).unwrap_or_default();
    let stored = u32::from_str_radix(stored, 16).ok();
    let mut blank = message.to_vec();
    blank[digits..digits + 8].copy_from_slice(CHECKSUM_BLANK);
    let own = (0..PREFIX_LEN * 8).chain(digits * 8..(digits + 8) * 8);
    let others = (PREFIX_LEN * 8..message.len() * 8).filter(|bit| {
        blank[bit / 8] ^= 1 << (bit % 8);
        let right = Some(crc32c::crc32c(&blank)) == stored;
        blank[bit / 8] ^= 1 << (bit % 8);
        right
    });
    own.chain(others).collect()
}

/// The identity in the message that these bytes start with.
fn whole(head: &[u8], file_len: u64) -> Option<(Identity, usize)> {
    let len = message_len(*head.first_chunk()?, file_len).ok()?;
    Some((Identity::decode(head.get(..len)?).ok()?, len))
}

/// Why the file does not open with the schema of a log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// The file is too short to hold the message, or the message is impossibly long.
    #[error("the schema message takes {needed} bytes, and the file has {found}")]
    Truncated {
        /// Bytes the message needs.
        needed: u64,
        /// Bytes the file has.
        found: u64,
    },
    /// The file does not start as an Arrow IPC stream.
    #[error("the file does not start with Arrow's continuation marker ffffffff")]
    NotArrow,
    /// It is an Arrow stream, but no log.
    #[error("the schema carries no refstone checksum: this is not a refstone log")]
    NotALog,
    /// A byte of the message is wrong.
    #[error("the schema's checksum is {stored}, and its bytes give {computed}")]
    Checksum {
        /// The checksum in the message.
        stored: String,
        /// The checksum of the bytes.
        computed: String,
    },
    /// A metadata value is missing, unknown or of another version.
    #[error("the schema's metadata has `{key}` = {found}, expected {expected}")]
    Metadata {
        /// The key, without its `refstone.` prefix.
        key: &'static str,
        /// What would be right.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// The columns are not those of the log's kind.
    #[error("the columns are not those of a log of {kind}")]
    Columns {
        /// The kind the metadata names.
        kind: &'static str,
    },
    /// arrow-rs does not read the message.
    #[error("the schema message is not readable: {0}")]
    Arrow(String),
}

impl SchemaError {
    /// Whether bytes are wrong. If not, the checksum is right: another version wrote them.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        use SchemaError::{Checksum, NotALog, NotArrow, Truncated};
        matches!(self, Truncated { .. } | NotArrow | NotALog | Checksum { .. })
    }
}

/// The length of the schema message that starts with this prefix.
pub(crate) fn message_len(prefix: [u8; PREFIX_LEN], file_len: u64) -> Result<usize, SchemaError> {
    let (marker, word) = prefix.split_at(4);
    if marker != MARKER {
        return Err(SchemaError::NotArrow);
    }
    let word = u32::from_le_bytes(word.try_into().expect("four bytes")) as usize;
    let needed = PREFIX_LEN + word;
    if needed as u64 > file_len || !needed.is_multiple_of(8) || needed > SCHEMA_MAX {
        return Err(SchemaError::Truncated { needed: needed as u64, found: file_len });
    }
    Ok(needed)
}

fn verify_checksum(message: &[u8]) -> Result<(), SchemaError> {
    let digits = checksum_digits(message).ok_or(SchemaError::NotALog)?;
    let mut blank = message.to_vec();
    blank[digits..digits + 8].copy_from_slice(CHECKSUM_BLANK);
    let computed = format!("{:08x}", crc32c::crc32c(&blank));
    let stored = &message[digits..digits + 8];
    if stored != computed.as_bytes() {
        let stored = String::from_utf8_lossy(stored).into_owned();
        return Err(SchemaError::Checksum { stored, computed });
    }
    Ok(())
}

/// Where the eight digits of the checksum stand; `None` unless there is exactly one place.
fn checksum_digits(message: &[u8]) -> Option<usize> {
    let is_tag = |&at: &usize| message[at..].starts_with(CHECKSUM_TAG);
    let mut places = (0..message.len()).filter(is_tag);
    let digits = places.next()? + CHECKSUM_TAG.len();
    (places.next().is_none() && digits + 8 <= message.len()).then_some(digits)
}

fn encode_schema(schema: &Schema) -> Vec<u8> {
    let options = write_options();
    let mut tracker = DictionaryTracker::new(false);
    let generator = IpcDataGenerator::default();
    let encoded = generator.schema_to_bytes_with_dictionary_tracker(schema, &mut tracker, &options);
    let mut message = Vec::new();
    write_message(&mut message, encoded, &options).expect("writing to memory does not fail");
    message
}

fn write_options() -> IpcWriteOptions {
    IpcWriteOptions::try_new(8, false, arrow_ipc::MetadataVersion::V5)
        .expect("8-byte alignment and V5 are valid options")
}

fn field(column: &Column) -> Field {
    let data_type = match column.ty {
        ColumnType::Seq => DataType::UInt64,
        ColumnType::At => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        ColumnType::Name | ColumnType::Text => DataType::Utf8,
        ColumnType::Binary => DataType::Binary,
        ColumnType::Fixed(width) => {
            DataType::FixedSizeBinary(i32::try_from(width).expect("object ids are short"))
        }
    };
    Field::new(column.name, data_type, column.nullable)
}

/// The metadata, with errors that say which pair is wrong.
struct Pairs<'a>(&'a Schema);

impl Pairs<'_> {
    fn find(&self, key: &'static str, expected: &'static str) -> Result<&str, SchemaError> {
        let value = self.0.metadata().get(&format!("refstone.{key}"));
        value.map(String::as_str).ok_or(SchemaError::Metadata {
            key,
            expected,
            found: "nothing".to_owned(),
        })
    }

    fn expect(&self, key: &'static str, expected: &'static str) -> Result<(), SchemaError> {
        self.parse(key, expected, |found| (found == expected).then_some(()))
    }

    fn parse<T>(
        &self,
        key: &'static str,
        expected: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, SchemaError> {
        let found = self.find(key, expected)?;
        parse(found).ok_or_else(|| SchemaError::Metadata { key, expected, found: found.to_owned() })
    }

    fn identity(&self) -> Result<Identity, SchemaError> {
        let kind = self.parse("kind", "refs or secrets", Kind::from_name)?;
        let log_id = self.parse("log_id", "32 hex digits", unhex)?;
        let identity = match kind {
            Kind::Refs => {
                let objects =
                    self.parse("object_format", "sha1 or sha256", |name| name.parse().ok())?;
                let head = unescape(self.find("head", "a ref name")?.as_bytes()).into_owned();
                Identity::fresh(log_id, objects, head)
            }
            Kind::Secrets => Identity::fresh_secrets(log_id),
        };
        let gaps = self.parse("gaps", "ascending ranges such as 5-7,9-9", Gaps::parse)?;
        Ok(Identity { anchor: self.anchor()?, gaps, ..identity })
    }

    fn anchor(&self) -> Result<Anchor, SchemaError> {
        let seq = self.parse("sealed_seq", "a sequence", |seq| {
            seq.parse().ok().map(Seq::new).filter(|seq| *seq < Seq::MAX)
        })?;
        self.parse("first_seq", "the sequence after sealed_seq", |first| {
            (first == seq.next().to_string()).then_some(())
        })?;
        Ok(Anchor {
            seq,
            crc: self.parse("sealed_crc", "8 hex digits", |v| u32::from_str_radix(v, 16).ok())?,
            at: self.parse("sealed_at", "microseconds", |at| {
                at.parse().ok().map(Timestamp::from_micros)
            })?,
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<[u8; 16]> {
    let valid = text.len() == 32 && text.is_ascii();
    let number = valid.then(|| u128::from_str_radix(text, 16).ok())??;
    Some(number.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity::fresh([7; 16], ObjectFormat::Sha1, b"refs/heads/main".to_vec())
    }

    #[test]
    fn an_identity_survives_the_message() {
        let mut identity = identity();
        identity.object_format = ObjectFormat::Sha256;
        identity.head = b"refs/heads/\xff".to_vec();
        identity.anchor = Anchor { seq: Seq::new(41), crc: 0xabc, at: Timestamp::from_micros(-5) };
        identity.gaps.add(Seq::new(43), Seq::new(44));
        identity.gaps.add(Seq::new(50), Seq::new(50));
        assert_eq!(Identity::decode(&identity.encode()).unwrap(), identity);
    }

    // Breaks: writing what only a ref log has; asking for it when it is read.
    #[test]
    fn the_identity_of_a_log_of_secrets_survives_and_names_no_objects() {
        let mut identity = Identity::fresh_secrets([9; 16]);
        identity.gaps.add(Seq::new(1), Seq::new(4));
        assert_eq!(Identity::decode(&identity.encode()).unwrap(), identity);
        let schema = identity.arrow_schema();
        let mut keys = ["refstone.object_format", "refstone.head"].into_iter();
        assert!(keys.all(|key| !schema.metadata().contains_key(key)));
    }

    // Break: leave the prefix out of the checksum.
    #[test]
    fn every_flipped_bit_of_the_message_is_noticed() {
        let message = identity().encode();
        for bit in 0..message.len() * 8 {
            let mut flipped = message.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Identity::decode(&flipped).is_err(), "bit {bit} went unnoticed");
        }
    }

    // Break: trusting the length in the prefix, of which a bit may be wrong.
    #[test]
    fn any_one_wrong_bit_of_the_message_is_put_right() {
        let message = identity().encode();
        let file = [&message[..], &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]].concat();
        let digits = checksum_digits(&message).unwrap();
        let tag = digits * 8 - 20;
        for bit in (64..message.len() * 8).step_by(511).chain([1, 9, 34, 37, 40, 63, tag, tag + 25])
        {
            let mut flipped = file.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let mended = mend(&flipped, flipped.len() as u64);
            assert_eq!(mended, Some((identity(), message.len())), "bit {bit}");
        }
        let mut broken = file.clone();
        broken[message.len() / 2] ^= 0x42;
        assert_eq!(mend(&broken, broken.len() as u64), None, "two bits are wrong");
    }

    #[test]
    fn an_arrow_stream_of_another_origin_is_no_log() {
        let schema = Schema::new(vec![Field::new("n", DataType::Int8, false)]);
        let error = Identity::decode(&encode_schema(&schema)).unwrap_err();
        assert_eq!(error, SchemaError::NotALog);
    }
}
