//! What `ClusterQueue`, `Cohort` and `LocalQueue` share: quotas per flavor, weights, and the stop policy.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Resources that are always assigned together, from the same flavor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.flavors.all(f, size(f.resources) == size(self.coveredResources))",
    "message": "flavors must have the same number of resources as the coveredResources",
}]))]
pub struct ResourceGroup {
    /// Names of the resources of this group, such as cpu, memory, pods or nvidia.com/gpu: 1 to 64. A resource belongs
    /// to one group only, and every flavor of the group must list exactly these resources in this order.
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub covered_resources: Vec<String>,
    /// Flavors that offer these resources, tried in this order: 1 to 64. A flavor belongs to one group only.
    #[schemars(
        length(min = 1, max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub flavors: Vec<FlavorQuotas>,
}

/// The quotas of one flavor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FlavorQuotas {
    /// Name of the `ResourceFlavor`. The object may be created later; until then the queue is inactive.
    #[schemars(schema_with = "crate::schema::subdomain")]
    pub name: String,
    /// Quota of each covered resource in this flavor, in the order of coveredResources: 1 to 64.
    #[schemars(
        length(min = 1, max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub resources: Vec<ResourceQuota>,
}

/// The quota of one resource in one flavor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceQuota {
    /// Name of the resource.
    pub name: String,
    /// Amount this queue may use at any time without borrowing; not negative. The part it does not use can be lent to
    /// others in its cohort.
    #[schemars(schema_with = "crate::schema::quantity")]
    pub nominal_quota: Quantity,
    /// Largest amount above nominalQuota that may be taken from the cohort; not negative. Absent means no limit. Must
    /// be absent without a cohort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::quantity")]
    pub borrowing_limit: Option<Quantity>,
    /// Largest amount of the own unused quota that others in the cohort may use; not negative. Absent means all of it.
    /// Must be absent without a cohort, and may not exceed nominalQuota on a `ClusterQueue`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::quantity")]
    pub lending_limit: Option<Quantity>,
}

/// How much of the shared capacity a queue or cohort deserves, compared with its siblings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FairSharing {
    /// Comparative share of unused capacity of the cohort; default 1. Twice the weight deserves twice the share. 0 means
    /// that all others go first; otherwise it must be greater than 1n.
    #[serde(default = "weight_default")]
    #[schemars(schema_with = "crate::schema::quantity")]
    pub weight: Quantity,
}

impl Default for FairSharing {
    fn default() -> Self {
        Self {
            weight: weight_default(),
        }
    }
}

fn weight_default() -> Quantity {
    Quantity("1".to_owned())
}

/// Where a queue or cohort stands in fair sharing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FairSharingStatus {
    /// Largest ratio, over the resources, of borrowed usage to what the cohort can lend, divided by the weight, in
    /// thousandths. 0 means nothing is borrowed; the largest 64-bit number means that the weight is 0 and something is.
    pub weighted_share: i64,
}

/// Whether a queue admits workloads. None: it admits them. Hold: it admits no more; admitted ones run on. `HoldAndDrain`: it
/// admits no more, and admitted workloads are evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StopPolicy {
    /// The queue admits workloads.
    #[default]
    None,
    /// The queue admits no more workloads; admitted ones run to their end, reservations are dropped.
    Hold,
    /// The queue admits no more workloads, and admitted ones are evicted.
    HoldAndDrain,
}
