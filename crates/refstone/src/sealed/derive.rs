//! Where an old object id can be found above the row that needs it: the writer's side.

use std::collections::HashMap;

use crate::oid::ObjectId;

/// What the memory of last moves may take, about. When it is full it is emptied, and each ref
/// stores its next old object id once more.
const BYTES_MAX: usize = 64 << 20;

/// What an entry takes beside its name, about.
const ENTRY: usize = 96;

/// The last move of each ref so far.
#[derive(Debug, Default)]
pub(super) struct LastMoves {
    /// By the name as it is stored.
    moves: HashMap<Box<str>, Last>,
    bytes: usize,
}

#[derive(Debug)]
struct Last {
    row: u32,
    new: Option<ObjectId>,
}

impl LastMoves {
    /// How many rows above `row` the ref's last move is, if that gave the ref `old`.
    ///
    /// Without an old object id there is nothing to find: null stands for itself.
    pub(super) fn back(&self, row: u32, name: &str, old: Option<&[u8]>) -> Option<u32> {
        let last = self.moves.get(name)?;
        let new = last.new.as_ref()?;
        (Some(new.as_bytes()) == old).then_some(row - last.row)
    }

    /// Notes that the ref moved in `row`.
    pub(super) fn note(&mut self, row: u32, name: &str, new: Option<ObjectId>) {
        let last = Last { row, new };
        if let Some(known) = self.moves.get_mut(name) {
            *known = last;
            return;
        }
        self.bytes += name.len() + ENTRY;
        if self.bytes > BYTES_MAX {
            self.moves = HashMap::new();
            self.bytes = name.len() + ENTRY;
        }
        self.moves.insert(name.into(), last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Breaks: counting only new names (the memory grows on), or clearing without forgetting.
    #[test]
    fn the_memory_is_bounded_and_what_is_forgotten_is_not_found() {
        let mut moves = LastMoves::default();
        let id = ObjectId::from_bytes(&[7; 20]).unwrap();
        let name = |number: u32| format!("{number:>4000}");
        for number in 0..20_000 {
            moves.note(number, &name(number), Some(id));
            assert!(moves.moves.len() * 4096 <= BYTES_MAX);
        }
        let old = Some(&[7; 20][..]);
        assert_eq!(moves.back(20_000, &name(0), old), None);
        assert_eq!(moves.back(20_000, &name(19_999), old), Some(1));
    }
}
