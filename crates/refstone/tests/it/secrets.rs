//! The secret store: what it replaces is gone, and nobody but the owner reads the rest.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use refstone::secrets::{SECRET_LEN_MAX, SECRET_NAME_LEN_MAX, SecretStore};
use refstone::{CreateOptions, ErrorKind, RefStore};
use tempfile::TempDir;

fn scratch() -> (TempDir, PathBuf) {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("refstone-secrets");
    SecretStore::create(&dir).unwrap();
    (scratch, dir)
}

/// The files below a directory that hold these bytes.
fn grep(dir: &Path, wanted: &[u8]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(grep(&path, wanted));
        } else if fs::read(&path).unwrap().windows(wanted.len()).any(|bytes| bytes == wanted) {
            found.push(path);
        }
    }
    found
}

fn get(store: &SecretStore, key: &str) -> Option<Vec<u8>> {
    store.get(key).map(|secret| secret.as_bytes().to_vec())
}

// Breaks: appending the change to what is there; keeping the replaced file under another name.
#[test]
fn a_secret_that_was_replaced_or_deleted_is_in_no_file() {
    let (scratch, dir) = scratch();
    let store = SecretStore::open(&dir).unwrap();
    store.put("alice", "other", "stays-where-it-is").unwrap();
    for (old, new) in [("", "first-secret"), ("first-secret", "second"), ("second", "third")] {
        store.put("alice", "host-key", new).unwrap();
        assert_eq!(grep(scratch.path(), new.as_bytes()), [dir.join("secrets.arrow")]);
        assert!(
            old.is_empty() || grep(scratch.path(), old.as_bytes()).is_empty(),
            "{old} is there"
        );
    }
    assert_eq!(store.delete("alice", "host-key").unwrap().unwrap().get(), 5);
    assert!(grep(scratch.path(), b"third").is_empty());
    assert_eq!(grep(scratch.path(), b"stays-where-it-is").len(), 1);
    assert_eq!(store.delete("alice", "host-key").unwrap(), None);
}

// Break: taking the live file for the first of two when it is opened.
#[test]
fn what_a_crash_left_over_is_gone_when_the_store_is_open() {
    let (scratch, dir) = scratch();
    SecretStore::open(&dir).unwrap().put("alice", "key", "old-secret").unwrap();
    fs::write(dir.join("secrets.arrow.tmp"), "half of a file with new-secret").unwrap();
    let store = SecretStore::open(&dir).unwrap();
    assert!(grep(scratch.path(), b"new-secret").is_empty());
    assert_eq!(get(&store, "key").unwrap(), b"old-secret");
}

// Breaks: sequences that start anew; a deletion that forgets who made it.
#[test]
fn secrets_their_history_and_their_sequence_survive_a_reopening() {
    let (_scratch, dir) = scratch();
    {
        let store = SecretStore::open(&dir).unwrap();
        store.put("alice", "b", [0, 0xff, b'\\']).unwrap();
        store.put("b\\ob \u{e4}", [0xfe, b'\\'], "").unwrap();
        store.put("carol", "c", "three").unwrap();
        store.put("dave", "b", "four").unwrap();
        store.delete("erin", "c").unwrap();
    }
    let store = SecretStore::open(&dir).unwrap();
    assert_eq!(store.keys(), [b"b".to_vec(), vec![0xfe, b'\\']]);
    assert_eq!(store.get([0xfe, b'\\']).unwrap().as_bytes(), b"");
    assert_eq!(get(&store, "b").unwrap(), b"four");
    assert_eq!(get(&store, "c"), None);
    let deleted = store.newest_change("c").unwrap();
    assert_eq!((deleted.actor.as_slice(), deleted.seq.get()), (b"erin".as_slice(), 5));
    assert!(deleted.at >= store.newest_change("b").unwrap().at);
    assert_eq!(store.put("alice", "c", "six").unwrap().get(), 6);
}

// Break: creating files with the mode that the umask leaves.
#[test]
fn files_are_for_their_owner_alone_whatever_the_umask() {
    const CHILD: &str = "REFSTONE_TEST_SECRETS_DIR";
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    if let Some(dir) = std::env::var_os(CHILD) {
        let dir = PathBuf::from(dir);
        SecretStore::create(&dir).unwrap();
        SecretStore::open(&dir).unwrap().put("alice", "key", "secret").unwrap();
        return;
    }
    for umask in ["000", "022", "277"] {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("s");
        let script = format!("umask {umask}; exec \"$0\" --exact \"$1\"");
        let test = "secrets::files_are_for_their_owner_alone_whatever_the_umask";
        let mut child = Command::new("sh");
        child.args(["-c", &script]).arg(std::env::current_exe().unwrap()).arg(test);
        assert!(child.env(CHILD, &dir).output().unwrap().status.success(), "umask {umask}");
        assert_eq!(mode(&dir), 0o700, "umask {umask}");
        let files: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap()).collect();
        assert_eq!(files.len(), 2, "the store and its lock");
        for file in files {
            assert_eq!(mode(&file.path()), 0o600, "umask {umask}: {:?}", file.path());
        }
    }
}

