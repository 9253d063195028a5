//! The store's public behaviour, one file per promise.

#![allow(clippy::unwrap_used, reason = "an error that a test does not expect is its failure")]

mod common;
mod compaction;
mod compaction_failures;
mod newest;
mod repaired;

mod judge;

mod reflog;

mod reftable;

mod update_ref;

mod names_as_git;

mod semantics_as_git;

mod random_as_git;

mod differences;

mod batches;

mod many;
mod many_moves;
mod model;

mod prepared;

mod complaints;

mod errors;

mod races;

mod durability;
mod exchange;
mod exchange_stream;

mod misfits;
mod reading;
mod remains;
mod resumed;

mod restore;
mod rests;

mod whole;

mod embedding;
mod secrets;
