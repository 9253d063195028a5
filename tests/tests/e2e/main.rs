//! Real repositories, the real `git` client, the built server: what is pushed comes back.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

mod histories;
mod kill;
mod space;
mod stories;
