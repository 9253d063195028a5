//! The name git gives an object: the hash of its contents.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use refstone_log::ObjectFormat;

/// Bytes of the longest object id.
const OID_LEN_MAX: usize = 32;

const HEX: &[u8; 16] = b"0123456789abcdef";

/// An object id: 20 bytes of SHA-1 or 32 of SHA-256.
///
/// The store knows no objects, so an id is a value to compare and never a claim that the object
/// exists. Ids order by their bytes.
///
/// ```
/// use refstone::ObjectId;
/// let id: ObjectId = "D670460B4B4AECE5915CAF5C68D12F560A9FE3E4".parse()?;
/// assert_eq!(id.to_string(), "d670460b4b4aece5915caf5c68d12f560a9fe3e4");
/// # Ok::<(), refstone::ObjectIdError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ObjectId {
    format: ObjectFormat,
    /// Bytes behind the format's length are zero, so that derived equality holds.
    bytes: [u8; OID_LEN_MAX],
}

/// Why bytes are no object id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectIdError {
    /// The length belongs to no object format.
    #[error("an object id has 20 or 32 bytes (40 or 64 hex digits), found {found}")]
    Length {
        /// Bytes found, or hex digits.
        found: usize,
    },
    /// A character is no hex digit.
    #[error("expected a hex digit at position {position}, found byte {found:#04x}")]
    Digit {
        /// Which character, counted from zero.
        position: usize,
        /// The byte found there.
        found: u8,
    },
}

impl ObjectId {
    /// The id with these raw bytes; their number tells the format.
    ///
    /// # Errors
    ///
    /// [`ObjectIdError::Length`] unless there are 20 or 32 bytes.
    pub fn from_bytes(raw: &[u8]) -> Result<ObjectId, ObjectIdError> {
        let format = format_of_len(raw.len()).ok_or(ObjectIdError::Length { found: raw.len() })?;
        let mut bytes = [0; OID_LEN_MAX];
        bytes[..raw.len()].copy_from_slice(raw);
        Ok(ObjectId { format, bytes })
    }

    /// The id written as 40 or 64 hex digits; capitals are accepted, as by git.
    ///
    /// # Errors
    ///
    /// [`ObjectIdError`] for any other length or character.
    pub fn from_hex(hex: &[u8]) -> Result<ObjectId, ObjectIdError> {
        let length = ObjectIdError::Length { found: hex.len() };
        let format = format_of_len(hex.len() / 2)
            .filter(|format| format.len() * 2 == hex.len())
            .ok_or(length)?;
        let mut bytes = [0; OID_LEN_MAX];
        for (index, pair) in hex.chunks_exact(2).enumerate() {
            bytes[index] = digit(pair[0], 2 * index)? << 4 | digit(pair[1], 2 * index + 1)?;
        }
        Ok(ObjectId { format, bytes })
    }

    /// The id of zeros, which on git's wire means "no object".
    #[must_use]
    pub const fn zero(format: ObjectFormat) -> ObjectId {
        ObjectId { format, bytes: [0; OID_LEN_MAX] }
    }

    /// Whether all bytes are zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.bytes == [0; OID_LEN_MAX]
    }

    /// Which hash this is.
    #[must_use]
    pub const fn format(&self) -> ObjectFormat {
        self.format
    }

    /// The raw bytes: 20 or 32.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.format.len()]
    }

    /// The id as lower-case hex digits.
    #[must_use]
    pub fn to_hex(&self) -> String {
        let digit = |nibble: u8| char::from(HEX[usize::from(nibble)]);
        let digits = |&byte: &u8| [digit(byte >> 4), digit(byte & 15)];
        self.as_bytes().iter().flat_map(digits).collect()
    }
}

fn format_of_len(len: usize) -> Option<ObjectFormat> {
    [ObjectFormat::Sha1, ObjectFormat::Sha256].into_iter().find(|format| format.len() == len)
}

fn digit(character: u8, position: usize) -> Result<u8, ObjectIdError> {
    match character {
        b'0'..=b'9' => Ok(character - b'0'),
        b'a'..=b'f' => Ok(character - b'a' + 10),
        b'A'..=b'F' => Ok(character - b'A' + 10),
        found => Err(ObjectIdError::Digit { position, found }),
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.to_hex())
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectId({self})")
    }
}

impl FromStr for ObjectId {
    type Err = ObjectIdError;

    fn from_str(hex: &str) -> Result<Self, Self::Err> {
        ObjectId::from_hex(hex.as_bytes())
    }
}

impl Ord for ObjectId {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl PartialOrd for ObjectId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_and_bytes_are_the_same_id() {
        for len in [20u8, 32] {
            let raw: Vec<u8> = (0..len).map(|i| i.wrapping_mul(37)).collect();
            let id = ObjectId::from_bytes(&raw).unwrap();
            assert_eq!(id.as_bytes(), raw);
            assert_eq!(ObjectId::from_hex(id.to_hex().as_bytes()), Ok(id));
        }
    }

    #[test]
    fn the_length_tells_the_format() {
        let sha256 = ObjectId::from_hex(&[b'a'; 64]).unwrap();
        assert_eq!(sha256.format(), ObjectFormat::Sha256);
        for len in [0, 19, 21, 39, 41, 63, 65] {
            let error = ObjectId::from_hex(&vec![b'0'; len]).unwrap_err();
            assert_eq!(error, ObjectIdError::Length { found: len });
        }
    }

    #[test]
    fn a_wrong_digit_is_located() {
        let mut hex = [b'0'; 40];
        hex[7] = b'g';
        let expected = ObjectIdError::Digit { position: 7, found: b'g' };
        assert_eq!(ObjectId::from_hex(&hex), Err(expected));
    }

    #[test]
    fn zeros_of_two_formats_differ() {
        let zeros = [ObjectFormat::Sha1, ObjectFormat::Sha256].map(ObjectId::zero);
        assert!(zeros.iter().all(ObjectId::is_zero));
        assert_ne!(zeros[0], zeros[1]);
    }
}
