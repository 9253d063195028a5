//! The columns of a history file, and how Parquet stores them.

use std::str::FromStr;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;
use refstone_log::ObjectFormat;

pub(super) const SEQ: usize = 0;
pub(super) const AT: usize = 1;
pub(super) const ACTOR: usize = 2;
pub(super) const REFNAME: usize = 3;
pub(super) const OLD_OID: usize = 4;
pub(super) const NEW_OID: usize = 5;
pub(super) const SYMREF: usize = 6;
pub(super) const MESSAGE: usize = 7;
/// Only in [`Form::Derived`].
pub(super) const OLD_BACK: usize = 8;

/// Rows of a row group: what a writer holds in memory.
pub(super) const GROUP_ROWS: usize = 65_536;

/// How history files keep `old_oid`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// In every row.
    #[default]
    Full,
    /// Only where no row of the ref above has it as `new_oid`; else how many rows above that is.
    Derived,
}

impl Form {
    /// As in a file's metadata.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Form::Full => "full",
            Form::Derived => "derived",
        }
    }
}

impl FromStr for Form {
    type Err = String;

    fn from_str(name: &str) -> Result<Form, String> {
        [Form::Full, Form::Derived]
            .into_iter()
            .find(|form| form.name() == name)
            .ok_or_else(|| format!("expected `full` or `derived`, found `{name}`"))
    }
}

/// The Arrow schema of the rows: that of the live log, and in a derived file one column more.
pub(super) fn schema(objects: ObjectFormat, form: Form) -> SchemaRef {
    let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let oid = DataType::FixedSizeBinary(oid_width(objects));
    let mut fields = vec![
        Field::new("seq", DataType::UInt64, false),
        Field::new("at", utc, false),
        Field::new("actor", DataType::Utf8, false),
        Field::new("refname", DataType::Utf8, false),
        Field::new("old_oid", oid.clone(), true),
        Field::new("new_oid", oid, true),
        Field::new("symref", DataType::Utf8, true),
        Field::new("message", DataType::Utf8, true),
    ];
    if form == Form::Derived {
        fields.push(Field::new("old_back", DataType::UInt32, true));
    }
    Arc::new(Schema::new(fields))
}

pub(super) fn oid_width(objects: ObjectFormat) -> i32 {
    match objects {
        ObjectFormat::Sha1 => 20,
        ObjectFormat::Sha256 => 32,
    }
}

/// How the columns are encoded.
///
/// A dictionary where values come again, and nowhere else: on object ids it costs more than it
/// saves. No more can be compressed in those, nor in differences packed to the bit. Pages are small
/// enough that one row is read without decoding many: 256 rows of object ids (5 KiB), and more of
/// what takes a few bits.
pub(super) fn properties() -> Result<WriterProperties, ParquetError> {
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_data_page_row_count_limit(1024)
        // Pages end only where a batch of values does.
        .set_write_batch_size(OID_ROWS)
        .set_max_row_group_row_count(Some(GROUP_ROWS));
    for column in ["seq", "at"] {
        builder = builder
            .set_column_encoding(column.into(), Encoding::DELTA_BINARY_PACKED)
            .set_column_compression(column.into(), Compression::UNCOMPRESSED)
            // By these a reader finds the row group of a sequence or a time.
            .set_column_statistics_enabled(column.into(), EnabledStatistics::Chunk);
    }
    for column in ["old_oid", "new_oid"] {
        builder = builder
            .set_column_compression(column.into(), Compression::UNCOMPRESSED)
            .set_column_data_page_row_count_limit(column.into(), OID_ROWS);
    }
    for column in ["actor", "refname", "symref", "message"] {
        builder = text(builder, column);
    }
    for column in ["symref", "message"] {
        // By these a reader knows a row group in which no row has one.
        builder = builder.set_column_statistics_enabled(column.into(), EnabledStatistics::Chunk);
    }
    Ok(builder.build())
}

const ZSTD_LEVEL: i32 = 3;

/// Rows of a page of object ids.
const OID_ROWS: usize = 256;

fn text(builder: WriterPropertiesBuilder, column: &str) -> WriterPropertiesBuilder {
    let column = ColumnPath::from(column);
    builder
        .set_column_dictionary_enabled(column.clone(), true)
        // Every reader of a row decodes the dictionary of its row group.
        .set_column_dictionary_page_size_limit(column.clone(), 512 << 10)
        .set_column_data_page_row_count_limit(column.clone(), 2048)
        .set_column_data_page_size_limit(column, 32 << 10)
}
