//! Tables that turn out to be damaged or missing while the store is open.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use refstone::{ReadError, RefStore};

/// What clients are told of references that cannot be read. Which file it is, and what the operator can
/// do, the server's log has.
pub(crate) fn told(problem: &ReadError) -> &'static str {
    match problem.is_of_table() {
        true => {
            "references cannot be read at the moment; try again, and if that does not help, \
             the server's log has the reason"
        }
        false => "references cannot be read; the server's log has the reason",
    }
}

/// The references that could not be read, if that is what failed.
pub(crate) fn unreadable(error: &io::Error) -> Option<&ReadError> {
    error.get_ref()?.downcast_ref()
}

/// Whether the tables of a repository were made anew since it was opened.
#[derive(Debug, Default)]
pub(crate) struct Healing {
    begun: AtomicBool,
}

impl Healing {
    /// Has all tables made anew if a request met one that cannot be read. They are made of history, so
    /// nothing is lost; requests that need the table fail until it is there.
    ///
    /// Once only: a disk that damages what is written again and again is not helped by writing more.
    pub(crate) fn note(&self, name: &str, store: Option<&RefStore>, problem: &ReadError) {
        let Some(store) = store.filter(|_| problem.is_of_table()) else { return };
        if self.begun.swap(true, Ordering::Relaxed) {
            return;
        }
        let (repository, store) = (name.to_owned(), store.clone());
        tracing::warn!(%repository, %problem, "a table cannot be read; all are made anew of history");
        // A thread of its own: this may be called where no runtime is.
        let rebuild = move || match store.rebuild(&mut |_| ()) {
            Ok(()) => tracing::info!(%repository, "the tables were made anew"),
            Err(problem) => tracing::error!(%repository, %problem, "the tables were not made anew"),
        };
        if let Err(problem) =
            std::thread::Builder::new().name("refstone-heal".into()).spawn(rebuild)
        {
            tracing::error!(%problem, "no thread could be started to make tables anew");
        }
    }
}
