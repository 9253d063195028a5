//! Transactions that say who staged them, and whose every byte follows from that.

use std::fmt;
use std::str::FromStr;

use refstone_log::Frame;

use crate::logs::Row;
use crate::sim::Rng;

/// Names one transaction: the `n`-th of a thread of the writer that ran in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label {
    /// Counts the writers.
    pub round: u64,
    /// The thread of the writer.
    pub thread: u64,
    /// Counts the thread's transactions from zero.
    pub n: u64,
}

impl Label {
    /// The rows of the transaction: mostly few and small, sometimes more than a file has in store.
    #[must_use]
    pub fn rows(self) -> Vec<Row> {
        let Label { round, thread, n } = self;
        let mut rng = Rng::new(round.wrapping_mul(0x1_0001) ^ (thread << 40) ^ (n << 20));
        let rows = 1 + rng.below(4);
        (0..rows).map(|row| self.row(row, &mut rng)).collect()
    }

    fn row(self, row: usize, rng: &mut Rng) -> Row {
        let mut oid = || (0..20).map(|_| rng.bits().to_be_bytes()[0]).collect::<Vec<u8>>();
        let (old, new) = (oid(), oid());
        Row {
            actor: self.to_string().into_bytes(),
            refname: format!("refs/heads/{}/{row}", self.thread).into_bytes(),
            old_oid: Some(old),
            new_oid: Some(new),
            symref: None,
            message: Some(message(rng)),
        }
    }

    /// The label of a transaction that is whole: each of its rows is as the label says.
    ///
    /// # Errors
    /// If anything in it is not.
    pub fn of(frame: &Frame<'_>) -> Result<Label, String> {
        let rows: Vec<Row> = frame.ref_rows().map(|row| Row::from(&row)).collect();
        let seq = frame.seq();
        let actor = String::from_utf8_lossy(&rows[0].actor);
        let label: Label =
            actor.parse().map_err(|()| format!("transaction {seq} is of nobody: {actor:?}"))?;
        if label.rows() == rows {
            Ok(label)
        } else {
            Err(format!("transaction {seq} is not what {label} staged: it is torn"))
        }
    }
}

/// Text that shows where it was cut off.
fn message(rng: &mut Rng) -> Vec<u8> {
    let len = match rng.below(64) {
        0 => 20_000 + rng.below(150_000),
        1..=6 => 2_000 + rng.below(10_000),
        _ => rng.below(150),
    };
    // Seventeen bytes, so that no two blocks of the file are the same.
    let mut text = format!("{:016x} ", rng.bits()).repeat(len / 17 + 1).into_bytes();
    text.truncate(len);
    text
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.round, self.thread, self.n)
    }
}

impl FromStr for Label {
    type Err = ();

    fn from_str(text: &str) -> Result<Label, ()> {
        let numbers: Vec<u64> =
            text.split('.').map(str::parse).collect::<Result<_, _>>().map_err(|_| ())?;
        match numbers[..] {
            [round, thread, n] => Ok(Label { round, thread, n }),
            _ => Err(()),
        }
    }
}
