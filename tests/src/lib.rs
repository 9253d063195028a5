//! Faulty storage and generators for the tests that cross crates.
//!
//! [`env`] is the operating system with a fixed clock and faults on demand, [`logs`] makes logs
//! and rows.

#![allow(clippy::must_use_candidate, reason = "helpers are called for their effect")]

pub mod env;
pub mod logs;
