//! Faulty storage and generators for the tests that cross crates.
//!
//! [`mod@env`] is the operating system with a fixed clock and faults on demand, [`logs`] makes logs
//! and rows, [`generate`] makes rows of every shape, [`secrets`] changes of secrets,
//! [`process`] runs the built command, servers and git, [`tmpfs`] is a small disk to fill, [`sim`] is a
//! machine that crashes, and [`real`] crashes the real one.

#![allow(clippy::must_use_candidate, reason = "helpers are called for their effect")]

pub mod env;
pub mod generate;
pub mod logs;
pub mod process;
pub mod real;
pub mod secrets;
pub mod sim;
pub mod tmpfs;
