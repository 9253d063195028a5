//! Directories and files: a whole file system with all that is uncertain about it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path};
use std::sync::Arc;

use super::content::Content;
use super::dir::{Dir, Ino};
use super::keep::{Keep, Policy, Tick};
use super::rng::Rng;

#[derive(Clone, Debug)]
enum Node {
    File(Arc<Content>),
    Dir(Arc<Dir>),
}

/// The root directory; it was always there.
const ROOT: Ino = 0;

/// A file system. A clone is cheap, and is what the machine had at that moment.
#[derive(Clone, Debug)]
pub struct Disk {
    nodes: BTreeMap<Ino, Node>,
    next: Ino,
    tick: Tick,
}

impl Default for Disk {
    fn default() -> Disk {
        Disk::new()
    }
}

impl Disk {
    /// An empty root directory.
    #[must_use]
    pub fn new() -> Disk {
        let root = Node::Dir(Arc::default());
        Disk { nodes: BTreeMap::from([(ROOT, root)]), next: ROOT + 1, tick: 0 }
    }

    /// How many changes were made so far.
    #[must_use]
    pub fn tick(&self) -> Tick {
        self.tick
    }

    /// Whether a power cut leaves this disk as it is.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        self.nodes.values().all(|node| match node {
            Node::File(content) => content.is_certain(),
            Node::Dir(dir) => dir.is_certain(),
        })
    }

    /// The ticks of all changes that a power cut may undo, in order.
    #[must_use]
    pub fn uncertain_ticks(&self) -> Vec<Tick> {
        let mut ticks: Vec<Tick> = Vec::new();
        for node in self.nodes.values() {
            match node {
                Node::File(content) => ticks.extend(content.ticks()),
                Node::Dir(dir) => ticks.extend(dir.ticks()),
            }
        }
        ticks.sort_unstable();
        ticks.dedup();
        ticks
    }

    /// The disk after a power cut.
    #[must_use]
    pub fn survivor(&self, policy: Policy, rng: &mut Rng) -> Disk {
        let mut keep = Keep::new(policy, rng);
        let mut survivor = Disk { nodes: BTreeMap::new(), next: self.next, tick: self.tick };
        self.survive(ROOT, &mut keep, &mut survivor.nodes);
        survivor
    }

    /// Copies what can be reached from a node by the names that survive.
    fn survive(&self, ino: Ino, keep: &mut Keep<'_>, nodes: &mut BTreeMap<Ino, Node>) {
        if nodes.contains_key(&ino) {
            return;
        }
        let node = match &self.nodes[&ino] {
            Node::File(content) => Node::File(Arc::new(content.survive(keep))),
            Node::Dir(dir) => {
                let dir = dir.survive(keep);
                for (_, child) in dir.names() {
                    self.survive(child, keep, nodes);
                }
                Node::Dir(Arc::new(dir))
            }
        };
        nodes.insert(ino, node);
    }

    /// The kernel drops clean pages of all files.
    pub fn evict(&mut self, policy: Policy, rng: &mut Rng) {
        let mut keep = Keep::new(policy, rng);
        for node in self.nodes.values_mut() {
            if let Node::File(content) = node {
                Arc::make_mut(content).evict(&mut keep);
            }
        }
    }

    /// All that processes see, in one order: names, and the bytes of files.
    fn parts(&self) -> Vec<&[u8]> {
        let mut parts = Vec::new();
        self.gather(ROOT, &mut parts);
        parts
    }

    fn gather<'d>(&'d self, ino: Ino, parts: &mut Vec<&'d [u8]>) {
        match &self.nodes[&ino] {
            Node::File(content) => parts.push(content.cache()),
            Node::Dir(dir) => {
                for (name, child) in dir.names() {
                    parts.push(name.as_encoded_bytes());
                    self.gather(child, parts);
                }
            }
        }
    }

    /// A checksum of all that processes see.
    #[must_use]
    pub fn checksum(&self) -> u32 {
        self.parts().into_iter().fold(0, crc32c::crc32c_append)
    }

    /// Whether processes see the same on both disks.
    #[must_use]
    pub fn looks_like(&self, other: &Disk) -> bool {
        self.parts() == other.parts()
    }

    /// The bytes that processes read in a file.
    ///
    /// # Errors
    /// `NotFound` if there is no such file.
    pub fn read(&self, path: &Path) -> io::Result<&[u8]> {
        Ok(self.content(self.find(path)?)?.cache())
    }

    /// Whether any file, as processes read it, holds these bytes.
    #[must_use]
    pub fn holds(&self, wanted: &[u8]) -> bool {
        let holds = |part: &&[u8]| part.windows(wanted.len()).any(|bytes| bytes == wanted);
        self.parts().iter().any(holds)
    }

    /// Overwrites bytes of a file, certainly: damage, not a write.
    ///
    /// # Errors
    /// `NotFound` if there is no such file.
    pub fn damage(&mut self, path: &Path, damage: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let ino = self.find(path)?;
        let mut bytes = self.content(ino)?.cache().to_vec();
        damage(&mut bytes);
        let mut content = Content::default();
        content.write(0, &bytes, 0);
        content.sync();
        self.nodes.insert(ino, Node::File(Arc::new(content)));
        Ok(())
    }

    pub(super) fn find(&self, path: &Path) -> io::Result<Ino> {
        path.components().try_fold(ROOT, |ino, component| match component {
            Component::Normal(name) => self.dir(ino)?.find(name).ok_or_else(not_found),
            _ => Ok(ino),
        })
    }

    /// The directory that a path's last name is in, and that name.
    fn place<'p>(&self, path: &'p Path) -> io::Result<(Ino, &'p OsStr)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        Ok((self.find(path.parent().unwrap_or(path))?, name))
    }

    fn dir(&self, ino: Ino) -> io::Result<&Dir> {
        match &self.nodes[&ino] {
            Node::Dir(dir) => Ok(dir),
            Node::File(_) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    fn dir_mut(&mut self, ino: Ino) -> io::Result<&mut Dir> {
        match self.nodes.get_mut(&ino).ok_or_else(not_found)? {
            Node::Dir(dir) => Ok(Arc::make_mut(dir)),
            Node::File(_) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    pub(super) fn content(&self, ino: Ino) -> io::Result<&Content> {
        match &self.nodes[&ino] {
            Node::File(content) => Ok(content),
            Node::Dir(_) => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    /// Whether processes find the file under some name.
    pub(super) fn has_name(&self, ino: Ino) -> bool {
        self.nodes.values().any(|node| match node {
            Node::Dir(dir) => dir.names().any(|(_, named)| named == ino),
            Node::File(_) => false,
        })
    }

    /// Takes all bytes of a file, for good.
    pub(super) fn empty(&mut self, ino: Ino) -> io::Result<()> {
        self.tick += 1;
        *self.content_mut(ino)? = Content::default();
        Ok(())
    }

    fn content_mut(&mut self, ino: Ino) -> io::Result<&mut Content> {
        match self.nodes.get_mut(&ino).ok_or_else(not_found)? {
            Node::File(content) => Ok(Arc::make_mut(content)),
            Node::Dir(_) => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    fn advance(&mut self) -> Tick {
        self.tick += 1;
        self.tick
    }

    fn add(&mut self, place: (Ino, &OsStr), node: Node) -> io::Result<Ino> {
        let (tick, ino) = (self.advance(), self.next);
        self.dir_mut(place.0)?.link(tick, place.1, ino);
        self.nodes.insert(ino, node);
        self.next += 1;
        Ok(ino)
    }

    pub(super) fn create(&mut self, path: &Path) -> io::Result<Ino> {
        let place = self.place(path)?;
        if self.dir(place.0)?.find(place.1).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.add(place, Node::File(Arc::default()))
    }

    pub(super) fn create_dir_all(&mut self, path: &Path) -> io::Result<()> {
        let mut ino = ROOT;
        for component in path.components() {
            if let Component::Normal(name) = component {
                ino = match self.dir(ino)?.find(name) {
                    Some(child) => child,
                    None => self.add((ino, name), Node::Dir(Arc::default()))?,
                };
            }
        }
        self.dir(ino).map(|_| ())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let ((source, old), (target, new)) = (self.place(from)?, self.place(to)?);
        if source != target {
            return Err(io::ErrorKind::CrossesDevices.into());
        }
        let ino = self.dir(source)?.find(old).ok_or_else(not_found)?;
        let tick = self.advance();
        self.dir_mut(source)?.rename(tick, old, new, ino);
        Ok(())
    }

    pub(super) fn link(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let (ino, place) = (self.find(from)?, self.place(to)?);
        if self.dir(place.0)?.find(place.1).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let tick = self.advance();
        self.dir_mut(place.0)?.link(tick, place.1, ino);
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        let (dir, name) = self.place(path)?;
        self.dir(dir)?.find(name).ok_or_else(not_found)?;
        let tick = self.advance();
        self.dir_mut(dir)?.unlink(tick, name);
        Ok(())
    }

    /// The names in a directory.
    ///
    /// # Errors
    /// `NotFound` if there is no such directory.
    pub fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let dir = self.dir(self.find(path)?)?;
        Ok(dir.names().map(|(name, _)| name.clone()).collect())
    }

    pub(super) fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        let ino = self.find(path)?;
        self.advance();
        self.dir_mut(ino)?.sync();
        Ok(())
    }

    pub(super) fn write(&mut self, ino: Ino, bytes: &[u8], offset: usize) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let tick = self.advance();
        self.content_mut(ino)?.write(tick, bytes, offset);
        Ok(())
    }

    pub(super) fn sync(&mut self, ino: Ino) -> io::Result<()> {
        self.advance();
        self.content_mut(ino)?.sync();
        Ok(())
    }

    pub(super) fn fail_sync(&mut self, ino: Ino) -> io::Result<()> {
        self.advance();
        self.content_mut(ino)?.fail_sync();
        Ok(())
    }
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}
