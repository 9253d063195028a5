//! Where the store differs from git on purpose. `docs/semantics.md` lists each with its reason.

use std::collections::BTreeSet;

use bstr::{BString, ByteSlice};
use refstone::NAME_LEN_MAX;

use crate::common::{Scratch, head};
use crate::reflog::Entry;
use crate::update_ref::{BACKENDS, Backend, Git, Objects, run};

/// Differences that are more than the end of a script, and the tests that hold them.
const ELSEWHERE: [&str; 8] = [
    LENGTHS,
    THROUGH,
    CHECKS,
    OUTLIVES,
    // `names_as_git::names_outside_refs_are_capitals_only`
    "Names outside `refs/`",
    // `update_ref::abbreviations_and_names_are_no_values_and_that_is_said`, of the command
    "Abbreviated ids, and names as values",
    // `prepared::a_second_one_is_refused_for_the_first`
    "A ref that a prepared transaction holds",
    // `batches`
    "A batch with a verdict for each ref",
];

const LENGTHS: &str = "The longest name";
const THROUGH: &str = "The log of a symbolic ref other than `HEAD`";
const CHECKS: &str = "Checks in the log, and no-ops through `HEAD`";
const OUTLIVES: &str = "The log of a deleted ref";

/// Words that end a script.
type Verdict = Result<(), &'static str>;

/// The last script of each ends otherwise than git's does.
struct Difference {
    case: &'static str,
    scripts: &'static [&'static str],
    ours: Verdict,
    files: Verdict,
    reftable: Verdict,
}

const CIRCLE: Verdict = Err(
    "multiple updates for 'refs/heads/a' (including one via symref 'refs/heads/b') are not allowed",
);

const IN_THE_WAY: Verdict =
    Err("cannot lock ref 'refs/heads/a/b': 'refs/heads/a' exists; cannot create 'refs/heads/a/b'");

const DIFFERENCES: &[Difference] = &[
    Difference {
        case: "A circle of symbolic refs",
        scripts: &[
            "symref-create refs/heads/a refs/heads/b",
            "!symref-create refs/heads/b refs/heads/a",
            "update refs/heads/a A",
        ],
        ours: Err("cannot lock ref 'refs/heads/a': more than 5 references to read, or a circle"),
        files: CIRCLE,
        reftable: CIRCLE,
    },
    Difference {
        case: "A chain of symbolic refs that is too long to read",
        scripts: &[
            "symref-create refs/heads/1 refs/heads/2",
            "symref-create refs/heads/0 refs/heads/1",
            "!symref-create refs/heads/2 refs/heads/3",
            "!symref-create refs/heads/3 refs/heads/4",
            "!symref-create refs/heads/4 refs/heads/5",
            "create refs/heads/0 A",
        ],
        ours: Err("cannot lock ref 'refs/heads/0': more than 5 references to read, or a circle"),
        files: Ok(()),
        reftable: Ok(()),
    },
    Difference {
        case: "Deleting `HEAD`",
        scripts: &["!delete HEAD"],
        ours: Err("refusing to delete HEAD"),
        files: Ok(()),
        reftable: Ok(()),
    },
    Difference {
        case: "Deleting a detached `HEAD`",
        scripts: &["!create HEAD A", "delete HEAD A"],
        ours: Err("refusing to delete HEAD"),
        files: Ok(()),
        reftable: Ok(()),
    },
    Difference {
        case: "Pointing `HEAD` outside of `refs/`",
        scripts: &["!symref-update HEAD FOO"],
        ours: Err("refusing to point HEAD outside of refs/: 'FOO'"),
        files: Ok(()),
        reftable: Ok(()),
    },
    Difference {
        case: "`FETCH_HEAD` through a symbolic ref",
        scripts: &["symref-create refs/heads/a FETCH_HEAD", "create refs/heads/a A"],
        ours: Err("refusing to update pseudoref 'FETCH_HEAD'"),
        files: Ok(()),
        reftable: Ok(()),
    },
    Difference {
        case: "Moving a symbolic branch that `HEAD` points to",
        scripts: &[
            "create refs/heads/a A",
            "symref-create HEAD refs/heads/a",
            "!symref-update refs/heads/main refs/heads/b ref refs/heads/a",
        ],
        ours: Ok(()),
        files: Err("cannot lock ref 'HEAD': reference already exists"),
        reftable: Err("cannot lock ref 'HEAD': reference already exists"),
    },
    Difference {
        case: "The old target of a symbolic ref that is followed to a missing ref",
        scripts: &["symref-update HEAD refs/heads/b ref refs/heads/a"],
        ours: Err("cannot lock ref 'HEAD': unable to resolve reference 'refs/heads/main'"),
        files: Err("cannot lock ref 'HEAD': unable to resolve reference 'refs/heads/main'"),
        reftable: Err(
            "verifying symref target: 'HEAD': is at refs/heads/main but expected refs/heads/a",
        ),
    },
    Difference {
        case: "A value that is no object of the repository",
        scripts: &["create refs/heads/a M"],
        ours: Ok(()),
        files: Err(
            "cannot update ref 'refs/heads/a': trying to write ref 'refs/heads/a' with nonexistent \
             object 1111111111111111111111111111111111111111",
        ),
        reftable: Err("trying to write ref 'refs/heads/a' with nonexistent object \
             1111111111111111111111111111111111111111"),
    },
    Difference {
        case: "The words for names in each other's way",
        scripts: &["create refs/heads/a A", "create refs/heads/a/b A"],
        ours: IN_THE_WAY,
        files: IN_THE_WAY,
        reftable: Err("'refs/heads/a' exists; cannot create 'refs/heads/a/b'"),
    },
];

