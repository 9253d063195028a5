//! What survives a crash, at every operation, on every disk that may be left.
//!
//! [`lab`] crashes random workloads, [`faults`] fails every operation of a scripted one, [`scenes`] are
//! crashes worth a name, [`secrets`] are about what must be gone, [`sabotage`] proves that the lab finds
//! what it should, and [`machine`] that the simulated machine is as unkind as real ones.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

mod faults;
mod lab;
mod machine;
mod sabotage;
mod scenes;
mod secrets;
mod stores;
