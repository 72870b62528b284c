//! `ClusterQueue`: quotas, and the policies by which they are given out.

use k8s_openapi::apimachinery::pkg::{
    api::resource::Quantity,
    apis::meta::v1::{Condition, LabelSelector},
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{FairSharing, FairSharingStatus, ResourceGroup, StopPolicy};

/// Quotas and policies of a cluster queue.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "ClusterQueue",
    status = "ClusterQueueStatus",
    shortname = "cq",
    derive = "Default",
    derive = "PartialEq",
    attr = "cfg_attr(true, serde(default))",
    doc = "A pool of quota from which workloads of many namespaces are admitted, and the policies that govern it.",
    printcolumn = r#"{"name": "Cohort", "type": "string", "jsonPath": ".spec.cohortName", "description": "Cohort the queue shares quota in"}"#,
    printcolumn = r#"{"name": "Strategy", "type": "string", "jsonPath": ".spec.queueingStrategy", "description": "Order in which workloads are tried", "priority": 1}"#,
    printcolumn = r#"{"name": "Pending Workloads", "type": "integer", "jsonPath": ".status.pendingWorkloads", "description": "Number of workloads that wait"}"#,
    printcolumn = r#"{"name": "Admitted Workloads", "type": "integer", "jsonPath": ".status.admittedWorkloads", "description": "Number of admitted workloads that have not finished", "priority": 1}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [borrowing_needs("cohortName")]))]
pub struct ClusterQueueSpec {
    /// Groups of resources with the flavors that offer them: at most 16. A resource or flavor appears in one group only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub resource_groups: Vec<ResourceGroup>,
    /// Cohort in which unused quota is shared. Absent means the queue neither borrows nor lends. The Cohort object is
    /// only needed for a cohort with a parent, quotas or a weight of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::subdomain")]
    pub cohort_name: Option<String>,
    /// Order in which pending workloads are tried. `StrictFIFO`: by priority, then age, and one that does not fit blocks
    /// those behind it. `BestEffortFIFO` (default): the same order, but one that does not fit lets others pass.
    #[serde(default)]
    pub queueing_strategy: QueueingStrategy,
    /// Namespaces whose workloads may use this queue. Absent means none; the empty selector means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::label_selector")]
    pub namespace_selector: Option<LabelSelector>,
    /// Whether the next flavor is tried before borrowing or preempting in the current one.
    #[serde(default)]
    pub flavor_fungibility: FlavorFungibility,
    /// When workloads of this queue, or of its cohort, are preempted for a workload of this queue.
    #[serde(default)]
    pub preemption: ClusterQueuePreemption,
    /// Admission checks that must be Ready before a workload of this queue starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission_checks_strategy: Option<AdmissionChecksStrategy>,
    /// Whether the queue admits workloads. None (default): it admits them. Hold: it admits no more; admitted ones run on.
    /// `HoldAndDrain`: it admits no more, and admitted workloads are evicted.
    #[serde(default)]
    pub stop_policy: StopPolicy,
    /// Weight of this queue in fair sharing within its cohort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
    /// Whether workloads are ordered by the past usage of their `LocalQueue`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission_scope: Option<AdmissionScope>,
    /// Tries several flavors for one workload at the same time and moves it to a better one later. Alpha, needs the
    /// feature gate `ConcurrentAdmission`; immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrent_admission_policy: Option<ConcurrentAdmissionPolicy>,
}

/// What the rule of [`borrowing_needs`] refuses with.
pub(crate) const BORROWING_NEEDS_COHORT: &str = "borrowingLimit must be nil when cohort is empty";

/// The rule that a limit on borrowing needs a cohort, whose name is in `field`.
pub(crate) fn borrowing_needs(field: &str) -> Value {
    json!({
        "rule": format!(
            "has(self.{field}) || !has(self.resourceGroups) || {}",
            "self.resourceGroups.all(g, g.flavors.all(f, f.resources.all(r, !has(r.borrowingLimit))))",
        ),
        "message": BORROWING_NEEDS_COHORT,
    })
}

/// Order in which pending workloads are tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum QueueingStrategy {
    /// By priority, then age; a workload that does not fit blocks those behind it.
    #[serde(rename = "StrictFIFO")]
    StrictFifo,
    /// By priority, then age; a workload that does not fit lets others pass.
    #[default]
    #[serde(rename = "BestEffortFIFO")]
    BestEffortFifo,
}

