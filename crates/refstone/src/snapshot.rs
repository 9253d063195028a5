//! All refs at one sequence: tables of what was sealed, and the newer moves above them.

use std::iter::Peekable;
use std::sync::Arc;

use refstone_log::Seq;

use crate::edit::Target;
use crate::error::ReadError;
use crate::name::RefName;
use crate::recent::{self, Recent};
use crate::stack::Stack;
use crate::table::{Cursor, Row};

/// A clone is O(1) and shares everything.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) seq: Seq,
    pub(crate) recent: Recent,
    pub(crate) tables: Arc<Stack>,
}

impl Snapshot {
    /// What the tables have, and nothing newer. `head` is what `HEAD` points to until a row moves it;
    /// the lowest table has it, if there is one.
    pub(crate) fn start(head: &RefName, tables: Stack) -> Snapshot {
        let mut recent = Recent::default();
        if tables.tables().is_empty() {
            recent.put(RefName::head(), Some(head.clone().into()));
        }
        Snapshot { seq: tables.reaches(), recent, tables: Arc::new(tables) }
    }

    /// What a ref holds.
    pub(crate) fn get(&self, name: &[u8]) -> Result<Option<Target>, ReadError> {
        match self.recent.get(name) {
            Some(target) => Ok(target.clone()),
            None => Ok(self.tables.get(name)?.and_then(Row::target)),
        }
    }

    /// The refs from the first name on that is not less than `start`.
    pub(crate) fn from(&self, start: &[u8]) -> Merged<'_> {
        let recent = self.recent.from(start).peekable();
        match self.tables.cursors(start) {
            Ok(tables) => Merged { recent, tables, failed: None },
            Err(error) => Merged { recent, tables: Vec::new(), failed: Some(error) },
        }
    }

    /// The refs whose names start with `directory`.
    pub(crate) fn below(
        &self,
        directory: &[u8],
    ) -> impl Iterator<Item = Result<(RefName, Target), ReadError>> {
        let inside = |name: &RefName| name.as_bytes().starts_with(directory);
        self.from(directory)
            .take_while(move |item| item.as_ref().map_or(true, |(name, _)| inside(name)))
    }
}

/// The refs of a snapshot in the order of their raw bytes. The first error is the last item.
#[derive(Debug)]
pub(crate) struct Merged<'a> {
    recent: Peekable<recent::Range<'a>>,
    /// Newest first.
    tables: Vec<Cursor>,
    failed: Option<ReadError>,
}

/// Where the smallest name stands.
#[derive(Clone, Copy)]
enum Source {
    Recent,
    Table(usize),
}

impl Merged<'_> {
    /// The newest state of the smallest name.
    fn step(&mut self) -> Result<Option<(RefName, Option<Target>)>, ReadError> {
        let Some(source) = self.smallest() else { return Ok(None) };
        let (name, target, older) = match source {
            Source::Recent => {
                let Some((name, target)) = self.recent.next() else { return Ok(None) };
                (name.clone(), target.clone(), 0)
            }
            Source::Table(index) => {
                let table = &mut self.tables[index];
                let (Some(name), Some(row)) = (table.name(), table.row()) else {
                    return Ok(None);
                };
                let (name, target) = (RefName::from_proven(name), row.target());
                table.advance()?;
                (name, target, index + 1)
            }
        };
        for table in &mut self.tables[older..] {
            if table.name() == Some(name.as_bytes()) {
                table.advance()?;
            }
        }
        Ok(Some((name, target)))
    }

    /// The source with the smallest name; of several, the newest.
    fn smallest(&mut self) -> Option<Source> {
        let mut smallest = None;
        if let Some((name, _)) = self.recent.peek() {
            smallest = Some((name.as_bytes(), Source::Recent));
        }
        for (index, table) in self.tables.iter().enumerate() {
            if let Some(name) = table.name()
                && smallest.is_none_or(|(least, _)| name < least)
            {
                smallest = Some((name, Source::Table(index)));
            }
        }
        smallest.map(|(_, source)| source)
    }
}

impl Iterator for Merged<'_> {
    type Item = Result<(RefName, Target), ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.failed.take() {
            self.tables.clear();
            while self.recent.next().is_some() {}
            return Some(Err(error));
        }
        loop {
            match self.step() {
                Ok(None) => return None,
                Ok(Some((name, Some(target)))) => return Some(Ok((name, target))),
                Ok(Some((_, None))) => {}
                Err(error) => {
                    self.failed = Some(error);
                    return self.next();
                }
            }
        }
    }
}
