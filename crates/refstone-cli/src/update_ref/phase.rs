//! Where a session stands between its transactions, and which command may come next: git's rules.

use super::words::{GrammarError, Verb};

/// How far the current transaction is.
///
/// The order is that of git's state machine, where a command never takes a session back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Nothing said `start`: what is asked for is committed when the input ends.
    Open,
    /// Nothing is committed unless the input says so.
    Started,
    /// Only `commit` and `abort` may follow.
    Prepared,
    /// Only `start` may follow.
    Closed,
}

impl Phase {
    /// The phase after a command, or why the command may not come now.
    pub(super) fn after(self, verb: Verb) -> Result<Phase, GrammarError> {
        let reached = reached_by(verb);
        match (self, reached) {
            (Phase::Started, Phase::Started) => {
                Err(GrammarError::new("cannot restart ongoing transaction"))
            }
            (Phase::Prepared, reached) if reached != Phase::Closed => {
                Err(GrammarError::new("prepared transactions can only be closed"))
            }
            (Phase::Closed, reached) if reached != Phase::Started => {
                Err(GrammarError::new("transaction is closed"))
            }
            (Phase::Closed, reached) => Ok(reached),
            (phase, reached) => Ok(phase.max(reached)),
        }
    }
}

fn reached_by(verb: Verb) -> Phase {
    match verb {
        Verb::Start => Phase::Started,
        Verb::Prepare => Phase::Prepared,
        Verb::Commit | Verb::Abort => Phase::Closed,
        _ => Phase::Open,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(verbs: &[Verb]) -> Result<Phase, String> {
        let mut phase = Phase::Open;
        for &verb in verbs {
            phase = phase.after(verb).map_err(|error| error.text)?;
        }
        Ok(phase)
    }

    #[test]
    fn without_start_the_input_is_one_open_transaction() {
        assert_eq!(run(&[Verb::Create, Verb::Option, Verb::Verify]), Ok(Phase::Open));
        assert_eq!(run(&[Verb::Create, Verb::Commit]), Ok(Phase::Closed));
        assert_eq!(run(&[Verb::Prepare]), Ok(Phase::Prepared));
    }

    #[test]
    fn an_edit_does_not_take_a_started_transaction_back() {
        assert_eq!(run(&[Verb::Start, Verb::Create]), Ok(Phase::Started));
    }

    #[test]
    fn several_transactions_follow_each_other() {
        let verbs = [Verb::Start, Verb::Commit, Verb::Start, Verb::Prepare, Verb::Abort];
        assert_eq!(run(&verbs), Ok(Phase::Closed));
    }

    #[test]
    fn what_may_not_follow_is_told_in_gits_words() {
        let refused = |verbs: &[Verb]| run(verbs).unwrap_err();
        assert_eq!(refused(&[Verb::Start, Verb::Start]), "cannot restart ongoing transaction");
        for verb in [Verb::Create, Verb::Option, Verb::Start, Verb::Prepare] {
            let text = "prepared transactions can only be closed";
            assert_eq!(refused(&[Verb::Start, Verb::Prepare, verb]), text);
        }
        for verb in [Verb::Create, Verb::Commit, Verb::Abort, Verb::Prepare, Verb::Option] {
            assert_eq!(refused(&[Verb::Commit, verb]), "transaction is closed");
        }
    }
}