/// Whether the next flavor is tried before borrowing or preempting in the current one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.preference) || (self.whenCanBorrow == 'TryNextFlavor' && self.whenCanPreempt == 'TryNextFlavor')",
    "message": "preference can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor",
}]))]
pub struct FlavorFungibility {
    /// What to do when the workload fits in the current flavor by borrowing. `MayStopSearch` (default): take it.
    /// `TryNextFlavor`: look at the remaining flavors first.
    #[serde(default = "may_stop_search")]
    pub when_can_borrow: FlavorFungibilityPolicy,
    /// What to do when the workload fits in the current flavor after preemption. `MayStopSearch`: take it. `TryNextFlavor`
    /// (default): look at the remaining flavors first.
    #[serde(default = "try_next_flavor")]
    pub when_can_preempt: FlavorFungibilityPolicy,
    /// Which is better when one flavor needs borrowing and another needs preemption: `BorrowingOverPreemption` (as when
    /// absent) or `PreemptionOverBorrowing`. May only be set when both fields above are `TryNextFlavor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preference: Option<FlavorFungibilityPreference>,
}

impl Default for FlavorFungibility {
    fn default() -> Self {
        Self {
            when_can_borrow: may_stop_search(),
            when_can_preempt: try_next_flavor(),
            preference: None,
        }
    }
}

const fn may_stop_search() -> FlavorFungibilityPolicy {
    FlavorFungibilityPolicy::MayStopSearch
}

const fn try_next_flavor() -> FlavorFungibilityPolicy {
    FlavorFungibilityPolicy::TryNextFlavor
}

/// What to do when a flavor would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FlavorFungibilityPolicy {
    /// Take it and look no further.
    MayStopSearch,
    /// Look at the remaining flavors first.
    TryNextFlavor,
}

/// Which is better when flavors differ in what they need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FlavorFungibilityPreference {
    /// A flavor in which the workload borrows is better than one in which it preempts.
    BorrowingOverPreemption,
    /// A flavor in which the workload preempts is better than one in which it borrows.
    PreemptionOverBorrowing,
}

/// When workloads are preempted for a workload of this queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.reclaimWithinCohort != 'Never' || !has(self.borrowWithinCohort) || self.borrowWithinCohort.policy == 'Never'",
    "message": "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
}]))]
pub struct ClusterQueuePreemption {
    /// Whether a workload that fits in the nominal quota may preempt workloads of other queues that borrow. Never
    /// (default), `LowerPriority`: only those of lower priority, Any: all of them.
    #[serde(default)]
    pub reclaim_within_cohort: ReclaimWithinCohort,
    /// Whether a workload that itself has to borrow may preempt workloads of other queues. Not used with fair sharing.
    #[serde(default)]
    pub borrow_within_cohort: BorrowWithinCohort,
    /// Whether a workload may preempt others of the same queue. Never (default), `LowerPriority`: those of lower priority,
    /// `LowerOrNewerEqualPriority`: those too of equal priority that are newer.
    #[serde(default)]
    pub within_cluster_queue: WithinClusterQueue,
}

/// Preemption of workloads in other queues that borrow, for one within its nominal quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReclaimWithinCohort {
    /// None is preempted.
    #[default]
    Never,
    /// Those of lower priority.
    LowerPriority,
    /// All of them, whatever their priority.
    Any,
}

/// Preemption of workloads in other queues, for one that has to borrow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BorrowWithinCohort {
    /// Never (default), or `LowerPriority`: workloads of lower priority may be preempted.
    #[serde(default)]
    pub policy: BorrowWithinCohortPolicy,
    /// Only workloads with at most this priority may be preempted. Absent means no ceiling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_priority_threshold: Option<i32>,
}

/// Which workloads may be preempted for one that has to borrow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BorrowWithinCohortPolicy {
    /// No workload.
    #[default]
    Never,
    /// Workloads of lower priority.
    LowerPriority,
}

