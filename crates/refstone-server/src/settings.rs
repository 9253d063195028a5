//! What the repository's `config` says about pushes, in git's own variables.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use bstr::{BStr, BString, ByteSlice};
use bytes::Bytes;
use parking_lot::Mutex;

use crate::git::{self, GitEnv};

/// What becomes of a push that deletes the branch `HEAD` points to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum DeleteCurrent {
    /// Refused, and the pusher learns which variable allows it.
    #[default]
    Unconfigured,
    Refuse,
    Warn,
    Ignore,
}

/// The settings of `receive.*` that this server obeys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) deny_deletes: bool,
    pub(crate) deny_non_fast_forwards: bool,
    pub(crate) deny_delete_current: DeleteCurrent,
    /// For `index-pack`: `--strict`, `--max-input-size`.
    pub(crate) index_pack_arguments: Vec<BString>,
}

/// The settings as read last, and from which state of the file.
#[derive(Debug, Default)]
pub(crate) struct SettingsCache {
    last: Mutex<Option<(Stamp, Settings)>>,
}

/// Changes when the file does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl SettingsCache {
    /// The settings in force now.
    pub(crate) async fn read(&self, git_dir: &Path) -> io::Result<Settings> {
        let stamp = Stamp::of(&git_dir.join("config"))?;
        if let Some((last, settings)) = self.last.lock().as_ref()
            && *last == stamp
        {
            return Ok(settings.clone());
        }
        let (settings, whole) = load(git_dir).await?;
        if whole {
            *self.last.lock() = Some((stamp, settings.clone()));
        }
        Ok(settings)
    }
}

