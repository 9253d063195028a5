//! The message that opens a table: its columns, and which transactions it stands for.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_ipc::MetadataVersion;
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions, write_message};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use refstone_log::{ObjectFormat, Seq, Timestamp};

use super::error::Flaw;
use super::layout::PREFIX_LEN;
use super::step::Base;

const FORMAT: &str = "1";
const KIND: &str = "table";

/// Which transactions of which log a table stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) log_id: [u8; 16],
    pub(crate) object_format: ObjectFormat,
    /// The first transaction; from 1 on, the table says which refs there are at `last`.
    pub(crate) first: Seq,
    pub(crate) last: Seq,
    /// The checksum of the last transaction's frame.
    pub(crate) last_crc: u32,
    pub(crate) last_at: Timestamp,
}

impl Identity {
    /// Whether a state of this table may come from that transaction. The lowest one also has `HEAD` as
    /// it was before the first.
    pub(super) fn covers(&self, seq: Seq) -> bool {
        (self.first <= seq && seq <= self.last) || (self.is_lowest() && seq == Seq::ZERO)
    }

    /// What those chunks of moves are told by that are not the first of a ref.
    pub(super) fn base(&self) -> Base<'static> {
        Base { seq: self.last, at: self.last_at, oid: None }
    }

    /// Whether nothing lies below the table: a deletion in it hides nothing.
    pub(crate) fn is_lowest(&self) -> bool {
        self.first <= Seq::new(1)
    }

    /// The table's Arrow schema, with its metadata.
    pub(super) fn arrow_schema(&self) -> SchemaRef {
        Arc::new(Schema::new_with_metadata(fields(self.object_format), self.metadata()))
    }

    fn metadata(&self) -> HashMap<String, String> {
        let pairs = [
            ("format", FORMAT.to_owned()),
            ("kind", KIND.to_owned()),
            ("log_id", format!("{:032x}", u128::from_be_bytes(self.log_id))),
            ("object_format", self.object_format.name().to_owned()),
            ("first_seq", self.first.to_string()),
            ("last_seq", self.last.to_string()),
            ("last_crc", format!("{:08x}", self.last_crc)),
            ("last_at", self.last_at.as_micros().to_string()),
        ];
        pairs.map(|(key, value)| (format!("refstone.{key}"), value)).into()
    }

    /// The whole message.
    pub(super) fn encode(&self) -> Vec<u8> {
        let options = write_options();
        let mut tracker = DictionaryTracker::new(false);
        let schema = self.arrow_schema();
        let encoded = IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(
            &schema,
            &mut tracker,
            &options,
        );
        let mut message = Vec::new();
        write_message(&mut message, encoded, &options).expect("writing to memory does not fail");
        message
    }

    /// Reads a message back, whose checksum proved it.
    pub(super) fn decode(message: &[u8]) -> Result<Identity, Flaw> {
        let body = message.get(PREFIX_LEN..).unwrap_or_default();
        let schema = arrow_ipc::convert::try_schema_from_flatbuffer_bytes(body)
            .map_err(|error| flaw("a schema message", &error.to_string()))?;
        let pairs = Pairs(&schema);
        pairs.parse("format", FORMAT, |found| (found == FORMAT).then_some(()))?;
        pairs.parse("kind", KIND, |found| (found == KIND).then_some(()))?;
        let identity = pairs.identity()?;
        if schema.fields() != identity.arrow_schema().fields() {
            return Err(flaw("the columns of a table", "others"));
        }
        Ok(identity)
    }
}

/// 8-byte alignment, as the log has it.
pub(super) fn write_options() -> IpcWriteOptions {
    IpcWriteOptions::try_new(8, false, MetadataVersion::V5)
        .expect("8-byte alignment and V5 are valid options")
}

pub(super) fn timestamp_type() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

pub(super) fn oid_width(format: ObjectFormat) -> i32 {
    i32::try_from(format.len()).expect("object ids are short")
}

fn fields(format: ObjectFormat) -> Vec<Field> {
    vec![
        Field::new("refname", DataType::Utf8, false),
        Field::new("new_oid", DataType::FixedSizeBinary(oid_width(format)), true),
        Field::new("symref", DataType::Utf8, true),
        Field::new("seq", DataType::UInt64, false),
        Field::new("at", timestamp_type(), false),
        Field::new("moves_end", DataType::UInt64, false),
    ]
}

fn flaw(expected: &str, actual: &str) -> Flaw {
    Flaw::new("the schema at byte", 0, expected, actual)
}

struct Pairs<'a>(&'a Schema);

impl Pairs<'_> {
    fn parse<T>(
        &self,
        key: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, Flaw> {
        let key = format!("refstone.{key}");
        let found = self.0.metadata().get(&key).map_or("nothing", String::as_str);
        parse(found).ok_or_else(|| flaw(&format!("{key} = {expected}"), found))
    }

    fn seq(&self, key: &str) -> Result<Seq, Flaw> {
        self.parse(key, "a sequence", |seq| seq.parse().ok().map(Seq::new))
    }

    fn identity(&self) -> Result<Identity, Flaw> {
        Ok(Identity {
            log_id: self.parse("log_id", "32 hex digits", |id| {
                u128::from_str_radix(id, 16).ok().map(u128::to_be_bytes)
            })?,
            object_format: self.parse("object_format", "sha1 or sha256", |f| f.parse().ok())?,
            first: self.seq("first_seq")?,
            last: self.seq("last_seq")?,
            last_crc: self
                .parse("last_crc", "8 hex digits", |crc| u32::from_str_radix(crc, 16).ok())?,
            last_at: self.parse("last_at", "microseconds", |at| {
                at.parse().ok().map(Timestamp::from_micros)
            })?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_survives_the_message() {
        let identity = Identity {
            log_id: [7; 16],
            object_format: ObjectFormat::Sha256,
            first: Seq::new(5),
            last: Seq::MAX,
            last_crc: 0xabc,
            last_at: Timestamp::from_micros(-5),
        };
        assert_eq!(Identity::decode(&identity.encode()), Ok(identity));
    }
}
