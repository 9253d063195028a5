//! The free-space floor: transactions are refused before the file system is full.
//!
//! A full file system hurts more than one log, and what frees it again often needs some space
//! itself. So a log stops taking transactions while there is a little left, and goes on by itself
//! when there is more.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use crate::env::Env;
use crate::error::AppendError;
use crate::sabotage::{self, Sabotage};

/// How much of its file system a log leaves free: a transaction that would leave less is refused.
///
/// ```
/// use refstone_log::MinFree;
/// assert_eq!("512M".parse(), Ok(MinFree::Bytes(512 << 20)));
/// assert_eq!("auto".parse(), Ok(MinFree::Auto));
/// assert_eq!("0".parse(), Ok(MinFree::OFF));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MinFree {
    /// 64 MiB.
    #[default]
    Auto,
    /// So many bytes.
    Bytes(u64),
}

impl MinFree {
    /// No floor: the file system may become full.
    pub const OFF: MinFree = MinFree::Bytes(0);

    const AUTO_BYTES: u64 = 64 << 20;

    /// The floor in bytes; 0 is none.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            MinFree::Auto => MinFree::AUTO_BYTES,
            MinFree::Bytes(bytes) => bytes,
        }
    }
}

/// The text names no floor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected `auto`, 0, or a size such as 500M or 2G, found `{0}`")]
pub struct UnknownMinFree(String);

impl FromStr for MinFree {
    type Err = UnknownMinFree;

    /// Reads `auto`, or bytes, which K, M, G or T multiplies by powers of 1024.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "auto" {
            return Ok(MinFree::Auto);
        }
        let (number, shift) = match text.char_indices().next_back() {
            Some((at, 'K' | 'k')) => (&text[..at], 10),
            Some((at, 'M' | 'm')) => (&text[..at], 20),
            Some((at, 'G' | 'g')) => (&text[..at], 30),
            Some((at, 'T' | 't')) => (&text[..at], 40),
            _ => (text, 0),
        };
        let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.then(|| number.parse::<u64>().ok()).flatten();
        let bytes = number.and_then(|number| number.checked_mul(1 << shift));
        bytes.map(MinFree::Bytes).ok_or_else(|| UnknownMinFree(text.to_owned()))
    }
}

/// A number of bytes for people.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size(pub(crate) u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[allow(clippy::cast_precision_loss)] // One decimal is shown.
        let in_units = |unit: u64| self.0 as f64 / unit as f64;
        match self.0 {
            0..0x2800 => write!(f, "{} bytes", self.0),
            0x2800..0x10_0000 => write!(f, "{:.1} KiB", in_units(1 << 10)),
            0x10_0000..0x4000_0000 => write!(f, "{:.1} MiB", in_units(1 << 20)),
            _ => write!(f, "{:.1} GiB", in_units(1 << 30)),
        }
    }
}

/// Transactions that may pass between two looks at the free space, in bytes.
///
/// A look costs a microsecond or two, so it must not come with every transaction; and what others
/// do to the file system meanwhile is noticed after so many bytes at the latest.
const LOOK_EVERY: u64 = 64 << 10;

/// Watches the file system of one log.
#[derive(Debug)]
pub(crate) struct Floor {
    env: Arc<dyn Env>,
    dir: PathBuf,
    min_free: u64,
    /// Bytes that may still be staged before the next look. None at first, and none after a
    /// refusal: then every transaction looks, so that freed space lets the next one pass.
    left: u64,
}

impl Floor {
    pub(crate) fn new(env: Arc<dyn Env>, dir: PathBuf, min_free: MinFree) -> Floor {
        let min_free = if sabotage::is(Sabotage::IgnoreFloor) { MinFree::OFF } else { min_free };
        Floor { env, dir, min_free: min_free.bytes(), left: 0 }
    }

    /// Admits a transaction of `len` bytes for which the file must grow by `growth` bytes. Returns
    /// by how much it may grow.
    pub(crate) fn admit(&mut self, len: u64, growth: u64) -> Result<u64, AppendError> {
        let looks = len > self.left && !sabotage::is(Sabotage::LookWhenGrowing);
        if growth == 0 && !looks {
            self.left = self.left.saturating_sub(len);
            return Ok(0);
        }
        self.left = 0;
        let spare = self.look(growth)?;
        self.left = LOOK_EVERY;
        Ok(spare)
    }

    /// Says by how much the file may grow; refuses if that is less than `growth`, or if there is
    /// too little free space already.
    ///
    /// Where nobody knows how much is free, nothing is refused: a full file system will tell.
    pub(crate) fn look(&self, growth: u64) -> Result<u64, AppendError> {
        if self.min_free == 0 {
            return Ok(u64::MAX);
        }
        let Ok(Some(free)) = self.env.free_space(&self.dir) else { return Ok(u64::MAX) };
        match free.checked_sub(self.min_free) {
            Some(spare) if spare >= growth => Ok(spare),
            _ => {
                let (dir, floor) = (self.dir.clone(), self.min_free);
                Err(AppendError::LowSpace { dir, free, floor, needed: growth })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_they_are_written() {
        for (text, bytes) in
            [("0", 0), ("17", 17), ("8k", 8 << 10), ("64M", 64 << 20), ("3G", 3 << 30)]
        {
            assert_eq!(text.parse(), Ok(MinFree::Bytes(bytes)));
        }
        for text in ["", "M", "-1", "+1", "1.5G", "1MB", "é", "99999999999999999999", "16777216T"]
        {
            assert!(text.parse::<MinFree>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_shown_in_their_unit() {
        let shown = [17, 20 << 10, 64 << 20, 3 << 29].map(|bytes| Size(bytes).to_string());
        assert_eq!(shown, ["17 bytes", "20.0 KiB", "64.0 MiB", "1.5 GiB"]);
    }
}
