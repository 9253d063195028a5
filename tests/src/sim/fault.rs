//! Operations that fail on demand: the n-th of its kind, once or from then on.

use std::io;

/// A kind of operation on the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// A file created.
    Create,
    /// A file opened to be read.
    OpenRead,
    /// A file opened to be written.
    OpenWrite,
    /// Directories created.
    CreateDir,
    /// A file renamed.
    Rename,
    /// A second name given to a file.
    Link,
    /// A file removed.
    Remove,
    /// A directory listed.
    List,
    /// A directory synced.
    SyncDir,
    /// A lock taken.
    Lock,
    /// A log id drawn.
    RandomId,
    /// Bytes read.
    Read,
    /// Bytes written.
    Write,
    /// A file synced.
    Sync,
    /// A length looked up.
    Len,
    /// A descriptor duplicated.
    Clone,
    /// The space of a file given back.
    GiveBack,
}

impl Op {
    /// All of them.
    pub const ALL: [Op; 17] = [
        Op::Create,
        Op::OpenRead,
        Op::OpenWrite,
        Op::CreateDir,
        Op::Rename,
        Op::Link,
        Op::Remove,
        Op::List,
        Op::SyncDir,
        Op::Lock,
        Op::RandomId,
        Op::Read,
        Op::Write,
        Op::Sync,
        Op::Len,
        Op::Clone,
        Op::GiveBack,
    ];
}

/// What happens instead of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails and does nothing. A sync that fails loses what was dirty; see
    /// [`SimFs`](super::SimFs).
    Error(io::ErrorKind),
    /// It is carried out, and fails all the same.
    DoneBut(io::ErrorKind),
    /// A write does its first half and fails.
    HalfThen(io::ErrorKind),
    /// A read or write does its first half, and says so.
    Short,
    /// A write does nothing, and says that it wrote no byte.
    NoBytes,
}

impl Fault {
    /// Whether the fault changes anything for this kind of operation.
    #[must_use]
    pub fn suits(self, op: Op) -> bool {
        match self {
            Fault::Error(io::ErrorKind::Interrupted) => op != Op::Len && op != Op::Clone,
            Fault::Error(_) => true,
            Fault::DoneBut(_) => matches!(
                op,
                Op::Create
                    | Op::CreateDir
                    | Op::Rename
                    | Op::Link
                    | Op::Remove
                    | Op::SyncDir
                    | Op::Sync
            ),
            Fault::HalfThen(_) | Fault::NoBytes => op == Op::Write,
            Fault::Short => matches!(op, Op::Read | Op::Write),
        }
    }
}

/// Which operations meet a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The kind of operation.
    pub op: Op,
    /// How many of its kind pass first.
    pub after: usize,
    /// What happens then.
    pub fault: Fault,
    /// Whether it happens to all that follow too.
    pub lasting: bool,
}

/// The plans of a machine, and how many faults it met.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    plans: Vec<Plan>,
    met: usize,
}

impl Faults {
    pub(super) fn plan(&mut self, plan: Plan) {
        self.plans.push(plan);
    }

    pub(super) fn heal(&mut self) {
        self.plans.clear();
    }

    pub(super) fn met(&self) -> usize {
        self.met
    }

    /// The fault that this operation meets.
    pub(super) fn meet(&mut self, op: Op) -> Option<Fault> {
        let due = self.plans.iter().position(|plan| plan.op == op && plan.after == 0);
        for plan in self.plans.iter_mut().filter(|plan| plan.op == op) {
            plan.after = plan.after.saturating_sub(1);
        }
        let index = due?;
        self.met += 1;
        let plan = self.plans[index];
        if !plan.lasting {
            self.plans.remove(index);
        }
        Some(plan.fault)
    }
}
