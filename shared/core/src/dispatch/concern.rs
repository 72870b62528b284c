//! Which clusters a decision has to know of.
//!
//! Why: most decisions are about Workloads that run somewhere, and what is looked at for them must not grow with the number of
//! clusters.

use super::Owner;
use crate::name::CheckName;
use crate::status::CheckPhase;
use crate::workload::Workload;

/// Whether a Workload in this state is only followed or cleared away: then [`plan`](super::plan) comes to the same end when
/// clusters are left out that hold nothing of it and are not the one that it names, as long as that one answers.
pub fn is_followed(workload: &Workload, check: &CheckName, owner: &Owner) -> bool {
    let status = &workload.status;
    let is = |condition| status.conditions.is_true(condition);
    let ready = { status.checks.get(check) }.is_some_and(|state| state.phase == CheckPhase::Ready);
    let runs = status.cluster.is_some() && ready && is("QuotaReserved") && !is("Evicted");
    is("Finished") || (runs && !workload.deleting && *owner == Owner::Managed)
}
