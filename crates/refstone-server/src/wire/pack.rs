//! The first twelve bytes of a pack.

/// Length of a pack's header, in bytes.
pub const HEADER_BYTES: usize = 12;

/// What a pack says about itself before its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackHeader {
    /// Number of objects that follow.
    pub objects: u32,
}

/// What can be wrong with a pack's header. The texts are git's: they end up in push reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PackHeaderError {
    /// The stream ended first.
    #[error("eof before pack header was fully read")]
    Eof,
    /// The first four bytes are not `PACK`.
    #[error("protocol error (pack signature mismatch detected)")]
    Signature,
    /// A version other than 2 and 3.
    #[error("protocol error (pack version unsupported)")]
    Version,
}

impl PackHeader {
    /// Reads the header at the start of `bytes`.
    ///
    /// # Errors
    ///
    /// [`PackHeaderError`], one variant for each thing that can be wrong.
    ///
    /// # Example
    ///
    /// ```
    /// use refstone_server::wire::pack::PackHeader;
    ///
    /// let header = PackHeader::parse(b"PACK\0\0\0\x02\0\0\0\x07...").unwrap();
    /// assert_eq!(header.objects, 7);
    /// ```
    pub fn parse(bytes: &[u8]) -> Result<Self, PackHeaderError> {
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(PackHeaderError::Eof)?;
        let [signature, version, objects] = words(header);
        if signature != u32::from_be_bytes(*b"PACK") {
            return Err(PackHeaderError::Signature);
        }
        if version != 2 && version != 3 {
            return Err(PackHeaderError::Version);
        }
        Ok(Self { objects })
    }
}

fn words(header: &[u8; HEADER_BYTES]) -> [u32; 3] {
    [0, 4, 8]
        .map(|at| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_of_a_header_has_its_own_error() {
        let parse = |bytes: &[u8]| PackHeader::parse(bytes).unwrap_err();
        assert_eq!(parse(b""), PackHeaderError::Eof);
        assert_eq!(parse(b"PACK\0\0\0\x02\0\0\0"), PackHeaderError::Eof);
        assert_eq!(parse(b"KCAP\0\0\0\x02\0\0\0\0"), PackHeaderError::Signature);
        assert_eq!(parse(b"PACK\0\0\0\x04\0\0\0\0"), PackHeaderError::Version);
    }
}
