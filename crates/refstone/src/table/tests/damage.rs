//! Bytes that are not as they were written.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use refstone_log::{ObjectFormat, OsEnv};

use super::super::layout::{BlockEntry, Part};
use super::super::{Cursor, Entry, Order, Table, TableError};
use super::{Scratch, oid, trail, varied, write};
use crate::edit::Target;
use crate::name::RefName;
use crate::row::RefMove;
use crate::stop::Stop;

/// All a table says.
#[derive(Debug, PartialEq)]
struct Answers {
    found: Vec<Option<Option<Target>>>,
    moves: Vec<Vec<RefMove>>,
    listed: Vec<(Vec<u8>, Entry)>,
    holding: Vec<Vec<RefName>>,
}

fn list(mut cursor: Cursor, listed: &mut Vec<(Vec<u8>, Entry)>) -> Result<(), TableError> {
    while let (Some(name), Some(row)) = (cursor.name(), cursor.row()) {
        listed.push((name.to_vec(), row.entry()));
        cursor.advance()?;
    }
    Ok(())
}

fn ask(table: Table) -> Result<Answers, TableError> {
    let table = Arc::new(table);
    let names: Vec<_> = varied().into_iter().map(|moved| moved.name).collect();
    let missing = RefName::new("refs/heads/missing").unwrap();
    let names = || names.iter().chain([&missing]).map(RefName::as_bytes);
    let mut listed = Vec::new();
    list(table.live_from(b"")?, &mut listed)?;
    list(table.gone_from(b"")?, &mut listed)?;
    Ok(Answers {
        found: names().map(|name| table.target(name)).collect::<Result<_, _>>()?,
        moves: names()
            .map(|name| trail(&table, name, Order::NewestFirst))
            .collect::<Result<_, _>>()?,
        listed,
        holding: (0..4)
            .map(|byte| table.holding(&oid(ObjectFormat::Sha1, byte)))
            .collect::<Result<_, _>>()?,
    })
}

fn open(path: &Path) -> Result<Table, TableError> {
    Table::open(&OsEnv, path)
}

fn written(scratch: &mut Scratch) -> (std::path::PathBuf, Vec<u8>) {
    let path = scratch.path();
    write(&OsEnv, &path, ObjectFormat::Sha1, 1, &varied()).unwrap();
    let bytes = fs::read(&path).unwrap();
    (path, bytes)
}

fn writable(path: &Path) -> File {
    File::options().write(true).open(path).unwrap()
}

/// Puts a byte in its place; writing the whole file anew would wait for the disk each time.
fn put(file: &File, at: usize, byte: u8) {
    file.write_all_at(&[byte], at as u64).unwrap();
}

// Breaks: any one of the checksum comparisons left out; the end of the stream not looked at.
#[test]
fn a_flipped_byte_is_an_error_or_changes_no_answer() {
    let mut scratch = Scratch::new();
    let (path, bytes) = written(&mut scratch);
    let answers = ask(open(&path).unwrap()).unwrap();
    let file = writable(&path);
    for (at, byte) in bytes.iter().enumerate() {
        put(&file, at, byte ^ 1 << (at % 8));
        let verified = open(&path).and_then(|table| table.verify(Stop::NEVER));
        assert!(matches!(verified, Err(TableError::Damaged { .. })), "byte {at}: {verified:?}");
        if let Ok(found) = open(&path).and_then(ask) {
            assert_eq!(found, answers, "byte {at}");
        }
        put(&file, at, *byte);
    }
}

// Breaks: the same, for a table that is open already.
#[test]
fn what_is_damaged_after_opening_is_an_error() {
    let mut scratch = Scratch::new();
    let (path, bytes) = written(&mut scratch);
    let answers = ask(open(&path).unwrap()).unwrap();
    let file = writable(&path);
    for (at, byte) in bytes.iter().enumerate() {
        let table = open(&path).unwrap();
        put(&file, at, byte ^ 0x10);
        assert!(table.verify(Stop::NEVER).is_err(), "byte {at}");
        if let Ok(found) = ask(table) {
            assert_eq!(found, answers, "byte {at}");
        }
        put(&file, at, *byte);
    }
}

#[test]
fn a_file_of_another_length_is_damaged() {
    let mut scratch = Scratch::new();
    let (path, bytes) = written(&mut scratch);
    for len in (0..bytes.len()).rev() {
        writable(&path).set_len(len as u64).unwrap();
        assert!(matches!(open(&path), Err(TableError::Damaged { .. })), "{len} bytes");
    }
    for more in [vec![0], vec![0; 76], bytes.clone()] {
        // The same table twice in a file would be found at its end, so its length must be right.
        fs::write(&path, [&bytes[..], &more].concat()).unwrap();
        assert!(matches!(open(&path), Err(TableError::Damaged { .. })), "{} more", more.len());
    }
}

fn at(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}

