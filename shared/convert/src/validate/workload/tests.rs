use roadstead_api::config::FeatureGates;
use serde_json::{Value, json};

use super::super::tests::{compare, gates};
use super::*;

fn parsed(patch: &Value) -> api::Workload {
    let mut base = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": { "name": "w", "namespace": "ns" },
        "spec": { "podSets": [{ "name": "main", "count": 5, "template": { "spec": { "containers": [
            { "resources": { "requests": { "cpu": "1" } } } ] } } }] },
        "status": {},
    });
    json_patch::merge(&mut base, patch);
    serde_json::from_value(base).unwrap()
}

fn check_with(gates: &FeatureGates, new: &Value, expect: &[&str]) {
    compare(&workload(None, &parsed(new), gates), expect, new);
}

fn check(new: &Value, expect: &[&str]) {
    check_with(&FeatureGates::default(), new, expect);
}

fn check_change_with(gates: &FeatureGates, old: &Value, new: &Value, expect: &[&str]) {
    compare(&workload(Some(&parsed(old)), &parsed(new), gates), expect, new);
}

fn check_change(old: &Value, new: &Value, expect: &[&str]) {
    check_change_with(&FeatureGates::default(), old, new, expect);
}

fn with_set(fields: &Value) -> Value {
    let mut set = json!({"name": "main", "count": 5, "template": {}});
    json_patch::merge(&mut set, fields);
    json!({"spec": {"podSets": [set]}})
}

fn reserved() -> Value {
    json!({
        "conditions": [{ "type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z" }],
        "admission": { "clusterQueue": "q", "podSetAssignments": [
            { "name": "main", "count": 5, "flavors": { "cpu": "f" }, "resourceUsage": { "cpu": "5" } }] },
        "nominatedClusterNames": ["w1", "w2"],
    })
}

fn ready_check(updates: &Value) -> Value {
    json!([{ "name": "c", "state": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
        "podSetUpdates": updates }])
}

/// Spec: api API-9.5.1.
#[test]
fn labels_and_annotations_of_templates_are_well_formed() {
    let metadata = |metadata: Value| with_set(&json!({"template": {"metadata": metadata}}));
    check(
        &metadata(json!({"labels": {"a": "b"}, "annotations": {"X.io/Y": "any text"}})),
        &[],
    );
    let wrong = metadata(json!({"labels": {"a b": "c", "d": "e f", "g": 1}, "annotations": {"h i": "x"}}));
    check(
        &wrong,
        &[
            "template.metadata.labels[g]: Invalid value: \"1\": must be a text",
            "spec.podSets[0].template.metadata.labels: Invalid value: \"a b\"",
            "labels[d]: Invalid value: \"e f\"",
            "annotations: Invalid value: \"h i\"",
        ],
    );
    check_with(&gates("WorkloadValidationForPodSetMetadata", false), &wrong, &[]);
}

/// Spec: api API-9.5.2; admission-engine B015.
#[test]
fn requests_are_not_negative_and_do_not_name_pods() {
    let pod = |spec: Value| with_set(&json!({"template": {"spec": spec}}));
    for place in ["containers", "initContainers"] {
        let with = |resources: Value| pod(json!({place: [{"resources": resources}]}));
        check(
            &with(json!({"requests": {"cpu": "1"}, "limits": {"memory": 5}})),
            &[],
        );
        check(
            &with(json!({"requests": {"pods": "1"}})),
            &[
                "resources.requests[pods]: Invalid value: \"pods\": the key is reserved for internal kueue use",
            ],
        );
        let negative = with(json!({"limits": {"cpu": "-1"}, "requests": {"memory": -5}}));
        check(
            &negative,
            &[
                "must be greater than or equal to 0",
                "limits[cpu]: Invalid value: \"-1\"",
            ],
        );
        check_with(
            &gates("WorkloadValidateResourcesAreNonNegative", false),
            &negative,
            &[],
        );
    }
    check(
        &pod(json!({"resources": {"requests": {"pods": "1"}}})),
        &["spec.podSets[0].template.spec.resources.requests[pods]"],
    );
    check(
        &pod(json!({"containers": [{"resources": {"requests": {"cpu": "much"}}}]})),
        &["not a quantity"],
    );
}

/// Spec: api API-9.5.3.
#[test]
fn a_slice_has_a_size_and_a_topology() {
    let request = |request: Value| with_set(&json!({"topologyRequest": request}));
    let (topology, size) = ("podSetSliceRequiredTopology", "podSetSliceSize");
    check(&request(json!({topology: "rack", size: 2})), &[]);
    let lone = request(json!({topology: "rack"}));
    check(
        &lone,
        &["spec.podSets[0].topologyRequest.podSetSliceSize: Required value"],
    );
    check(&request(json!({size: 2})), &["podSetSliceSize: Forbidden"]);
    check_with(&gates("TASValidateWorkloadSliceSize", false), &lone, &[]);
}

