//! What annotated tags point to.
//!
//! The store knows no objects, so git is asked, once for each object: what an object is never
//! changes, and what is known is kept.

use std::collections::HashMap;
use std::io;

use bytes::Bytes;
use parking_lot::Mutex;
use refstone::ObjectId;

use crate::git::{self, GitEnv};

/// Most objects remembered. An entry takes about 80 bytes.
const KNOWN_MAX: usize = 1 << 20;

/// Tags among some objects, and what they point to.
pub(crate) type Peeled = HashMap<ObjectId, ObjectId>;

/// What is known about the objects of one repository.
#[derive(Debug, Default)]
pub(crate) struct PeelCache {
    /// `None` for an object that is no tag.
    known: Mutex<HashMap<ObjectId, Option<ObjectId>>>,
}

impl PeelCache {
    /// The tags among `oids`, each with the object at the end of its chain.
    ///
    /// Objects that are missing count as no tags, and are asked about again the next time.
    pub(crate) async fn peel(&self, env: &GitEnv, oids: Vec<ObjectId>) -> io::Result<Peeled> {
        let (mut found, unknown) = self.split(&oids);
        if unknown.is_empty() {
            return Ok(found);
        }
        let answers = ask(env, &unknown).await?;
        found.extend(answers.iter().filter_map(|(oid, peeled)| Some((*oid, (*peeled)?))));
        self.remember(answers);
        Ok(found)
    }

    fn split(&self, oids: &[ObjectId]) -> (Peeled, Vec<ObjectId>) {
        let known = self.known.lock();
        let mut found = Peeled::new();
        let mut unknown = Vec::new();
        for oid in oids {
            match known.get(oid) {
                Some(Some(peeled)) => drop(found.insert(*oid, *peeled)),
                Some(None) => {}
                None => unknown.push(*oid),
            }
        }
        unknown.sort_unstable();
        unknown.dedup();
        (found, unknown)
    }

    /// When the memory is full it starts anew: finding out which entries are old would cost each
    /// lookup more than asking git again costs now and then.
    fn remember(&self, answers: Vec<(ObjectId, Option<ObjectId>)>) {
        let mut known = self.known.lock();
        if known.len() + answers.len() > KNOWN_MAX {
            known.clear();
        }
        known.extend(answers.into_iter().take(KNOWN_MAX));
    }
}

async fn ask(env: &GitEnv, oids: &[ObjectId]) -> io::Result<Vec<(ObjectId, Option<ObjectId>)>> {
    let command = env.command(["cat-file", "--buffer", "--batch-check=%(objectname)"]);
    let questions: String = oids.iter().map(|oid| format!("{oid}^{{}}\n")).collect();
    let answers = git::run(command, Bytes::from(questions)).await?.success()?;
    let answers = answers.split(|&byte| byte == b'\n');
    let answered = oids.iter().zip(answers);
    Ok(answered.filter_map(|(oid, line)| answer(*oid, line)).collect())
}

/// `None` for a missing object, about which git says `<question> missing`.
fn answer(oid: ObjectId, line: &[u8]) -> Option<(ObjectId, Option<ObjectId>)> {
    let end = ObjectId::from_hex(line).ok()?;
    Some((oid, (end != oid).then_some(end)))
}
