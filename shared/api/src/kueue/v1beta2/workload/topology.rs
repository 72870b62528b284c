//! The columnar form in which a pod set's place in a topology is stored.
//!
//! Invariant: the slices, read in order, give the domains in order, and the order says which pod goes where
//! (`spec/api.md` API-9.3).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Domains of the topology that the pods of a set go to, in the order of the pods' ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.slices.all(s, size(s.valuesPerLevel) == size(self.levels))",
    "message": "slices must have the same number of valuesPerLevel as levels",
}]))]
pub struct TopologyAssignment {
    /// Node labels of the levels that name a domain, from the widest to the narrowest: 1 to 16. Only
    /// kubernetes.io/hostname when that is the lowest level.
    #[schemars(
        length(min = 1, max = 16),
        inner(length(max = 317)),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    pub levels: Vec<String>,
    /// The domains in order, cut into pieces that are written column by column: at most 1000.
    #[schemars(length(max = 1000), extend("x-kubernetes-list-type" = "atomic"))]
    pub slices: Vec<TopologyAssignmentSlice>,
}

/// A run of domains.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.valuesPerLevel.all(v, !has(v.individual) || size(v.individual.roots) == self.domainCount)",
        "message": "roots must have as many entries as domainCount",
    },
    {
        "rule": "!has(self.podCounts.individual) || size(self.podCounts.individual) == self.domainCount",
        "message": "podCounts.individual must have as many entries as domainCount",
    },
]))]
pub struct TopologyAssignmentSlice {
    /// Number of domains in this slice: at least 1.
    #[schemars(range(min = 1))]
    pub domain_count: i32,
    /// For each level, the value of its node label in every domain: 1 to 16, as many as there are levels.
    #[schemars(length(min = 1, max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub values_per_level: Vec<SliceValues>,
    /// Number of pods in each domain.
    pub pod_counts: SlicePodCounts,
}

/// The values of one level in the domains of a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.universal) != has(self.individual)",
    "message": "exactly one of the fields in [universal individual] must be set",
}]))]
pub struct SliceValues {
    /// The value that all domains share: at most 63 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub universal: Option<String>,
    /// A value for each domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub individual: Option<SliceRoots>,
}

/// A value for each domain: prefix, root, suffix.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SliceRoots {
    /// Beginning that all values share: at most 63 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub prefix: Option<String>,
    /// End that all values share: at most 63 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub suffix: Option<String>,
    /// What stands between prefix and suffix in each domain, in order: 1 to 100000, each at most 63 characters.
    #[schemars(
        length(min = 1, max = 100_000),
        inner(length(max = 63)),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    pub roots: Vec<String>,
}

/// Number of pods in the domains of a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.universal) != has(self.individual)",
    "message": "exactly one of the fields in [universal individual] must be set",
}]))]
pub struct SlicePodCounts {
    /// The number that all domains share: at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub universal: Option<i32>,
    /// A number for each domain, in order: 1 to 100000 numbers, each at least 1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(min = 1, max = 100_000),
        inner(range(min = 1)),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    pub individual: Vec<i32>,
}