/// Spec: api API-9.5.4; admission-engine B014.
#[test]
fn one_pod_set_at_most_may_start_with_fewer_pods() {
    let set = |name: &str| json!({"name": name, "count": 4, "minCount": 2, "template": {}});
    let elastic = json!({"annotations": {"kueue.x-k8s.io/elastic-job": "true"}});
    check(&json!({"spec": {"podSets": [set("a")]}}), &[]);
    check(
        &json!({"spec": {"podSets": [set("a"), set("b")]}}),
        &["spec.podSets: Invalid value: \"2\": at most one podSet can use minCount"],
    );
    let both = json!({"metadata": elastic, "spec": {"podSets": [set("a")]}});
    check(
        &both,
        &["spec.podSets[0].minCount: Forbidden: partial admission and elastic job cannot be used together"],
    );
    check_with(&gates("ElasticJobsViaWorkloadSlices", false), &both, &[]);
}

/// Spec: api API-9.5.5.
#[test]
fn reserved_quota_is_explained_by_an_admission() {
    let mut status = reserved();
    status["admission"] = Value::Null;
    let bare = json!({ "status": status });
    check(
        &bare,
        &["status.admission: Required value: must be set while the QuotaReserved condition is true"],
    );
    check_change(&bare, &bare, &[]);
    check(&json!({"status": reserved()}), &[]);
}

/// Spec: api API-9.5.6, 9.5.7; admission-engine B016, B019.
#[test]
fn an_admission_fits_the_pod_sets() {
    let with = |field: &str, value: Value| {
        let mut status = reserved();
        status[field] = value;
        json!({ "status": status })
    };
    let gpus = |count: i32, amount: &str| {
        let set = json!({"name": "main", "count": count, "resourceUsage": {"nvidia.com/gpu": amount, "cpu": "2001m"}});
        with("admission", json!({"podSetAssignments": [set]}))
    };
    check(
        &gpus(2, "5"),
        &[
            "resourceUsage[cpu]: Invalid value: \"2001m\": is not a multiple of 2",
            "status.admission.podSetAssignments[0].resourceUsage[nvidia.com/gpu]: Invalid value: \"5\": is not a multiple of 2",
        ],
    );
    check(&gpus(3, "6"), &[]);
    check(&gpus(0, "5"), &[]);
    check(
        &with(
            "admission",
            json!({"podSetAssignments": [{"name": "other", "count": 1}]}),
        ),
        &["podSetAssignments[0].name: Not found: \"other\""],
    );
    check(
        &with("reclaimablePods", json!([{"name": "main", "count": 5}])),
        &[],
    );
    check(
        &with(
            "reclaimablePods",
            json!([{"name": "main", "count": 6}, {"name": "x", "count": 1}]),
        ),
        &[
            "status.reclaimablePods[0].count: Invalid value: \"6\": should be less or equal to 5",
            "status.reclaimablePods[1].name: Not found: \"x\"",
        ],
    );
}

/// Spec: api API-9.5.8.
#[test]
fn what_a_check_writes_into_pods_is_well_formed() {
    let with = |update: Value| json!({"status": {"admissionChecks": ready_check(&json!([update]))}});
    let fine = json!({"name": "main", "labels": {"a": "b"}, "annotations": {"X/y": "any text"},
        "nodeSelector": {"c": "d"}, "tolerations": [{"operator": "Exists"}]});
    check(&with(fine), &[]);
    let wrong = json!({"name": "y", "labels": {"a b": "c"}, "annotations": {"d e": ""}, "nodeSelector": {"f": "g h"},
        "tolerations": [{"operator": "Like", "key": "k"}]});
    check(
        &with(wrong),
        &[
            "status.admissionChecks[0].podSetUpdates[0].name: Not found: \"y\"",
            "podSetUpdates[0].labels: Invalid value: \"a b\"",
            "podSetUpdates[0].annotations: Invalid value: \"d e\"",
            "podSetUpdates[0].nodeSelector[f]: Invalid value: \"g h\"",
            "podSetUpdates[0].tolerations[0].operator: Unsupported value: \"Like\"",
        ],
    );
}

/// Spec: api API-9.5.9, 9.5.10; admission-engine B026.
#[test]
fn gates_are_domain_prefixed_unique_and_can_only_be_removed() {
    let gated =
        |by: &str| json!({ "metadata": { "annotations": { "kueue.x-k8s.io/admission-gated-by": by } } });
    check(&gated("x.io/a,x.io/b"), &[]);
    check(
        &gated("a,,x/y,x/y"),
        &[
            "Invalid value: \"a\": must be a domain-prefixed",
            "must not be empty",
            "Duplicate value: \"x/y\"",
        ],
    );
    check(&gated("x.io/a,x.io/a"), &["Duplicate value: \"x.io/a\""]);
    check_change(&gated("x/a,x/b"), &gated("x/b"), &[]);
    check_change(&gated("x/a,x/b"), &json!({}), &[]);
    check_change(
        &gated("x.io/a"),
        &gated("x.io/a,x.io/b"),
        &["can only remove gates, not add new ones"],
    );
    check_change(
        &json!({}),
        &gated("x.io/a"),
        &["cannot add admission gate after creation"],
    );
    check_with(&gates("AdmissionGatedBy", false), &gated(",,"), &[]);
}