#[test]
fn verdicts_differ_from_git_only_as_listed() {
    let objects = Objects::shared();
    for difference in DIFFERENCES {
        for (backend, of_git) in BACKENDS.into_iter().zip([difference.files, difference.reftable]) {
            let (git, ours) = (Git::new(objects, backend), Scratch::new());
            let mut last = (Ok(()), Ok(()));
            for script in difference.scripts {
                assert_eq!(last, (Ok(()), Ok(())), "{}", difference.case);
                let script = objects.spelled(script);
                last = (run(&ours.store, script.as_bstr()), git.run(script.as_bstr()));
            }
            let expected = [difference.ours, of_git].map(|end| end.map_err(str::to_owned));
            assert_eq!([last.0, last.1], expected, "{} ({backend:?})", difference.case);
        }
    }
}

// Breaks: a row of the document without a test, or a difference that it does not list.
#[test]
fn the_document_lists_each_difference_and_no_other() {
    let document = include_str!("../../../../docs/semantics.md");
    let rows = document.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let rows: BTreeSet<_> = rows.filter(|row| *row != "situation").collect();
    let cases = DIFFERENCES.iter().map(|difference| difference.case);
    assert_eq!(rows, cases.chain(ELSEWHERE).collect());
}

fn pair(backend: Backend, scripts: &[&str]) -> (Git, Scratch) {
    let objects = Objects::shared();
    let (git, ours) = (Git::new(objects, backend), Scratch::new());
    for script in scripts {
        let script = objects.spelled(script);
        assert_eq!(run(&ours.store, script.as_bstr()), Ok(()), "{script}");
        assert_eq!(git.run(script.as_bstr()), Ok(()), "{script}");
    }
    (git, ours)
}

#[test]
fn longer_names_fit_than_in_git() {
    let objects = Objects::shared();
    for (len, fits_reftable) in [(251, true), (3900, true), (NAME_LEN_MAX - 11, false)] {
        let script = format!("create refs/heads/{} A", "n".repeat(len));
        let script = objects.spelled(&script);
        let fits = |backend| Git::new(objects, backend).run(script.as_bstr()).is_ok();
        assert!(run(&Scratch::new().store, script.as_bstr()).is_ok(), "{len}");
        assert!(!fits(Backend::Files), "{len}");
        assert_eq!(fits(Backend::Reftable), fits_reftable, "{len}");
    }
}

fn moves_of(ours: &Scratch, short: &str) -> usize {
    refstone::history(&ours.dir(), Some(&head(short))).unwrap().count()
}

fn log_of(git: &Git, short: &str) -> Vec<Entry> {
    let name = BString::from(format!("refs/heads/{short}"));
    git.logs().remove(&name).unwrap_or_default()
}

#[test]
fn a_move_through_a_symbolic_ref_is_recorded_once() {
    for backend in BACKENDS {
        let scripts = [
            "create refs/heads/a A",
            "symref-create refs/heads/s refs/heads/a",
            "update refs/heads/s B",
        ];
        let (git, ours) = pair(backend, &scripts);
        assert_eq!((log_of(&git, "a").len(), log_of(&git, "s").len()), (2, 2));
        assert_eq!((moves_of(&ours, "a"), moves_of(&ours, "s")), (2, 1));
    }
}

#[test]
fn a_check_is_not_recorded_as_a_move() {
    for (backend, logged) in [(Backend::Files, 2), (Backend::Reftable, 1)] {
        let scripts = [
            "create refs/heads/a A",
            "symref-create refs/heads/s refs/heads/a",
            "verify refs/heads/s A",
        ];
        let (git, ours) = pair(backend, &scripts);
        assert_eq!((log_of(&git, "s").len(), moves_of(&ours, "s")), (logged, 1), "{backend:?}");
    }
}

#[test]
fn what_changes_nothing_is_not_recorded_even_through_head() {
    for backend in BACKENDS {
        let (git, ours) = pair(backend, &["create HEAD A", "update HEAD A"]);
        assert_eq!(git.logs()[&BString::from("HEAD")].len(), 2, "{backend:?}");
        assert_eq!(moves_of(&ours, "main"), 1);
    }
}

#[test]
fn the_log_of_a_deleted_ref_goes_on() {
    for backend in BACKENDS {
        let (git, ours) = pair(backend, &["create refs/heads/a A", "delete refs/heads/a A"]);
        assert_eq!(log_of(&git, "a"), []);
        assert_eq!(moves_of(&ours, "a"), 2);
    }
}
