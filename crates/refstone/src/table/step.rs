//! The moves of a ref in the section of moves (`docs/format.md`, "Moves"): newest first, each told by
//! what it differs in from the one before it here, in chunks that are read by themselves.

use refstone_log::{DecodedRefRow, RefRow, Seq, Timestamp};

use crate::error::RowProblem;
use crate::name::RefName;
use crate::row::RefMove;

/// A chunk ends with the step that makes it so long.
pub(super) const CHUNK: usize = 4 << 10;

/// The bytes of a number, at most.
const NUMBER_MAX: usize = 10;

/// So many bytes of either end of a chunk tell its length.
pub(super) const LEN_MAX: u64 = NUMBER_MAX as u64;

// What a step's first byte says.
/// The new object is the one that the ref named before the newer move: it is not repeated.
const NEW_IS_NEWERS_OLD: u8 = 1;
const NEW: u8 = 1 << 1;
const OLD: u8 = 1 << 2;
const SAME_ACTOR: u8 = 1 << 3;
const SAME_MESSAGE: u8 = 1 << 4;
const MESSAGE: u8 = 1 << 5;
const SYMREF: u8 = 1 << 6;
const KNOWN: u8 = (1 << 7) - 1;

/// One move of a ref that is known, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step<'a> {
    pub(crate) seq: Seq,
    pub(crate) at: Timestamp,
    pub(crate) actor: &'a [u8],
    pub(crate) old_oid: Option<&'a [u8]>,
    pub(crate) new_oid: Option<&'a [u8]>,
    pub(crate) symref: Option<&'a [u8]>,
    pub(crate) message: Option<&'a [u8]>,
}

impl<'a> Step<'a> {
    pub(crate) fn of(seq: Seq, at: Timestamp, row: &RefRow<'a>) -> Step<'a> {
        let RefRow { actor, old_oid, new_oid, symref, message, .. } = *row;
        Step { seq, at, actor, old_oid, new_oid, symref, message }
    }

    pub(crate) fn ref_move(&self, name: &RefName) -> Result<RefMove, RowProblem> {
        let row = DecodedRefRow {
            actor: self.actor.into(),
            refname: name.as_bytes().into(),
            old_oid: self.old_oid,
            new_oid: self.new_oid,
            symref: self.symref.map(Into::into),
            message: self.message.map(Into::into),
        };
        RefMove::new(self.seq, self.at, row)
    }
}

/// What the first step of a chunk is told by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Base<'a> {
    pub(crate) seq: Seq,
    pub(crate) at: Timestamp,
    /// As if the newer move's old object.
    pub(crate) oid: Option<&'a [u8]>,
}

impl<'a> Base<'a> {
    fn step(self) -> Step<'a> {
        let Base { seq, at, oid } = self;
        Step { seq, at, actor: b"", old_oid: oid, new_oid: None, symref: None, message: None }
    }
}

/// Appends a step that is told by a newer one.
fn encode(step: &Step<'_>, newer: &Step<'_>, out: &mut Vec<u8>) {
    let new = step.new_oid.map(|_| match step.new_oid == newer.old_oid {
        true => NEW_IS_NEWERS_OLD,
        false => NEW,
    });
    let message = step.message.map(|_| match step.message == newer.message {
        true => SAME_MESSAGE,
        false => MESSAGE,
    });
    let actor = (step.actor == newer.actor).then_some(SAME_ACTOR);
    let old = step.old_oid.map(|_| OLD);
    let symref = step.symref.map(|_| SYMREF);
    let flags = [new, old, actor, message, symref].into_iter().flatten().sum::<u8>();
    out.push(flags);
    put_number(newer.seq.get().wrapping_sub(step.seq.get()), out);
    put_number(newer.at.as_micros().wrapping_sub(step.at.as_micros()).cast_unsigned(), out);
    if flags & SAME_ACTOR == 0 {
        put_text(step.actor, out);
    }
    if flags & NEW != 0 {
        out.extend_from_slice(step.new_oid.unwrap_or_default());
    }
    out.extend_from_slice(step.old_oid.unwrap_or_default());
    step.symref.into_iter().for_each(|symref| put_text(symref, out));
    if flags & MESSAGE != 0 {
        put_text(step.message.unwrap_or_default(), out);
    }
}

fn put_text(text: &[u8], out: &mut Vec<u8>) {
    put_number(text.len() as u64, out);
    out.extend_from_slice(text);
}

