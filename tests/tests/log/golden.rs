//! Files of every released format open forever, and format 1 is written as it was released.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use refstone_log::{
    Env, Log, LogReader, NoObserver, ObjectFormat, OsEnv, RefLogOptions, SecretLog,
};
use refstone_tests::env::TestEnv;
use refstone_tests::logs::Row;
use refstone_tests::secrets::{Change, make};

/// Set to rewrite the golden files; a released one must never change.
const BLESS: &str = "REFSTONE_BLESS";

fn golden(format: ObjectFormat) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("golden/format-1-{format}.arrow"))
}

/// One transaction of each shape that the format has.
fn transactions(format: ObjectFormat) -> Vec<Vec<Row>> {
    let oid = |byte: u8| Some(vec![byte; format.len()]);
    let row = |refname: &[u8], old_oid, new_oid| Row {
        actor: b"alice".into(),
        refname: refname.into(),
        old_oid,
        new_oid,
        symref: None,
        message: None,
    };
    let symbolic = Row { symref: Some(b"refs/heads/trunk".into()), ..row(b"HEAD", None, None) };
    let odd = Row {
        actor: b"b\\ob \xff".into(),
        message: Some("zażółć\n".into()),
        ..row(b"refs/heads/\xfe", oid(1), oid(2))
    };
    vec![
        vec![row(b"refs/heads/topic-1234", oid(1), oid(2))],
        vec![row(b"refs/heads/main", None, oid(3))],
        vec![row(b"refs/heads/main", oid(3), None)],
        vec![symbolic.clone()],
        vec![odd.clone()],
        vec![odd, symbolic, row(b"refs/tags/v1", None, oid(9)), row(b"r", oid(9), None)],
    ]
}

fn write(format: ObjectFormat, dir: &Path) -> Vec<u8> {
    let env = TestEnv::new();
    let options = RefLogOptions { object_format: format, head: b"refs/heads/main".into() };
    Log::create(&env, dir, &options).unwrap();
    let (log, _) = Log::open(Arc::new(env), dir, Arc::new(NoObserver), &mut |_| ()).unwrap();
    for rows in transactions(format) {
        let rows: Vec<_> = rows.iter().map(Row::as_row).collect();
        log.append(rows.as_slice()).unwrap().wait().unwrap();
    }
    let end = usize::try_from(log.live_bytes()).unwrap() + 8;
    log.close().unwrap();
    fs::read(dir.join("refs.arrow")).unwrap()[..end].to_vec()
}

// Break: any change of a byte that is written.
#[test]
fn format_1_is_written_as_it_was_released() {
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        let dir = tempfile::tempdir().unwrap();
        let bytes = write(format, &dir.path().join("log"));
        if std::env::var_os(BLESS).is_some() {
            fs::create_dir_all(golden(format).parent().unwrap()).unwrap();
            fs::write(golden(format), &bytes).unwrap();
        }
        assert!(fs::read(golden(format)).unwrap() == bytes, "{format}: not the released bytes");
    }
}

#[test]
fn format_1_is_read_and_goes_on() {
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        let dir = tempfile::tempdir().unwrap();
        fs::copy(golden(format), dir.path().join("refs.arrow")).unwrap();
        let mut back = Vec::new();
        let mut replay = |frame: &refstone_log::Frame<'_>| {
            back.push(frame.ref_rows().map(|row| Row::from(&row)).collect::<Vec<_>>());
        };
        let env = Arc::new(TestEnv::new());
        let (log, recovery) =
            Log::open(env, dir.path(), Arc::new(NoObserver), &mut replay).unwrap();
        assert_eq!(back, transactions(format));
        assert_eq!((recovery.torn, log.object_format()), (None, format));
        let row = Row { old_oid: None, new_oid: None, ..Row::standard() };
        assert_eq!(log.append(&[row.as_row()]).unwrap().wait().unwrap().seq().get(), 7);
        assert_eq!(LogReader::open(&OsEnv, dir.path()).unwrap().head(), b"refs/heads/main");
    }
}

fn golden_secrets() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/format-1-secrets.arrow")
}

/// One change of each shape that the format has; the first, third and fourth are replaced.
fn changes() -> Vec<Change> {
    let change = |actor: &[u8], key: &[u8], value: Option<&[u8]>| Change {
        actor: actor.into(),
        key: key.into(),
        value: value.map(<[u8]>::to_vec),
    };
    vec![
        change(b"alice", b"host-key", Some(b"replaced")),
        change(b"alice", b"token/ci", Some(&[0, 0xff, b'\\', 9, 10, 11, 12, 13, 14])),
        change(b"alice", b"old", Some(b"deleted")),
        change(b"alice", b"host-key", Some(b"replaced again")),
        change(b"b\\ob \xff", b"back\\slash", Some(b"")),
        change(b"carol", b"old", None),
        change(b"dave", b"host-key", Some(b"the newest")),
    ]
}

// Break: any change of a byte that is written.
#[test]
fn secrets_in_format_1_are_written_as_they_were_released() {
    let scratch = tempfile::tempdir().unwrap();
    let (dir, env) = (scratch.path().join("secrets"), Arc::new(TestEnv::new()) as Arc<dyn Env>);
    let _ = make(&env, &dir, &changes());
    let bytes = fs::read(dir.join("secrets.arrow")).unwrap();
    if std::env::var_os(BLESS).is_some() {
        fs::write(golden_secrets(), &bytes).unwrap();
    }
    assert!(fs::read(golden_secrets()).unwrap() == bytes, "not the released bytes");
}

#[test]
fn secrets_in_format_1_are_read_and_go_on() {
    let dir = tempfile::tempdir().unwrap();
    fs::copy(golden_secrets(), dir.path().join("secrets.arrow")).unwrap();
    let mut log = SecretLog::open(Arc::new(TestEnv::new()), dir.path()).unwrap();
    let back: Vec<_> = log.changes().map(|change| (change.seq.get(), &*change.key)).collect();
    let expected: [(u64, &[u8]); 4] =
        [(5, b"back\\slash"), (7, b"host-key"), (6, b"old"), (2, b"token/ci")];
    assert_eq!(back, expected);
    let value = |key: &[u8]| Some(log.newest(key)?.value.clone()?.as_bytes().to_vec());
    assert_eq!(value(b"host-key").unwrap(), b"the newest");
    assert_eq!((value(b"back\\slash").unwrap(), value(b"old")), (vec![], None));
    assert_eq!(log.newest(b"back\\slash").unwrap().actor, b"b\\ob \xff");
    assert_eq!(log.set(b"erin", b"old", b"new").unwrap().get(), 8);
}
