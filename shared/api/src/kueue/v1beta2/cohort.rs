//! `Cohort`: a node of the tree in which quota is shared.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{FairSharing, FairSharingStatus, ResourceGroup};

/// Place and quotas of a cohort.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "Cohort",
    status = "CohortStatus",
    shortname = "co",
    derive = "Default",
    derive = "PartialEq",
    attr = "cfg_attr(true, serde(default))",
    doc = "A group of cluster queues and other cohorts that share unused quota. A cohort that is only named by a queue needs no object."
)]
#[serde(rename_all = "camelCase")]
pub struct CohortSpec {
    /// Cohort above this one. Absent means this is a root. A cycle stops admission in all its queues until it is broken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::subdomain")]
    pub parent_name: Option<String>,
    /// Quota that belongs to the cohort itself, usable by all below it: at most 16 groups. Limits need a parent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub resource_groups: Vec<ResourceGroup>,
    /// Weight of this cohort in fair sharing within its parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
}

/// State of a cohort.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CohortStatus {
    /// Where the cohort stands in fair sharing; present when fair sharing is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharingStatus>,
}
