//! The git wire protocol as pure functions: bytes in, bytes out, no sockets and no clocks.
//!
//! Reading order: [`pkt`] is the framing under everything; [`sideband`] multiplexes on top of it;
//! [`advertise`], [`commands`], [`pack`] and [`report`] are the four parts of a push;
//! [`v2`] is fetch negotiation in protocol version 2.

pub mod advertise;
pub mod commands;
pub mod pack;
pub mod pkt;
pub mod report;
pub mod sideband;
pub mod v2;
