//! Who only reads refuses a live log that history does not go with, as who opens it does.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use refstone::{
    At, Env, ErrorKind, OpenError, RefMove, RefStore, ResumeError, ResumeOptions, Seq, Timestamp,
    history, history_after, history_newest_first, history_newest_first_with, history_with,
    read_seq, read_view, read_view_at, read_view_with, resume, survey, verify,
};
use refstone_log::{LogReader, OsEnv};

use crate::common::{Scratch, commit_numbers, compact, env_with, listing, moves, outgrow};

/// What the readers say that give all or nothing.
fn refusals(dir: &Path) -> Vec<OpenError> {
    vec![
        read_view(dir).unwrap_err(),
        read_view_at(dir, At::Seq(Seq::new(1))).unwrap_err(),
        read_view_at(dir, At::Time(Timestamp::from_micros(0))).unwrap_err(),
        read_seq(dir).unwrap_err(),
        survey(dir).unwrap_err(),
    ]
}

/// What is told before the one error, and the error.
fn told(moves: impl Iterator<Item = Result<RefMove, OpenError>>) -> (Vec<RefMove>, Vec<OpenError>) {
    let (mut sound, mut errors) = (Vec::new(), Vec::new());
    moves.for_each(|moved| match moved {
        Ok(moved) => sound.push(moved),
        Err(error) => errors.push(error),
    });
    (sound, errors)
}