impl Stamp {
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        Ok(Self {
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}

/// Returns also whether the file is all there is: what it includes may change without it.
async fn load(git_dir: &Path) -> io::Result<(Settings, bool)> {
    let command = GitEnv::repository(git_dir).command(["config", "--list", "-z"]);
    let listed = git::run(command, Bytes::new()).await?.success()?;
    let variables = parse(&listed);
    let includes = |key: &BStr| key.starts_with(b"include.") || key.starts_with(b"includeif.");
    let whole = !variables.iter().any(|(key, _)| includes(key));
    Ok((Settings::from_variables(&variables), whole))
}

/// Each entry is `key\nvalue\0`, or `key\0` for a variable without a value.
fn parse(listed: &[u8]) -> Vec<(&BStr, Option<&BStr>)> {
    let entries = listed.split(|&byte| byte == 0);
    entries
        .filter(|entry| !entry.is_empty())
        .map(|entry| match entry.split_once_str(b"\n") {
            Some((key, value)) => (key.as_bstr(), Some(value.as_bstr())),
            None => (entry.as_bstr(), None),
        })
        .collect()
}

impl Settings {
    fn from_variables(variables: &[(&BStr, Option<&BStr>)]) -> Self {
        let mut settings = Self::default();
        let mut fsck = Fsck::default();
        for &(key, value) in variables {
            match key.as_bytes() {
                b"receive.denydeletes" => settings.deny_deletes = truth(value),
                b"receive.denynonfastforwards" => settings.deny_non_fast_forwards = truth(value),
                b"receive.denydeletecurrent" => settings.deny_delete_current = deny(value),
                b"receive.maxinputsize" => settings.limit_input(value),
                key => fsck.variable(key, value),
            }
        }
        settings.index_pack_arguments.extend(fsck.argument());
        settings
    }

    fn limit_input(&mut self, value: Option<&BStr>) {
        if let Some(bytes) = value.and_then(size).filter(|&bytes| bytes > 0) {
            let argument = format!("--max-input-size={bytes}");
            self.index_pack_arguments.push(argument.into());
        }
    }
}

/// `receive.fsckObjects` wins over `transfer.fsckObjects`; `receive.fsck.<problem>` tells how bad
/// a problem is.
#[derive(Debug, Default)]
struct Fsck {
    receive: Option<bool>,
    transfer: Option<bool>,
    severities: Vec<BString>,
}

impl Fsck {
    fn variable(&mut self, key: &[u8], value: Option<&BStr>) {
        match (key, value) {
            (b"receive.fsckobjects", value) => self.receive = Some(truth(value)),
            (b"transfer.fsckobjects", value) => self.transfer = Some(truth(value)),
            (key, Some(value)) => self.severity(key, value),
            (_, None) => {}
        }
    }

    fn severity(&mut self, key: &[u8], value: &BStr) {
        if let Some(problem) = key.strip_prefix(b"receive.fsck.") {
            self.severities.push([problem, b"=", value].concat().into());
        }
    }

    fn argument(self) -> Option<BString> {
        if !self.receive.or(self.transfer).unwrap_or(false) {
            return None;
        }
        let severities = bstr::join(",", self.severities);
        let equals: &[u8] = if severities.is_empty() { b"" } else { b"=" };
        Some([b"--strict", equals, &severities].concat().into())
    }
}

/// git's booleans: a variable without a value is true.
fn truth(value: Option<&BStr>) -> bool {
    let Some(value) = value else {
        return true;
    };
    match value.to_ascii_lowercase().as_slice() {
        b"true" | b"yes" | b"on" => true,
        other => size(other.as_bstr()).is_some_and(|number| number != 0),
    }
}

fn deny(value: Option<&BStr>) -> DeleteCurrent {
    let word = value.map(|value| value.to_ascii_lowercase());
    match word.as_deref() {
        Some(b"ignore") => DeleteCurrent::Ignore,
        Some(b"warn") => DeleteCurrent::Warn,
        Some(b"refuse" | b"updateinstead") => DeleteCurrent::Refuse,
        _ if truth(value) => DeleteCurrent::Refuse,
        _ => DeleteCurrent::Ignore,
    }
}

/// git's numbers: digits and a unit of k, m or g.
fn size(value: &BStr) -> Option<u64> {
    let text = value.to_str().ok()?.to_ascii_lowercase();
    let (digits, shift) = match text.as_bytes().last()? {
        b'k' => (&text[..text.len() - 1], 10),
        b'm' => (&text[..text.len() - 1], 20),
        b'g' => (&text[..text.len() - 1], 30),
        _ => (text.as_str(), 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(listed: &str) -> Settings {
        Settings::from_variables(&parse(listed.as_bytes()))
    }

    #[test]
    fn nothing_is_denied_by_default() {
        assert_eq!(settings("core.bare\ntrue\0"), Settings::default());
    }

    #[test]
    fn booleans_are_read_as_git_reads_them() {
        for (value, expected) in [
            ("\nYes\0", true),
            ("\n1\0", true),
            ("\0", true),
            ("\noff\0", false),
            ("\n0\0", false),
            ("\n\0", false),
        ] {
            let listed = format!("receive.denydeletes{value}");
            assert_eq!(settings(&listed).deny_deletes, expected, "{listed:?}");
        }
    }

    #[test]
    fn the_last_value_of_a_variable_holds() {
        let listed = "receive.denynonfastforwards\ntrue\0receive.denynonfastforwards\nfalse\0";
        assert!(!settings(listed).deny_non_fast_forwards);
    }

    #[test]
    fn the_current_branch_has_more_answers_than_yes_and_no() {
        for (value, expected) in [
            ("warn", DeleteCurrent::Warn),
            ("Ignore", DeleteCurrent::Ignore),
            ("false", DeleteCurrent::Ignore),
            ("true", DeleteCurrent::Refuse),
        ] {
            let found = settings(&format!("receive.denydeletecurrent\n{value}\0"));
            assert_eq!(found.deny_delete_current, expected);
        }
    }

    #[test]
    fn fsck_becomes_one_argument() {
        let arguments = |listed: &str| settings(listed).index_pack_arguments;
        assert_eq!(arguments("transfer.fsckobjects\ntrue\0"), ["--strict"]);
        let off = "transfer.fsckobjects\ntrue\0receive.fsckobjects\nfalse\0";
        assert!(arguments(off).is_empty());
        let severities = "receive.fsckobjects\0receive.fsck.missingemail\nignore\0\
                          receive.fsck.skiplist\n/a b\0";
        assert_eq!(arguments(severities), ["--strict=missingemail=ignore,skiplist=/a b"]);
        assert_eq!(arguments("receive.maxinputsize\n2k\0"), ["--max-input-size=2048"]);
    }
}
