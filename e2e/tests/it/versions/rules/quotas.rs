//! ClusterQueue, LocalQueue, Cohort, ResourceFlavor.

use serde_json::{Value, json};

use super::super::fixture::{ALPHA, HUB, OLD};
use super::{
    AT_LEAST_ONE, Case, IMMUTABLE, NOT_EMPTY, PATTERN, REQUIRED, UNIQUE, change, in_versions, long, many,
    merged, no, no_change, ok, tolerations,
};

const QUEUE: &str = "ClusterQueue";
const COHORT: &str = "Cohort";
const LOCAL: &str = "LocalQueue";
const FLAVOR: &str = "ResourceFlavor";
const NEEDS_COHORT: &str = "borrowingLimit must be nil when cohort is empty";

fn quota(name: &str, more: Value) -> Value {
    merged(json!({"name": name, "nominalQuota": 9}), more)
}

/// A group of one resource with this flavor.
fn group_of(flavor: Value) -> Value {
    json!({"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}]})
}

fn group(more: Value) -> Value {
    group_of(json!({"name": "f", "resources": [quota("cpu", more)]}))
}

/// Spec: api API-2.2: of whatever has resource groups.
fn groups(kind: &'static str) -> Vec<Case> {
    let resources = |count: usize| many(count, |n| json!(format!("r{n}")));
    let quotas = |count: usize| many(count, |n| quota(&format!("r{n}"), json!({})));
    let wide = |covered: usize, listed: usize| {
        json!({"resourceGroups": [{
            "coveredResources": resources(covered), "flavors": [{"name": "f", "resources": quotas(listed)}],
        }]})
    };
    let flavors = |count: usize| {
        let flavors = many(
            count,
            |n| json!({"name": format!("f{n}"), "resources": [quota("cpu", json!({}))]}),
        );
        json!({"resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}]})
    };
    let several = |count: usize| {
        json!({"resourceGroups": many(count, |n| {
            json!({"coveredResources": ["cpu"], "flavors": [{"name": format!("f{n}"), "resources": [quota("cpu", json!({}))]}]})
        })})
    };
    let twice = quota("cpu", json!({}));
    vec![
        ok(kind, group(json!({}))),
        ok(kind, several(16)),
        no(kind, several(17), "at most 16 items"),
        ok(kind, wide(64, 64)),
        no(kind, wide(65, 64), "at most 64 items"),
        no(kind, wide(0, 1), AT_LEAST_ONE),
        no(
            kind,
            wide(2, 1),
            "flavors must have the same number of resources as the coveredResources",
        ),
        no(kind, wide(1, 0), AT_LEAST_ONE),
        ok(kind, flavors(64)),
        no(kind, flavors(65), "at most 64 items"),
        no(kind, flavors(0), AT_LEAST_ONE),
        no(kind, json!({"resourceGroups": [{"flavors": []}]}), REQUIRED),
        no(
            kind,
            json!({"resourceGroups": [{"coveredResources": ["cpu"]}]}),
            REQUIRED,
        ),
        no(
            kind,
            group_of(json!({"name": "f", "resources": [twice, twice]})),
            UNIQUE,
        ),
        no(
            kind,
            group_of(json!({"name": "Bad_Name", "resources": [twice]})),
            PATTERN,
        ),
        no(kind, group_of(json!({"resources": [twice]})), REQUIRED),
        no(
            kind,
            group_of(json!({"name": "f", "resources": [{"name": "cpu"}]})),
            REQUIRED,
        ),
        no(kind, group(json!({"nominalQuota": "many"})), PATTERN),
        ok(kind, group(json!({"nominalQuota": "1.5Ti"}))),
        ok(kind, json!({"fairSharing": {"weight": "0.5"}})),
        ok(kind, json!({"fairSharing": {"weight": 0}})),
        no(kind, json!({"fairSharing": {"weight": "heavy"}}), PATTERN),
    ]
}

fn queues() -> Vec<Case> {
    let fungibility = |borrow: &str, preempt: &str| {
        json!({"flavorFungibility": {
            "whenCanBorrow": borrow, "whenCanPreempt": preempt, "preference": "PreemptionOverBorrowing",
        }})
    };
    let preemption = |value: Value| json!({"preemption": value});
    let preference =
        "preference can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor";
    let reclaim = "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never";
    vec![
        ok(QUEUE, json!({})),
        ok(QUEUE, json!({"namespaceSelector": null})),
        ok(QUEUE, json!({"namespaceSelector": {"matchLabels": {"a": "b"}}})),
        ok(QUEUE, json!({"queueingStrategy": "StrictFIFO"})),
        no(
            QUEUE,
            json!({"queueingStrategy": "Fifo"}),
            r#"supported values: "StrictFIFO", "BestEffortFIFO""#,
        ),
        change(
            QUEUE,
            json!({"queueingStrategy": "StrictFIFO"}),
            json!({"queueingStrategy": "BestEffortFIFO"}),
        ),
        ok(QUEUE, fungibility("TryNextFlavor", "TryNextFlavor")),
        no(QUEUE, fungibility("MayStopSearch", "TryNextFlavor"), preference),
        no(QUEUE, fungibility("TryNextFlavor", "MayStopSearch"), preference),
        no(
            QUEUE,
            json!({"flavorFungibility": {"preference": "None"}}),
            r#"supported values: "BorrowingOverPreemption", "PreemptionOverBorrowing""#,
        ),
        no(
            QUEUE,
            json!({"flavorFungibility": {"whenCanBorrow": "Stop"}}),
            r#"supported values: "MayStopSearch", "TryNextFlavor""#,
        ),
        no(
            QUEUE,
            json!({"flavorFungibility": {"whenCanPreempt": "Stop"}}),
            r#"supported values: "MayStopSearch", "TryNextFlavor""#,
        ),
        ok(
            QUEUE,
            preemption(
                json!({"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 5}}),
            ),
        ),
        no(
            QUEUE,
            preemption(json!({"borrowWithinCohort": {"policy": "LowerPriority"}})),
            reclaim,
        ),
        no(
            QUEUE,
            preemption(json!({"reclaimWithinCohort": "All"})),
            r#"supported values: "Never", "LowerPriority", "Any""#,
        ),
        no(
            QUEUE,
            preemption(json!({"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "Any"}})),
            r#"supported values: "Never", "LowerPriority""#,
        ),
        ok(
            QUEUE,
            preemption(json!({"withinClusterQueue": "LowerOrNewerEqualPriority"})),
        ),
        no(
            QUEUE,
            preemption(json!({"withinClusterQueue": "Any"})),
            r#"supported values: "Never", "LowerPriority", "LowerOrNewerEqualPriority""#,
        ),
        ok(QUEUE, json!({"stopPolicy": "HoldAndDrain"})),
        no(
            QUEUE,
            json!({"stopPolicy": "Stop"}),
            r#"supported values: "None", "Hold", "HoldAndDrain""#,
        ),
        ok(
            QUEUE,
            json!({"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}),
        ),
        no(QUEUE, json!({"admissionScope": {}}), REQUIRED),
        no(QUEUE, group(json!({"borrowingLimit": 1})), NEEDS_COHORT),
        // The webhook refuses it: the schema speaks of the other limit only.
        ok(QUEUE, group(json!({"lendingLimit": 1}))),
    ]
}

/// Spec: api API-2; admission-engine B005, B009, B010.
#[test]
fn a_cluster_queue_follows_the_rules_of_both_versions() {
    in_versions(&[HUB, OLD], queues);
    in_versions(&[HUB, OLD], || groups(QUEUE));
}

/// Spec: api API-2.1, without the column "v1beta1".
#[test]
fn a_cluster_queue_follows_the_rules_of_v1beta2() {
    let checks = |list: Value| json!({"admissionChecksStrategy": {"admissionChecks": list}});
    let on = |flavors: Value| checks(json!([{"name": "a", "onFlavors": flavors}]));
    let policy = |policy: Value| json!({"concurrentAdmissionPolicy": policy});
    in_versions(&[HUB], || {
        vec![
            ok(
                QUEUE,
                merged(
                    json!({"cohortName": "c"}),
                    group(json!({"borrowingLimit": "2Gi", "lendingLimit": 0})),
                ),
            ),
            no(QUEUE, json!({"cohortName": "Bad_Name"}), PATTERN),
            no(QUEUE, json!({"cohortName": long(254)}), "253"),
            no(QUEUE, json!({"cohort": "c"}), r#"unknown field "spec.cohort""#),
            no(
                QUEUE,
                json!({"admissionChecks": ["c"]}),
                r#"unknown field "spec.admissionChecks""#,
            ),
            ok(QUEUE, checks(many(64, |n| json!({"name": format!("c{n}")})))),
            no(
                QUEUE,
                checks(many(65, |n| json!({"name": format!("c{n}")}))),
                "at most 64 items",
            ),
            no(QUEUE, checks(json!([])), AT_LEAST_ONE),
            no(QUEUE, json!({"admissionChecksStrategy": {}}), REQUIRED),
            no(QUEUE, checks(json!([{"name": "a"}, {"name": "a"}])), UNIQUE),
            no(QUEUE, checks(json!([{"name": ""}])), NOT_EMPTY),
            no(QUEUE, checks(json!([{"name": long(317)}])), "316"),
            ok(QUEUE, on(json!(["f", "g"]))),
            no(QUEUE, on(json!(["f", "f"])), UNIQUE),
            no(QUEUE, on(json!(["F"])), PATTERN),
            no(
                QUEUE,
                on(many(65, |n| json!(format!("f{n}")))),
                "at most 64 items",
            ),
            no(
                QUEUE,
                json!({"admissionScope": {"admissionMode": "Fair"}}),
                r#"supported values: "UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing""#,
            ),
            no(
                QUEUE,
                json!({"flavorFungibility": {"whenCanBorrow": "Borrow"}}),
                "supported values",
            ),
            no(
                QUEUE,
                json!({"flavorFungibility": {"whenCanPreempt": "Preempt"}}),
                "supported values",
            ),
            ok(
                QUEUE,
                policy(
                    json!({"migration": {"mode": "TryPreferredFlavors", "constraints": {"lastAcceptableFlavorName": "f"}}}),
                ),
            ),
            ok(
                QUEUE,
                policy(json!({"migration": {"mode": "RetainFirstAdmission"}})),
            ),
            no(
                QUEUE,
                policy(json!({"migration": {"mode": "Retain"}})),
                r#"supported values: "TryPreferredFlavors", "RetainFirstAdmission""#,
            ),
            no(QUEUE, policy(json!({"migration": {}})), REQUIRED),
            no(QUEUE, policy(json!({})), REQUIRED),
            no(
                QUEUE,
                policy(
                    json!({"migration": {"mode": "TryPreferredFlavors", "constraints": {"lastAcceptableFlavorName": "F"}}}),
                ),
                PATTERN,
            ),
        ]
    });
}

/// Spec: api API-2.1, column "v1beta1".
#[test]
fn a_cluster_queue_follows_the_rules_of_v1beta1() {
    let checks = |list: Value| json!({"admissionChecksStrategy": {"admissionChecks": list}});
    in_versions(&[OLD], || {
        vec![
            ok(
                QUEUE,
                merged(json!({"cohort": "c"}), group(json!({"borrowingLimit": 1}))),
            ),
            no(QUEUE, json!({"cohort": "Bad_Name"}), PATTERN),
            no(
                QUEUE,
                json!({"cohortName": "c"}),
                r#"unknown field "spec.cohortName""#,
            ),
            ok(
                QUEUE,
                json!({"flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}}),
            ),
            no(
                QUEUE,
                json!({"flavorFungibility": {"whenCanBorrow": "Preempt"}}),
                r#"supported values: "MayStopSearch", "TryNextFlavor", "Borrow""#,
            ),
            no(
                QUEUE,
                json!({"flavorFungibility": {"whenCanPreempt": "Borrow"}}),
                r#"supported values: "MayStopSearch", "TryNextFlavor", "Preempt""#,
            ),
            ok(QUEUE, json!({"admissionChecks": ["a", "a", long(316)]})),
            no(QUEUE, json!({"admissionChecks": [long(317)]}), "316"),
            ok(QUEUE, json!({"admissionChecksStrategy": {}})),
            ok(QUEUE, checks(json!([]))),
            ok(
                QUEUE,
                checks(many(
                    65,
                    |n| json!({"name": format!("c{n}"), "onFlavors": ["f", "f"]}),
                )),
            ),
            ok(QUEUE, checks(json!([{"name": ""}]))),
            no(QUEUE, checks(json!([{"name": long(317)}])), "316"),
            no(QUEUE, checks(json!([{}])), REQUIRED),
            ok(QUEUE, json!({"admissionScope": {"admissionMode": "Anything"}})),
            no(QUEUE, json!({"concurrentAdmissionPolicy": {}}), "unknown field"),
        ]
    });
}

/// Spec: api API-3; admission-engine B012.
#[test]
fn a_local_queue_follows_its_rules() {
    in_versions(&[HUB, OLD], || {
        let to = |queue: &str| json!({"clusterQueue": queue});
        vec![
            ok(LOCAL, merged(to("a"), json!({"fairSharing": {"weight": 2}}))),
            no(LOCAL, to("Bad_Name"), PATTERN),
            no_change(LOCAL, to("a"), to("b"), IMMUTABLE),
            change(LOCAL, to("a"), merged(to("a"), json!({"stopPolicy": "Hold"}))),
            no(
                LOCAL,
                merged(to("a"), json!({"stopPolicy": "Stop"})),
                r#"supported values: "None", "Hold", "HoldAndDrain""#,
            ),
            no(
                LOCAL,
                merged(to("a"), json!({"fairSharing": {"weight": "x"}})),
                PATTERN,
            ),
        ]
    });
}

/// Spec: api API-4, API-1.
#[test]
fn a_cohort_follows_its_rules_and_names_its_parent_by_version() {
    in_versions(&[HUB, OLD, ALPHA], || groups(COHORT));
    in_versions(&[HUB, OLD], || {
        vec![
            ok(
                COHORT,
                merged(
                    json!({"parentName": "p"}),
                    group(json!({"borrowingLimit": 1, "lendingLimit": 99})),
                ),
            ),
            no(COHORT, json!({"parentName": "Bad_Name"}), PATTERN),
            no(COHORT, json!({"parent": "p"}), r#"unknown field "spec.parent""#),
        ]
    });
    in_versions(&[ALPHA], || {
        vec![
            ok(COHORT, json!({"parent": "p"})),
            no(COHORT, json!({"parent": "Bad_Name"}), PATTERN),
            no(
                COHORT,
                json!({"parentName": "p"}),
                r#"unknown field "spec.parentName""#,
            ),
        ]
    });
}

/// Spec: api API-5; admission-engine B023.
#[test]
fn a_flavor_follows_its_rules() {
    let labels = |count: usize| -> Value {
        let labels = (0..count).map(|n| (format!("l{n}"), json!("v")));
        json!({"nodeLabels": labels.collect::<serde_json::Map<_, _>>()})
    };
    let taints = |taints: Value| json!({"nodeTaints": taints});
    let taint = |effect: &str| json!({"key": "a", "effect": effect});
    let placed = |topology: &str| merged(labels(1), json!({"topologyName": topology}));
    let fixed = "topologyName is immutable when topologyName is set";
    in_versions(&[HUB, OLD], || {
        let mut cases = tolerations(|list| ok(FLAVOR, json!({"tolerations": list})));
        cases.extend([
            ok(FLAVOR, json!({})),
            ok(FLAVOR, labels(8)),
            no(FLAVOR, labels(9), "at most 8 items"),
            ok(FLAVOR, taints(many(8, |_| taint("NoSchedule")))),
            no(
                FLAVOR,
                taints(many(9, |_| taint("NoSchedule"))),
                "at most 8 items",
            ),
            ok(
                FLAVOR,
                taints(json!([taint("PreferNoSchedule"), taint("NoExecute")])),
            ),
            no(
                FLAVOR,
                taints(json!([taint("Nope")])),
                "supported taint effect values",
            ),
            no(FLAVOR, taints(json!([{"effect": "NoSchedule"}])), REQUIRED),
            no(FLAVOR, taints(json!([{"key": "a"}])), REQUIRED),
            ok(FLAVOR, placed("t")),
            no(
                FLAVOR,
                json!({"topologyName": "t"}),
                "at least one nodeLabel is required when topology is set",
            ),
            no(FLAVOR, placed("T"), PATTERN),
            change(FLAVOR, labels(1), placed("t")),
            no_change(FLAVOR, placed("t"), placed("u"), fixed),
            no_change(FLAVOR, placed("t"), labels(1), fixed),
        ]);
        cases
    });
}