/// Preemption within the same queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WithinClusterQueue {
    /// None is preempted.
    #[default]
    Never,
    /// Workloads of lower priority.
    LowerPriority,
    /// Workloads of lower priority, and newer ones of equal priority.
    LowerOrNewerEqualPriority,
}

/// Admission checks of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionChecksStrategy {
    /// The checks, each with the flavors it applies to: 1 to 64.
    #[schemars(
        length(min = 1, max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub admission_checks: Vec<AdmissionCheckStrategyRule>,
}

/// One admission check of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckStrategyRule {
    /// Name of the `AdmissionCheck`: 1 to 316 characters.
    #[schemars(length(min = 1, max = 316))]
    pub name: String,
    /// Flavors for which the check is needed, each a flavor of this queue: at most 64. Empty means all flavors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "on_flavors")]
    pub on_flavors: Vec<String>,
}

fn on_flavors(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "maxItems": 64,
        "x-kubernetes-list-type": "set",
        "items": crate::schema::subdomain(generator).to_value(),
    })
}

/// How workloads of several `LocalQueues` are ordered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionScope {
    /// `UsageBasedAdmissionFairSharing`: workloads of `LocalQueues` with less past usage go first.
    /// `NoAdmissionFairSharing`: past usage does not count.
    pub admission_mode: AdmissionMode,
}

/// Whether past usage of a `LocalQueue` counts in the order of workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AdmissionMode {
    /// Workloads of `LocalQueues` with less past usage go first.
    UsageBasedAdmissionFairSharing,
    /// Past usage does not count.
    NoAdmissionFairSharing,
}

/// Trying several flavors for one workload at the same time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConcurrentAdmissionPolicy {
    /// When an admitted workload moves to another flavor.
    pub migration: ConcurrentAdmissionMigration,
}

/// When an admitted workload moves to another flavor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConcurrentAdmissionMigration {
    /// `TryPreferredFlavors`: an admitted workload moves to a flavor listed earlier when that becomes free.
    /// `RetainFirstAdmission`: it stays where it was admitted first.
    pub mode: ConcurrentAdmissionMigrationMode,
    /// Limits of the search; only with mode `TryPreferredFlavors`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraints: Option<ConcurrentAdmissionConstraints>,
}

/// Whether an admitted workload moves to a better flavor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConcurrentAdmissionMigrationMode {
    /// It moves when a flavor listed earlier becomes free.
    TryPreferredFlavors,
    /// It stays where it was admitted first.
    RetainFirstAdmission,
}

/// Limits of the search for flavors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConcurrentAdmissionConstraints {
    /// Last flavor of the list that is still good enough; those behind it are not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::subdomain")]
    pub last_acceptable_flavor_name: Option<String>,
}

/// What a cluster queue holds now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterQueueStatus {
    /// State of the queue; type Active says whether it can admit workloads and, if not, why. At most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Quota held by workloads that have it reserved, admitted ones included, by flavor: at most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub flavors_reservation: Vec<FlavorUsage>,
    /// Quota held by admitted workloads, by flavor: at most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub flavors_usage: Vec<FlavorUsage>,
    /// Number of workloads that wait to be admitted.
    #[serde(default)]
    pub pending_workloads: i32,
    /// Number of workloads that hold reserved quota, admitted ones included.
    #[serde(default)]
    pub reserving_workloads: i32,
    /// Number of admitted workloads that have not finished.
    #[serde(default)]
    pub admitted_workloads: i32,
    /// Where the queue stands in fair sharing; present when fair sharing is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharingStatus>,
}

/// Usage of one flavor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FlavorUsage {
    /// Name of the `ResourceFlavor`.
    #[schemars(schema_with = "crate::schema::subdomain")]
    pub name: String,
    /// Usage of each resource: at most 64.
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub resources: Vec<ResourceUsage>,
}

/// Usage of one resource in one flavor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceUsage {
    /// Name of the resource.
    pub name: String,
    /// Amount in use, borrowed amount included.
    #[serde(default)]
    #[schemars(schema_with = "crate::schema::quantity")]
    pub total: Quantity,
    /// Part of the total that is above the nominal quota and taken from the cohort.
    #[serde(default)]
    #[schemars(schema_with = "crate::schema::quantity")]
    pub borrowed: Quantity,
}
