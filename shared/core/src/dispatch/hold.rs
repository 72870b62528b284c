//! A run goes on where it is when its `ClusterQueue` names another MultiKueue check, none any more, or one for the first time.
//!
//! Why: `status.clusterName` records where it runs, and an entry for a check only says who follows it. An administrator who changes the
//! checks of a queue means the jobs that are admitted later.
//!
//! *Source*: `spec/safety.md` I1, `spec/multikueue.md 3.3`.

use jiff::Timestamp;

use super::Pass;
use crate::lifecycle::{ADMITTED, EVICTED, QUOTA_RESERVED};
use crate::name::CheckName;
use crate::status::{CheckPhase, CheckState, Status};

/// Keeps what a placed Workload records, in a pass that lacks facts for a decision: the cluster and the entries of its checks. Why the
/// cluster: an eviction takes the name out of the composed status, and without the name the job could run twice (`spec/safety.md` I1).
pub fn hold(stored: &Status, status: &mut Status) {
    status.cluster.clone_from(&stored.cluster);
    if stored.cluster.is_some() {
        for (name, state) in &stored.checks {
            status.checks.entry(name.clone()).or_insert_with(|| state.clone());
        }
    }
}

/// Keeps the entry of a MultiKueue check that the `ClusterQueue` does not name any more, while a cluster holds the Workload. Without the
/// entry the run would not be followed. Does nothing when the composed status has another MultiKueue check.
pub fn keep_check(
    stored: &Status,
    status: &mut Status,
    is_ours: impl Fn(&CheckName) -> bool,
    now: Timestamp,
) {
    if stored.cluster.is_none() || status.checks.keys().any(&is_ours) {
        return;
    }
    let Some((name, state)) = stored.checks.iter().find(|(name, _)| is_ours(name)) else {
        return;
    };
    let runs = status.conditions.is_true(QUOTA_RESERVED) && !status.conditions.is_true(EVICTED);
    let state = if runs {
        state.clone()
    } else {
        CheckState::pending(now)
    };
    status.checks.insert(name.clone(), state);
}

impl Pass<'_> {
    /// Whether the Workload is admitted and placed under the entry of another MultiKueue check, so that the run is followed under this one.
    ///
    /// Why `Admitted` tells: it stays true until the quota is released, so no eviction came between the placement and this pass.
    pub(super) fn is_renamed(&self, phase: CheckPhase) -> bool {
        phase == CheckPhase::Pending && self.is(ADMITTED) && self.plan.status.cluster == self.o.stored.cluster
    }

    /// Whether the Workload was admitted in the manager's own cluster before its queue named the check. It must not be offered to a worker:
    /// its job would run twice (`spec/safety.md` I1).
    pub(super) fn runs_here(&self, phase: CheckPhase) -> bool {
        phase == CheckPhase::Pending
            && self.is_admitted_here()
            && !self.is(EVICTED)
            && self.is(QUOTA_RESERVED)
    }

    fn is_admitted_here(&self) -> bool {
        self.is(ADMITTED) && self.named().is_none()
    }

    /// No check of this Workload is a MultiKueue check, for example because the `AdmissionCheck` was deleted.
    ///
    /// Why the copies stay while quota is held: the check may be missing only for a moment.
    pub(super) fn run_without_check(&mut self) {
        if self.is("Finished") {
            return self.clean_up_finished();
        }
        let quota = self.is(QUOTA_RESERVED);
        if !quota && self.named().is_none() || self.is_admitted_here() {
            return self.remove_everywhere();
        }
        if self.named().is_none() {
            return;
        }
        if quota && !self.is(EVICTED) && !self.o.workload.deleting {
            return self.mirror_holder();
        }
        self.hold_on();
        if quota {
            self.stop_everywhere();
        } else {
            self.clear_up();
        }
    }
}
