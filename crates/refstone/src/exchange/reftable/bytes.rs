//! Numbers and keys of a reftable.

/// What is wrong, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) offset: usize,
    pub(super) text: &'static str,
}

/// Takes values from the front of untrusted bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Cursor<'a> {
    /// Starts at `offset` of `bytes`.
    pub(super) fn at(bytes: &'a [u8], offset: usize) -> Cursor<'a> {
        Cursor { bytes, offset: offset.min(bytes.len()) }
    }

    pub(super) fn is_done(&self) -> bool {
        self.offset >= self.bytes.len()
    }

    pub(super) fn problem(&self, text: &'static str) -> Problem {
        Problem { offset: self.offset, text }
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], Problem> {
        let (taken, _) = self.bytes[self.offset..]
            .split_at_checked(len)
            .ok_or(self.problem("it ends within a value"))?;
        self.offset += len;
        Ok(taken)
    }

    /// A big-endian number of up to 8 bytes.
    pub(super) fn number(&mut self, len: usize) -> Result<u64, Problem> {
        Ok(self.take(len)?.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    /// The same as a length.
    pub(super) fn length(&mut self, len: usize) -> Result<usize, Problem> {
        let number = self.number(len)?;
        usize::try_from(number).map_err(|_| self.problem("a length is too large"))
    }

    /// A number of variable length: 7 bits a byte, and each continuation adds one.
    pub(super) fn varint(&mut self) -> Result<u64, Problem> {
        let mut number = 0u64;
        loop {
            let byte = self.number(1)?;
            number = number << 7 | byte & 0x7f;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
            number += 1;
            if number > u64::MAX >> 8 {
                return Err(self.problem("a number is too large"));
            }
        }
    }

    /// Bytes with their number before them.
    pub(super) fn counted(&mut self) -> Result<&'a [u8], Problem> {
        let len = self.varint()?;
        let len = usize::try_from(len).map_err(|_| self.problem("a length is too large"))?;
        self.take(len)
    }

    /// A key, of which a part is that of the record before, and the kind of its record.
    pub(super) fn key(&mut self, before: &[u8]) -> Result<(Vec<u8>, u8), Problem> {
        let shared = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
        let own = self.varint()?;
        let kind = (own & 7) as u8;
        let shared = before.get(..shared).ok_or(self.problem("a key shares what is not there"))?;
        let own = usize::try_from(own >> 3).map_err(|_| self.problem("a key is too long"))?;
        Ok(([shared, self.take(own)?].concat(), kind))
    }
}

/// Appends a number as [`Cursor::varint`] takes it.
pub(super) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    let mut bytes = vec![(number & 0x7f) as u8];
    loop {
        number >>= 7;
        if number == 0 {
            break;
        }
        number -= 1;
        bytes.push((number & 0x7f) as u8 | 0x80);
    }
    out.extend(bytes.iter().rev());
}

pub(super) fn put_counted(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a key as [`Cursor::key`] takes it.
pub(super) fn put_key(out: &mut Vec<u8>, before: &[u8], key: &[u8], kind: u8) {
    let shared = before.iter().zip(key).take_while(|(a, b)| a == b).count();
    put_varint(out, shared as u64);
    put_varint(out, ((key.len() - shared) as u64) << 3 | u64::from(kind));
    out.extend_from_slice(&key[shared..]);
}

/// A length in the 3 bytes that blocks have for it.
pub(super) fn u24(number: usize) -> [u8; 3] {
    let [.., a, b, c] = number.to_be_bytes();
    [a, b, c]
}

#[cfg(test)]
mod tests {
    use super::*;

    // Breaks: leaving out the one that each continuation adds.
    #[test]
    fn numbers_come_back() {
        for number in [0, 1, 127, 128, 16_511, 16_512, 1 << 32, 1_700_000_000] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, number);
            assert_eq!(Cursor::at(&bytes, 0).varint(), Ok(number));
        }
        let mut bytes = Vec::new();
        put_varint(&mut bytes, 128);
        assert_eq!(bytes, [0x80, 0], "as git writes it");
    }

    #[test]
    fn what_is_too_large_or_cut_short_is_told() {
        assert!(Cursor::at(&[0xff; 12], 0).varint().is_err());
        assert!(Cursor::at(&[0x80], 0).varint().is_err());
        assert!(Cursor::at(&[5, 8 * 2, b'a', b'b'], 0).key(b"abc").is_err());
        let key = Cursor::at(&[2, 8 + 1, b'x'], 0).key(b"abc").unwrap();
        assert_eq!(key, (b"abx".to_vec(), 1));
    }
}
