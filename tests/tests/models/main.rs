//! The log's waiting, in one interleaving of its threads after the other.
//!
//! These are small programs on the real log, whose locks, conditions and atomics are those of
//! [shuttle](https://docs.rs/shuttle): at each of them a scheduler decides who goes on. A program
//! whose threads all sleep fails as a deadlock, which is how a lost wake-up shows.
//!
//! Every atomic counts as sequentially consistent here: weaker orders are not modelled.
//!
//! `cargo test -p refstone-tests --features shuttle --test models` tries some hundred
//! interleavings of each; `REFSTONE_MODEL_RUNS` asks for more and `REFSTONE_MODEL_SEED` for others.
//! A failure prints its schedule, which `shuttle::replay` repeats.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

mod failures;
mod machine;
mod rests;
mod rewrites;
mod tasks;
mod watermarks;
