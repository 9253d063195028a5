//! What a log holds: its columns, and the row types that fill them.
//!
//! `docs/format.md` owns the list of columns; the golden files prove that this module follows it.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use crate::frame::text;

/// The hash that names the objects of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObjectFormat {
    /// 20 bytes, git's default.
    Sha1,
    /// 32 bytes.
    Sha256,
}

impl ObjectFormat {
    /// Bytes in one object id.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // The length of an id is never zero.
    pub const fn len(self) -> usize {
        match self {
            ObjectFormat::Sha1 => 20,
            ObjectFormat::Sha256 => 32,
        }
    }

    /// The name git gives the format: `sha1` or `sha256`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ObjectFormat::Sha1 => "sha1",
            ObjectFormat::Sha256 => "sha256",
        }
    }
}

impl fmt::Display for ObjectFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text is neither `sha1` nor `sha256`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown object format `{0}`: expected `sha1` or `sha256`")]
pub struct UnknownObjectFormat(String);

impl FromStr for ObjectFormat {
    type Err = UnknownObjectFormat;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "sha1" => Ok(ObjectFormat::Sha1),
            "sha256" => Ok(ObjectFormat::Sha256),
            other => Err(UnknownObjectFormat(other.to_owned())),
        }
    }
}

/// How a column stores its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnType {
    /// The transaction's sequence, the same in each of its rows.
    Seq,
    /// The transaction's time, the same in each of its rows.
    At,
    /// A ref name: a byte that is not valid UTF-8 is escaped.
    Name,
    /// Free text: as a name, and a backslash is escaped too.
    Text,
    /// Bytes of any length, as they are.
    Binary,
    /// Values of one width, in bytes.
    Fixed(usize),
}

/// One column of a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) ty: ColumnType,
    pub(crate) nullable: bool,
}

const fn column(name: &'static str, ty: ColumnType) -> Column {
    Column { name, ty, nullable: false }
}

const fn nullable(name: &'static str, ty: ColumnType) -> Column {
    Column { name, ty, nullable: true }
}

/// The most columns a log may have.
pub(crate) const COLUMNS_MAX: usize = 8;

/// What a log is a log of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Reference transactions.
    Refs,
    /// Changes of secrets.
    Secrets,
}

impl Kind {
    /// The value of `refstone.kind` in the schema's metadata.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Kind::Refs => "refs",
            Kind::Secrets => "secrets",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Kind> {
        [Kind::Refs, Kind::Secrets].into_iter().find(|kind| kind.name() == name)
    }

    pub(crate) fn columns(self, objects: ObjectFormat) -> Vec<Column> {
        match self {
            Kind::Refs => vec![
                column("seq", ColumnType::Seq),
                column("at", ColumnType::At),
                column("actor", ColumnType::Text),
                column("refname", ColumnType::Name),
                nullable("old_oid", ColumnType::Fixed(objects.len())),
                nullable("new_oid", ColumnType::Fixed(objects.len())),
                nullable("symref", ColumnType::Name),
                nullable("message", ColumnType::Text),
            ],
            Kind::Secrets => vec![
                column("seq", ColumnType::Seq),
                column("at", ColumnType::At),
                column("actor", ColumnType::Text),
                column("key", ColumnType::Text),
                nullable("value", ColumnType::Binary),
            ],
        }
    }
}

/// The rows of one transaction, as the encoder asks for them.
///
/// Columns count from zero *after* `seq` and `at`, which the log fills in.
pub trait Rows {
    /// How many rows there are. A transaction has at least one.
    fn row_count(&self) -> usize;

    /// The raw bytes of one value; `None` is null.
    fn cell(&self, row: usize, column: usize) -> Option<&[u8]>;
}

