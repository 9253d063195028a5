//! A thread of the model for every log whose tasks need a leader. Unlike those of the real pool it
//! ends with the model.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::log::Owned;

pub(crate) fn lead(log: Arc<Owned>) {
    shuttle::thread::spawn(move || {
        if catch_unwind(AssertUnwindSafe(|| log.gate.lead_for_tasks(&**log))).is_err() {
            log.gate.leave_tasks();
        }
        drop(log);
    });
}
