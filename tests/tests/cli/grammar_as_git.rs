//! `git update-ref --stdin` is the judge of the grammar: of every answer, of the words of every
//! error, and of what the refs are afterwards.
//!
//! What git and the store make of the same edits is the subject of the store's own tests.

use std::process::Command;

use proptest::prelude::*;
use proptest::sample::select;
use tempfile::TempDir;

use crate::command::{Repo, Run, feed};
use crate::git::{self, Work};

/// What a script did.
#[derive(Debug, PartialEq, Eq)]
struct Verdict {
    accepted: bool,
    stdout: String,
    /// The lines that warn, and the first of the one that ends the command.
    said: Vec<String>,
    refs: Vec<String>,
}

/// Two repositories that get the same scripts.
struct Pair {
    git: TempDir,
    ours: Repo,
}

impl Pair {
    fn new() -> Pair {
        let git = TempDir::new().unwrap();
        git::run(git.path(), &["init", "-q", "--template=", "-b", "main"]);
        Pair { git, ours: Repo::new() }
    }

    fn by_git(&self, work: &Work, options: &[&str], script: &[u8]) -> Verdict {
        let git = || {
            let mut git = git::git(self.git.path());
            git.env("GIT_OBJECT_DIRECTORY", work.objects());
            git
        };
        let mut update = git();
        update.args(["update-ref", "--stdin"]).args(options);
        let mut list = git();
        list.args(["for-each-ref", "--format=%(objectname) %(refname)"]);
        Verdict::of(feed(update, script), list)
    }

    fn by_us(&self, options: &[&str], script: &[u8]) -> Verdict {
        let options = [&["--stdin"], options].concat();
        let run = self.ours.run_with("update-ref", &options, script);
        assert!(run.code < 3, "{run:?}");
        Verdict::of(run, self.ours.command("refs", &[]))
    }

    fn compare(&self, work: &Work, options: &[&str], script: &str) {
        let [a, b] = &work.commits;
        let script = script.replace("<A>", a).replace("<B>", b).replace("<0>", &"0".repeat(40));
        let script = script.as_bytes();
        let ours = self.by_us(options, script);
        let shown = String::from_utf8_lossy(script).into_owned();
        assert_eq!(ours, self.by_git(work, options, script), "{options:?} of:\n{shown}");
    }
}

impl Verdict {
    fn of(run: Run, list: Command) -> Verdict {
        let told = |line: &&str| line.starts_with("fatal: ") || line.starts_with("warning: ");
        let said = run.stderr.lines().filter(told).map(comparable);
        Verdict {
            accepted: run.code == 0,
            said: said.collect(),
            refs: feed(list, b"").done().lines().map(str::to_owned).collect(),
            stdout: String::from_utf8(run.stdout).unwrap(),
        }
    }
}

/// A text without what differs on purpose.
fn comparable(line: &str) -> String {
    // Git says a tab as it is and `?` for other control characters; here all are escaped.
    let line = line.trim_end().replace('\t', "\\x09").replace("\\x0d", "?");
    // Where several names come twice, git names the first in order, and the store the first given.
    match line.split_once("multiple updates for ref '") {
        Some((label, _)) => format!("{label}multiple updates for ref"),
        None => line,
    }
}

