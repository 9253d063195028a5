//! A simulated machine for crash tests, and the lab that crashes it.
//!
//! [`SimFs`] is the log's I/O seam over a [`Disk`] in memory. It keeps what processes see apart
//! from what the disk may hold, so that the power can be cut at any operation, as often as one
//! likes, with any outcome that real disks and file systems allow. What it assumes of them:
//!
//! - A sector of 512 bytes holds what the cache held at some moment since the sector was last
//!   synced, give or take the 4-byte words of one store. Sectors are independent of each other.
//! - A write that makes a file longer makes it so at once or at the next sync of the file; where
//!   the bytes are lost and the length is not, there are zeros.
//! - A sync of a file makes bytes and length durable, not the name. Names are durable after a sync
//!   of their directory, or earlier, in any order; a rename is whole.
//! - After a failed sync the dirty sectors are taken for clean: they are read from the cache, the
//!   next sync succeeds, and the disk has them only if they are written again.
//!
//! [`Lab`] runs [workloads](workload) drawn from seeds in a [`Session`], crashes them at every
//! operation, and compares what readers see and what recovery finds with the [model].
//! [`Sabotage`] proves that it would notice.

mod content;
mod dir;
mod disk;
mod fault;
mod fs;
mod keep;
mod kernel;
mod lab;
pub mod model;
pub mod observe;
mod repaired;
mod report;
mod rng;
mod sabotage;
mod session;
mod store;
mod store_faults;
mod torn;
mod watchdog;
pub mod workload;

pub use disk::Disk;
pub use fault::{Fault, Op, Plan};
pub use fs::SimFs;
pub use keep::{Policy, Tick};
pub use kernel::Moment;
pub use lab::Lab;
pub use report::{Effort, Report, Violation};
pub use rng::Rng;
pub use sabotage::Sabotage;
pub use session::Session;
pub use store::{StoreLab, StoreReport};
pub use store_faults::{FaultReport, fail_every_operation_of_a_compaction};
