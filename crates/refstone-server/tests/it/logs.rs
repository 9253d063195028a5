//! What the servers of this process log. It is one log for all tests: each looks for lines that
//! name its own repository.

use std::fmt::{Debug, Write};
use std::sync::{Mutex, Once};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
static INSTALL: Once = Once::new();

/// Keeps what is logged from now on.
pub(crate) fn keep() {
    INSTALL.call_once(|| tracing::subscriber::set_global_default(Keeper).unwrap());
}

/// The lines with each of these parts, in order: the level, then every field as `name=value`.
pub(crate) fn logged(parts: &[&str]) -> Vec<String> {
    let lines = LINES.lock().unwrap();
    let has_all = |line: &&String| parts.iter().all(|part| line.contains(part));
    lines.iter().filter(has_all).cloned().collect()
}

struct Keeper;

impl Subscriber for Keeper {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("refstone_server")
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        LINES.lock().unwrap().push(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    /// As it is: a line that needs escapes here would be two lines in a real log.
    fn record_str(&mut self, field: &Field, value: &str) {
        write!(self.0, " {}={value}", field.name()).unwrap();
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}
