//! A small mutator, for machines that have no fuzzer: it changes seeds as fuzzers do.

use refstone_tests::sim::Rng;

/// Bytes that parsers treat as something else.
const TELLING: [u8; 16] =
    [0, 1, 2, 7, 8, 16, 64, 127, 128, 255, b'0', b'/', b'.', b'\\', b' ', b'\n'];

/// The longest input made.
const LEN_MAX: usize = 4096;

/// Another input: one of the seeds with some changes.
pub fn mutated(seeds: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = seeds[rng.below(seeds.len())].clone();
    for _ in 0..=rng.below(6) {
        change(&mut bytes, seeds, rng);
    }
    bytes.truncate(LEN_MAX);
    bytes
}

fn change(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], rng: &mut Rng) {
    let at = rng.below(bytes.len() + 1);
    let end = (at + 1 + rng.below(16)).min(bytes.len());
    match (rng.below(8), bytes.get_mut(at)) {
        (0 | 1, Some(byte)) => *byte ^= 1 << rng.below(8),
        (2, Some(byte)) => *byte = rng.pick(&TELLING),
        (3, Some(byte)) => *byte = byte.wrapping_add(rng.pick(&[1, 255, 8, 248])),
        (4, _) => bytes.insert(at, rng.pick(&TELLING)),
        (5, _) => drop(bytes.drain(at..end)),
        (6, _) => {
            let copy = bytes[at..end].to_vec();
            bytes.splice(at..at, copy);
        }
        _ => {
            let other = &seeds[rng.below(seeds.len())];
            let from = rng.below(other.len() + 1);
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
    }
}