/// All that history has is told, and then what `expected` says, or before it, newest first.
fn assert_refused(dir: &Path, sealed: &[RefMove], expected: &str) {
    for error in refusals(dir) {
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert_eq!(error.to_string(), expected);
    }
    let behind = sealed.iter().filter(|moved| moved.seq > Seq::new(4)).cloned();
    let backwards: Vec<_> = sealed.iter().rev().cloned().collect();
    for ((sound, errors), sealed) in [
        (told(history(dir, None).unwrap()), sealed),
        (told(history_after(dir, Seq::new(4), None).unwrap()), &behind.collect::<Vec<_>>()),
        (told(history_newest_first(dir, None).unwrap()), &backwards),
    ] {
        assert_eq!(sound, sealed);
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
    }
    let report = verify(dir, &mut |_| ()).unwrap();
    assert_eq!(report.damage.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
    let newest = sealed.last().unwrap().seq;
    assert_eq!(report.sound_history, [(Seq::new(1), newest)]);
}

// Breaks: any reader that opens the live log without a look at history; ending before history does;
// telling history without the error.
#[test]
fn an_older_copy_is_refused_by_readers_with_the_words_of_an_opening() {
    for compacted_before in [false, true] {
        let scratch = Scratch::new();
        let dir = scratch.dir();
        let live = dir.join("refs.arrow");
        let old = outgrow(&scratch, compacted_before);
        let sealed = moves(&dir);
        scratch.store.close().unwrap();
        fs::write(&live, old).unwrap();
        let opening = RefStore::open(&dir).unwrap_err().to_string();
        assert!(opening.contains("older copy") && opening.contains("refstone repair"), "{opening}");
        assert_refused(&dir, &sealed, &opening);
    }
}

// Breaks: taking another log for an older copy, or for the right one where it is longer.
#[test]
fn another_log_is_refused_and_called_that() {
    let scratch = Scratch::new();
    let dir = scratch.dir();
    commit_numbers(&scratch.store, 1..=3);
    compact(&scratch.store);
    commit_numbers(&scratch.store, 4..=6);
    compact(&scratch.store);
    let sealed = moves(&dir);
    scratch.store.close().unwrap();
    let live = dir.join("refs.arrow");
    let own = fs::read(&live).unwrap();
    for (sealed_of_other, newest) in [(0, 2), (0, 9), (2, 4), (2, 9)] {
        let other = Scratch::new();
        for number in 1..=newest {
            commit_numbers(&other.store, number..=number);
            if number == sealed_of_other {
                compact(&other.store);
            }
        }
        other.store.close().unwrap();
        fs::copy(other.dir().join("refs.arrow"), &live).unwrap();
        let opening = RefStore::open(&dir).unwrap_err().to_string();
        assert!(
            opening.contains("another log") && opening.contains("refstone repair"),
            "{opening}"
        );
        assert_refused(&dir, &sealed, &opening);
        let resumed = resume(&dir, &ResumeOptions::default());
        assert!(matches!(resumed, Err(ResumeError::AnotherLog { .. })), "{resumed:?}");
    }
    // The anchor lies where history ends, and behind that.
    for sealed_of_other in [6, 8] {
        let other = Scratch::new();
        commit_numbers(&other.store, 1..=sealed_of_other);
        compact(&other.store);
        other.store.close().unwrap();
        fs::copy(other.dir().join("refs.arrow"), &live).unwrap();
        let opening = RefStore::open(&dir).unwrap_err().to_string();
        let reading = read_view(&dir).unwrap_err().to_string();
        let (_, following) = told(history(&dir, None).unwrap());
        for problem in [&opening, &reading, &following[0].to_string()] {
            assert!(problem.contains("another log"), "{problem}");
        }
        assert!(verify(&dir, &mut |_| ()).unwrap().damage[0].to_string().contains("another log"));
        let resumed = resume(&dir, &ResumeOptions::default());
        assert!(matches!(resumed, Err(ResumeError::AnotherLog { .. })), "{resumed:?}");
    }
    fs::write(&live, own).unwrap();
    assert_eq!(moves(&dir), sealed);
}

// Breaks: comparing history with the live file that was opened before, when it is listed.
#[test]
fn a_reader_that_is_overtaken_by_compactions_is_not_refused() {
    type Read = fn(&Arc<dyn Env>, &Path) -> Seq;
    let readers: [Read; 3] = [
        |env, dir| read_view_with(env, dir, At::Seq(Seq::new(u64::MAX))).unwrap().seq(),
        |env, dir| {
            let moves = history_with(env, dir, Seq::ZERO, None).unwrap().map(Result::unwrap);
            moves.last().unwrap().seq
        },
        |env, dir| {
            let newest = history_newest_first_with(env, dir, None).unwrap();
            newest.map(Result::unwrap).next().unwrap().seq
        },
    ];
    for read in readers {
        let scratch = Scratch::new();
        commit_numbers(&scratch.store, 1..=3);
        let store = scratch.store.clone();
        // Twice, so that history goes further than the file that the reader has open.
        let mut overtaking = Some(move || {
            compact(&store);
            commit_numbers(&store, 4..=6);
            compact(&store);
        });
        let env = env_with(move |what, _| {
            if what == "list" {
                overtaking.take().into_iter().for_each(|overtake| overtake());
            }
        });
        let newest = read(&env, &scratch.dir());
        assert!(newest >= Seq::new(3), "{newest}");
        assert_eq!(LogReader::open(&OsEnv, &scratch.dir()).unwrap().anchor().seq, Seq::new(6));
    }
}

// Breaks: counting published transactions alone.
#[test]
fn a_crash_before_what_was_sealed_was_published_makes_no_older_copy() {
    let scratch = Scratch::new();
    let dir = scratch.dir();
    let live = dir.join("refs.arrow");
    commit_numbers(&scratch.store, 1..=3);
    let mut reader = LogReader::open(&OsEnv, &dir).unwrap();
    let mut starts = vec![reader.offset()];
    while reader.next().unwrap().is_some() {
        starts.push(reader.offset());
    }
    let mut file = fs::read(&live).unwrap();
    compact(&scratch.store);
    let refs = scratch.refs();
    scratch.store.close().unwrap();
    // The swap is undone, and so is the length word before the newest transaction.
    let slot = usize::try_from(starts[2]).unwrap();
    file[slot + 4..slot + 8].fill(0);
    fs::write(&live, file).unwrap();
    assert_eq!(read_seq(&dir).unwrap(), Seq::new(2));
    assert_eq!(read_view(&dir).unwrap().seq(), Seq::new(2));
    assert_eq!(moves(&dir).len(), 4);
    assert!(verify(&dir, &mut |_| ()).unwrap().is_sound());
    assert_eq!(listing(&RefStore::open(&dir).unwrap().view()), refs);
}
