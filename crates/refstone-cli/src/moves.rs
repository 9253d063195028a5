//! Moves of references, as they are shown.

use refstone::{ObjectId, RefMove, RefName, Target, Timestamp};
use serde::Serialize;

use crate::text::{self, Hex};

/// A move for people.
pub(crate) fn line(moved: &RefMove) -> String {
    let mut fields = vec![
        moved.seq.to_string(),
        time(moved.at),
        text::printable(&moved.actor),
        text::printable_name(moved.name.as_bytes()),
        object(moved.old_oid),
        moved.target().as_ref().map_or_else(|| object(None), value),
    ];
    fields.extend(moved.message.as_ref().map(|message| text::printable(message)));
    fields.join("\t")
}

/// What a reference holds.
pub(crate) fn value(target: &Target) -> String {
    match target {
        Target::Object(id) => id.to_hex(),
        Target::Symbolic(to) => format!("ref: {}", text::printable_name(to.as_bytes())),
    }
}

fn object(id: Option<ObjectId>) -> String {
    id.map_or_else(|| "-".to_owned(), |id| id.to_hex())
}

/// RFC 3339, UTC, always with six digits: equal widths sort as text.
///
/// The log holds any 64-bit number; what lies outside the years of the calendar is shown as one.
pub(crate) fn time(at: Timestamp) -> String {
    match jiff::Timestamp::from_microsecond(at.as_micros()) {
        Ok(time) => format!("{time:.6}"),
        Err(_) => format!("{}us", at.as_micros()),
    }
}

/// A move as one object of JSON.
#[derive(Serialize)]
pub(crate) struct JsonLine {
    seq: u64,
    at: String,
    #[serde(flatten)]
    moved: JsonMove,
}

/// What of a move is not the same in its whole transaction.
#[derive(Serialize)]
pub(crate) struct JsonMove {
    actor: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    actor_hex: Option<Hex>,
    refname: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    refname_hex: Option<Hex>,
    old_oid: Option<String>,
    new_oid: Option<String>,
    symref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    symref_hex: Option<Hex>,
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_hex: Option<Hex>,
}

impl JsonLine {
    pub(crate) fn of(moved: &RefMove) -> JsonLine {
        JsonLine { seq: moved.seq.get(), at: time(moved.at), moved: JsonMove::of(moved) }
    }
}

impl JsonMove {
    pub(crate) fn of(moved: &RefMove) -> JsonMove {
        let symref = moved.symref.as_ref().map(RefName::as_bytes);
        let message = moved.message.as_ref().map(|message| message.as_slice());
        JsonMove {
            actor: text::free(&moved.actor),
            actor_hex: Hex::unless_utf8(&moved.actor),
            refname: text::name(moved.name.as_bytes()),
            refname_hex: Hex::unless_utf8(moved.name.as_bytes()),
            old_oid: moved.old_oid.map(|id| id.to_hex()),
            new_oid: moved.new_oid.map(|id| id.to_hex()),
            symref: symref.map(text::name),
            symref_hex: symref.and_then(Hex::unless_utf8),
            message: message.map(text::free),
            message_hex: message.and_then(Hex::unless_utf8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_six_digits_of_a_second_and_are_utc() {
        assert_eq!(time(Timestamp::from_micros(0)), "1970-01-01T00:00:00.000000Z");
        let at = Timestamp::from_micros(1_700_000_000_123_456);
        assert_eq!(time(at), "2023-11-14T22:13:20.123456Z");
        assert_eq!(time(Timestamp::from_micros(i64::MAX)), format!("{}us", i64::MAX));
    }
}
