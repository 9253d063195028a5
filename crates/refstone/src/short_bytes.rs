//! Bytes that are mostly few.

use std::sync::Arc;

/// Most names are not longer, and a value has 32 bytes: errors carry two or three of them.
const IN_PLACE_MAX: usize = 30;

/// Immutable bytes, in place if they are few, else shared. Listing a million refs would else be
/// mostly allocating names and freeing them.
#[derive(Clone)]
pub(crate) struct ShortBytes(Bytes);

#[derive(Clone)]
enum Bytes {
    InPlace { len: u8, bytes: [u8; IN_PLACE_MAX] },
    Shared(Arc<[u8]>),
}

const _: () = assert!(size_of::<ShortBytes>() == 32);

impl ShortBytes {
    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Bytes::InPlace { len, bytes } => &bytes[..usize::from(*len)],
            Bytes::Shared(bytes) => bytes,
        }
    }
}

impl From<&[u8]> for ShortBytes {
    #[inline]
    fn from(slice: &[u8]) -> ShortBytes {
        match u8::try_from(slice.len()) {
            Ok(len) if slice.len() <= IN_PLACE_MAX => {
                let mut bytes = [0; IN_PLACE_MAX];
                bytes[..slice.len()].copy_from_slice(slice);
                ShortBytes(Bytes::InPlace { len, bytes })
            }
            _ => ShortBytes(Bytes::Shared(slice.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Breaks: a limit of one byte more or less on either side, which panics or cuts.
    #[test]
    fn bytes_of_every_length_are_kept() {
        let all: Vec<u8> = (0..=255).collect();
        for len in 0..all.len() {
            let short = ShortBytes::from(&all[..len]);
            assert_eq!(short.as_slice(), &all[..len]);
            assert_eq!(matches!(short.0, Bytes::InPlace { .. }), len <= IN_PLACE_MAX);
        }
    }
}
