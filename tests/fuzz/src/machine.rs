//! A log in memory, whose file may hold anything.

use std::sync::Arc;

use refstone_log::{
    Env, Frame, Log, LogReader, NoObserver, ObjectFormat, OpenError, Recovery, RefLogOptions,
    VerifyReport, verify,
};
use refstone_tests::logs::Row;
use refstone_tests::sim::SimFs;
use refstone_tests::sim::observe::{live_path, log_dir};

/// A transaction as readers see it.
pub(crate) type Transaction = (u64, Vec<Row>);

/// A machine with an empty log.
pub(crate) fn empty(object_format: ObjectFormat) -> SimFs {
    let fs = SimFs::new();
    let head = b"refs/heads/main".into();
    Log::create(&fs, &log_dir(), &RefLogOptions { object_format, head }).unwrap();
    fs
}

/// The bytes of the live file.
pub(crate) fn live(fs: &SimFs) -> Vec<u8> {
    fs.disk().read(&live_path()).unwrap().to_vec()
}

/// The same machine with another live file.
pub(crate) fn with_live(fs: &SimFs, bytes: Vec<u8>) -> SimFs {
    let mut disk = fs.disk();
    disk.damage(&live_path(), |live| *live = bytes).unwrap();
    SimFs::boot(disk)
}

/// What a reader without the lock finds, and whether it came to the end.
pub(crate) fn read(fs: &SimFs) -> (Vec<Transaction>, Option<OpenError>) {
    let mut found = Vec::new();
    let error = LogReader::open(fs, &log_dir()).and_then(|mut reader| {
        while let Some(frame) = reader.next()? {
            found.push(transaction(&frame));
        }
        Ok(())
    });
    (found, error.err())
}

pub(crate) fn transaction(frame: &Frame<'_>) -> Transaction {
    (frame.seq().get(), frame.ref_rows().map(|row| Row::from(&row)).collect())
}

pub(crate) fn check(fs: &SimFs) -> Result<VerifyReport, OpenError> {
    verify(fs, &log_dir())
}

/// A log that was opened, and what it replayed.
pub(crate) type Opened = (Log, Recovery, Vec<Transaction>);

pub(crate) fn open(fs: &SimFs) -> Result<Opened, OpenError> {
    let env: Arc<dyn Env> = Arc::new(fs.clone());
    let mut found = Vec::new();
    let mut replay = |frame: &Frame<'_>| found.push(transaction(frame));
    let (log, recovery) = Log::open(env, &log_dir(), Arc::new(NoObserver), &mut replay)?;
    Ok((log, recovery, found))
}
