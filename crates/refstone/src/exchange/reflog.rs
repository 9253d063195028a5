//! One entry of a reflog, and the line that git's files have for it.

use bstr::{BStr, BString, ByteSlice, ByteVec};
use refstone_log::ObjectFormat;

use crate::oid::ObjectId;

/// One move of a ref, as git logs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReflogEntry {
    /// Where the ref was; zeros for nowhere.
    pub old: ObjectId,
    /// Where it is; zeros for nowhere.
    pub new: ObjectId,
    /// Who, when and in which zone, raw: `A U Thor <a@example.org> 1700000000 +0100`.
    pub identity: BString,
    /// Why. `Some` and empty where a line has a tab with nothing behind it.
    pub message: Option<BString>,
}

/// The pieces of a raw identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity<'a> {
    pub(super) name: &'a BStr,
    pub(super) email: &'a BStr,
    /// Seconds since 1970.
    pub(super) time: u64,
    /// The zone's digits as a number, as reftables have it: `+0100` is 100.
    pub(super) zone: i16,
    /// Bytes up to the end of the zone.
    pub(super) len: usize,
}

impl ReflogEntry {
    /// The entry of one line without its newline, by git's own rules for what is one.
    pub(super) fn parse(line: &[u8], format: ObjectFormat) -> Option<ReflogEntry> {
        let hex = format.len() * 2;
        let id = |digits: &[u8]| ObjectId::from_hex(digits).ok();
        let (old, rest) = line.split_at_checked(hex)?;
        let (new, rest) = rest.strip_prefix(b" ")?.split_at_checked(hex)?;
        let rest = rest.strip_prefix(b" ")?;
        let end = Identity::parse(rest)?.len;
        // What stands between the zone and the tab is nothing in any log that git wrote.
        let tab = rest[end..].find_byte(b'\t').map(|tab| end + tab);
        let identity = rest[..tab.unwrap_or(rest.len())].into();
        let message = tab.map(|tab| rest[tab + 1..].into());
        Some(ReflogEntry { old: id(old)?, new: id(new)?, identity, message })
    }

    /// The line, with its newline.
    pub(super) fn line(&self) -> Vec<u8> {
        let mut line = format!("{} {} ", self.old, self.new).into_bytes();
        line.push_str(&self.identity);
        if let Some(message) = &self.message {
            line.push(b'\t');
            line.push_str(message);
        }
        line.push(b'\n');
        line
    }

    /// When the ref moved, in seconds since 1970, as far as that can be read.
    pub(super) fn time(&self) -> u64 {
        Identity::parse(&self.identity).map_or(0, |identity| identity.time)
    }
}

impl<'a> Identity<'a> {
    /// Takes a raw identity from the start of some text. Git calls a time of zero no time.
    pub(super) fn parse(text: &'a [u8]) -> Option<Identity<'a>> {
        let close = text.find_byte(b'>')?;
        let open = text[..close].find_byte(b'<')?;
        let after = text[close + 1..].strip_prefix(b" ")?;
        let digits = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let time = after[..digits].to_str().ok()?.parse().ok().filter(|&time| time > 0)?;
        let zone = after[digits..].strip_prefix(b" ")?.get(..5)?;
        let len = close + 2 + digits + 1 + zone.len();
        let name = text[..open].strip_suffix(b" ").unwrap_or(&text[..open]);
        let email = text[open + 1..close].as_bstr();
        Some(Identity { name: name.as_bstr(), email, time, zone: parse_zone(zone)?, len })
    }

    /// The identity in one spelling.
    pub(super) fn raw(&self) -> BString {
        let mut raw = BString::from(self.name);
        raw.push_str(" <");
        raw.push_str(self.email);
        let sign = if self.zone < 0 { '-' } else { '+' };
        raw.push_str(format!("> {} {sign}{:04}", self.time, self.zone.unsigned_abs()));
        raw
    }
}

fn parse_zone(zone: &[u8]) -> Option<i16> {
    let number: i16 = zone[1..].to_str().ok()?.parse().ok()?;
    match zone[0] {
        _ if !zone[1..].iter().all(u8::is_ascii_digit) => None,
        b'+' => Some(number),
        b'-' => Some(-number),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(rest: &str) -> Vec<u8> {
        format!("{} {} {rest}", "0".repeat(40), "a".repeat(40)).into_bytes()
    }

    fn parse(rest: &str) -> Option<ReflogEntry> {
        ReflogEntry::parse(&line(rest), ObjectFormat::Sha1)
    }

    // Breaks: dropping a tab with nothing behind it; cutting at the first tab of the line.
    #[test]
    fn a_line_comes_back_as_it_was() {
        for rest in [
            "A U Thor <a@x> 1700000000 +0100\tcommit: one\ttwo",
            "A U Thor <a@x> 1700000000 -0730",
            "A\tB <a@x> 1 +0000\t",
            "<> 1 +0000\tm",
            "A <a@x> 1 +0000 odd\tm",
        ] {
            let entry = parse(rest).unwrap();
            assert_eq!(entry.line(), [line(rest), b"\n".to_vec()].concat(), "{rest}");
        }
    }

    #[test]
    fn what_git_calls_no_entry_is_none() {
        for rest in ["", "A a@x 1 +0000", "A <a@x> 0 +0000", "A <a@x> 1 0000", "A <a@x> 1 +00x0"] {
            assert_eq!(parse(rest), None, "{rest}");
        }
        assert_eq!(ReflogEntry::parse(b"abc", ObjectFormat::Sha1), None);
    }

    #[test]
    fn an_identity_is_taken_apart_and_put_together() {
        for raw in ["A U Thor <a@x> 1700000000 -0730", " <> 1 +0000", "B <b> 9 +1400"] {
            let identity = Identity::parse(raw.as_bytes()).unwrap();
            assert_eq!((identity.raw(), identity.len), (raw.into(), raw.len()));
        }
        assert_eq!(Identity::parse(b"A <a> 5 -0730").unwrap().zone, -730);
    }
}