/// Each is a list of scripts that run one after the other.
const LINES: &[&[&str]] = &[
    // One transaction.
    &["create refs/heads/a <A>\n", "create refs/heads/a <A>\n", "update refs/heads/a <B> <A>\n"],
    &["create refs/heads/a <A>\ncreate refs/heads/b <A>\ncreate refs/heads/a <B>\n"],
    &["create refs/heads/a <A>\n", "update refs/heads/a <0> <A>\n", "update refs/heads/a <0>\n"],
    &["create refs/heads/a <A>\n", "delete refs/heads/a <B>\n", "delete refs/heads/a\n"],
    &["", "\n", " create refs/heads/a <A>\n", "\tcommit\n", "create refs/heads/a <A>\n\n"],
    // Empty and missing values.
    &["update refs/heads/a <A> \n", "update refs/heads/a <B> \n", "update refs/heads/a \n"],
    &["create refs/heads/a \n", "create refs/heads/a\n", "create refs/heads/a <0>\n"],
    &["verify refs/heads/a \n", "verify refs/heads/a\n", "verify refs/heads/a <0>\n"],
    &["create refs/heads/a <A>\n", "verify refs/heads/a\n", "verify refs/heads/a \n"],
    &["create refs/heads/a <A>\n", "delete refs/heads/a \n", "delete refs/heads/a <0>\n"],
    &["create\n", "create \n", "create  <A>\n", "update\n", "update \n", "delete \n", "verify \n"],
    // Too much, too little, or something else.
    &[
        "create refs/heads/a <A> <A>\n",
        "create refs/heads/a <A> \n",
        "update refs/heads/a <A> <B> x\n",
    ],
    &["delete refs/heads/a <A> x\n", "verify refs/heads/a <A> \n", "create refs/heads/a\t<A>\n"],
    &["create refs/heads/a <A>\r\n", "frobnicate refs/heads/a <A>\n", "CREATE refs/heads/a <A>\n"],
    &[
        "create refs/heads/a..b <A>\n",
        "create refs/heads/a.lock <A>\n",
        "create /refs/heads/a <A>\n",
    ],
    &["create refs/heads/a xyz\n", "update refs/heads/a <A> xyz\n", "verify refs/heads/a xyz\n"],
    // An input that was cut short.
    &[
        "create refs/heads/a <A>",
        "create refs/heads/a",
        "create ",
        "commit",
        "start\ncommit",
        "star",
    ],
    &["start\ncreate refs/heads/a <A>\n", "start\ncreate refs/heads/a <A>\ncommit\ncreate refs/he"],
    // Quotes.
    &["create \"refs/heads/a\" \"<A>\"\n", "create \"refs/heads/\\303\\244\" <A>\n"],
    &[
        "create \"refs/heads/a <A>\n",
        "create \"refs/heads/a\"x <A>\n",
        "create \"refs/heads/\\x61\" <A>\n",
    ],
    &["create refs/heads/a \"\"\n", "update refs/heads/a <A> \"\"\n", "create \"\" <A>\n"],
    &[
        "create \"refs/heads/a\\\"b\" <A>\n",
        "create refs/heads/a\"b <A>\n",
        "create \"refs/heads/a\\tb\" <A>\n",
    ],
    // Sessions.
    &["start\ncommit\n", "start\nprepare\ncommit\n", "start\nprepare\nabort\n", "start\nabort\n"],
    &["commit\n", "abort\n", "prepare\n", "prepare\ncommit\n", "create refs/heads/a <A>\ncommit\n"],
    &["create refs/heads/a <A>\nabort\n", "create refs/heads/a <A>\nprepare\n", "prepare\nabort\n"],
    &["start\nstart\n", "start\ncommit\ncommit\n", "commit\ncreate refs/heads/a <A>\n"],
    &[
        "start\nprepare\ncreate refs/heads/a <A>\n",
        "start\nprepare\nprepare\n",
        "start\nprepare\nstart\n",
    ],
    &["start\ncommit\nprepare\n", "start\ncommit\nabort\n", "start\ncommit\nfrobnicate\n"],
    &["create refs/heads/a <A>\nstart\ncommit\n", "create refs/heads/b <A>\nstart\n"],
    &[
        "start\ncreate refs/heads/a <A>\ncommit\nstart\nupdate refs/heads/a <B> <A>\ncommit\nstart\n",
    ],
    &["start\ncreate refs/heads/a <A>\nabort\nstart\ncreate refs/heads/b <A>\nprepare\ncommit\n"],
    &[
        "create refs/heads/a <A>\n",
        "start\ncreate refs/heads/a <B>\nprepare\n",
        "start\ncreate refs/heads/a <B>\ncommit\n",
    ],
    &["start \ncommit\n", "start now\n", "commit \n", "abort x\n", "prepare\r\n"],
    // Options.
    &["option no-deref\nupdate HEAD <A>\n", "option no-deref\n", "option \n", "option\n"],
    &["option deref\n", "option no-deref \n", "option no-dereference\n", "option no-deref x\n"],
    &["option no-deref\nupdate HEAD <A>\nupdate refs/heads/a <A>\n", "update HEAD <B>\n"],
    &["start\noption no-deref\ncommit\n", "start\nprepare\noption no-deref\n"],
    &["create HEAD <A>\n", "option no-deref\ncreate HEAD <A>\n", "create FETCH_HEAD <A>\n"],
    &["start\ncreate FETCH_HEAD <A>\ncommit\n", "start\nupdate MERGE_HEAD <A>\nprepare\n"],
    // Symbolic refs.
    &["symref-create refs/heads/s refs/heads/a\n", "symref-create refs/heads/s refs/heads/b\n"],
    &["symref-create refs/heads/s\n", "symref-create \n", "symref-create refs/heads/s a..b\n"],
    &["symref-create refs/heads/s refs/heads/a x\n", "symref-create refs/heads/s \n"],
    &["symref-update refs/heads/s refs/heads/a\n", "symref-update refs/heads/s refs/heads/a ref\n"],
    &[
        "symref-update refs/heads/s refs/heads/a ref a..b\n",
        "symref-update refs/heads/s refs/heads/a oid xyz\n",
    ],
    &["symref-update refs/heads/s refs/heads/a foo refs/heads/b\n", "symref-update refs/heads/s\n"],
    &[
        "symref-update refs/heads/s refs/heads/a ref refs/heads/b x\n",
        "symref-update refs/heads/s refs/heads/a oid <0>\n",
    ],
    &[
        "create refs/heads/s <A>\n",
        "symref-update refs/heads/s refs/heads/a oid <B>\n",
        "symref-update refs/heads/s refs/heads/a oid <A>\n",
    ],
    &[
        "symref-delete refs/heads/s\n",
        "symref-verify refs/heads/s\n",
        "option no-deref\nsymref-delete\n",
    ],
    &[
        "option no-deref\nsymref-delete \n",
        "option no-deref\nsymref-verify \n",
        "option no-deref\nsymref-verify refs/heads/s refs/heads/a x\n",
    ],
    &[
        "symref-create refs/heads/s refs/heads/a\n",
        "option no-deref\nsymref-delete refs/heads/s refs/heads/b\n",
        "option no-deref\nsymref-delete refs/heads/s refs/heads/a\n",
    ],
];

