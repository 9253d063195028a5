//! Measures refstone: against its own promises, against its peers, and against the bare disk.
//!
//! In reading order: [`measure`] is what all arms share (time, disk, host, the closed loop);
//! [`workload`] is what they commit; [`hooks`] watches a log through its I/O seam; [`peers`] are
//! the stores compared; [`arms`] are the measurements; [`verdict`] decides what is red;
//! [`report`] turns a run into tables and plots. `README.md` says how to run all that.

pub mod arm;
pub mod arms;
pub mod child;
pub mod git;
pub mod hooks;
pub mod measure;
pub mod peers;
pub mod report;
pub mod verdict;
pub mod workload;
