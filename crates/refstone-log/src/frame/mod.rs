//! Bytes to verified frames and back: the pure half of the log.
//!
//! `docs/format.md` owns the bytes. [`layout`] says where they lie, [`encode`] lays them down,
//! [`decode`] turns untrusted bytes into a [`Frame`] or a [`FrameError`], [`schema`] does the same
//! for the message that opens the file, [`text`] makes bytes readable.

pub(crate) mod crc;
pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod gaps;
pub(crate) mod layout;
pub(crate) mod schema;
pub mod text;

pub use decode::{Frame, FrameError};
pub(crate) use encode::EncodeError;
pub(crate) use layout::{EOS, Layout, PREFIX_LEN, WORD_LEN};