/// `~` stands for NUL.
const NULS: &[&[&str]] = &[
    &["create refs/heads/a~<A>~", "create refs/heads/a~<A>~", "update refs/heads/a~<B>~<A>~"],
    &["update refs/heads/a~<A>~~", "update refs/heads/a~~~", "update refs/heads/a~~<A>~"],
    &[
        "create refs/heads/a~~",
        "delete refs/heads/a~~",
        "verify refs/heads/a~~",
        "verify refs/heads/a~<0>~",
    ],
    &["create refs/heads/a~<A>", "create refs/heads/a~", "create refs/heads/a", "create "],
    &[
        "update refs/heads/a~<A>~",
        "update refs/heads/a~<A>",
        "delete refs/heads/a~",
        "delete refs/heads/a",
    ],
    &[
        "start~create refs/heads/a~<A>~commit~",
        "start~create refs/heads/b~<A>~prepare~abort~",
        "start",
    ],
    &["~", " ~", "frobnicate~", "start\n~", "create refs/heads/a <A>~~"],
    &["create refs/heads/\"a\"~<A>~", "create refs/heads/a\n~<A>~", "create refs/heads/a~<A>\n~"],
    &["option no-deref~update HEAD~<A>~~", "option no-deref\n~", "option ~"],
    &[
        "symref-create refs/heads/s~refs/heads/a~",
        "symref-update refs/heads/s~refs/heads/b~~~",
        "symref-update refs/heads/s~refs/heads/b~ref~refs/heads/b~",
    ],
    &[
        "symref-update refs/heads/s~refs/heads/b~oid~<0>~",
        "symref-update refs/heads/s~refs/heads/b~foo~x~",
        "symref-update refs/heads/s~refs/heads/b~ref~~",
    ],
    &[
        "option no-deref~symref-verify refs/heads/s~~",
        "option no-deref~symref-delete refs/heads/s~~",
    ],
];

// Breaks: any of the texts; a verb that takes an argument too many; `commit` that forgets its
// label; a session that goes on after it was closed.
#[test]
fn answers_words_and_refs_are_those_of_git() {
    let work = Work::new();
    for (cases, options) in [(LINES, &[][..]), (NULS, &["-z"])] {
        for scripts in cases {
            let pair = Pair::new();
            for script in *scripts {
                let script = if options.is_empty() {
                    (*script).to_owned()
                } else {
                    script.replace('~', "\0")
                };
                pair.compare(&work, options, &script);
            }
        }
    }
}

#[test]
fn no_deref_holds_for_the_whole_input() {
    let work = Work::new();
    let pair = Pair::new();
    for script in [
        "update HEAD <A>\n",
        "update HEAD <B> <A>\ncreate refs/heads/a <A>\n",
        "symref-verify refs/heads/a refs/heads/b\n",
        "option no-deref\nsymref-update HEAD refs/heads/a\nsymref-verify HEAD refs/heads/a\n",
    ] {
        pair.compare(&work, &["--no-deref"], script);
    }
}