/// One ref moved: a row of a ref log.
///
/// All fields are raw bytes; the log makes text readable when it writes it, and gives the raw
/// bytes back when it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefRow<'a> {
    /// Who moved the ref.
    pub actor: &'a [u8],
    /// The full name of the ref.
    pub refname: &'a [u8],
    /// The object it named before; `None` if it was absent or symbolic.
    pub old_oid: Option<&'a [u8]>,
    /// The object it names now; `None` if it is gone or symbolic.
    pub new_oid: Option<&'a [u8]>,
    /// The ref it points to now, if it is symbolic.
    pub symref: Option<&'a [u8]>,
    /// Why it moved.
    pub message: Option<&'a [u8]>,
}

impl RefRow<'_> {
    fn field(&self, column: usize) -> Option<&[u8]> {
        match column {
            0 => Some(self.actor),
            1 => Some(self.refname),
            2 => self.old_oid,
            3 => self.new_oid,
            4 => self.symref,
            _ => self.message,
        }
    }
}

impl Rows for [RefRow<'_>] {
    fn row_count(&self) -> usize {
        self.len()
    }

    fn cell(&self, row: usize, column: usize) -> Option<&[u8]> {
        self[row].field(column)
    }
}

impl<const N: usize> Rows for [RefRow<'_>; N] {
    fn row_count(&self) -> usize {
        N
    }

    fn cell(&self, row: usize, column: usize) -> Option<&[u8]> {
        self[row].field(column)
    }
}

/// A row read back from a ref log; text is unescaped, so all fields are the raw bytes appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedRefRow<'a> {
    /// Who moved the ref.
    pub actor: Cow<'a, [u8]>,
    /// The full name of the ref.
    pub refname: Cow<'a, [u8]>,
    /// The object it named before.
    pub old_oid: Option<&'a [u8]>,
    /// The object it names now.
    pub new_oid: Option<&'a [u8]>,
    /// The ref it points to now.
    pub symref: Option<Cow<'a, [u8]>>,
    /// Why it moved.
    pub message: Option<Cow<'a, [u8]>>,
}

impl<'a> DecodedRefRow<'a> {
    /// Builds a row from the stored cells, columns counted as in [`Rows::cell`].
    pub(crate) fn from_cells(cell: impl Fn(usize) -> Option<&'a [u8]>) -> DecodedRefRow<'a> {
        let text = |column| cell(column).map(text::unescape);
        DecodedRefRow {
            actor: text(0).unwrap_or_default(),
            refname: text(1).unwrap_or_default(),
            old_oid: cell(2),
            new_oid: cell(3),
            symref: text(4),
            message: text(5),
        }
    }

    /// The same row, borrowed as one that could be appended.
    #[must_use]
    pub fn as_row(&self) -> RefRow<'_> {
        RefRow {
            actor: &self.actor,
            refname: &self.refname,
            old_oid: self.old_oid,
            new_oid: self.new_oid,
            symref: self.symref.as_deref(),
            message: self.message.as_deref(),
        }
    }
}

/// One secret set or deleted: a row of a log of secrets.
#[derive(Clone, Copy)]
pub(crate) struct SecretRow<'a> {
    pub(crate) actor: &'a [u8],
    pub(crate) key: &'a [u8],
    /// `None` deletes.
    pub(crate) value: Option<&'a [u8]>,
}

impl Rows for SecretRow<'_> {
    fn row_count(&self) -> usize {
        1
    }

    fn cell(&self, _row: usize, column: usize) -> Option<&[u8]> {
        match column {
            0 => Some(self.actor),
            1 => Some(self.key),
            _ => self.value,
        }
    }
}

/// A row read back from a log of secrets.
pub(crate) struct DecodedSecretRow<'a> {
    pub(crate) actor: Cow<'a, [u8]>,
    pub(crate) key: Cow<'a, [u8]>,
    pub(crate) value: Option<&'a [u8]>,
}

impl<'a> DecodedSecretRow<'a> {
    pub(crate) fn from_cells(cell: impl Fn(usize) -> Option<&'a [u8]>) -> DecodedSecretRow<'a> {
        let text = |column| cell(column).map(text::unescape).unwrap_or_default();
        DecodedSecretRow { actor: text(0), key: text(1), value: cell(2) }
    }
}