/// Changes a table and makes all its checksums right again.
fn forge(path: &Path, change: impl FnOnce(&mut [u8], &mut Table)) -> Result<(), TableError> {
    let mut table = open(path).unwrap();
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes, &mut table);
    let Table { directory, footer, sections, .. } = &mut table;
    for block in &mut directory.blocks {
        let message = &bytes[at(block.offset)..][..block.message.len as usize];
        block.message = Part::of(message).unwrap();
    }
    let moves = &bytes[at(sections.moves)..at(sections.oids)];
    let sums: Vec<u8> =
        moves.chunks(4096).flat_map(|page| crc32c::crc32c(page).to_le_bytes()).collect();
    bytes[at(sections.sums)..at(sections.end)].copy_from_slice(&sums);
    for (crc, page) in directory.sums_page_crcs.iter_mut().zip(sums.chunks(4096)) {
        *crc = crc32c::crc32c(page);
    }
    let oids = bytes[at(sections.oids)..at(sections.names)].chunks(12 << 10);
    for (page, bytes) in directory.oid_pages.iter_mut().zip(oids) {
        page.crc = crc32c::crc32c(bytes);
    }
    let names =
        bytes[at(sections.names)..at(sections.sums)].chunks(8 * footer.names.slots as usize);
    for (crc, bytes) in directory.name_page_crcs.iter_mut().zip(names) {
        *crc = crc32c::crc32c(bytes);
    }
    let directory = directory.encode();
    footer.directory_crc = crc32c::crc32c(&directory);
    bytes.truncate(at(sections.end));
    fs::write(path, [bytes, directory, footer.encode()].concat()).unwrap();
    open(path)?.verify(Stop::NEVER)
}

fn offset_of(bytes: &[u8], found: &[u8]) -> usize {
    bytes.windows(found.len()).position(|window| window == found).unwrap()
}

// Breaks: each check of `verify` but those of checksums, left out.
#[test]
fn checksums_that_are_right_do_not_make_a_table_right() {
    type Forgery = fn(&mut [u8], &mut Table);
    let forgeries: [(&str, Forgery); 15] = [
        ("an object's row", |bytes, table| bytes[at(table.sections.oids) + 8] ^= 1),
        ("an object's key", |bytes, table| bytes[at(table.sections.oids)] ^= 1),
        ("an object page's first key", |_, table| table.directory.oid_pages[0].first ^= 1),
        ("a seed", |_, table| table.footer.names.seed ^= 1),
        ("a name twice", |bytes, table| {
            let names = &mut bytes[at(table.sections.names)..at(table.sections.sums)];
            let slots: Vec<_> = names.chunks(8).map(|slot| slot != [0; 8]).collect();
            let (used, free) = (slots.iter().position(|s| *s), slots.iter().position(|s| !s));
            names.copy_within(8 * used.unwrap()..8 * used.unwrap() + 8, 8 * free.unwrap());
        }),
        ("names out of order", |bytes, table| {
            let names = [b"refs/heads/s", b"refs/heads/z"].map(|name| offset_of(bytes, name));
            bytes.swap(names[0] + 11, names[1] + 11);
            // Their rows are the fourth and the fifth; the index goes with them.
            let slots = at(table.sections.names)..at(table.sections.sums);
            for slot in
                bytes[slots].chunks_mut(8).filter(|slot| matches!(slot[..4], [4 | 5, 0, 0, 0]))
            {
                slot[0] ^= 1;
            }
        }),
        ("a first name", |_, table| {
            let old = std::mem::take(&mut table.directory);
            let BlockEntry { offset, message, moves_start, .. } = old.blocks[0];
            table.directory.push_block(offset, message, moves_start, b"HEAE");
            let BlockEntry { offset, message, moves_start, .. } = old.blocks[1];
            let name = old.first_name(&old.blocks[1]);
            table.directory.push_block(offset, message, moves_start, name);
            table.directory.oid_pages = old.oid_pages;
            table.directory.name_page_crcs = old.name_page_crcs;
            table.directory.sums_page_crcs = old.sums_page_crcs;
        }),
        ("a sequence", |bytes, _| {
            let newest = offset_of(bytes, &11u64.to_le_bytes());
            bytes[newest] = 12;
        }),
        ("a time of the newest move", |bytes, table| bytes[at(table.sections.moves) + 3] ^= 1),
        ("an object of the newest move", |bytes, table| {
            // That of `refs/heads/a` is not told: it is the one of the row.
            let chunk = offset_of(bytes, b"actor-0");
            assert!((at(table.sections.moves)..at(table.sections.oids)).contains(&chunk));
            bytes[chunk - 4] ^= 1;
        }),
        ("the length of moves", |bytes, table| bytes[at(table.sections.moves)] ^= 1),
        ("the length of moves at their end", |bytes, table| {
            bytes[at(table.sections.oids) - 1] ^= 1;
        }),
        ("where moves begin", |_, table| table.directory.blocks[1].moves_start += 1),
        ("how many moves there are", |_, table| table.footer.history_rows += 1),
        ("the end of the stream", |bytes, table| bytes[at(table.sections.eos)] ^= 1),
    ];
    for (what, forgery) in forgeries {
        let mut scratch = Scratch::new();
        let (path, _) = written(&mut scratch);
        forge(&path, |_, _| {}).unwrap();
        assert!(matches!(forge(&path, forgery), Err(TableError::Damaged { .. })), "{what}");
    }
}

#[test]
fn an_error_names_the_file_the_place_and_the_way_out() {
    let mut scratch = Scratch::new();
    let (path, mut bytes) = written(&mut scratch);
    let table = open(&path).unwrap();
    let at = table.directory.blocks[0].offset;
    bytes[usize::try_from(at).unwrap() + 9] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let text = table.target(b"HEAD").unwrap_err().to_string();
    let path = path.display();
    assert!(
        text.starts_with(&format!("{path}: the block at byte {at}: expected checksum ")),
        "{text}"
    );
    assert!(text.contains("`refstone rebuild`"), "{text}");
}
