//! Named faults for the red proofs (`docs/durability.md`, "Red proofs").
//!
//! In a build with the feature `sabotage` the environment variable `REFSTONE_SABOTAGE` names one of
//! them, and the code that asks for it here goes wrong at that point: the test that is named for it
//! must notice. In every other build each question is a constant `false`, and nothing of it is
//! left.

use std::io;

use crate::rewrite::{Leaving, Sealer};

#[cfg(all(feature = "sabotage", not(debug_assertions)))]
compile_error!("sabotage is for the red proofs alone: it is not built without debug assertions");

macro_rules! sabotages {
    ($($name:literal $variant:ident,)+) => {
        /// A point at which the log can be made to break a promise.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Sabotage {
            $($variant,)+
        }

        #[cfg(any(test, feature = "sabotage"))]
        const NAMES: &[(&str, Sabotage)] = &[$(($name, Sabotage::$variant),)+];
    };
}

sabotages! {
    "skip-sync" SkipSync,
    "ignore-failed-sync" IgnoreFailedSync,
    "retry-failed-sync" RetryFailedSync,
    "sync-under-writer" SyncUnderWriter,
    "publish-before-sync" PublishBeforeSync,
    "watermark-after-sync" WatermarkAfterSync,
    "invert-watermark" InvertWatermark,
    "ignore-generation" IgnoreGeneration,
    "drop-barrier-result" DropBarrierResult,
    "answer-at-once" AnswerAtOnce,
    "keep-spent-sequence" KeepSpentSequence,
    "panic-is-success" PanicIsSuccess,
    "lose-wake-up" LoseWakeUp,
    "skip-name-sync" SkipNameSync,
    "skip-swap-sync" SkipSwapSync,
    "skip-rebind" SkipRebind,
    "skip-gate-rebind" SkipGateRebind,
    "seal-after-swap" SealAfterSwap,
    "take-from-readers" TakeFromReaders,
    "keep-replaced-secret" KeepReplacedSecret,
    "keep-leftover-secrets" KeepLeftoverSecrets,
    "accept-broken-checksum" AcceptBrokenChecksum,
    "accept-broken-chain" AcceptBrokenChain,
    "cut-instead-of-refusing" CutInsteadOfRefusing,
    "ignore-witness" IgnoreWitness,
    "drop-torn-bytes" DropTornBytes,
    "trust-cache" TrustCache,
    "ignore-doubt" IgnoreDoubt,
    "unlock-at-open" UnlockAtOpen,
    "unlock-before-leader" UnlockBeforeLeader,
    "ignore-floor" IgnoreFloor,
    "look-when-growing" LookWhenGrowing,
    "rest-unsynced" RestUnsynced,
    "align-64" Align64,
}

/// Whether the log is to go wrong in this way.
#[cfg(not(feature = "sabotage"))]
pub(crate) const fn is(_: Sabotage) -> bool {
    false
}

/// Whether the log is to go wrong in this way.
#[cfg(feature = "sabotage")]
pub(crate) fn is(sabotage: Sabotage) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<Sabotage>> = std::sync::OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let name = std::env::var("REFSTONE_SABOTAGE").ok()?;
        NAMES.iter().find(|(known, _)| *known == name).map(|&(_, sabotage)| sabotage)
    }) == Some(sabotage)
}

/// A sealer that makes nothing durable.
pub(crate) struct Nobody;

impl Sealer for Nobody {
    fn seal(
        &mut self,
        leaving: &mut Leaving<'_>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        while leaving.next()?.is_some() {}
        Ok(())
    }
}

/// Syncs, unless sabotaged.
pub(crate) fn sync(sync: impl Fn() -> io::Result<()>) -> io::Result<()> {
    if is(Sabotage::SkipSync) {
        return Ok(());
    }
    match sync() {
        Err(_) if is(Sabotage::IgnoreFailedSync) => Ok(()),
        Err(_) if is(Sabotage::RetryFailedSync) => sync(),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The proofs run what the document names, so what is missing there is never proven.
    #[test]
    fn every_sabotage_has_a_red_proof() {
        let document = include_str!("../../../docs/durability.md");
        for (name, _) in NAMES {
            assert!(document.contains(&format!("| `{name}` |")), "{name} is in no row");
        }
    }

    #[test]
    #[cfg(not(feature = "sabotage"))]
    fn an_ordinary_build_goes_wrong_nowhere() {
        const { assert!(!is(Sabotage::SkipSync)) };
    }
}
