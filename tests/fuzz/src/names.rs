//! Ref names, beside a second reading of git's rules; and text that is stored and read back.

use refstone::{NAME_LEN_MAX, PushChange, RefName};
use refstone_log::text::{Backslash, escape_into, unescape};

/// A name is legal if git's manual says so, and if it is one that git calls safe.
pub fn names(data: &[u8]) {
    let legal = is_well_formed(data) && is_safe(data) && data.len() <= NAME_LEN_MAX;
    let name = RefName::new(data);
    assert_eq!(name.is_ok(), legal, "'{}': {name:?}", data.escape_ascii());
    if let Ok(name) = name {
        assert_eq!(name.as_bytes(), data);
        let below = data.strip_prefix(b"refs/");
        let stores = below.is_some_and(|below| below.contains(&b'/'));
        assert_eq!(name.check_push(PushChange::Store).is_ok(), stores);
        let deletes = below.is_some_and(|below| below != b"@");
        assert_eq!(name.check_push(PushChange::Delete).is_ok(), deletes);
    }
    assert_read_back(data);
}

/// `git help check-ref-format`, rule by rule, with `--allow-onelevel`.
fn is_well_formed(name: &[u8]) -> bool {
    let forbidden = |&byte: &u8| byte < 0x20 || b"\x7f ~^:?*[\\".contains(&byte);
    let has = |pair: &[u8]| name.windows(2).any(|window| window == pair);
    let component =
        |part: &[u8]| !part.is_empty() && !part.starts_with(b".") && !part.ends_with(b".lock");
    name.split(|&byte| byte == b'/').all(component)
        && !name.iter().any(forbidden)
        && !(has(b"..") || has(b"@{") || name.ends_with(b".") || name == b"@")
}

/// `refname_is_safe` in git's `refs.c`.
fn is_safe(name: &[u8]) -> bool {
    let capital = |byte: &u8| byte.is_ascii_uppercase() || *byte == b'_';
    name.starts_with(b"refs/") || name.iter().all(capital)
}

/// Stored text is valid UTF-8, and reads back as the bytes that it was.
fn assert_read_back(raw: &[u8]) {
    for backslash in [Backslash::Escaped, Backslash::Forbidden] {
        if backslash == Backslash::Forbidden && raw.contains(&b'\\') {
            continue;
        }
        let mut stored = Vec::new();
        escape_into(raw, backslash, &mut stored);
        assert!(std::str::from_utf8(&stored).is_ok());
        assert_eq!(unescape(&stored), raw);
    }
    let _ = unescape(raw);
}