// Breaks: opening without a look at the modes; repairing them in silence.
#[test]
fn a_file_or_directory_that_lets_others_in_is_refused_and_the_error_says_how_it_is_repaired() {
    let (_scratch, dir) = scratch();
    for (path, open, private) in
        [(dir.join("secrets.arrow"), 0o640, 0o600), (dir.clone(), 0o755, 0o700)]
    {
        let set = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        set(open);
        let error = SecretStore::open(&dir).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Permission);
        assert!(error.to_string().contains(&format!("chmod {private:o}")), "{error}");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, open);
        set(private);
        SecretStore::open(&dir).unwrap();
    }
}

// Breaks: not comparing the kind in the schema; taking a directory of the other kind for an empty
// one.
#[test]
fn stores_of_refs_and_of_secrets_refuse_each_others_logs() {
    let (scratch, secrets) = scratch();
    let refs = scratch.path().join("refstone");
    RefStore::create(&refs, &CreateOptions::default()).unwrap();
    fs::set_permissions(&refs, fs::Permissions::from_mode(0o700)).unwrap();
    let check = |error: String, found: &str, expected: &str| {
        let wanted = format!("this is a log of {found}, and not one of {expected}");
        assert!(error.contains(&wanted), "{error}");
    };
    check(SecretStore::open(&refs).unwrap_err().to_string(), "refs", "secrets");
    check(RefStore::open(&secrets).unwrap_err().to_string(), "secrets", "refs");
    assert_eq!(SecretStore::create(&refs).unwrap_err().kind(), ErrorKind::AlreadyExists);

    let (from_refs, from_secrets) = (refs.join("refs.arrow"), secrets.join("secrets.arrow"));
    fs::set_permissions(&from_refs, fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(&from_refs, scratch.path().join("refs")).unwrap();
    fs::rename(&from_secrets, &from_refs).unwrap();
    fs::rename(scratch.path().join("refs"), &from_secrets).unwrap();
    check(SecretStore::open(&secrets).unwrap_err().to_string(), "refs", "secrets");
    check(RefStore::open(&refs).unwrap_err().to_string(), "secrets", "refs");
    assert_eq!(
        refstone_log::verify(&refstone::OsEnv, &refs).unwrap().damage.unwrap().kind(),
        ErrorKind::Corrupt
    );
}

// Break: deriving `Debug`.
#[test]
fn no_debug_output_tells_a_secret() {
    let (_scratch, dir) = scratch();
    let store = SecretStore::open(&dir).unwrap();
    store.put("alice", "key", "hunter2").unwrap();
    let told = format!("{store:?} {:?} {:?}", store.get("key"), store.newest_change("key"));
    assert!(told.contains("Secret(..)") && !told.contains("hunter2"), "{told}");
    assert!(!told.contains(&format!("{:?}", b"hunter2")), "{told}");
}

#[test]
fn a_second_writer_is_refused_and_a_missing_store_is_named() {
    let (scratch, dir) = scratch();
    let store = SecretStore::open(&dir).unwrap();
    assert_eq!(SecretStore::open(&dir).unwrap_err().kind(), ErrorKind::Locked);
    assert_eq!(SecretStore::create(&dir).unwrap_err().kind(), ErrorKind::Locked);
    drop(store);
    SecretStore::open(&dir).unwrap();
    let nowhere = scratch.path().join("nowhere");
    let error = SecretStore::open(&nowhere).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(!nowhere.exists());
}

// Break: counting the length in the wrong place, so that the limit itself is refused.
#[test]
fn what_is_too_long_is_refused_and_changes_nothing() {
    let (_scratch, dir) = scratch();
    let store = SecretStore::open(&dir).unwrap();
    let longest = vec![b's'; SECRET_LEN_MAX];
    let name = vec![b'k'; SECRET_NAME_LEN_MAX];
    assert_eq!(store.put(&name, &name, &longest).unwrap().get(), 1);
    let long = |bytes: &[u8]| [bytes, b"x"].concat();
    let refused = [
        store.put("a", &name, long(&longest)),
        store.put("a", long(&name), "s"),
        store.put(long(&name), "k", "s"),
        store.put("a", "", "s"),
    ];
    for result in refused {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert_eq!(store.keys(), [name]);
    assert_eq!(store.put("a", "k", "s").unwrap().get(), 2);
}

// Break: taking what stands behind the end for nothing.
#[test]
fn damage_is_refused_and_nothing_is_changed() {
    let (_scratch, dir) = scratch();
    SecretStore::open(&dir).unwrap().put("alice", "key", "secret").unwrap();
    let live = dir.join("secrets.arrow");
    let sound = fs::read(&live).unwrap();
    let mut files = vec![sound[..sound.len() - 8].to_vec(), [&sound[..], &[1; 8]].concat(), vec![]];
    files.extend((0..sound.len()).step_by(5).map(|at| {
        let mut flipped = sound.clone();
        flipped[at] ^= 1;
        flipped
    }));
    for bytes in files {
        fs::write(&live, &bytes).unwrap();
        assert_eq!(SecretStore::open(&dir).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(fs::read(&live).unwrap(), bytes);
    }
    fs::write(&live, &sound).unwrap();
    assert_eq!(get(&SecretStore::open(&dir).unwrap(), "key").unwrap(), b"secret");
}
