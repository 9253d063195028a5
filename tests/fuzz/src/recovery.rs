//! A log whose file was damaged in any way: everybody who looks at it says the same.

use std::sync::OnceLock;

use refstone_log::{ErrorKind, ObjectFormat};
use refstone_tests::logs::{Row, push};
use refstone_tests::sim::{Fault, Op, Plan, SimFs};

use crate::machine::{check, empty, live, open, read, with_live};

/// Machines whose logs are whole, in the states in which logs are found.
fn bases() -> &'static [SimFs] {
    static BASES: OnceLock<Vec<SimFs>> = OnceLock::new();
    BASES.get_or_init(|| vec![closed(0), closed(3), unsynced(), closed(12)])
}

/// A log that was closed behind so many transactions.
fn closed(count: u64) -> SimFs {
    let fs = empty(ObjectFormat::Sha1);
    let (log, ..) = open(&fs).unwrap();
    for n in 0..count {
        push(&log, &Row::numbered(n));
    }
    log.close().unwrap();
    fs
}

/// A log of two durable transactions and a group of two whose sync failed.
fn unsynced() -> SimFs {
    let fs = closed(2);
    let (log, ..) = open(&fs).unwrap();
    let fault = Fault::Error(std::io::ErrorKind::Other);
    fs.plan(Plan { op: Op::Sync, after: 0, fault, lasting: false });
    drop(log.append(&[Row::numbered(3).as_row()]).unwrap());
    log.append(&[Row::numbered(4).as_row()]).unwrap().wait().unwrap_err();
    fs.kill()
}

/// The first byte picks a log, the others are a script of damage; or, if the first is 255,
/// they are the file.
pub fn recovery(data: &[u8]) {
    let Some((&first, rest)) = data.split_first() else { return };
    let base = &bases()[usize::from(first) % bases().len()];
    let bytes = if first == u8::MAX { rest.to_vec() } else { damaged(live(base), rest) };
    judge(&with_live(base, bytes));
}

fn damaged(mut file: Vec<u8>, mut script: &[u8]) -> Vec<u8> {
    while let Some((step, rest)) = script.split_first_chunk::<8>() {
        edit(&mut file, *step);
        script = rest;
    }
    file
}

/// One step: what, where (in steps of bytes or of half frames), how long, and a value.
fn edit(file: &mut Vec<u8>, [what, a, b, fine, c, d, value, _]: [u8; 8]) {
    const HALF_FRAME: usize = 336;
    let place = |high: u8, low: u8| usize::from(high) << 8 | usize::from(low);
    // Behind its content a file has zeros, where there is little to damage.
    let content = file.iter().rposition(|&byte| byte != 0).unwrap_or_default();
    let len = file.len().min(content + HALF_FRAME);
    let start = (place(a, b) + usize::from(fine % 4) * HALF_FRAME) % len.max(1);
    let start = start.min(len);
    let end = (start + place(c, d)).min(file.len());
    let target = (usize::from(value) * HALF_FRAME).min(file.len() - (end - start));
    match what % 8 {
        0 => file[start..end].fill(value),
        1 => file[start..end].iter_mut().for_each(|byte| *byte ^= value),
        2 => file.truncate(start),
        3 => file.resize((file.len() + place(c, d)).min(1 << 18), value),
        4 => file.copy_within(start..end, target),
        5 => drop(file.drain(start..end)),
        6 => reseal(file, start),
        _ => drop(reseal_schema(file)),
    }
}

/// Gives the frame that starts at or behind a place the checksum of its bytes.
fn reseal(file: &mut [u8], from: usize) {
    const FRAME: usize = 672;
    let starts_frame =
        |&at: &usize| file[at..at + 4] == [0xff; 4] && file[at + 8..at + 12] == [16, 0, 0, 0];
    let mut places = (from.next_multiple_of(8)..file.len().saturating_sub(FRAME)).step_by(8);
    let Some(at) = places.find(starts_frame) else { return };
    let seed = crc32c::crc32c(&(0x5eed_u128 << 64 | 1).to_be_bytes());
    let prefix = crc32c::crc32c_append(seed, &[0xff, 0xff, 0xff, 0xff, 0x10, 2, 0, 0]);
    let crc = crc32c::crc32c_append(prefix, &file[at + 8..at + FRAME - 4]);
    file[at + FRAME - 4..at + FRAME].copy_from_slice(&crc.to_le_bytes());
}

/// Gives the schema message the checksum of its bytes.
fn reseal_schema(file: &mut [u8]) -> Option<()> {
    const TAG: &[u8] = b"crc32c:";
    let word = u32::from_le_bytes(file.get(4..8)?.try_into().ok()?);
    let schema = file.get_mut(..usize::try_from(word).ok()?.checked_add(8)?)?;
    let digits = schema.windows(TAG.len()).position(|window| window == TAG)? + TAG.len();
    schema.get_mut(digits..digits + 8)?.fill(b'0');
    let crc = format!("{:08x}", crc32c::crc32c(schema));
    schema[digits..digits + 8].copy_from_slice(crc.as_bytes());
    Some(())
}

/// Reader, `verify` and the writer agree on what the file holds; a refusal changes nothing, and a
/// log that opens goes on, and is then whole.
fn judge(fs: &SimFs) {
    let before = live(fs);
    let (seen, broken) = read(fs);
    let report = check(fs).unwrap();
    if report.damage.is_none() {
        assert!(broken.is_none(), "verify accepts what a reader refuses");
        assert_eq!(report.transactions, seen.len() as u64);
    }
    let (log, recovery, replayed) = match open(fs) {
        Ok(opened) => opened,
        Err(error) => {
            let damage = report.damage.expect("verify sees why a log does not open");
            assert_eq!(damage.kind(), error.kind());
            assert_ne!(error.kind(), ErrorKind::Io, "{error}");
            assert_eq!(live(fs), before, "a refused log was changed");
            return;
        }
    };
    assert!(report.damage.is_none(), "a damaged log opens");
    assert!(replayed.starts_with(&seen), "a reader saw what is no more");
    assert_eq!(recovery.transactions, report.transactions + report.unpublished);
    assert_eq!(recovery.torn.is_some(), report.unfinished_bytes > 0);
    assert_eq!(recovery.transactions, replayed.len() as u64);
    let next = push(&log, &Row::standard());
    assert_eq!(next, recovery.last_seq.get() + 1);
    log.close().unwrap();
    assert_whole(fs, recovery.transactions + 1);
}

fn assert_whole(fs: &SimFs, transactions: u64) {
    let report = check(fs).unwrap();
    assert!(report.damage.is_none(), "{:?}", report.damage);
    assert_eq!((report.transactions, report.unpublished), (transactions, 0));
    assert_eq!(report.unfinished_bytes, 0);
    let (log, recovery, _) = open(fs).unwrap();
    assert_eq!((recovery.transactions, recovery.proved), (transactions, 0));
    assert_eq!(recovery.torn, None);
    log.close().unwrap();
}
