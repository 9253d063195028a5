//! Who holds a lock, as far as the kernel tells.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// ` (process 42: refstone serve data)`, or nothing where the kernel does not tell: in another
/// namespace of processes, on some file systems, or once the lock is free again.
pub(crate) fn shown(locked: &Path) -> String {
    let Some(pid) = pid(locked) else { return String::new() };
    match fs::read(format!("/proc/{pid}/cmdline")) {
        Ok(words) if !words.is_empty() => format!(" (process {pid}: {})", command(&words)),
        _ => format!(" (process {pid})"),
    }
}

/// Arguments end with a NUL each.
fn command(words: &[u8]) -> String {
    let words = words.strip_suffix(b"\0").unwrap_or(words);
    String::from_utf8_lossy(words).replace('\0', " ")
}

fn pid(locked: &Path) -> Option<u32> {
    let file = fs::metadata(locked).ok()?;
    let (major, minor) = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
    let locks = fs::read_to_string("/proc/locks").ok()?;
    holder_in(&locks, &format!("{major:02x}:{minor:02x}:{}", file.ino()))
}

/// The process of the line about this file, such as `1: FLOCK  ADVISORY  WRITE 42 fd:00:7 0 EOF`. One
/// that waits for a lock has an arrow behind its number.
fn holder_in(locks: &str, file: &str) -> Option<u32> {
    let mut lines = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.find_map(|line| match line[..] {
        [_, "FLOCK", _, "WRITE", pid, of, ..] if of == file => pid.parse().ok().filter(|&p| p > 0),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Breaks: taking who waits for who holds; another file; a lock of another kind.
    #[test]
    fn the_line_of_the_file_tells_who_holds_its_lock() {
        let locks = "1: POSIX  ADVISORY  WRITE 1 fd:00:7 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 2 fd:00:8 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 3 fd:00:7 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 4 fd:00:7 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 0 fd:00:9 0 EOF\n";
        let waits_first = "1: -> FLOCK  ADVISORY  WRITE 4 fd:00:7 0 EOF\n";
        assert_eq!(holder_in(locks, "fd:00:7"), Some(3));
        assert_eq!(holder_in(waits_first, "fd:00:7"), None);
        assert_eq!(holder_in(locks, "fd:00:9"), None, "of another namespace");
        assert_eq!(command(b"refstone\0serve\0data\0"), "refstone serve data");
    }

    #[test]
    fn a_lock_of_this_process_is_its_own() {
        let scratch = tempfile::tempdir().unwrap();
        let lock = fs::File::open(scratch.path()).unwrap();
        lock.lock().unwrap();
        let shown = shown(scratch.path());
        // Some kernels tell nothing.
        let ours = format!(" (process {}: ", std::process::id());
        assert!(shown.is_empty() || shown.starts_with(&ours), "{shown}");
        lock.unlock().unwrap();
        assert_eq!(super::shown(scratch.path()), "");
    }
}
