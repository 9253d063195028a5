//! Writes logs of generated transactions, and beside them what an Arrow reader must find:
//! `frame_corpus DIR SEED` makes `DIR/refs/<n>/refs.arrow`, `DIR/secrets/<n>/secrets.arrow`, and
//! beside each of them `rows.jsonl`.
//!
//! The outside readers' tests compare the two, so that they judge the very frames that the
//! property tests judge with arrow-rs.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use refstone_log::{Env, Log, NoObserver, ObjectFormat, OsEnv, PrivateOsEnv, RefLogOptions};
use refstone_tests::generate::{readable, transactions};
use refstone_tests::logs::Row;
use refstone_tests::secrets;
use serde_json::{Value, json};

const LOGS: u32 = 24;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let dir = PathBuf::from(arguments.next().ok_or("usage: frame_corpus DIR SEED")?);
    let seed: u64 = arguments.next().ok_or("usage: frame_corpus DIR SEED")?.parse()?;
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    for number in 0..LOGS {
        let tree = transactions().new_tree(&mut runner).map_err(|reason| reason.to_string())?;
        let (format, transactions) = tree.current();
        write(&dir.join(format!("refs/{number}")), format, &transactions)?;
        let tree = secrets::changes().new_tree(&mut runner).map_err(|reason| reason.to_string())?;
        write_secrets(&dir.join(format!("secrets/{number}")), &tree.current())?;
    }
    Ok(())
}

fn write(dir: &Path, format: ObjectFormat, transactions: &[Vec<Row>]) -> Result<(), Failure> {
    let options = RefLogOptions { object_format: format, head: b"refs/heads/main".into() };
    Log::create(&OsEnv, dir, &options)?;
    let (log, _) = Log::open(Arc::new(OsEnv), dir, Arc::new(NoObserver), &mut |_| ())?;
    let mut expected = String::new();
    for (rows, seq) in transactions.iter().zip(1_u64..) {
        let staged: Vec<_> = rows.iter().map(Row::as_row).collect();
        log.append(staged.as_slice())?.wait()?;
        for row in rows {
            expected += &format!("{}\n", describe(seq, row));
        }
    }
    log.close()?;
    Ok(fs::write(dir.join("rows.jsonl"), expected)?)
}

fn write_secrets(dir: &Path, changes: &[secrets::Change]) -> Result<(), Failure> {
    let env: Arc<dyn Env> = Arc::new(PrivateOsEnv);
    let mut expected = String::new();
    for (seq, change) in secrets::make(&env, dir, changes) {
        let row = json!({
            "seq": seq,
            "actor": readable(&change.actor, true),
            "key": readable(&change.key, true),
            "value": change.value.as_deref().map(hex),
        });
        expected += &format!("{row}\n");
    }
    Ok(fs::write(dir.join("rows.jsonl"), expected)?)
}

/// The row as an Arrow reader must find it: text readable, object ids in hex.
fn describe(seq: u64, row: &Row) -> Value {
    json!({
        "seq": seq,
        "actor": readable(&row.actor, true),
        "refname": readable(&row.refname, false),
        "old_oid": row.old_oid.as_deref().map(hex),
        "new_oid": row.new_oid.as_deref().map(hex),
        "symref": row.symref.as_deref().map(|raw| readable(raw, false)),
        "message": row.message.as_deref().map(|raw| readable(raw, true)),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
