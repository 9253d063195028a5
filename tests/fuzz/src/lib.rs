//! What must hold of any bytes at all. Each function takes some and panics if it does not.
//!
//! `fuzz/` hands them to libFuzzer, for as long as one likes; the test beside them replays the seeds
//! of `fuzz/seeds/` with every test run, and some thousand mutations of each.

#![allow(clippy::missing_panics_doc, reason = "a panic is the verdict")]
#![allow(clippy::unwrap_used, reason = "a panic is the verdict")]

mod frames;
mod machine;
pub mod mutate;
mod names;
mod packets;
mod recovery;

pub use frames::frames;
pub use names::names;
pub use packets::packets;
pub use recovery::recovery;

/// Takes any bytes, and panics if something does not hold of them.
pub type Target = fn(&[u8]);

/// All of them, by the names of their seeds.
pub const TARGETS: [(&str, Target); 4] =
    [("frames", frames), ("names", names), ("packets", packets), ("recovery", recovery)];
