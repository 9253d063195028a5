//! Random scripts end as git's do.
//!
//! Words are compared for the hand-made cases: with more than one thing wrong, git comes to them in
//! an order of its own, and sometimes by way of its log of `HEAD`.

use bstr::ByteSlice;
use proptest::prelude::*;
use refstone::{Change, Edit};

use crate::judge::Pair;
use crate::update_ref::{BACKENDS, Backend, Objects, transaction};

const NAMES: [&str; 9] = [
    "HEAD",
    "refs/heads/main",
    "refs/heads/a",
    "refs/heads/A",
    "refs/heads/a/b",
    "refs/heads/a/b/c",
    "refs/heads/\\xff",
    "refs/heads/🦀",
    "refs/heads/s",
];

/// `@` is the ref, `%` another one.
const COMMANDS: [&str; 23] = [
    "create @ A",
    "create @ B",
    "update @ A",
    "update @ B",
    "update @ B A",
    "update @ A B",
    "update @ B Z",
    "update @ Z",
    "update @ Z A",
    "delete @",
    "delete @ A",
    "delete @ B",
    "verify @",
    "verify @ Z",
    "verify @ A",
    "verify @ B",
    "symref-create @ %",
    "symref-update @ %",
    "symref-update @ % ref %",
    "symref-update @ % oid A",
    "symref-update @ % oid Z",
    "symref-delete @",
    "symref-verify @ %",
];

/// These always talk about the named ref itself.
const UNFOLLOWED: [&str; 2] = ["symref-delete", "symref-verify"];

fn commands() -> impl Strategy<Value = String> {
    let names = || prop::sample::select(&NAMES[..]);
    let parts = (any::<bool>(), prop::sample::select(&COMMANDS[..]), names(), names(), names());
    parts.prop_map(|(follow, command, of, target, old)| {
        let unfollowed = !follow || UNFOLLOWED.iter().any(|verb| command.starts_with(verb));
        let command = command.replace('@', of).replacen('%', target, 1).replacen('%', old, 1);
        format!("{}{command}", if unfollowed { "!" } else { "" })
    })
}

fn scripts(edits: usize) -> impl Strategy<Value = Vec<Vec<String>>> {
    prop::collection::vec(prop::collection::vec(commands(), 1..=edits), 1..12)
}

fn backends() -> impl Strategy<Value = Backend> {
    prop::sample::select(&BACKENDS[..])
}

type Verdict = Result<(), String>;

fn says(verdict: &Verdict, words: &str) -> bool {
    verdict.as_ref().is_err_and(|error| error.contains(words))
}

/// Whether this is a difference that `differences` lists.
fn differs(commands: &[String], ours: &Verdict, of_git: &Verdict) -> bool {
    let own = ["references to read", "HEAD outside of", "delete HEAD"];
    let about_head = commands.iter().any(|command| command.split(' ').nth(1) == Some("HEAD"));
    let of_reftable = says(of_git, "verifying symref target") && says(ours, "unable to resolve");
    of_reftable
        || own.iter().any(|words| says(ours, words))
        || (!about_head && says(of_git, "cannot lock ref 'HEAD'"))
}

/// Git's two stores disagree about what `HEAD` pointed to if the ref it points to from now on moves
/// in the same transaction, so the logs are not compared any more.
fn switches_head(commands: &[String]) -> bool {
    let about_head = |command: &String| command.split(' ').nth(1) == Some("HEAD");
    commands.len() > 1 && commands.iter().any(|c| c.contains("symref-") && about_head(c))
}

fn deletions_first(edits: &[Edit]) -> Vec<usize> {
    let mut order: Vec<_> = (0..edits.len()).collect();
    order.sort_by_key(|&i| edits[i].change != Change::Delete);
    order
}

/// The sort of a refusal, by git's words.
fn kind(verdict: &Verdict) -> Option<&'static str> {
    let sorts = [
        "multiple updates",
        "cannot process",
        "exists; cannot create",
        "already exists",
        "unable to resolve reference",
        "is a regular ref",
        "reference is missing",
        "is at",
    ];
    let text = verdict.as_ref().err()?;
    Some(sorts.into_iter().find(|words| text.contains(words)).expect(text))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    // Breaks: nearly any line of `transaction/`.
    #[test]
    fn transactions_end_as_with_git(backend in backends(), scripts in scripts(3)) {
        let mut pair = Pair::new(Objects::shared(), backend);
        let mut same_logs = true;
        for commands in scripts {
            let script = commands.join("\n");
            let [verdict, of_git] = pair.verdicts(&script);
            if differs(&commands, &verdict, &of_git) {
                // After a deliberate difference the refs may differ too.
                return Ok(());
            }
            let same = verdict.is_ok() == of_git.is_ok();
            prop_assert!(same, "{:?}, git: {:?}, at:\n{}", verdict, of_git, script);
            if commands.len() == 1 {
                prop_assert_eq!(kind(&verdict), kind(&of_git), "{}", script);
            }
            let [refs, of_git] = pair.refs();
            prop_assert_eq!(refs, of_git, "{}", script);
            same_logs &= !switches_head(&commands);
            if same_logs {
                let [logs, of_git] = pair.logs();
                prop_assert_eq!(logs, of_git, "{}", script);
            }
        }
    }

    // Breaks: deletions in their place; an edit that does not see those before it.
    #[test]
    fn each_edit_of_a_batch_ends_as_with_git_alone(backend in backends(), scripts in scripts(4)) {
        let mut pair = Pair::new(Objects::shared(), backend);
        for commands in scripts {
            let script = commands.join("\n");
            let batch = transaction(pair.objects.spelled(&script).as_bstr());
            let verdicts = pair.ours.store.commit_each(&batch).unwrap().into_iter();
            let verdicts = verdicts.map(|verdict| verdict.map(drop).map_err(|r| r.to_string()));
            let verdicts: Vec<Verdict> = verdicts.collect();
            if verdicts.iter().any(|verdict| says(verdict, "multiple updates")) {
                // The edits of a batch may not meet; for git each is a transaction of its own.
                return Ok(());
            }
            for i in deletions_first(batch.edits()) {
                let of_git = pair.git.run(pair.objects.spelled(&commands[i]).as_bstr());
                if differs(&commands[i..=i], &verdicts[i], &of_git) {
                    return Ok(());
                }
                let same = verdicts[i].is_ok() == of_git.is_ok();
                prop_assert!(same, "{:?}, git: {:?}, {} of:\n{}", verdicts[i], of_git, i, script);
            }
            let [refs, of_git] = pair.refs();
            prop_assert_eq!(refs, of_git, "{}", script);
        }
    }
}
