//! The subject, through the path its users take: a transaction with checked names, committed.

use std::path::Path;

use anyhow::Result;
use refstone::{
    CreateOptions, Edit, Mode, ObjectId, OpenOptions, RefName, RefStore, Target, Transaction,
};

use super::{Keep, Peer, Store, Writer};
use crate::workload::{ACTOR, Move, Oid};

pub(super) const PEER: Peer = Peer {
    name: "refstone",
    setup: "defaults: durable, and it compacts itself",
    product: true,
    open,
};

pub(super) const BUFFERED: Peer = Peer {
    name: "refstone_buffered",
    setup: "mode Buffered: the kernel has it, and one sync ends the run",
    product: true,
    open: open_buffered,
};

struct Refstone(RefStore);

struct Handle<'a>(&'a RefStore);

fn open(dir: &Path, _keep: Keep) -> Result<Box<dyn Store>> {
    let dir = dir.join("refstone");
    RefStore::create(&dir, &CreateOptions::default())?;
    Ok(Box::new(Refstone(RefStore::open(&dir)?)))
}

fn open_buffered(dir: &Path, _keep: Keep) -> Result<Box<dyn Store>> {
    let dir = dir.join("refstone");
    RefStore::create(&dir, &CreateOptions::default())?;
    let options = OpenOptions::default().mode(Mode::Buffered);
    Ok(Box::new(Refstone(RefStore::open_with(&dir, options)?)))
}

impl Store for Refstone {
    fn writer(&self) -> Result<Box<dyn Writer + '_>> {
        Ok(Box::new(Handle(&self.0)))
    }

    fn holds(&self, name: &str, value: &Oid) -> Result<bool> {
        let value = Target::Object(ObjectId::from_bytes(value)?);
        Ok(self.0.view().get(&RefName::new(name)?)? == Some(value))
    }
}

impl Writer for Handle<'_> {
    fn commit(&mut self, moves: &[Move]) -> Result<()> {
        self.0.commit(&transaction(moves)?)?;
        Ok(())
    }
}

/// The transaction of these moves, as a server builds it from what a client sent.
pub fn transaction(moves: &[Move]) -> Result<Transaction> {
    let mut tx = Transaction::new(ACTOR);
    for moved in moves {
        let name = RefName::new(moved.name.as_str())?;
        let new = ObjectId::from_bytes(&moved.new)?;
        tx.push(match &moved.old {
            Some(old) => Edit::update(name, new, ObjectId::from_bytes(old)?),
            None => Edit::create(name, new),
        });
    }
    Ok(tx)
}
