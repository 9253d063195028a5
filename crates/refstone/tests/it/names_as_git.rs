//! Names are judged as `git check-ref-format` judges them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use bstr::ByteSlice;
use refstone::RefName;

use crate::update_ref::{BACKENDS, Git, Objects};

/// What git says; `--allow-onelevel` because `HEAD` is a name too.
fn git_accepts(name: &[u8]) -> bool {
    let mut git = Command::new("git");
    git.args(["check-ref-format", "--allow-onelevel"]);
    let status = git.arg(OsStr::from_bytes(name)).status();
    status.expect("this test needs git").success()
}

fn assert_as_git(name: &[u8]) {
    let ours = RefName::new(name);
    let shown = name.escape_ascii();
    assert_eq!(ours.is_ok(), git_accepts(name), "'{shown}': we say {ours:?}");
}

/// Each rule on both sides of its edge.
const EDGES: &[&[u8]] = &[
    b"refs/heads/main",
    b"refs/x",
    b"HEAD",
    b"ORIG_HEAD",
    // A component that starts with a dot.
    b"refs/heads/.a",
    b"refs/.heads/a",
    b"refs/heads/a.b",
    b"refs/heads/a/.b",
    b".refs/heads/a",
    // A component that ends with `.lock`, in small letters only.
    b"refs/heads/a.lock",
    b"refs/heads/a.lock/b",
    b"refs/heads/.lock",
    b"refs/heads/a.lock2",
    b"refs/heads/a.LOCK",
    b"refs/heads/A.LOCK/b",
    b"refs/heads/a.Lock",
    b"refs/heads/alock",
    b"refs/heads/lock",
    b"refs/heads/a.locks/b",
    b"refs/heads/a.lock.lock",
    b"refs/heads/a.lock.b",
    // Two dots in a row.
    b"refs/heads/a..b",
    b"refs/heads/a...b",
    b"refs/heads/..",
    b"refs/heads/a.b.c",
    // Dots and slashes at the end.
    b"refs/heads/a.",
    b"refs/heads/a./b",
    b"refs/heads/a/",
    b"refs/heads/",
    b"refs/heads/.",
    b"refs//heads/a",
    b"refs/heads//a",
    b"/refs/heads/a",
    b"refs/heads/a//",
    b"/",
    b"",
    // An at-sign, alone and before a brace.
    b"@",
    b"refs/@",
    b"refs/heads/@",
    b"refs/heads/@/a",
    b"refs/heads/a@{b",
    b"refs/heads/@{",
    b"refs/heads/@{-1}",
    b"refs/heads/a{b",
    b"refs/heads/a@b",
    b"refs/heads/@@",
    b"refs/heads/a@",
    // What only looks like an option or another ref.
    b"refs/heads/-a",
    b"refs/heads/-",
    b"refs/heads/HEAD",
    b"refs/heads/refs/heads/a",
    // Patterns and revision syntax.
    b"refs/heads/a*b",
    b"refs/heads/*",
    b"refs/heads/a?b",
    b"refs/heads/a[b",
    b"refs/heads/a]b",
    b"refs/heads/a^b",
    b"refs/heads/a~b",
    b"refs/heads/a:b",
    b"refs/heads/a\\b",
    b"refs/heads/a b",
    b"refs/heads/a\tb",
    b"refs/heads/a\nb",
    b"refs/heads/a\x7fb",
    b"refs/heads/a{}b",
    // Bytes above ASCII: valid UTF-8, and not.
    "refs/heads/zażółć".as_bytes(),
    "refs/heads/🦀".as_bytes(),
    "refs/heads/a\u{a0}b".as_bytes(),
    b"refs/heads/\xff",
    b"refs/heads/\xc3",
    b"refs/heads/\x80\x81/\xfe",
];

// Breaks: any rule left out of `RefName::new`, or one too many.
#[test]
fn every_rule_ends_where_gits_rule_ends() {
    for name in EDGES {
        assert_as_git(name);
    }
}

// `git update-ref` asks more of a name than `git check-ref-format`, and each backend has its say.
#[test]
fn names_are_taken_as_update_ref_takes_them() {
    for backend in BACKENDS {
        let git = Git::new(Objects::shared(), backend);
        for name in EDGES {
            let script = [b"verify ", *name, b"\0\0"].concat();
            let verdict = git.run_with(&["-z"], script.as_bstr());
            let shown = name.escape_ascii();
            assert_eq!(verdict.is_ok(), RefName::new(*name).is_ok(), "'{shown}': {verdict:?}");
        }
    }
}

#[test]
fn every_byte_is_judged_as_by_git() {
    for byte in 1..=u8::MAX {
        assert_as_git(&[b"refs/heads/a", &[byte][..], b"b"].concat());
        assert_as_git(&[b"refs/heads/a", &[byte][..]].concat());
    }
}

// Git cannot be asked for this one: a zero byte ends a command line argument.
#[test]
fn a_zero_byte_is_refused() {
    assert!(RefName::new(&b"refs/heads/a\0b"[..]).is_err());
}

// `git check-ref-format` has no opinion on these. `git update-ref` writes them as files beside its
// own, such as `.git/config`; this store refuses them.
#[test]
fn names_outside_refs_are_capitals_only() {
    for name in ["foo", "foo/bar", "config", "FOO-BAR", "HEAD/x", "worktrees/a/HEAD"] {
        assert!(git_accepts(name.as_bytes()), "{name}");
        assert!(RefName::new(name).is_err(), "{name}");
    }
}
