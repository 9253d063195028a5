//! Spans of sequences, as `log` and `export` take them.

use std::fmt;
use std::path::Path;

use clap::Args;
use refstone::{Seq, read_seq};

use crate::at;
use crate::exit::Failure;

/// Sequences, both ends included.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Span {
    /// Only the moves of this transaction and later ones; it may be the next to come
    #[arg(long, value_name = "SEQ", value_parser = at::parse_seq)]
    pub(crate) from: Option<u64>,
    /// Only the moves of this transaction and earlier ones; it must be there
    #[arg(long, value_name = "SEQ", value_parser = at::parse_seq)]
    pub(crate) to: Option<u64>,
}

impl Span {
    /// The newest sequence that is of no interest, so that what is sealed need not be read.
    pub(crate) fn after(self) -> Seq {
        Seq::new(self.from.unwrap_or(0).saturating_sub(1))
    }

    /// Whether the span starts behind this.
    pub(crate) fn is_behind(self, seq: u64) -> bool {
        self.from.is_some_and(|from| seq < from)
    }

    /// Whether the span ends before this.
    pub(crate) fn is_before(self, seq: u64) -> bool {
        self.to.is_some_and(|to| to < seq)
    }

    /// Whether the span has nothing behind this.
    pub(crate) fn ends_at(self, seq: u64) -> bool {
        self.to.is_some_and(|to| to <= seq)
    }

    /// Refuses a span that ends before it starts, or goes where the log has not come yet. The
    /// transaction to come may be the first: who takes a log piece by piece asks for it, and gets none.
    pub(crate) fn check(self, dir: &Path) -> Result<(), Failure> {
        if let (Some(from), Some(to)) = (self.from, self.to)
            && to < from
        {
            let text = format!("expected --to not before --from, found --from {from} --to {to}");
            return Err(Failure::usage(text));
        }
        if self.from.or(self.to).is_none() {
            return Ok(());
        }
        // Of a damaged log it is not known, and whoever reads it tells of the damage.
        let Some(newest) = newest(dir) else { return Ok(()) };
        match self.from.filter(|_| self.after() > newest) {
            Some(from) => Err(not_there_yet(from, newest)),
            None => self.to.map_or(Ok(()), |to| expect_there(Seq::new(to), newest)),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.from, self.to) {
            (None, None) => write!(f, "in this log"),
            (Some(from), None) => write!(f, "from transaction {from} on"),
            (None, Some(to)) => write!(f, "up to transaction {to}"),
            (Some(from), Some(to)) => write!(f, "from transaction {from} to {to}"),
        }
    }
}

/// The newest transaction, if the log can be read.
pub(crate) fn newest(dir: &Path) -> Option<Seq> {
    read_seq(dir).ok()
}

/// Refuses a transaction that is not there yet.
pub(crate) fn expect_there(seq: Seq, newest: Seq) -> Result<(), Failure> {
    match seq <= newest {
        true => Ok(()),
        false => Err(not_there_yet(seq.get(), newest)),
    }
}

fn not_there_yet(seq: u64, newest: Seq) -> Failure {
    Failure::refused(ahead(seq, newest))
        .with_hint("a log that was restored from a backup may be behind those who read it before")
}

/// Says that a log ends before a transaction.
pub(crate) fn ahead(seq: u64, newest: Seq) -> String {
    format!("transaction {seq} is not there yet, the newest is {newest}")
}

/// Which transactions there are.
pub(crate) fn there(dir: &Path) -> String {
    match newest(dir) {
        Some(Seq::ZERO) => "; the log has no transaction yet".to_owned(),
        Some(newest) => format!("; the log has the transactions 1 to {newest}"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_includes_both_ends() {
        let span = Span { from: Some(2), to: Some(3) };
        let holds = |seq| !span.is_behind(seq) && !span.is_before(seq);
        assert_eq!([1, 2, 3, 4].map(holds), [false, true, true, false]);
        assert!(!Span::default().is_before(u64::MAX));
    }

    #[test]
    fn a_span_is_told_in_words() {
        let told = |from, to| Span { from, to }.to_string();
        assert_eq!(told(Some(2), Some(3)), "from transaction 2 to 3");
        assert_eq!(told(None, Some(3)), "up to transaction 3");
        assert_eq!(told(Some(2), None), "from transaction 2 on");
    }
}
