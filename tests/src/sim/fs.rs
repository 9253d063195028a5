//! The simulated file system as a process sees it: the log's I/O seam.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use refstone_log::{Env, EnvFile, EnvLock, FileId, Timestamp};

use super::dir::Ino;
use super::disk::Disk;
use super::fault::{Fault, Op, Plan};
use super::keep::Policy;
use super::kernel::{Kernel, Moment, Pid};
use super::rng::Rng;

/// One process on a simulated machine. Clones are the same process.
///
/// Every byte lives in memory. The machine keeps apart what processes see and what the disk may
/// hold, and can die at any operation: a [killed](SimFs::kill) process leaves the kernel with all
/// it had cached, a [power cut](SimFs::power_cut) leaves what a [`Policy`] lets survive.
#[derive(Clone, Debug)]
pub struct SimFs {
    kernel: Arc<Mutex<Kernel>>,
    pid: Pid,
}

impl Default for SimFs {
    fn default() -> SimFs {
        SimFs::new()
    }
}

impl SimFs {
    /// A process on a machine with an empty disk.
    #[must_use]
    pub fn new() -> SimFs {
        SimFs::boot(Disk::new())
    }

    /// A process on a machine with this disk. What is uncertain about the disk stays so.
    #[must_use]
    pub fn boot(disk: Disk) -> SimFs {
        let mut kernel = Kernel::boot(disk);
        let pid = kernel.spawn();
        SimFs { kernel: Arc::new(Mutex::new(kernel)), pid }
    }

    /// Another process on this machine.
    #[must_use]
    pub fn spawn(&self) -> SimFs {
        SimFs { kernel: self.kernel.clone(), pid: self.kernel.lock().spawn() }
    }

    /// Kills this process and starts another. The kernel lives: what was written is there, and no
    /// more durable than before.
    #[must_use]
    pub fn kill(&self) -> SimFs {
        self.kernel.lock().kill(self.pid);
        self.spawn()
    }

    /// Cuts the power, and starts a process on what is left. Clock, faults and counts
    /// go on as they were.
    #[must_use]
    pub fn power_cut(&self, policy: Policy, rng: &mut Rng) -> SimFs {
        let mut old = self.kernel.lock();
        old.kill(self.pid);
        let mut kernel = Kernel::boot(old.disk.survivor(policy, rng));
        kernel.faults = old.faults.clone();
        (kernel.clock, kernel.ids, kernel.note) = (old.clock, old.ids, old.note);
        kernel.counts = old.counts.clone();
        let pid = kernel.spawn();
        SimFs { kernel: Arc::new(Mutex::new(kernel)), pid }
    }

    /// The disk as it is now, with all that is uncertain about it.
    #[must_use]
    pub fn disk(&self) -> Disk {
        self.kernel.lock().disk.clone()
    }

    /// Plans a fault.
    pub fn plan(&self, plan: Plan) {
        self.kernel.lock().faults.plan(plan);
    }

    /// Withdraws all planned faults.
    pub fn heal(&self) {
        self.kernel.lock().faults.heal();
    }

    /// How many faults were met.
    #[must_use]
    pub fn faults_met(&self) -> usize {
        self.kernel.lock().faults.met()
    }

    /// How many operations of a kind there were.
    #[must_use]
    pub fn count(&self, op: Op) -> usize {
        self.kernel.lock().counts.get(&op).copied().unwrap_or(0)
    }

    /// How many operations there were.
    #[must_use]
    pub fn ops(&self) -> u64 {
        self.kernel.lock().ops()
    }

    /// The kernel is short of memory: it drops clean pages, so that what a failed sync lost is
    /// read from the disk again.
    pub fn evict(&self, policy: Policy, rng: &mut Rng) {
        self.kernel.lock().disk.evict(policy, rng);
    }

    /// As [`evict`](SimFs::evict), just before the operation after so many more.
    pub fn evict_in(&self, ops: u64) {
        self.kernel.lock().evict_in(ops);
    }

    /// Starts to remember every moment at which the machine might crash.
    pub fn record(&self) {
        self.kernel.lock().record();
    }

    /// The moments since the last call.
    #[must_use]
    pub fn take_moments(&self) -> Vec<Moment> {
        let mut kernel = self.kernel.lock();
        kernel.remember(None);
        kernel.take_moments()
    }

    /// Marks the moments from here on; the number means what the test wants it to.
    pub fn note(&self, note: usize) {
        self.kernel.lock().note = note;
    }

    /// The clock's next reading.
    #[must_use]
    pub fn clock(&self) -> i64 {
        self.kernel.lock().clock
    }

    /// Sets the clock's next reading; each reading moves it on by a microsecond.
    pub fn set_clock(&self, micros: i64) {
        self.kernel.lock().clock = micros;
    }

    /// One operation: it may meet a fault, and the machine may crash before and after it.
    fn run<T>(
        &self,
        op: Op,
        action: impl FnOnce(&mut Kernel, Option<Fault>) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut kernel = self.kernel.lock();
        let fault = kernel.begin(self.pid, op)?;
        let result = action(&mut kernel, fault);
        kernel.remember(Some(op));
        result
    }

    /// An operation that happens or fails as a whole.
    fn whole<T>(&self, op: Op, action: impl FnOnce(&mut Kernel) -> io::Result<T>) -> io::Result<T> {
        self.run(op, |kernel, fault| match fault {
            Some(Fault::Error(kind)) => Err(kind.into()),
            Some(Fault::DoneBut(kind)) => action(kernel).and(Err(kind.into())),
            _ => action(kernel),
        })
    }