/// Scripts made of the words of the grammar, many of them in a wrong place.
///
/// Names stand where names belong, and values where values do: git takes `xyz` for a ref name, and
/// `refs/heads/a` for a value, which the store refuses on purpose.
fn scripts() -> impl Strategy<Value = String> {
    let names = || {
        select(vec![
            "refs/heads/a",
            "refs/heads/a/b",
            "\"refs/heads/b\"",
            "HEAD",
            "",
            "\"\"",
            "a..b",
            "\"refs/heads/c",
            "\"refs/heads/d\"x",
        ])
    };
    let values = || select(vec!["<A>", "<B>", "<0>", "", "\"\"", "\"<A>\"", "xyz", "<A>", "\""]);
    let old = select(vec![
        "",
        "ref",
        "oid",
        "ref refs/heads/a",
        "ref a..b",
        "oid <A>",
        "oid xyz",
        "foo refs/heads/a",
    ]);
    let some = |values| proptest::collection::vec(values, 0..4).prop_map(|words| words.join(" "));
    let edit =
        (select(vec!["create", "update", "delete", "verify"]), names(), some(values().boxed()));
    let symbolic = vec!["symref-create", "symref-update", "symref-delete", "symref-verify"];
    let symbolic =
        (select(symbolic), names(), (names(), old).prop_map(|(a, b)| format!("{a} {b}")));
    let other =
        vec!["start", "prepare", "commit", "abort", "option no-deref", "option", "creat", "start"];
    let other = select(other).prop_map(str::to_owned);
    let join = |(verb, name, rest): (&str, &str, String)| format!("{verb} {name} {rest}");
    // Most arguments end with a space, which is a further, empty one; without it they end well.
    let trimmed = |line: String| prop_oneof![Just(line.trim_end().to_owned()), Just(line)];
    let line = prop_oneof![edit.prop_map(join), symbolic.prop_map(join), other];
    let end = select(vec!["\n", "\n", "\n", "\n", "\n", "\n\n"]);
    let line = (line.prop_flat_map(trimmed), end).prop_map(|(line, end)| line + end);
    let lines = proptest::collection::vec(line, 1..5).prop_map(|lines| lines.concat());
    // One in eight is cut short.
    let cut = |script: String| {
        let cut = script[..script.len() - 1].to_owned();
        prop_oneof![7 => Just(script), 1 => Just(cut)]
    };
    lines.prop_flat_map(cut)
}

/// Scripts that mostly mean something.
fn sessions() -> impl Strategy<Value = String> {
    let lines = vec![
        "start\n",
        "commit\n",
        "prepare\n",
        "abort\n",
        "create refs/heads/a <A>\n",
        "update refs/heads/a <B> <A>\n",
        "update refs/heads/b <A>\n",
        "delete refs/heads/a\n",
        "verify refs/heads/b <A>\n",
        "create refs/heads/a/b <A>\n",
        "option no-deref\n",
        "update HEAD <A>\n",
        "start\n",
        "commit\n",
    ];
    proptest::collection::vec(select(lines), 1..9).prop_map(|lines| lines.concat())
}

/// The same session for `-z`, where each argument has its place.
fn with_nuls(session: &str) -> String {
    let command = |line: &str| {
        let (verb, arguments) = line.split_once(' ').unwrap_or((line, ""));
        let places = match verb {
            "update" => 3,
            "create" | "delete" | "verify" => 2,
            _ => return format!("{line}\0"),
        };
        let mut arguments: Vec<_> = arguments.split(' ').collect();
        arguments.resize(places, "");
        format!("{verb} {}\0", arguments.join("\0"))
    };
    session.lines().map(command).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn any_words_are_taken_as_by_git(script in scripts()) {
        // To delete `HEAD` itself is refused here (`docs/semantics.md`), whatever else is wrong.
        prop_assume!(!script.contains("option no-deref") || !script.contains("delete HEAD"));
        Pair::new().compare(Work::shared(), &[], &script);
    }

    #[test]
    fn any_session_goes_as_with_git(first in sessions(), second in sessions()) {
        let pair = Pair::new();
        pair.compare(Work::shared(), &[], &first);
        pair.compare(Work::shared(), &[], &second);
    }

    #[test]
    fn any_session_goes_as_with_git_under_z(first in sessions(), second in sessions()) {
        let pair = Pair::new();
        pair.compare(Work::shared(), &["-z"], &with_nuls(&first));
        pair.compare(Work::shared(), &["-z"], &with_nuls(&second));
    }
}
