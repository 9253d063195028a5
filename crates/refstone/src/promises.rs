//! What holds, as examples.
//!
//! `docs/durability.md` owns the promises: it says what each assumes and which tests hold it, with
//! crashes, failing disks and power cuts. Here is how they look to a program.
//!
//! # An acknowledged transaction is durable
//!
//! When [`commit`](crate::RefStore::commit) returns, frame, file name and directories are synced.
//! Files that are copied from then on have the transaction.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let root = tempfile::tempdir()?;
//! # let dir = &root.path().join("refstone");
//! # use refstone::{CreateOptions, Edit, ObjectId, RefName, RefStore, Transaction};
//! # RefStore::create(dir, &CreateOptions::default())?;
//! # let store = RefStore::open(dir)?;
//! # let id = ObjectId::from_bytes(&[1; 20])?;
//! # let main = RefName::new("refs/heads/main")?;
//! let syncs = store.log().gate().syncs();
//! let committed = store.commit(&Transaction::new("alice").with(Edit::set(main.clone(), id)))?;
//! assert_eq!(store.log().durable_seq(), committed.seq());
//! assert_eq!(store.log().gate().syncs(), syncs + 1);
//!
//! let copy = root.path().join("copy");
//! std::fs::create_dir(&copy)?;
//! std::fs::copy(dir.join("refs.arrow"), copy.join("refs.arrow"))?;
//! assert_eq!(RefStore::open(&copy)?.view().get(&main)?, Some(id.into()));
//! # Ok(())
//! # }
//! ```
//!
//! # Nobody sees what is not durable
//!
//! Not a view, not a reader of the file; and who was refused because of it waits for it. Here the
//! disk is held up, so that there is something to see.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let dir = &dir.path().join("refstone");
//! # use refstone::{CreateOptions, Edit, ErrorKind, ObjectId, RefName, RefStore, Transaction};
//! # RefStore::create(dir, &CreateOptions::default())?;
//! # let store = RefStore::open(dir)?;
//! # let id = ObjectId::from_bytes(&[1; 20])?;
//! # let main = RefName::new("refs/heads/main")?;
//! # use std::pin::pin;
//! # use std::task::{Context, Waker};
//! let create = Transaction::new("alice").with(Edit::create(main.clone(), id));
//! let hold = store.log().gate().hold();
//! let first = store.stage(&create)?;
//! let mut second = pin!(store.stage(&create)?); // it exists already: will be refused
//! assert_eq!(store.view().get(&main)?, None);
//! assert_eq!(refstone::read_view(dir)?.get(&main)?, None);
//! let mut context = Context::from_waker(Waker::noop());
//! assert!(second.as_mut().poll(&mut context).is_pending(), "a refusal is an answer as well");
//!
//! drop(hold);
//! assert!(first.wait().is_ok());
//! assert_eq!(pollster::block_on(second).unwrap_err().kind(), ErrorKind::Refused);
//! assert_eq!(refstone::read_view(dir)?.get(&main)?, Some(id.into()));
//! # Ok(())
//! # }
//! ```
//!
//! # All or nothing
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let dir = &dir.path().join("refstone");
//! # use refstone::{CreateOptions, Edit, ObjectId, RefName, RefStore, Transaction};
//! # RefStore::create(dir, &CreateOptions::default())?;
//! # let store = RefStore::open(dir)?;
//! # let [one, two] = [[1; 20], [2; 20]].map(|id| ObjectId::from_bytes(&id).unwrap());
//! # let [a, b] = ["refs/heads/a", "refs/heads/b"].map(|name| RefName::new(name).unwrap());
//! let tx = Transaction::new("alice")
//!     .with(Edit::create(a.clone(), one))
//!     .with(Edit::update(b.clone(), two, one)); // there is no b
//! let refused = store.commit(&tx).unwrap_err();
//! assert_eq!(refused.refusal().unwrap().name, b);
//! assert_eq!(store.view().get(&a)?, None);
//! # Ok(())
//! # }
//! ```
//!
//! # Sequences rise by one
//!
//! What was refused spends none, and a store that is opened again goes on.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let dir = &dir.path().join("refstone");
//! # use refstone::{CreateOptions, Edit, ObjectId, RefName, RefStore, Transaction};
//! # RefStore::create(dir, &CreateOptions::default())?;
//! # let store = RefStore::open(dir)?;
//! # let [one, two] = [[1; 20], [2; 20]].map(|id| ObjectId::from_bytes(&id).unwrap());
//! # let main = RefName::new("refs/heads/main")?;
//! let create = Transaction::new("alice").with(Edit::create(main.clone(), one));
//! let update = Transaction::new("alice").with(Edit::update(main, two, one));
//! assert_eq!(store.commit(&create)?.seq().get(), 1);
//! assert!(store.commit(&create).is_err());
//! store.close()?;
//! assert_eq!(RefStore::open(dir)?.commit(&update)?.seq().get(), 2);
//! # Ok(())
//! # }
//! ```
//!
//! # A torn tail is repaired and told; damage is refused
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let dir = &dir.path().join("refstone");
//! # use refstone::{CreateOptions, Edit, ErrorKind, ObjectId, RefName, RefStore, Transaction};
//! # RefStore::create(dir, &CreateOptions::default())?;
//! # let store = RefStore::open(dir)?;
//! # let id = ObjectId::from_bytes(&[1; 20])?;
//! # let main = RefName::new("refs/heads/main")?;
//! use std::os::unix::fs::FileExt;
//! # store.commit(&Transaction::new("alice").with(Edit::set(main.clone(), id)))?;
//! let end = store.log().live_bytes();
//! store.close()?;
//! let file = std::fs::File::options().write(true).open(dir.join("refs.arrow"))?;
//!
//! // A power cut left half a transaction that nobody was told of.
//! file.write_all_at(b"half a transaction", end + 8)?;
//! let store = RefStore::open(dir)?;
//! let torn = store.recovery().torn.as_ref().expect("it was torn");
//! assert!(torn.kept.exists(), "nothing is thrown away");
//! assert_eq!(store.view().get(&main)?, Some(id.into()));
//! store.close()?;
//!
//! // A bit of what was acknowledged is gone.
//! file.write_all_at(b"?", end - 100)?;
//! let refused = RefStore::open(dir).unwrap_err();
//! assert_eq!(refused.kind(), ErrorKind::Corrupt);
//! assert!(refused.to_string().contains("where transaction 1 belongs"));
//! # Ok(())
//! # }
//! ```
//!
//! # Errors tell what happened
//!
//! Old state, new state, or unknown: [`ErrorKind`](crate::ErrorKind) says which, and
//! `docs/durability.md` has the table. After a failed sync nobody can know, so the store stops
//! until it is opened again; the sync is never tried again.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let dir = &dir.path().join("refstone");
//! # use refstone::{CreateOptions, Edit, ErrorKind, ObjectId, RefName, RefStore, Transaction};
//! # use std::panic::{AssertUnwindSafe, catch_unwind};
//! # RefStore::create(dir, &CreateOptions::default())?;
//! # let store = RefStore::open(dir)?;
//! # let id = ObjectId::from_bytes(&[1; 20])?;
//! # let main = RefName::new("refs/heads/main")?;
//! # let tx = Transaction::new("alice").with(Edit::create(main.clone(), id));
//! // Disks fail rarely. Code that panics while it has the log stops the store as well.
//! let panics = || store.log().append_with(|_| panic!("for the example"));
//! assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
//!
//! let stopped = store.commit(&tx).unwrap_err();
//! assert_eq!(stopped.kind(), ErrorKind::Poisoned); // it did not happen
//! assert_eq!(store.view().get(&main)?, None); // and whoever reads is not disturbed
//! # let _told_before = store.close();
//! drop(store);
//! let reopened = RefStore::open(dir)?;
//! assert_eq!(reopened.commit(&tx)?.seq().get(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! # No history is lost
//!
//! Neither by deleting a ref, nor by a compaction.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let dir = &dir.path().join("refstone");
//! # use refstone::{
//! #     At, CompactOptions, CreateOptions, Edit, ObjectId, RefName, RefStore, Transaction,
//! # };
//! # RefStore::create(dir, &CreateOptions::default())?;
//! # let store = RefStore::open(dir)?;
//! # let id = ObjectId::from_bytes(&[1; 20])?;
//! # let topic = RefName::new("refs/heads/topic")?;
//! store.commit(&Transaction::new("alice").with(Edit::create(topic.clone(), id)))?;
//! let before = refstone::read_view(dir)?;
//! store.commit(&Transaction::new("bob").with(Edit::delete(topic.clone())))?;
//! let compacted = store.compact(CompactOptions::default(), &mut |_| ())?;
//! assert_eq!(compacted.sealed, 2);
//!
//! let actors: Vec<_> = refstone::history(dir, Some(&topic))?.map(|m| m.unwrap().actor).collect();
//! assert_eq!(actors, ["alice", "bob"]);
//! let then = refstone::read_view_at(dir, At::Seq(before.seq()))?;
//! assert_eq!(then.get(&topic)?, Some(id.into()));
//! # Ok(())
//! # }
//! ```
//!
//! # One writer
//!
//! The lock dies with its process. Readers need none.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let dir = &dir.path().join("refstone");
//! # use refstone::{CreateOptions, ErrorKind, RefStore};
//! # RefStore::create(dir, &CreateOptions::default())?;
//! let store = RefStore::open(dir)?;
//! assert_eq!(RefStore::open(dir).unwrap_err().kind(), ErrorKind::Locked);
//! assert!(refstone::read_view(dir).is_ok());
//! store.close()?;
//! assert!(RefStore::open(dir).is_ok());
//! # Ok(())
//! # }
//! ```
//!
//! # Some space stays free
//!
//! A transaction that would leave less is refused with nothing written, and the store goes on as
//! soon as there is more.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let dir = &dir.path().join("refstone");
//! # use refstone::{
//! #     CreateOptions, Edit, ErrorKind, MinFree, ObjectId, OpenOptions, RefName, RefStore, Transaction,
//! # };
//! # RefStore::create(dir, &CreateOptions::default())?;
//! # let id = ObjectId::from_bytes(&[1; 20])?;
//! # let tx = Transaction::new("alice").with(Edit::create(RefName::new("refs/heads/a")?, id));
//! let more_than_there_is = OpenOptions::default().min_free(MinFree::Bytes(1 << 60));
//! let store = RefStore::open_with(dir, more_than_there_is)?;
//! assert_eq!(store.commit(&tx).unwrap_err().kind(), ErrorKind::LowSpace);
//! assert_eq!(store.log().written_seq().get(), 0);
//! # store.close()?;
//! # assert!(RefStore::open(dir)?.commit(&tx).is_ok());
//! # Ok(())
//! # }
//! ```