    fn file(&self, ino: Ino) -> Box<dyn EnvFile> {
        *self.kernel.lock().open.entry(ino).or_default() += 1;
        Box::new(SimFile { fs: self.clone(), ino })
    }

    fn open(&self, op: Op, path: &Path) -> io::Result<Box<dyn EnvFile>> {
        let ino = self.whole(op, |kernel| {
            let ino = kernel.disk.find(path)?;
            kernel.disk.content(ino).map(|_| ino)
        })?;
        Ok(self.file(ino))
    }
}

impl Env for SimFs {
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn EnvFile>> {
        let ino = self.whole(Op::Create, |kernel| kernel.disk.create(path))?;
        Ok(self.file(ino))
    }

    fn open_read(&self, path: &Path) -> io::Result<Box<dyn EnvFile>> {
        self.open(Op::OpenRead, path)
    }

    fn open_write(&self, path: &Path) -> io::Result<Box<dyn EnvFile>> {
        self.open(Op::OpenWrite, path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.whole(Op::CreateDir, |kernel| kernel.disk.create_dir_all(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.whole(Op::Rename, |kernel| kernel.disk.rename(from, to))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.whole(Op::Link, |kernel| kernel.disk.link(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.whole(Op::Remove, |kernel| kernel.disk.remove(path))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        self.whole(Op::List, |kernel| kernel.disk.list(dir))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.whole(Op::SyncDir, |kernel| kernel.disk.sync_dir(dir))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn EnvLock>> {
        let pid = self.pid;
        let ino = self.whole(Op::Lock, |kernel| {
            let ino = match kernel.disk.find(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => kernel.disk.create(path),
                found => found,
            }?;
            if kernel.locks.contains_key(&ino) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            kernel.locks.insert(ino, pid);
            Ok(ino)
        })?;
        Ok(Box::new(SimLock { fs: self.clone(), ino }))
    }

    fn now(&self) -> Timestamp {
        let mut kernel = self.kernel.lock();
        kernel.clock += 1;
        Timestamp::from_micros(kernel.clock - 1)
    }

    fn random_id(&self) -> io::Result<[u8; 16]> {
        self.whole(Op::RandomId, |kernel| {
            kernel.ids += 1;
            Ok((0x5eed_u128 << 64 | u128::from(kernel.ids)).to_be_bytes())
        })
    }
}

/// A descriptor. It follows its inode through renames and removals.
#[derive(Debug)]
struct SimFile {
    fs: SimFs,
    ino: Ino,
}

impl SimFile {
    fn put(&self, kernel: &mut Kernel, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        kernel.disk.write(self.ino, bytes, offset)?;
        Ok(bytes.len())
    }
}

impl EnvFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.fs.run(Op::Read, |kernel, fault| {
            let wanted = match fault {
                Some(Fault::Error(kind)) => return Err(kind.into()),
                Some(Fault::Short) => buffer.len().div_ceil(2),
                _ => buffer.len(),
            };
            let cache = kernel.disk.content(self.ino)?.cache();
            let start = usize::try_from(offset).map_or(cache.len(), |at| at.min(cache.len()));
            let len = wanted.min(cache.len() - start);
            buffer[..len].copy_from_slice(&cache[start..start + len]);
            Ok(len)
        })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let half = &bytes[..bytes.len().div_ceil(2)];
        self.fs.run(Op::Write, |kernel, fault| match fault {
            Some(Fault::Error(kind)) => Err(kind.into()),
            Some(Fault::NoBytes) => Ok(0),
            Some(Fault::Short) => self.put(kernel, half, offset),
            Some(Fault::HalfThen(kind)) => {
                self.put(kernel, half, offset).and_then(|_| Err(kind.into()))
            }
            _ => self.put(kernel, bytes, offset),
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.fs.run(Op::Sync, |kernel, fault| match fault {
            Some(Fault::Error(kind)) => {
                kernel.disk.fail_sync(self.ino).and_then(|()| Err(kind.into()))
            }
            Some(Fault::DoneBut(kind)) => {
                kernel.disk.sync(self.ino).and_then(|()| Err(kind.into()))
            }
            _ => kernel.disk.sync(self.ino),
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.fs.whole(Op::Len, |kernel| Ok(kernel.disk.content(self.ino)?.cache().len() as u64))
    }

    fn id(&self) -> io::Result<Option<FileId>> {
        self.fs.whole(Op::Len, |_| Ok(Some(FileId::new(0, self.ino, None))))
    }

    fn try_clone(&self) -> io::Result<Box<dyn EnvFile>> {
        self.fs.whole(Op::Clone, |_| Ok(()))?;
        Ok(self.fs.file(self.ino))
    }

    /// As unkind as a file system may be: the bytes are gone for good at once, whatever becomes of the
    /// names.
    fn give_back(&self) {
        let given = self.fs.whole(Op::GiveBack, |kernel| {
            let is_alone = kernel.open.get(&self.ino) == Some(&1);
            if is_alone && !kernel.disk.has_name(self.ino) {
                kernel.disk.empty(self.ino)?;
            }
            Ok(())
        });
        // Closing the file gives back what this did not.
        drop(given);
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut kernel = self.fs.kernel.lock();
        if let Some(descriptors) = kernel.open.get_mut(&self.ino) {
            *descriptors -= 1;
        }
    }
}

/// A lock, held until it is dropped or its process ends.
#[derive(Debug)]
struct SimLock {
    fs: SimFs,
    ino: Ino,
}

impl EnvLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut kernel = self.fs.kernel.lock();
        if kernel.locks.get(&self.ino) == Some(&self.fs.pid) {
            kernel.locks.remove(&self.ino);
        }
    }
}