/// Seven bits a byte, the lowest first; the high bit says that more follow.
fn put_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// All of a step, told by nothing.
pub(crate) fn encode_alone(step: &Step<'_>, out: &mut Vec<u8>) {
    out.extend(step.seq.get().to_le_bytes());
    out.extend(step.at.as_micros().to_le_bytes());
    encode(step, &Base { seq: step.seq, at: step.at, oid: None }.step(), out);
}

/// The step that [`encode_alone`] has put at the start of these bytes.
pub(crate) fn decode_alone(bytes: &[u8], oid_len: usize) -> Option<Step<'_>> {
    let (seq, rest) = bytes.split_first_chunk()?;
    let (at, rest) = rest.split_first_chunk()?;
    let at = Timestamp::from_micros(i64::from_le_bytes(*at));
    let base = Base { seq: Seq::new(u64::from_le_bytes(*seq)), at, oid: None };
    let mut reading = Reading { bytes: rest, read: 0, oid_len };
    reading.step(&base.step())
}

/// The steps of one ref on their way into chunks.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    /// Of the open chunk.
    steps: Vec<u8>,
    newer: Newer,
}

/// What the next step is told by.
#[derive(Debug, Default)]
struct Newer {
    seq: Seq,
    at: Timestamp,
    /// Empty for none.
    oid: Vec<u8>,
    actor: Vec<u8>,
    message: Option<Vec<u8>>,
}

impl Newer {
    fn step(&self) -> Step<'_> {
        Step {
            actor: &self.actor,
            message: self.message.as_deref(),
            ..Base {
                seq: self.seq,
                at: self.at,
                oid: Some(&self.oid[..]).filter(|oid| !oid.is_empty()),
            }
            .step()
        }
    }

    fn become_step(&mut self, step: &Step<'_>) {
        (self.seq, self.at) = (step.seq, step.at);
        self.oid.clear();
        self.oid.extend_from_slice(step.old_oid.unwrap_or_default());
        if self.actor != step.actor {
            self.actor.clear();
            self.actor.extend_from_slice(step.actor);
        }
        if self.message.as_deref() != step.message {
            self.message = step.message.map(<[u8]>::to_vec);
        }
    }
}

impl Encoder {
    /// The next chunk is told by this.
    pub(super) fn start(&mut self, base: Base<'_>) {
        self.newer.become_step(&base.step());
    }

    /// Appends the next older step; says whether the chunk is to end with it.
    pub(super) fn push(&mut self, step: &Step<'_>) -> bool {
        encode(step, &self.newer.step(), &mut self.steps);
        self.newer.become_step(step);
        self.steps.len() >= CHUNK
    }

    /// Gives out the open chunk, if there is one: its length, its steps, and its length backwards.
    pub(super) fn end<E>(&mut self, mut put: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        if self.steps.is_empty() {
            return Ok(());
        }
        let mut len = Vec::with_capacity(NUMBER_MAX);
        put_number(self.steps.len() as u64, &mut len);
        put(&len)?;
        put(&self.steps)?;
        len.reverse();
        put(&len)?;
        self.steps.clear();
        Ok(())
    }
}

/// Reading a chunk.
pub(super) struct Chunk;

impl Chunk {
    /// The length of the chunk that starts with these bytes.
    pub(super) fn len_at_start(bytes: &[u8]) -> Option<u64> {
        let mut reading = Reading { bytes, read: 0, oid_len: 0 };
        let len = reading.number()?;
        len.checked_add(2 * reading.read as u64)
    }

    /// The length of the chunk that ends with these bytes.
    pub(super) fn len_at_end(bytes: &[u8]) -> Option<u64> {
        let backwards: Vec<u8> = bytes.iter().rev().copied().collect();
        Chunk::len_at_start(&backwards)
    }

    /// The steps of a chunk, newest first. `None` if the bytes are not one chunk.
    pub(super) fn decode<'a>(
        bytes: &'a [u8],
        base: Base<'a>,
        oid_len: usize,
    ) -> Option<Vec<Step<'a>>> {
        let len = bytes.len() as u64;
        let ends = [Chunk::len_at_start(bytes), Chunk::len_at_end(bytes)];
        (ends == [Some(len); 2]).then_some(())?;
        let mut reading = Reading { bytes, read: 0, oid_len };
        reading.number()?;
        reading.bytes = &bytes[..bytes.len() - reading.read];
        let (mut steps, mut newer) = (Vec::new(), base.step());
        while reading.read < reading.bytes.len() {
            newer = reading.step(&newer)?;
            steps.push(newer);
        }
        Some(steps)
    }
}

/// Bytes that are read from their start.
struct Reading<'a> {
    bytes: &'a [u8],
    read: usize,
    oid_len: usize,
}

