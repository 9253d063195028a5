//! Faulty storage and generators for the tests that cross crates.
//!
//! [`env`] is the operating system with a fixed clock and faults on demand, [`logs`] makes logs
//! and rows, [`generate`] makes rows of every shape.

#![allow(clippy::must_use_candidate, reason = "helpers are called for their effect")]

pub mod env;
pub mod generate;
pub mod logs;
