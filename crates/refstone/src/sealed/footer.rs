//! The end of a history file: Parquet's footer, under a checksum of its own.

use std::path::Path;

use bstr::ByteSlice;
use parquet::file::metadata::{
    FileMetaData, KeyValue, ParquetMetaData, ParquetMetaDataBuilder, ParquetMetaDataReader,
    ParquetMetaDataWriter,
};
use refstone_log::EnvFile;

use super::error::{Place, SealedError};

const MAGIC: &[u8; 4] = b"PAR1";

/// The length of the metadata and the magic, which end a Parquet file.
const END_LEN: usize = 8;

/// As Thrift's compact protocol writes the pair: a field of text, its length, the text.
const BEFORE_DIGITS: &[u8] = b"refstone.checksum\x18\x0fcrc32c:";
const BLANK: &[u8; 8] = b"00000000";

/// Far more than a file of 2³² rows needs.
const LEN_MAX: u64 = 1 << 30;

/// Where the footer starts in the end of a file.
pub(super) fn start_in(tail: &[u8]) -> Option<usize> {
    let (rest, magic) = tail.split_last_chunk::<4>()?;
    let (rest, len) = rest.split_last_chunk::<4>()?;
    let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
    (magic == MAGIC).then(|| rest.len().checked_sub(len)).flatten()
}

/// The footer of a file with this metadata and these pairs.
pub(super) fn encode(
    metadata: ParquetMetaData,
    mut pairs: Vec<KeyValue>,
) -> Result<Vec<u8>, parquet::errors::ParquetError> {
    let checksum = format!("crc32c:{}", BLANK.as_bstr());
    pairs.push(KeyValue::new("refstone.checksum".to_owned(), checksum));
    let metadata = with_pairs(metadata, Some(pairs));
    let mut footer = Vec::new();
    // The page index stands before, and keeps the place that the metadata gives it.
    ParquetMetaDataWriter::new(&mut footer, &metadata).finish()?;
    let digits = digits_in(&footer).expect("the pair was written");
    let sum = sum(&footer, digits);
    footer[digits..digits + BLANK.len()].copy_from_slice(&sum);
    Ok(footer)
}

/// The metadata without its page index, and with other pairs.
pub(super) fn with_pairs(
    metadata: ParquetMetaData,
    pairs: Option<Vec<KeyValue>>,
) -> ParquetMetaData {
    let file = bare(metadata.file_metadata(), pairs);
    let groups = metadata.into_builder().take_row_groups();
    ParquetMetaDataBuilder::new(file).set_row_groups(groups).build()
}

fn bare(file: &FileMetaData, pairs: Option<Vec<KeyValue>>) -> FileMetaData {
    FileMetaData::new(
        file.version(),
        file.num_rows(),
        file.created_by().map(str::to_owned),
        pairs,
        file.schema_descr_ptr(),
        file.column_orders().cloned(),
    )
}

/// Reads, checks and decodes the footer of a file; says also where it starts.
pub(super) fn read(file: &dyn EnvFile, path: &Path) -> Result<(ParquetMetaData, u64), SealedError> {
    let damaged = |problem: &str| SealedError::damaged(path, Place::Footer, problem);
    let len = file.len().map_err(SealedError::io(path, "read the length of"))?;
    let end = read_at(file, path, len.saturating_sub(END_LEN as u64), END_LEN)?;
    let metadata_len = match end.split_first_chunk::<4>() {
        Some((metadata_len, magic)) if magic == MAGIC => u32::from_le_bytes(*metadata_len),
        _ => return Err(damaged("the file does not end as a Parquet file")),
    };
    let footer_len = u64::from(metadata_len) + END_LEN as u64;
    let start = len.checked_sub(footer_len).filter(|_| footer_len <= LEN_MAX);
    let start = start.ok_or_else(|| damaged("its length is not that of a footer"))?;
    let footer_len = usize::try_from(footer_len).map_err(|_| damaged("it is too long"))?;
    let footer = read_at(file, path, start, footer_len)?;
    check(&footer).map_err(|problem| damaged(&problem))?;
    let metadata = ParquetMetaDataReader::decode_metadata(&footer[..footer.len() - END_LEN])
        .map_err(SealedError::reading(path, Place::Footer))?;
    Ok((metadata, start))
}

fn read_at(
    file: &dyn EnvFile,
    path: &Path,
    start: u64,
    len: usize,
) -> Result<Vec<u8>, SealedError> {
    let mut bytes = vec![0; len];
    let read = file.read_full_at(&mut bytes, start).map_err(SealedError::io(path, "read"))?;
    bytes.truncate(read);
    Ok(bytes)
}

fn check(footer: &[u8]) -> Result<(), String> {
    let digits = digits_in(footer).ok_or("it has no refstone checksum: no history file")?;
    let (found, stored) = (sum(footer, digits), &footer[digits..digits + BLANK.len()]);
    let (found, stored) = (found.as_bstr(), stored.as_bstr());
    (found == stored)
        .then_some(())
        .ok_or_else(|| format!("its checksum is {found}, and {stored} was written"))
}

/// Where the digits of the checksum stand.
fn digits_in(footer: &[u8]) -> Option<usize> {
    let digits = footer.rfind(BEFORE_DIGITS)? + BEFORE_DIGITS.len();
    (digits + BLANK.len() <= footer.len()).then_some(digits)
}

/// The checksum of a footer, taken with its own digits blank.
fn sum(footer: &[u8], digits: usize) -> [u8; 8] {
    let sum = crc32c::crc32c(&footer[..digits]);
    let sum = crc32c::crc32c_append(sum, BLANK);
    let sum = crc32c::crc32c_append(sum, &footer[digits + BLANK.len()..]);
    let mut text = *BLANK;
    text.copy_from_slice(format!("{sum:08x}").as_bytes());
    text
}