/// Spec: api API-9.5.9.
#[test]
fn a_boost_is_a_number_where_boosts_are_on() {
    let boosted =
        |by: &str| json!({ "metadata": { "annotations": { "kueue.x-k8s.io/priority-boost": by } } });
    let on = gates("PriorityBoost", true);
    check_with(&on, &boosted("-5"), &[]);
    check_with(
        &on,
        &boosted("lots"),
        &["priority-boost]: Invalid value: \"lots\": must be a 32-bit integer"],
    );
    check(&boosted("lots"), &[]);
}

/// Spec: api API-9.5.10; multikueue 1.6, 11.56; admission-engine B018, B021.
#[test]
fn what_is_reserved_stays_as_it_is() {
    let old = json!({ "status": reserved() });
    let mut new = with_set(&json!({"template": {"spec": {"containers": [{"image": "other"}]}}}));
    check_change(&json!({}), &new, &[]);
    new["status"] = reserved();
    check_change(&old, &new, &["spec.podSets: Invalid value: field is immutable"]);
    let mut new = old.clone();
    new["status"]["admission"]["clusterQueue"] = json!("other");
    check_change(
        &old,
        &new,
        &["status.admission: Invalid value: field is immutable"],
    );
    let mut new = old.clone();
    new["status"]["admission"]["podSetAssignments"][0]["delayedTopologyRequest"] = json!("Pending");
    check_change(&old, &new, &[]);
    let mut new = old.clone();
    new["status"]["admission"] = Value::Null;
    new["status"]["conditions"] = json!([]);
    check_change(&old, &new, &[]);
    let mut new = old.clone();
    new["status"]["nominatedClusterNames"] = Value::Null;
    new["status"]["clusterName"] = json!("w1");
    check_change(&old, &new, &[]);
    new["status"]["clusterName"] = json!("w3");
    check_change(
        &old,
        &new,
        &["Invalid value: \"w3\": when setting clusterName it must be one of the nominatedClusterNames"],
    );
}

/// Spec: api API-9.5.10.
#[test]
fn an_elastic_workload_may_shrink() {
    let sized = |count: i32| {
        let mut workload = with_set(&json!({"count": count}));
        workload["metadata"] = json!({"annotations": {"kueue.x-k8s.io/elastic-job": "true"}});
        workload["status"] = reserved();
        workload
    };
    check_change(&sized(5), &sized(3), &[]);
    check_change(
        &sized(5),
        &sized(6),
        &["spec.podSets: Invalid value: field is immutable"],
    );
    let off = gates("ElasticJobsViaWorkloadSlices", false);
    check_change_with(&off, &sized(5), &sized(3), &["field is immutable"]);
}

/// Spec: api API-9.5.10; admission-engine B019.
#[test]
fn reclaimed_pods_only_grow_while_quota_is_reserved() {
    let with = |pods: Value| {
        let mut status = reserved();
        status["reclaimablePods"] = pods;
        json!({ "status": status })
    };
    let three = with(json!([{"name": "main", "count": 3}]));
    check_change(&three, &with(json!([{"name": "main", "count": 4}])), &[]);
    check_change(
        &three,
        &with(json!([{"name": "main", "count": 2}])),
        &["status.reclaimablePods[main].count: Invalid value: \"2\": cannot be less than 3"],
    );
    check_change(
        &three,
        &with(json!([])),
        &["status.reclaimablePods[main]: Required value: cannot be removed"],
    );
    let mut pending = three.clone();
    pending["status"]["conditions"] = json!([]);
    pending["status"]["reclaimablePods"] = json!([]);
    check_change(&three, &pending, &[]);
}

/// Spec: api API-9.5.10.
#[test]
fn what_a_ready_check_writes_is_fixed() {
    let with = |state: &str, label: &str| {
        let mut checks = ready_check(&json!([{"name": "main", "labels": {"a": label}}]));
        checks[0]["state"] = json!(state);
        json!({"status": {"admissionChecks": checks}})
    };
    check_change(&with("Ready", "x"), &with("Ready", "x"), &[]);
    check_change(
        &with("Ready", "x"),
        &with("Ready", "y"),
        &["status.admissionChecks[0].podSetUpdates: Invalid value: field is immutable"],
    );
    check_change(&with("Pending", "x"), &with("Ready", "y"), &[]);
    check_change(&with("Ready", "x"), &with("Retry", "y"), &[]);
}
