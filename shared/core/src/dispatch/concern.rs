//! Which clusters a decision needs to read.
//!
//! Why: most decisions concern Workloads that run somewhere, and their cost must not grow with the number of clusters.

use super::Owner;
use crate::name::CheckName;
use crate::status::CheckPhase;
use crate::workload::Workload;

/// Whether a Workload in this state is only followed on its cluster, or removed from all clusters. Then [`plan`](super::plan) needs only
/// the cluster that the status names and the clusters that hold an object of the Workload. This is valid only while the named cluster
/// answers.
pub fn is_followed(workload: &Workload, check: &CheckName, owner: &Owner) -> bool {
    let status = &workload.status;
    let is = |condition| status.conditions.is_true(condition);
    let ready = { status.checks.get(check) }.is_some_and(|state| state.phase == CheckPhase::Ready);
    let runs = status.cluster.is_some() && ready && is("QuotaReserved") && !is("Evicted");
    is("Finished") || (runs && !workload.deleting && *owner == Owner::Managed)
}
