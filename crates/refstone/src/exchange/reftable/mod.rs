//! Git's reftables, read and written as far as an exchange needs: every record in order, no seeks.
//!
//! Git has no command that tells a reflog exactly (the old object id is in none of its formats),
//! nor one that writes an entry of the past, so the tables themselves are read and written. The
//! format is git's `Documentation/technical/reftable`. Tables written here have no index; git
//! compacts them at once into one that has.

mod bytes;
mod footer;
mod read;
mod write;

pub(super) use read::read;
pub(super) use write::write;

use refstone_log::ObjectFormat;

const MAGIC: &[u8; 4] = b"REFT";

const REF_BLOCK: u8 = b'r';
const LOG_BLOCK: u8 = b'g';

const INDEX_BLOCK: u8 = b'i';

/// Type byte and length of a block.
const BLOCK_HEADER_LEN: usize = 4;

/// Bytes of the file header: version 2 adds the name of the hash.
fn header_len(format: ObjectFormat) -> usize {
    match format {
        ObjectFormat::Sha1 => 24,
        ObjectFormat::Sha256 => 28,
    }
}

/// The footer: the header again, five positions, a checksum.
fn footer_len(format: ObjectFormat) -> usize {
    header_len(format) + 5 * 8 + 4
}

fn version(format: ObjectFormat) -> u8 {
    match format {
        ObjectFormat::Sha1 => 1,
        ObjectFormat::Sha256 => 2,
    }
}

/// What a record holds.
mod kind {
    pub(super) const DELETION: u8 = 0;
    pub(super) const OBJECT: u8 = 1;
    pub(super) const OBJECT_PEELED: u8 = 2;
    pub(super) const SYMBOLIC: u8 = 3;
    pub(super) const LOG_UPDATE: u8 = 1;
    pub(super) const INDEX: u8 = 0;
}
