//! Sealed history: transactions that have left the live log, in immutable Parquet files.
//!
//! `docs/format.md`, "History files", owns the bytes. A file holds the rows of the transactions
//! `first..=last` in commit order, and stock Parquet readers open it. Every byte that is decoded
//! was checked against a checksum before, so damage is an error and never another row.
//!
//! A [`HistoryWriter`] takes rows; a [`HistoryFile`] gives them back, one by one or as a
//! [`scan`](HistoryFile::scan); [`merge`] makes one file of several.

mod checked;

mod columns;

mod derive;

mod error;

mod file;

mod footer;

mod identity;

mod merge;

mod pages;

mod rows;

mod scan;

mod sources;

mod verify;

mod write;

pub use columns::Form;
pub(crate) use error::SealedError;
pub(crate) use file::HistoryFile;
pub(crate) use identity::Identity;
pub(crate) use merge::merge;
pub(crate) use rows::Escaper;
#[cfg(test)]
pub(crate) use write::BATCH_ROWS;
pub(crate) use write::{Batch, HistoryWriter};

#[cfg(test)]
mod tests;
