//! What every measurement shares.

pub mod disk;
pub mod drive;
pub mod floor;
pub mod host;
pub mod row;
pub mod stats;
