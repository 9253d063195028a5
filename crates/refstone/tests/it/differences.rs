//! Where the store differs from git on purpose. `docs/semantics.md` lists each with its reason.

use bstr::ByteSlice;

use crate::common::Scratch;
use crate::update_ref::{BACKENDS, Git, Objects, run};

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
    // The store goes with the files. The named ref is followed, but the old target compared is its own.
    Difference {
        case: "The old target of a symbolic ref that is followed to a missing ref",
        scripts: &["symref-update HEAD refs/heads/b ref refs/heads/a"],
        ours: Err("cannot lock ref 'HEAD': unable to resolve reference 'refs/heads/main'"),
        files: Err("cannot lock ref 'HEAD': unable to resolve reference 'refs/heads/main'"),
        reftable: Err(
            "verifying symref target: 'HEAD': is at refs/heads/main but expected refs/heads/a",
        ),
    },
    // The store goes with the files.
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
