//! A point in the history of a log, as it is written on the command line.

use refstone::{At, Seq, Timestamp};

/// How a point is written, for the help of options that take one.
pub(crate) const NAME: &str = "SEQ|TIME";

/// A sequence, a time in RFC 3339, or `@` and seconds since 1970.
pub(crate) fn parse(text: &str) -> Result<At, String> {
    if let Ok(seq) = text.parse::<u64>() {
        return Ok(At::Seq(Seq::new(seq)));
    }
    let micros = match text.strip_prefix('@') {
        Some(seconds) => unix_micros(seconds),
        None => text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_microsecond),
    };
    micros.map(|micros| At::Time(Timestamp::from_micros(micros))).ok_or_else(|| {
        "expected a sequence such as 42, a time such as 2026-01-31T12:00:00Z, or @1769860800"
            .to_owned()
    })
}

/// A sequence alone.
pub(crate) fn parse_seq(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "expected a sequence such as 42".to_owned())
}

/// Seconds with at most six decimals.
fn unix_micros(text: &str) -> Option<i64> {
    let (seconds, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !is_number(seconds) || !is_number(decimals) || decimals.len() > 6 {
        return None;
    }
    let micros: i64 = format!("{decimals:0<6}").parse().ok()?;
    seconds.parse::<i64>().ok()?.checked_mul(1_000_000)?.checked_add(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(text: &str) -> Option<i64> {
        match parse(text) {
            Ok(At::Time(time)) => Some(time.as_micros()),
            _ => None,
        }
    }

    #[test]
    fn sequences_and_times_are_told_apart() {
        assert_eq!(parse("42"), Ok(At::Seq(Seq::new(42))));
        assert_eq!(micros("@42"), Some(42_000_000));
        assert_eq!(micros("@42.5"), Some(42_500_000));
        assert_eq!(micros("2023-11-14T22:13:20.123456Z"), Some(1_700_000_000_123_456));
        assert_eq!(micros("2023-11-14T23:13:20+01:00"), Some(1_700_000_000_000_000));
    }

    #[test]
    fn what_is_neither_is_refused() {
        for bad in ["", "@", "-1", "@-1", "@1.", "@1.1234567", "@9999999999999999", "yesterday"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(parse("2023-11-14T22:13:20").is_err(), "of which zone?");
    }
}
