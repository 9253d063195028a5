//! Who speaks: the user name of HTTP Basic authentication.
//!
//! A name here is an identification, not an authentication: any password is accepted, and the name
//! goes into the log as the actor. A server that must not believe its clients stands behind a proxy
//! that checks passwords.

use axum::http::{HeaderMap, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bstr::{BString, ByteSlice};

/// Whether a push needs a user name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UserPolicy {
    /// A push without a name is the actor `anonymous`.
    #[default]
    Optional,
    /// A push without a name is answered with 401, which makes git ask for one.
    Required,
}

/// The actor of a push without a name.
const ANONYMOUS: &str = "anonymous";

/// Longest user name, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// A push came without a usable name.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("this server wants to know who pushes: give a user name (any password is accepted)")]
pub(crate) struct NameRequired;

impl UserPolicy {
    /// The actor for a push with these headers.
    pub(crate) fn actor(self, headers: &HeaderMap) -> Result<BString, NameRequired> {
        match (user(headers), self) {
            (Some(name), _) => Ok(name),
            (None, Self::Optional) => Ok(ANONYMOUS.into()),
            (None, Self::Required) => Err(NameRequired),
        }
    }
}

fn user(headers: &HeaderMap) -> Option<BString> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, encoded) = value.split_once_str(b" ")?;
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return None;
    }
    let mut name = STANDARD.decode(encoded.trim()).ok()?;
    name.truncate(name.find_byte(b':')?);
    let usable = !name.is_empty() && name.len() <= NAME_BYTES_MAX;
    usable.then(|| name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(value: &str) -> HeaderMap {
        let value = value.parse().unwrap();
        HeaderMap::from_iter([(header::AUTHORIZATION, value)])
    }

    fn basic(credentials: &str) -> HeaderMap {
        headers(&format!("Basic {}", STANDARD.encode(credentials)))
    }

    #[test]
    fn the_name_ends_at_the_first_colon() {
        for (credentials, name) in [("alice:", "alice"), ("bob:pa:ss", "bob"), ("ÿ:x", "ÿ")] {
            let actor = UserPolicy::Required.actor(&basic(credentials));
            assert_eq!(actor.unwrap(), name);
        }
    }

    #[test]
    fn without_a_usable_name_the_policy_decides() {
        let long = format!("{}:x", "a".repeat(256));
        for bad in [
            HeaderMap::new(),
            basic(":secret"),
            basic("no colon"),
            basic(&long),
            headers("Bearer abc"),
            headers("Basic !!!"),
        ] {
            assert_eq!(UserPolicy::Required.actor(&bad), Err(NameRequired));
            assert_eq!(UserPolicy::Optional.actor(&bad).unwrap(), "anonymous");
        }
    }
}
