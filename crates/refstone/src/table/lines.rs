//! Rows as lookups need them: name and object in one cache line.
//!
//! A block has them in columns, so that a lookup would wait for memory three times: for the name's
//! offset, for the name, for the object. Beside a million refs that is most of what it takes.

use super::block::Block;
use crate::oid::ObjectId;

/// Bytes for the name, from the start, and the object, up to the end.
const ROOM: usize = 62;

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Line {
    name_len: u8,
    /// Zero for a deletion.
    oid_len: u8,
    bytes: [u8; ROOM],
}

const _: () = assert!(size_of::<Line>() == 64);

/// What a line says of a name.
#[derive(Debug)]
pub(super) enum Said {
    /// The row has another name.
    Other,
    /// What the ref holds; `None` if it was deleted.
    Holds(Option<ObjectId>),
    /// The row does not fit a line: the block knows.
    AskBlock,
}

impl Line {
    /// No name has this length and fits.
    const UNFIT: Line = Line { name_len: u8::MAX, oid_len: 0, bytes: [0; ROOM] };

    fn of(block: &Block, number: usize) -> Line {
        let row = block.row(number);
        let (name, oid) = (row.name(), row.oid().unwrap_or_default());
        if name.len() + oid.len() > ROOM || row.symref().is_some() {
            return Line::UNFIT;
        }
        let [name_len, oid_len] = [name.len(), oid.len()]
            .map(|len| u8::try_from(len).expect("it fits the line, which is shorter"));
        let mut bytes = [0; ROOM];
        bytes[..name.len()].copy_from_slice(&name);
        bytes[ROOM - oid.len()..].copy_from_slice(oid);
        Line { name_len, oid_len, bytes }
    }

    #[inline]
    pub(super) fn ask(&self, name: &[u8]) -> Said {
        match self.bytes.get(..usize::from(self.name_len)) {
            None => Said::AskBlock,
            Some(own) if own != name => Said::Other,
            Some(_) if self.oid_len == 0 => Said::Holds(None),
            Some(_) => {
                let oid = &self.bytes[ROOM - usize::from(self.oid_len)..];
                let oid = ObjectId::from_bytes(oid).expect("the schema gives the width of an id");
                Said::Holds(Some(oid))
            }
        }
    }
}

/// One line for each row of a block.
pub(super) fn lines(block: &Block) -> Box<[Line]> {
    (0..block.rows()).map(|row| Line::of(block, row)).collect()
}
