//! Counts of what happened in cycles, for metrics.

use std::collections::BTreeMap;

use super::State;
use crate::name::ClusterQueueName;

/// Counts of what happened in cycles. *Source*: `spec/admission-engine.md 8`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CycleOutcome {
    /// Rounds in which a workload got quota (`admission_attempts_total`, result `success`).
    pub successes: u64,
    /// Rounds in which no workload got quota (result `inadmissible`).
    pub failures: u64,
    /// Heads tried.
    pub heads: u64,
    /// Heads that were not served because their victims were taken, in the last round of each queue that was tried
    /// (`admission_cycle_preemption_skips`).
    pub preemption_skips: BTreeMap<ClusterQueueName, u64>,
    /// Nominations that were computed again because their victims were taken: with and without success
    /// (`preemption_target_recomputations_total`).
    pub recomputations: BTreeMap<ClusterQueueName, (u64, u64)>,
}

impl State {
    /// The counts since the last call.
    pub fn take_outcome(&mut self) -> CycleOutcome {
        std::mem::take(&mut self.outcome)
    }
}
