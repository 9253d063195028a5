//! All refs at one sequence: tables of what was sealed, and the newer moves above them.

use std::cell::Cell;
use std::iter::Peekable;
use std::sync::Arc;

use refstone_log::Seq;

use crate::edit::Target;
use crate::error::ReadError;
use crate::name::RefName;
use crate::recent::{self, Leaf, Recent};
use crate::stack::Stack;
use crate::table::{Cursor, Run};

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
        self.get_near(name, &Cell::default())
    }

    /// The same for one of many names; see [`Recent::get_near`].
    pub(crate) fn get_near<'a>(
        &'a self,
        name: &[u8],
        near: &Cell<Leaf<'a>>,
    ) -> Result<Option<Target>, ReadError> {
        match self.recent.get_near(name, near) {
            Some(target) => Ok(target.clone()),
            None => self.tables.get(name),
        }
    }

    /// The refs whose names are not less than `start`, and less than `until` if there is one.
    pub(crate) fn range(&self, start: &[u8], until: Option<Vec<u8>>) -> Merged<'_> {
        let (tables, failed) = match self.tables.cursors(start) {
            Ok(tables) => (tables, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let recent = self.recent.from(start).peekable();
        Merged { run: Run::default(), recent, tables, until, failed }
    }

    /// The first name that is not less than `start`, of a ref that is there or was lately: a
    /// deletion counts, so that nothing is skipped over to find it.
    pub(crate) fn next_name(&self, start: &[u8]) -> Result<Option<RefName>, ReadError> {
        let tables = self.tables.cursors(start)?;
        let tables = tables.iter().filter_map(|table| table.name().map(RefName::from_proven));
        let recent = self.recent.from(start).next().map(|(name, _)| name.clone());
        Ok(recent.into_iter().chain(tables).min())
    }

    /// The refs whose names start with `directory`.
    pub(crate) fn below(&self, directory: &[u8]) -> Merged<'_> {
        self.range(directory, successor(directory))
    }
}

/// The least name behind all that start with `prefix`; `None` if nothing can follow.
pub(crate) fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let kept = prefix.iter().rposition(|&byte| byte < 0xff)?;
    let mut next = prefix[..=kept].to_vec();
    next[kept] += 1;
    Some(next)
}

/// Some refs of a snapshot in the order of their raw bytes. The first error is the last item.
#[derive(Debug)]
pub(crate) struct Merged<'a> {
    /// What comes next.
    run: Run,
    recent: Peekable<recent::Range<'a>>,
    /// Newest first.
    tables: Vec<Cursor>,
    until: Option<Vec<u8>>,
    failed: Option<ReadError>,
}

/// Where the smallest name stands.
#[derive(Clone, Copy)]
enum Source {
    Recent,
    Table(usize),
}

/// What follows a run.
enum Next {
    Run,
    Ref(RefName, Target),
    End,
}

impl Merged<'_> {
    /// What comes behind a run.
    fn find_next(&mut self) -> Option<Result<(RefName, Target), ReadError>> {
        if let Some(error) = self.failed.take() {
            return Some(Err(self.fail(error)));
        }
        loop {
            match self.after_run() {
                Ok(Next::End) => return None,
                Ok(Next::Ref(name, target)) => return Some(Ok((name, target))),
                Ok(Next::Run) => {
                    if let Some(found) = self.run.next() {
                        return Some(Ok(found));
                    }
                }
                Err(error) => return Some(Err(self.fail(error))),
            }
        }
    }

    fn after_run(&mut self) -> Result<Next, ReadError> {
        for table in &mut self.tables {
            table.leave_block()?;
        }
        match self.smallest() {
            None => Ok(Next::End),
            Some(Source::Recent) => self.take_recent(),
            Some(Source::Table(index)) => self.take_run(index),
        }
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
        let until = self.until.as_deref();
        let inside = smallest.filter(|(name, _)| until.is_none_or(|until| *name < until));
        inside.map(|(_, source)| source)
    }

    fn take_recent(&mut self) -> Result<Next, ReadError> {
        let Some((name, target)) = self.recent.next() else { return Ok(Next::End) };
        skip(&mut self.tables, name.as_bytes())?;
        match target {
            Some(target) => Ok(Next::Ref(name.clone(), target.clone())),
            None => Ok(Next::Run),
        }
    }

    /// Takes the rows of a table up to the next name that another source has.
    fn take_run(&mut self, index: usize) -> Result<Next, ReadError> {
        let (newer, from) = self.tables.split_at_mut(index);
        let Some((table, older)) = from.split_first_mut() else { return Ok(Next::End) };
        if let Some(name) = table.name() {
            skip(older, name)?;
        }
        let recent = self.recent.peek().map(|(name, _)| name.as_bytes());
        let others = newer.iter().chain(older.iter()).filter_map(Cursor::name);
        let limit = others.chain(recent).chain(self.until.as_deref()).min();
        self.run = table.take_run(limit);
        Ok(Next::Run)
    }

    fn fail(&mut self, error: ReadError) -> ReadError {
        self.tables.clear();
        self.until = Some(Vec::new());
        error
    }
}

/// Goes past a name that a newer source has as well.
fn skip(tables: &mut [Cursor], name: &[u8]) -> Result<(), ReadError> {
    for table in tables {
        if table.name() == Some(name) {
            table.advance()?;
        }
    }
    Ok(())
}

impl Iterator for Merged<'_> {
    type Item = Result<(RefName, Target), ReadError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self.run.next() {
            Some(found) => Some(Ok(found)),
            None => self.find_next(),
        }
    }
}
