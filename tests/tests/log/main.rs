//! The log's public behaviour. Each file is one promise or one part of the format.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

mod adversity;
mod backward;
mod buffered;
mod creation;
mod damage;
mod failures;
mod frames;
mod futures;
mod golden;
mod group_commit;
mod read_only;
mod recovery;
mod repair;
mod rest;
mod resume;
mod rewrite;
mod secrets;
mod space;
mod visibility;
