//! `MultiKueueConfig`: the worker clusters that one admission check dispatches to.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The worker clusters of a check.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "MultiKueueConfig",
    shortname = "mkconf",
    derive = "Default",
    derive = "PartialEq",
    doc = "The worker clusters to which the workloads of an admission check can be dispatched."
)]
#[serde(rename_all = "camelCase")]
pub struct MultiKueueConfigSpec {
    /// Names of `MultiKueueClusters`: 1 to 20, no two alike, each at most 256 characters. The incremental dispatcher
    /// nominates them in this order.
    #[schemars(
        length(min = 1, max = 20),
        inner(length(max = 256)),
        extend(
            "x-kubernetes-list-type" = "atomic",
            "x-kubernetes-validations" = [{
                "rule": "self.all(x, self.exists_one(y, x == y))",
                "message": "must be unique",
            }]
        )
    )]
    pub clusters: Vec<String>,
    /// How the quotas of the manager's `ClusterQueue` are set. Manual (as when absent): by an administrator. Automated: they
    /// follow the quotas of the workers; needs the feature gate `MultiKueueManagerQuotaAutomation`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_management: Option<QuotaManagement>,
}

/// How the quotas of the manager's queue are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum QuotaManagement {
    /// By an administrator.
    Manual,
    /// By the manager, from the quotas of the workers.
    Automated,
}
