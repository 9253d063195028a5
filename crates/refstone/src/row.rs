//! Moves of refs as rows of the log, and back.

use bstr::BString;
use refstone_log::{DecodedRefRow, Frame, RefRow, Rows, Seq, Timestamp};

use crate::edit::Target;
use crate::error::RowProblem;
use crate::name::RefName;
use crate::oid::ObjectId;
use crate::staged::Move;
use crate::transaction::Transaction;

/// One ref moved, as the log recorded it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefMove {
    /// The transaction it moved in.
    pub seq: Seq,
    /// When that was. Never less than in the transaction before, whatever the clock did.
    pub at: Timestamp,
    /// Who moved it.
    pub actor: BString,
    /// The ref.
    pub name: RefName,
    /// The object it named before; `None` if it was absent or symbolic.
    pub old_oid: Option<ObjectId>,
    /// The object it names now; `None` if it is gone or symbolic.
    pub new_oid: Option<ObjectId>,
    /// The ref it points to now, if it is symbolic.
    pub symref: Option<RefName>,
    /// Why it moved.
    pub message: Option<BString>,
}

impl RefMove {
    /// What the ref holds from then on; `None` if it is gone.
    #[must_use]
    pub fn target(&self) -> Option<Target> {
        let symbolic = || self.symref.clone().map(Target::Symbolic);
        self.new_oid.map(Target::Object).or_else(symbolic)
    }

    /// The row that records it.
    pub(crate) fn as_row(&self) -> RefRow<'_> {
        RefRow {
            actor: &self.actor,
            refname: self.name.as_bytes(),
            old_oid: self.old_oid.as_ref().map(ObjectId::as_bytes),
            new_oid: self.new_oid.as_ref().map(ObjectId::as_bytes),
            symref: self.symref.as_ref().map(RefName::as_bytes),
            message: self.message.as_ref().map(|message| message.as_slice()),
        }
    }

    pub(crate) fn from_row(frame: &Frame<'_>, row: usize) -> Result<RefMove, RowProblem> {
        RefMove::new(frame.seq(), frame.at(), frame.ref_row(row))
    }

    /// The move that a row of a transaction records.
    pub(crate) fn new(
        seq: Seq,
        at: Timestamp,
        stored: DecodedRefRow<'_>,
    ) -> Result<RefMove, RowProblem> {
        let (name, target) = decode(&stored)?;
        Ok(RefMove {
            seq,
            at,
            name,
            old_oid: stored.old_oid.map(ObjectId::from_bytes).transpose()?,
            new_oid: target.as_ref().and_then(Target::object),
            symref: target.as_ref().and_then(Target::symbolic).cloned(),
            actor: stored.actor.into_owned().into(),
            message: stored.message.map(|text| text.into_owned().into()),
        })
    }
}

/// The rows that record the moves of a transaction, read where they are.
#[derive(Debug)]
pub(crate) struct Moved<'a> {
    pub(crate) tx: &'a Transaction,
    pub(crate) moves: &'a [Move],
}

impl Rows for Moved<'_> {
    fn row_count(&self) -> usize {
        self.moves.len()
    }

    #[inline]
    fn cell(&self, row: usize, column: usize) -> Option<&[u8]> {
        let Move { name, old, new } = &self.moves[row];
        match (column, new) {
            (0, _) => Some(self.tx.actor()),
            (1, _) => Some(name.as_bytes()),
            (2, _) => old.as_ref().map(ObjectId::as_bytes),
            (3, Some(Target::Object(id))) => Some(id.as_bytes()),
            (4, Some(Target::Symbolic(target))) => Some(target.as_bytes()),
            (5, _) => self.tx.message().map(AsRef::as_ref),
            _ => None,
        }
    }
}

/// The ref a row is about, and what it holds from then on; `None` is a deletion.
///
/// A frame proves that its bytes are as they were written, not that a ref store wrote them, so
/// names are checked here as anywhere else.
pub(crate) fn decode(row: &DecodedRefRow<'_>) -> Result<(RefName, Option<Target>), RowProblem> {
    let name = RefName::new(row.refname.as_ref())?;
    let target = match (row.new_oid, row.symref.as_deref()) {
        (None, None) => None,
        (Some(id), None) => Some(ObjectId::from_bytes(id)?.into()),
        (None, Some(target)) => Some(RefName::new(target)?.into()),
        (Some(_), Some(_)) => return Err(RowProblem::TwoTargets),
    };
    Ok((name, target))
}
