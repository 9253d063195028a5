//! Logs of secrets against arrow-rs: the newest change of each key, as Arrow's own builders make
//! it, is what Arrow's own reader finds, and nothing else.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, RecordBatch, StringArray, TimestampMicrosecondArray, UInt64Array,
};
use arrow_ipc::reader::StreamReader;
use proptest::prelude::*;
use refstone_log::{Env, SecretLog};
use refstone_tests::env::TestEnv;
use refstone_tests::generate::readable;
use refstone_tests::secrets::{Change, changes, make};

fn read(dir: &Path) -> (HashMap<String, String>, Vec<RecordBatch>) {
    let file = BufReader::new(File::open(dir.join("secrets.arrow")).unwrap());
    let reader = StreamReader::try_new(file, None).unwrap();
    (reader.schema().metadata().clone().into(), reader.map(Result::unwrap).collect())
}

/// The columns that Arrow's own builders make of a change.
fn oracle(seq: u64, at: i64, change: &Change) -> Vec<ArrayRef> {
    let at = TimestampMicrosecondArray::from(vec![at]).with_timezone("UTC");
    let text = |raw: &[u8]| StringArray::from(vec![readable(raw, true)]);
    vec![
        Arc::new(UInt64Array::from(vec![seq])),
        Arc::new(at),
        Arc::new(text(&change.actor)),
        Arc::new(text(&change.key)),
        Arc::new(BinaryArray::from(vec![change.value.as_deref()])),
    ]
}

/// The sequences up to the newest that are not among these, as the schema lists them.
fn gaps(seqs: impl Iterator<Item = u64>) -> String {
    let mut next = 1;
    let mut gaps = Vec::new();
    for seq in seqs {
        if next < seq {
            gaps.push(format!("{next}-{}", seq - 1));
        }
        next = seq + 1;
    }
    gaps.join(",")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    // Breaks: an empty validity buffer for a deletion; escaping the secret as if it were text; the
    // order of the keys instead of that of the sequences; a checksum over what was replaced.
    #[test]
    fn the_newest_changes_read_as_the_batches_that_arrow_builds(changes in changes()) {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("secrets");
        let env: Arc<dyn Env> = Arc::new(TestEnv::new());
        let left = make(&env, &dir, &changes);

        let log = SecretLog::open(env, &dir).unwrap();
        let mut found: Vec<_> = log.changes().collect();
        found.sort_unstable_by_key(|change| change.seq);
        let (metadata, batches) = read(&dir);
        prop_assert_eq!((found.len(), batches.len()), (left.len(), left.len()));
        for ((batch, change), (seq, expected)) in batches.iter().zip(found).zip(&left) {
            prop_assert_eq!(change.seq.get(), *seq);
            let value = change.value.as_ref().map(|value| value.as_bytes().to_vec());
            let change =
                Change { actor: change.actor.clone(), key: change.key.clone(), value };
            prop_assert_eq!(&change, expected);
            let at = log.newest(&expected.key).unwrap().at.as_micros();
            let oracle = oracle(*seq, at, expected);
            prop_assert_eq!(batch.columns(), oracle.as_slice());
        }
        prop_assert_eq!(&metadata["refstone.kind"], "secrets");
        prop_assert_eq!(&metadata["refstone.gaps"], &gaps(left.iter().map(|(seq, _)| *seq)));
    }
}

// Break: carrying on a checksum of what the file held before: a short secret can be guessed from it.
#[test]
fn no_checksum_remembers_what_was_replaced() {
    let file = |replaced: &str| {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("secrets");
        let change = |key: &str, value: &str| Change {
            actor: b"alice".into(),
            key: key.into(),
            value: Some(value.into()),
        };
        let changes = [change("pin", replaced), change("other", "stays"), change("pin", "4321")];
        let _ = make(&(Arc::new(TestEnv::new()) as Arc<dyn Env>), &dir, &changes);
        std::fs::read(dir.join("secrets.arrow")).unwrap()
    };
    assert!(file("0000") == file("1234"));
}

// Break: `at` taken from the clock alone.
#[test]
fn time_never_goes_back_also_across_a_reopening() {
    let scratch = tempfile::tempdir().unwrap();
    let (dir, env) = (scratch.path().join("secrets"), TestEnv::new());
    SecretLog::create(&env, &dir).unwrap();
    for (clock, key) in [(5_000_000, b"a"), (3_000_000, b"b"), (1_000_000, b"c")] {
        env.set_clock(clock);
        SecretLog::open(Arc::new(env.clone()), &dir).unwrap().set(b"alice", key, b"s").unwrap();
    }
    let log = SecretLog::open(Arc::new(env), &dir).unwrap();
    assert!(log.changes().all(|change| change.at.as_micros() == 5_000_000));
}
