//! What every store commits: each writer moves its own refs, again and again.

/// Who moves the refs.
pub const ACTOR: &str = "alice";

/// The standard push in words.
pub const PAYLOAD: &str = "refs/heads/topic-NNNN, sha1, actor alice, no message";

/// How many moves a transaction of mode B has.
pub const BATCH: usize = 128;

pub type Oid = [u8; 20];

/// One ref to be moved from one value to another.
#[derive(Clone, Debug)]
pub struct Move {
    pub name: String,
    /// `None`: it is not there yet.
    pub old: Option<Oid>,
    pub new: Oid,
}

/// A writer's refs, and where it has moved them so far.
#[derive(Clone, Debug)]
pub struct Mover {
    moves: Vec<Move>,
    count: u64,
}

impl Mover {
    /// For transactions of `batch` refs each.
    pub fn new(writer: usize, batch: usize) -> Mover {
        let name = |number| format!("refs/heads/topic-{number:04}");
        let moves = (writer * batch..(writer + 1) * batch)
            .map(|number| Move { name: name(number), old: None, new: [0; 20] })
            .collect();
        Mover { moves, count: 0 }
    }

    /// The next transaction.
    pub fn step(&mut self) -> &[Move] {
        self.count += 1;
        for (salt, moved) in (0..).zip(&mut self.moves) {
            moved.old = (self.count > 1).then_some(moved.new);
            moved.new = oid(self.count, salt);
        }
        &self.moves
    }

    /// The transaction that `step` gave last.
    pub fn last(&self) -> &[Move] {
        &self.moves
    }
}

/// An id that never repeats for one salt. Its last byte is odd for odd counts, so that a store
/// that must name objects that exist can choose one of two.
pub fn oid(count: u64, salt: u64) -> Oid {
    let mut id = [0x5a; 20];
    let mixed = (count ^ salt << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    id[..8].copy_from_slice(&mixed.to_be_bytes());
    id[8..16].copy_from_slice(&salt.to_be_bytes());
    id[19] = count as u8;
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mover_goes_from_value_to_value() {
        let mut mover = Mover::new(3, 2);
        let first = mover.step().to_vec();
        assert_eq!(first[0].name, "refs/heads/topic-0006");
        assert_eq!(first[0].old, None);
        let second = mover.step();
        assert_eq!(second[1].old, Some(first[1].new));
        assert_ne!(second[1].new, first[1].new);
        assert_ne!(second[0].new, second[1].new);
    }
}
