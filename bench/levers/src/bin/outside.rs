//! Where a frame is encoded: under the writer mutex, or before it, so that under it the frame is
//! copied, its sequence, time and chain are patched in, and its checksum is put together from those
//! of its parts. `outside DIR`. Bare loops, and both encoders alone.

use std::cell::RefCell;
use std::fs::File;
use std::hint::black_box;
use std::sync::LazyLock;
use std::sync::atomic::AtomicU64;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use refstone_levers::group::{Gate, Staging};
use refstone_levers::{FRAME, Loop, compare};

/// Marker, length word and metadata.
const HEAD: usize = 536;
/// Sequence and time, behind the zero block.
const NUMBERS: usize = HEAD + 24;
const VARIABLE: usize = NUMBERS + 16;
/// Durable sequence, the checksum of the frame before, and the frame's own.
const TRAILER: usize = FRAME - 16;

static TEMPLATE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut template = vec![0; HEAD];
    template.iter_mut().enumerate().for_each(|(n, byte)| *byte = n as u8);
    template
});

/// What a register becomes over the bytes behind the numbers, for each of its bytes.
static OVER_REST: LazyLock<[[u32; 256]; 4]> = LazyLock::new(|| {
    std::array::from_fn(|place| {
        std::array::from_fn(|byte| {
            crc32c::crc32c_combine((byte as u32) << (8 * place), 0, TRAILER - VARIABLE)
        })
    })
});

fn over_rest(crc: u32) -> u32 {
    let bytes = crc.to_le_bytes();
    (0..4).fold(0, |sum, place| sum ^ OVER_REST[place][usize::from(bytes[place])])
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_micros() as u64
}

fn put(out: &mut [u8], at: usize, value: u64) {
    out[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// All of a frame but its numbers: the template, eight nodes, twenty buffers, names and object ids.
fn encode(out: &mut Vec<u8>, name: &[u8], actor: &[u8], oids: &[[u8; 20]; 2]) {
    let start = out.len();
    out.extend_from_slice(&TEMPLATE);
    out.resize(start + VARIABLE, 0);
    for node in 0..8 {
        put(out, start + 80 + 16 * node, 1);
        put(out, start + 88 + 16 * node, u64::from(node > 5));
    }
    for text in [actor, name] {
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&(text.len() as u32).to_le_bytes());
        out.extend_from_slice(text);
        let len = (out.len() - start).next_multiple_of(8);
        out.resize(start + len, 0);
    }
    for oid in oids {
        out.extend_from_slice(oid);
        out.extend_from_slice(&[0; 4]);
    }
    let len = (out.len() - start) as u64;
    for buffer in 0..20 {
        put(out, start + 216 + 16 * buffer, len);
        put(out, start + 224 + 16 * buffer, 20);
    }
    out.resize(start + FRAME, 0);
}

fn put_numbers(frame: &mut [u8], seq: u64, previous: u32) {
    put(frame, NUMBERS, seq);
    put(frame, NUMBERS + 8, now());
    put(frame, TRAILER, seq - 1);
    frame[TRAILER + 8..TRAILER + 12].copy_from_slice(&previous.to_le_bytes());
}

fn put_crc(frame: &mut [u8], crc: u32) -> u32 {
    frame[FRAME - 4..].copy_from_slice(&crc.to_le_bytes());
    crc
}

const NAME: &[u8] = b"refs/heads/topic-1234";
const ACTOR: &[u8] = b"alice";
const OIDS: [[u8; 20]; 2] = [[1; 20], [2; 20]];

/// Encodes a frame behind those that are staged.
fn inside(staging: &mut Staging) {
    let start = staging.frames.len();
    encode(&mut staging.frames, black_box(NAME), black_box(ACTOR), black_box(&OIDS));
    let frame = &mut staging.frames[start..];
    put_numbers(frame, staging.last, staging.crc);
    // Three parts side by side, as the log does it.
    let [a, b] = [200, 424].map(|at| frame.split_at(at));
    let (first, rest) = (crc32c::crc32c_append(7, a.0), &a.1[..224]);
    let (second, third) = (crc32c::crc32c(rest), crc32c::crc32c(&b.1[..232]));
    let crc = over_rest(over_rest(first) ^ second) ^ third;
    staging.crc = put_crc(frame, crc);
}

/// A frame and the checksums of its parts before and behind the numbers.
struct Encoded {
    frame: Vec<u8>,
    before: u32,
    behind: u32,
}

fn ahead(encoded: &mut Encoded) {
    encoded.frame.clear();
    encode(&mut encoded.frame, black_box(NAME), black_box(ACTOR), black_box(&OIDS));
    encoded.before = crc32c::crc32c_append(7, &encoded.frame[..NUMBERS]);
    encoded.behind = crc32c::crc32c(&encoded.frame[VARIABLE..TRAILER]);
}

fn patch(encoded: &Encoded, staging: &mut Staging) {
    let start = staging.frames.len();
    staging.frames.extend_from_slice(&encoded.frame);
    let frame = &mut staging.frames[start..];
    put_numbers(frame, staging.last, staging.crc);
    let numbers = crc32c::crc32c_append(encoded.before, &frame[NUMBERS..VARIABLE]);
    let rest = over_rest(numbers) ^ encoded.behind;
    let crc = crc32c::crc32c_append(rest, &frame[TRAILER..FRAME - 4]);
    staging.crc = put_crc(frame, crc);
}

struct Bare(Gate);

impl Loop for Bare {
    fn new(file: File) -> Bare {
        Bare(Gate::new(file))
    }

    fn durable(&self) -> &AtomicU64 {
        &self.0.durable
    }
}

thread_local! {
    static ENCODED: RefCell<Encoded> =
        const { RefCell::new(Encoded { frame: Vec::new(), before: 0, behind: 0 }) };
}

impl Bare {
    fn inside(&self, _: &[u8]) {
        self.0.commit(inside);
    }

    fn outside(&self, _: &[u8]) {
        ENCODED.with_borrow_mut(|encoded| {
            ahead(encoded);
            self.0.commit(|staging| patch(encoded, staging));
        });
    }
}

/// Nanoseconds of each way under the mutex, with nobody else about: the median of interleaved rounds.
fn alone() {
    const COUNT: u32 = 2_000;
    let mut staging = Staging { last: 1, ..Staging::default() };
    let mut encoded = Encoded { frame: Vec::new(), before: 0, behind: 0 };
    ahead(&mut encoded);
    let mut times = [vec![], vec![], vec![]];
    for _ in 0..41 {
        for (way, times) in times.iter_mut().enumerate() {
            staging.frames.clear();
            let start = Instant::now();
            for _ in 0..COUNT {
                match way {
                    0 => inside(&mut staging),
                    1 => patch(&encoded, &mut staging),
                    _ => ahead(black_box(&mut encoded)),
                }
            }
            times.push(start.elapsed().as_nanos() / u128::from(COUNT));
        }
    }
    let [inside, patch, ahead] = times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2]
    });
    println!("under the mutex: {inside} ns inside, {patch} ns patched, and {ahead} ns before it");
}

fn main() {
    alone();
    compare(["inside", "outside"], [Bare::inside, Bare::outside], &[1, 4, 16, 64, 256]);
}
