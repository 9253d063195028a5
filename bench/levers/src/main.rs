//! Ways to make a group of frames durable, as bare loops: `refstone-levers DIR [ROUNDS]`.
//!
//! Interleaved, forwards and backwards; prints the median of the rounds' medians, and the ratio to
//! a zero-filled file with `pwrite` and `fdatasync`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const FRAME: usize = 672;
const EXTENT: u64 = 192 << 20;
const SPAN: Duration = Duration::from_millis(300);
/// The lever that the others are compared with.
const BASE: usize = 3;

trait Lever {
    fn name(&self) -> &'static str;
    fn commit(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;
}

struct Synced {
    name: &'static str,
    file: File,
    sync: fn(&File) -> io::Result<()>,
}

impl Lever for Synced {
    fn name(&self) -> &'static str {
        self.name
    }

    fn commit(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)?;
        (self.sync)(&self.file)
    }
}

/// Write and sync in one call.
struct Dsync(File);

impl Lever for Dsync {
    fn name(&self) -> &'static str {
        "zero-filled, pwritev2 with RWF_DSYNC"
    }

    fn commit(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let vector =
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: the one vector points to `bytes`, which outlive the call and are only read.
        let written = unsafe {
            libc::pwritev2(self.0.as_raw_fd(), &vector, 1, offset as libc::off_t, libc::RWF_DSYNC)
        };
        if written == bytes.len() as isize { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// Whole blocks past the page cache; the last block is written again by the next group.
struct Direct {
    file: File,
    memory: Vec<u8>,
    tail: Vec<u8>,
    start: u64,
}

impl Lever for Direct {
    fn name(&self) -> &'static str {
        "zero-filled, O_DIRECT|O_DSYNC blocks"
    }

    fn commit(&mut self, bytes: &[u8], _offset: u64) -> io::Result<()> {
        const BLOCK: usize = 4096;
        let len = self.tail.len() + bytes.len();
        let aligned = self.memory.as_ptr().align_offset(BLOCK);
        let blocks = &mut self.memory[aligned..aligned + len.next_multiple_of(BLOCK)];
        blocks[..self.tail.len()].copy_from_slice(&self.tail);
        blocks[self.tail.len()..len].copy_from_slice(bytes);
        blocks[len..].fill(0);
        self.file.write_all_at(blocks, self.start)?;
        let whole = len / BLOCK * BLOCK;
        self.tail = blocks[whole..len].to_vec();
        self.start += whole as u64;
        Ok(())
    }
}

/// Write and fdatasync linked, one system call for both.
struct Uring {
    file: File,
    ring: io_uring::IoUring,
}

impl Lever for Uring {
    fn name(&self) -> &'static str {
        "zero-filled, io_uring, write and fdatasync linked"
    }

    fn commit(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        use io_uring::{opcode, squeue::Flags, types};
        let file = types::Fd(self.file.as_raw_fd());
        let len = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        let write = opcode::Write::new(file, bytes.as_ptr(), len).offset(offset).build();
        let sync = opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build();
        for entry in [write.flags(Flags::IO_LINK), sync] {
            // SAFETY: file and bytes outlive the wait below, which sees both entries completed.
            unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)?;
        }
        self.ring.submit_and_wait(2)?;
        let results: Vec<i32> = self.ring.completion().map(|done| done.result()).collect();
        match results.iter().all(|&result| result >= 0) && results.len() == 2 {
            true => Ok(()),
            false => Err(io::Error::other(format!("{results:?}"))),
        }
    }
}

fn fresh(dir: &Path, name: &str, flags: i32, extent: u64) -> io::Result<File> {
    let path = dir.join(name);
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path)?;
    let zeros = vec![0; 1 << 20];
    for offset in (0..extent).step_by(zeros.len()) {
        file.write_all_at(&zeros, offset)?;
    }
    file.sync_all()?;
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path)
}

fn levers(dir: &Path) -> io::Result<Vec<Box<dyn Lever>>> {
    let synced = |name, file, extent, sync| {
        Ok::<_, io::Error>(Box::new(Synced { name, file: fresh(dir, file, 0, extent)?, sync }) as _)
    };
    let direct = fresh(dir, "g", libc::O_DIRECT | libc::O_DSYNC, EXTENT)?;
    let memory = vec![0; 1 << 20];
    let ring = io_uring::IoUring::new(8)?;
    Ok(vec![
        synced("growing, fsync", "a", 0, File::sync_all)?,
        synced("growing, fdatasync", "b", 0, File::sync_data)?,
        synced("zero-filled, fsync", "c", EXTENT, File::sync_all)?,
        synced("zero-filled, fdatasync", "d", EXTENT, File::sync_data)?,
        Box::new(Dsync(fresh(dir, "e", 0, EXTENT)?)),
        Box::new(Uring { file: fresh(dir, "f", 0, EXTENT)?, ring }),
        Box::new(Direct { file: direct, memory, tail: Vec::new(), start: 0 }),
    ])
}

/// Commits for a while; the median in microseconds.
fn run(lever: &mut dyn Lever, group: usize, offset: &mut u64) -> io::Result<f64> {
    let bytes = vec![0x5a; FRAME * group + 8];
    let (start, mut times) = (Instant::now(), Vec::new());
    while start.elapsed() < SPAN {
        let commit = Instant::now();
        lever.commit(&bytes, *offset)?;
        times.push(commit.elapsed().as_secs_f64() * 1e6);
        *offset += (FRAME * group) as u64;
    }
    Ok(median(&mut times))
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let dir = PathBuf::from(arguments.next().expect("usage: refstone-levers DIR [ROUNDS]"));
    let rounds: usize = arguments.next().map_or(5, |rounds| rounds.parse().expect("a number"));
    std::fs::create_dir_all(&dir)?;
    println!("load {}", std::fs::read_to_string("/proc/loadavg")?.trim());
    for group in [1, 16, 64] {
        let mut levers = levers(&dir)?;
        let mut offsets = vec![0; levers.len()];
        let mut medians = vec![Vec::new(); levers.len()];
        for round in 0..rounds {
            for n in 0..levers.len() {
                let n = if round % 2 == 0 { n } else { levers.len() - 1 - n };
                medians[n].push(run(&mut *levers[n], group, &mut offsets[n])?);
            }
        }
        println!("a group of {group} frames");
        let medians: Vec<f64> = medians.iter_mut().map(|rounds| median(rounds)).collect();
        for (lever, time) in levers.iter().zip(&medians) {
            println!("  {:50} {time:8.1} us  x{:.2}", lever.name(), medians[BASE] / time);
        }
    }
    Ok(())
}