impl<'a> Reading<'a> {
    fn step(&mut self, newer: &Step<'a>) -> Option<Step<'a>> {
        let flags = self.take(1)?[0];
        let all = |flag: u8| flags & flag == flag;
        let twice = all(NEW | NEW_IS_NEWERS_OLD) || all(MESSAGE | SAME_MESSAGE);
        (flags & !KNOWN == 0 && !twice).then_some(())?;
        let seq = Seq::new(newer.seq.get().wrapping_sub(self.number()?));
        let at = newer.at.as_micros().wrapping_sub(self.number()?.cast_signed());
        let actor = if all(SAME_ACTOR) { newer.actor } else { self.text()? };
        let new_oid = match flags & (NEW | NEW_IS_NEWERS_OLD) {
            0 => None,
            NEW => Some(self.take(self.oid_len)?),
            _ => Some(newer.old_oid?),
        };
        let old_oid = if all(OLD) { Some(self.take(self.oid_len)?) } else { None };
        let symref = if all(SYMREF) { Some(self.text()?) } else { None };
        let message = match flags & (MESSAGE | SAME_MESSAGE) {
            0 => None,
            MESSAGE => Some(self.text()?),
            _ => Some(newer.message?),
        };
        let at = Timestamp::from_micros(at);
        Some(Step { seq, at, actor, old_oid, new_oid, symref, message })
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let end = self.read.checked_add(len)?;
        let taken = self.bytes.get(self.read..end)?;
        self.read = end;
        Some(taken)
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        self.take(len)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for digit in 0..NUMBER_MAX {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7f) << (7 * digit);
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The chunks of some steps, and how many there are; all are told by the same base.
    pub(crate) fn encoded(steps: &[Step<'_>], base: Base<'_>) -> (usize, Vec<u8>) {
        let (mut encoder, mut bytes, mut chunks) = (Encoder::default(), Vec::new(), 0);
        encoder.start(base);
        let mut end = |encoder: &mut Encoder| {
            chunks += 1;
            let put = |part: &[u8]| {
                bytes.extend_from_slice(part);
                Ok::<_, ()>(())
            };
            encoder.end(put).unwrap();
            encoder.start(base);
        };
        for step in steps {
            if encoder.push(step) {
                end(&mut encoder);
            }
        }
        end(&mut encoder);
        (chunks, bytes)
    }

    pub(crate) fn decoded<'a>(mut bytes: &'a [u8], base: Base<'a>) -> Vec<Step<'a>> {
        let mut steps = Vec::new();
        while let Some(len) = Chunk::len_at_start(bytes) {
            let (chunk, rest) = bytes.split_at(usize::try_from(len).unwrap());
            assert_eq!(Chunk::len_at_end(chunk), Some(len));
            steps.extend(Chunk::decode(chunk, base, 20).unwrap());
            bytes = rest;
        }
        steps
    }

    // Breaks: bytes behind the last step, unknown flags or two lengths that differ taken for a chunk.
    #[test]
    fn what_is_no_chunk_is_refused() {
        let base = Base { seq: Seq::new(9), at: Timestamp::default(), oid: None };
        let step = Step { old_oid: Some(&[1; 20]), ..base.step() };
        let (_, chunk) = encoded(&[step, Step { seq: Seq::new(8), ..step }], base);
        assert!(Chunk::decode(&chunk, base, 20).is_some());
        for len in 0..chunk.len() {
            assert_eq!(Chunk::decode(&chunk[..len], base, 20), None, "{len} bytes");
        }
        let change = |at: usize, to: u8| {
            let mut changed = chunk.clone();
            changed[at] = to;
            Chunk::decode(&changed, base, 20).map(|steps| steps.len())
        };
        assert_eq!(change(1, OLD | SAME_ACTOR | !KNOWN), None, "an unknown flag");
        assert_eq!(change(1, OLD | SAME_ACTOR | NEW_IS_NEWERS_OLD), None, "no newer's old");
        assert_eq!(change(1, OLD | SAME_ACTOR | SAME_MESSAGE), None, "no message before");
        assert_eq!(change(1, SAME_ACTOR | NEW | NEW_IS_NEWERS_OLD), None, "two objects");
        assert_eq!(change(1, OLD), None, "an actor that reaches behind the end");
        assert_eq!(change(0, chunk[0] - 1), None, "another length at the start");
        assert_eq!(change(chunk.len() - 1, chunk[0] + 1), None, "another length at the end");
        assert_eq!(change(2, 200), None, "a number that goes on");
    }
}
