//! Rows of every shape the format has, and the text that Arrow readers must find in them.

use proptest::prelude::*;
use refstone_log::ObjectFormat;

use crate::logs::Row;

/// The longest name the property tests use; the format's limit is the frame's.
const NAME_MAX: usize = 70_000;

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[a-z]{0,12}".prop_map(String::into_bytes),
        ".{0,12}".prop_map(String::into_bytes),
        r"[\\x0-9a-f]{0,12}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..24),
    ]
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 1..40),
        4 => "refs/heads/[a-z]{1,20}".prop_map(String::into_bytes),
        1 => Just(b"r".to_vec()),
        1 => Just(vec![b'n'; NAME_MAX]),
    ]
    .prop_map(|name| name.into_iter().map(|b| if b == b'\\' { b'/' } else { b }).collect())
}

fn oid(format: ObjectFormat) -> impl Strategy<Value = Option<Vec<u8>>> {
    prop::option::of(prop::collection::vec(any::<u8>(), format.len()))
}

fn row(format: ObjectFormat) -> impl Strategy<Value = Row> {
    let symref = prop::option::of(name());
    let message = prop::option::of(text());
    (text(), name(), oid(format), oid(format), symref, message).prop_map(
        |(actor, refname, old_oid, new_oid, symref, message)| Row {
            actor,
            refname,
            old_oid,
            new_oid,
            symref,
            message,
        },
    )
}

fn format() -> impl Strategy<Value = ObjectFormat> {
    prop_oneof![Just(ObjectFormat::Sha1), Just(ObjectFormat::Sha256)]
}

/// Transactions of one object format: of 1 to 64 rows, with null and non-null in every nullable
/// column, names from 1 byte to very long, bytes that are not UTF-8, and backslashes.
pub fn transactions() -> impl Strategy<Value = (ObjectFormat, Vec<Vec<Row>>)> {
    format().prop_flat_map(|format| {
        let rows = prop::collection::vec(row(format), 1..=64);
        (Just(format), prop::collection::vec(rows, 1..4))
    })
}

/// Text as `docs/format.md` says it is written; made apart from the encoder on purpose.
#[must_use]
pub fn readable(raw: &[u8], escape_backslash: bool) -> String {
    let mut text = String::new();
    for chunk in raw.utf8_chunks() {
        let valid = chunk.valid();
        text += &if escape_backslash { valid.replace('\\', r"\\") } else { valid.to_owned() };
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}
