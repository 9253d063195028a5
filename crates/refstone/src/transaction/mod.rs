//! Transactions: edits that happen together, and the rules that judge them.
//!
//! [`plan`] says what needs no look at the store, outside every lock. [`judge`] takes a transaction
//! or a batch and says what moves; [`check`] does so for one edit. [`names`] finds names that are
//! reached twice or stand in each other's way, [`rests`] those that a prepared transaction holds,
//! [`overlay`] shows an edit of a batch what the edits before it have moved. Nothing here waits,
//! writes or locks.

pub(crate) mod check;
pub(crate) mod judge;
pub(crate) mod names;
pub(crate) mod overlay;
pub(crate) mod plan;
pub(crate) mod rests;

use bstr::{BStr, BString, ByteSlice};

use crate::edit::Edit;

/// Edits that are committed together, with who makes them and why.
///
/// ```
/// use refstone::{Edit, RefName, Transaction};
/// let tx = Transaction::new("alice <alice@example.org>")
///     .with_message("cleanup")
///     .with(Edit::delete(RefName::new("refs/heads/old")?))
///     .with(Edit::delete(RefName::new("refs/heads/older")?));
/// assert_eq!(tx.edits().len(), 2);
/// # Ok::<(), refstone::NameError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    actor: BString,
    message: Option<BString>,
    edits: Vec<Edit>,
}

impl Transaction {
    /// No edits yet; `actor` is recorded with each of them, as it is.
    #[must_use]
    pub fn new(actor: impl Into<BString>) -> Transaction {
        Transaction { actor: actor.into(), message: None, edits: Vec::new() }
    }

    /// The same transaction with a reason, recorded with each ref that moves.
    #[must_use]
    pub fn with_message(self, message: impl Into<BString>) -> Transaction {
        Transaction { message: Some(message.into()), ..self }
    }

    /// The same transaction with one more edit.
    #[must_use]
    pub fn with(mut self, edit: Edit) -> Transaction {
        self.push(edit);
        self
    }

    /// Adds an edit.
    pub fn push(&mut self, edit: Edit) {
        self.edits.push(edit);
    }

    /// Who makes the edits.
    #[must_use]
    pub fn actor(&self) -> &BStr {
        self.actor.as_bstr()
    }

    /// Why.
    #[must_use]
    pub fn message(&self) -> Option<&BStr> {
        self.message.as_ref().map(|text| text.as_bstr())
    }

    /// The edits, in the order they were added.
    #[must_use]
    pub fn edits(&self) -> &[Edit] {
        &self.edits
    }
}

impl Extend<Edit> for Transaction {
    fn extend<I: IntoIterator<Item = Edit>>(&mut self, edits: I) {
        self.edits.extend(edits);
    }
}
