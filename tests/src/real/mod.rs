//! Logs on real kernels: processes that are killed, file systems whose power is cut, disks that fail.
//!
//! A [writer] is a process of its own that commits from several threads and says on its standard output
//! what it stages and what was acknowledged; the [ledger] keeps that, and judges what is found
//! afterwards. [`PowerCuts`] cuts the power of a [`Volume`] under a writer, [`FailedSyncs`] lets its disk
//! run full, [`Kills`] kills writers beside readers, [`chaos`] damages logs. Each runs for as long as one
//! likes from a binary of this package, and briefly with the ordinary tests.

pub mod chaos;
mod child;
mod failed_sync;
mod kills;
pub mod label;
pub mod ledger;
mod observe;
mod power;
mod script;
mod volume;
pub mod writer;

pub use child::{Event, Writer};
pub use failed_sync::{FailedSyncs, FailuresReport};
pub use kills::{Kills, KillsReport};
pub use ledger::Ledger;
pub use observe::{Outside, Seen, archived, before_recovery, recover, sealed_and_live};
pub use power::{CutsReport, Moment, PowerCuts};
pub use script::Cutter;
pub use volume::{Fs, Method, Skipped, Volume};

/// The answer of a check; the text says which promise was broken, and how.
pub type Verdict<T = ()> = Result<T, String>;
